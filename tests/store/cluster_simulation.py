"""A cluster in real time for tests that kill daemons: a server, and a worst-case adapter.

The adapter delivers at least once: it repeats unacknowledged events, and sometimes acknowledged ones. It
keeps its own journal of seen decisions, like the real one.
"""

import json
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from pydantic import TypeAdapter

from schedd.wire import Decision, Event, JobFacts, NodeFacts, Run, RunAccepted
from tests.engine.server import Server
from tests.store.daemon_processes import DaemonProcess, RequestSender, UnavailableError

_DECISION: TypeAdapter[Any] = TypeAdapter(Decision)
_REQUESTS = ("1:ppn=1", "1:ppn=2", "1:ppn=4", "2:ppn=2", "3:ppn=1", "1:ppn=64")
_MOST_JOBS = 24


@dataclass
class ClusterSimulation:
    """A server and its adapter, with all they have seen. ``skew``: seconds added to the server's clock."""

    random: Random
    server: Server = field(init=False)
    outbox: deque[Event] = field(default_factory=deque)
    acknowledged: dict[str, Event] = field(default_factory=dict)
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    accepted: Counter[str] = field(default_factory=Counter)
    requeued: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    place: str = ""
    term: int = 0
    first_term: int = 0
    numbers: int = 0
    skew: int = 0
    cluster: str = "main"

    @property
    def base(self) -> str:
        return f"/v1/clusters/{self.cluster}"

    def __post_init__(self) -> None:
        self.server = Server(int(time.time()))
        for number in range(6):
            facts = NodeFacts(name=f"n{number}", cpus=4, mem=8 << 20)
            self.outbox += self.server.change_node(facts)

    def set_clock(self, skew: int) -> None:
        """Set the server's clock, too. Running jobs keep their real run times."""
        by, self.skew = skew - self.skew, skew
        self.server.now = int(time.time()) + skew
        for job in self.server.jobs.values():
            if job.started is not None:
                self.server.runtime[job.id] += by

    # ---- what happens on the server -------------------------------------------------------------

    def advance_server(self) -> None:
        """Advance the server's clock and apply a random event."""
        server, random = self.server, self.random
        server.now = max(server.now, int(time.time()) + self.skew)
        self.outbox += server.ends()
        waiting = [job for job in server.jobs.values() if job.state == "Q"]
        running = [job for job in server.jobs.values() if job.state == "R"]
        held = [job for job in server.jobs.values() if job.state == "H"]
        what = random.random()
        if what < 0.35 and len(waiting) < _MOST_JOBS:
            for _ in range(random.randint(1, 4)):
                self.outbox += self._submit()
        elif what < 0.40 and waiting:
            self.outbox += server.delete(random.choice(waiting).id)
        elif what < 0.44 and waiting:
            self.outbox += server.hold(random.choice(waiting).id)
        elif what < 0.50 and held:
            self.outbox += server.release(random.choice(held).id)
        elif what < 0.54 and waiting:
            self.outbox += server.alter(random.choice(waiting).id, priority=random.randint(0, 9))
        elif what < 0.56 and running:
            job = random.choice(running).id
            self.requeued[job] += 1
            self.outbox += server.requeue(job)
        elif what < 0.60:
            node = server.nodes[f"n{random.randrange(6)}"]
            state = "down" if node.state == "up" and random.random() < 0.3 else "up"
            if state != node.state:
                self.outbox += server.change_node(
                    NodeFacts(name=node.name, cpus=4, mem=8 << 20, state=state)  # type: ignore[arg-type]
                )

    def _submit(self) -> list[Event]:
        self.numbers += 1
        seconds = self.random.randint(1, 3)
        walltime = self.random.randint(seconds, 9)
        facts = JobFacts(
            id=f"{self.numbers}.srv",
            owner=self.random.choice(("ann", "bob", "eve")),
            queue="q",
            submitted=self.server.now,
            resources={
                "nodes": self.random.choice(_REQUESTS),
                "walltime": str(walltime),
            },
        )
        return self.server.submit(facts, seconds)

    # ---- the adapter ----------------------------------------------------------------------------

    def deliver(self, daemon: RequestSender) -> None:
        """Send some pending events, perhaps together with repeated ones."""
        batch = [self.outbox[at] for at in range(min(len(self.outbox), self.random.randint(1, 30)))]
        again: list[Event] = []
        if self.acknowledged and self.random.random() < 0.2:
            last = list(self.acknowledged.values())[-50:]
            again = self.random.sample(last, min(3, len(last)))
        if not batch and not again:
            return
        sent = [*again, *batch]
        if self.random.random() < 0.1:
            self.random.shuffle(sent)
            self.counts["reordered deliveries"] += 1
        answer = daemon.post(self.base + "/events", {"events": [asdict(event) for event in sent]})
        assert answer["accepted"] + len(answer["duplicates"]) == len(sent)
        self.counts["duplicates refused"] += len(answer["duplicates"])
        for event in batch:
            self.outbox.popleft()
            self.acknowledged[event.id] = event

    def send_torn_snapshot(self, daemon: RequestSender) -> None:
        """Send a snapshot truncated by the server or in transit. Raises UnavailableError."""
        self.counts["torn snapshots"] += 1
        if self.random.random() < 0.5:
            self.outbox.append(self.server.snapshot(complete=False))
            return
        body = json.dumps({"events": [asdict(self.server.snapshot())]}).encode()
        try:
            daemon.request("POST", self.base + "/events", body[: self.random.randrange(1, len(body) - 1)])
        except AssertionError as refused:
            assert " 4" in str(refused), refused
        else:
            raise AssertionError("half a snapshot was taken")

    def fetch(self, daemon: RequestSender) -> None:
        """Read decisions and carry them out. Raises UnavailableError."""
        place = self.place if self.random.random() > 0.1 else ""  # now and then all that are left, again
        answer = daemon.get(self.base + "/decisions", after=place)
        for found in answer["decisions"]:
            known = self.seen.get(found["id"])
            if known is not None:
                assert known == found, f"a decision changed: {known} became {found}"
                self.counts["decisions read again"] += 1
                continue
            self.seen[found["id"]] = found
            self._carry_out(_DECISION.validate_python(found))
        self.place = answer["last"]

    def _carry_out(self, decision: Decision) -> None:
        if decision.term < self.term:
            self.counts["decisions of an old term"] += 1
            if isinstance(decision, Run):
                self.outbox += self.server.refuse(decision, 0, "decided in an old term")
            return
        self.term = decision.term
        self.first_term = self.first_term or decision.term
        if isinstance(decision, Run):
            job = self.server.jobs.get(decision.job_id)
            assert job is None or job.state != "R", f"{decision} of a job that runs"
            events = self.server.run(decision)
            self.accepted[decision.job_id] += sum(isinstance(event, RunAccepted) for event in events)
            self.outbox += events

    def run_round(self, daemon: RequestSender) -> None:
        """Run one round of events and decisions. Raises UnavailableError."""
        self.advance_server()
        if self.random.random() < 0.03:
            self.outbox.append(self.server.snapshot())
            self.counts["snapshots"] += 1
        if self.random.random() < 0.03:
            self.send_torn_snapshot(daemon)
        self.deliver(daemon)
        self.fetch(daemon)

    def settle(self, daemon: RequestSender) -> None:
        """Deliver everything, then a snapshot of the server. Raises UnavailableError."""
        while self.outbox:
            self.deliver(daemon)
        self.outbox.append(self.server.snapshot())
        while self.outbox:
            self.deliver(daemon)
            self.fetch(daemon)


@dataclass(frozen=True)
class KnownJob:
    """A job's state at the daemon: whether it is planned, its promise, and the number of breaches."""

    planned: bool
    promised: int | None
    breaches: int


def known_jobs(daemon: DaemonProcess, cluster: str = "main") -> dict[str, KnownJob]:
    """Return all jobs of the daemon. Raises UnavailableError."""
    found: dict[str, KnownJob] = {}
    cursor: dict[str, str] = {}
    while True:
        page = daemon.get(f"/v1/clusters/{cluster}/jobs", limit=1000, **cursor)
        for job in page["jobs"]:
            planned = job["state"] == "planned"
            found[job["id"]] = KnownJob(
                planned, job["promised_start"] if planned else None, len(job["breaches"])
            )
        if page["next"] is None:
            return found
        cursor = {"cursor": page["next"]}


__all__ = ["ClusterSimulation", "KnownJob", "UnavailableError", "known_jobs"]
