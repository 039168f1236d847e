"""Simulated clusters, each a real engine with a small server, under the production federation state and
workers.

There are no sockets and no clock: a request is a call. Any request may be lost before or after the cluster
processes it, and the federation may be killed between any two requests.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Event as Flag
from threading import RLock
from typing import Any, TypeVar

import pytest

from research.federations.wires import EngineWire
from schedd.client import Unreachable
from schedd.dialect import request_family
from schedd.engine.show.plan_snapshot import PlanSnapshot, publish_snapshot
from schedd.features.bookings.state import booking_table
from schedd.features.transfers.api import transfer_view
from schedd.features.transfers.state import PublishedTransfers
from schedd.federation.bookings.bookings import FederationBooking
from schedd.federation.bookings.decisions import LIVE
from schedd.federation.coallocation.coallocations import CoAllocation
from schedd.federation.event_log import FederationLog
from schedd.federation.routing.cluster_status import TransferStatus
from schedd.federation.settings import FederationSettings, MemberClusterSettings
from schedd.federation.state.federation_state import ClusterPollResult, FederationState
from schedd.federation.workers.bag_worker import BagWorker
from schedd.federation.workers.booking_worker import BookingWorker
from schedd.federation.workers.coallocation_worker import CoAllocationWorker
from schedd.service.questions.plan_fork import PlanFork, fork_plan
from schedd.wire import (
    Act,
    BagEndReported,
    BookingStep,
    Event,
    JobFacts,
    Run,
    RunAccepted,
    TransferDecision,
    TransferStepDone,
)
from tests.engine.cluster import Cluster, T

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")
SEEN = tuple(TransferStatus.__dataclass_fields__)


def seeds(few: int, all_seeds: int) -> list[Any]:
    """Return seeds for a parametrized test: the first ``few`` run always, the others with the long tests."""
    return [pytest.param(seed, marks=() if seed < few else (pytest.mark.soak,)) for seed in range(all_seeds)]


class FederationKilledError(BaseException):
    """The federation's process was killed. No code of the federation catches this exception."""


class SimulatedCluster(Cluster):
    """Cluster that accepts transfers. ``deaf``: its adapter carries out no transfer step; ``refuses``: reason
    why its server starts no job.
    """

    def __init__(self, name: str, nodes: int = 2) -> None:
        self.name = name
        self.deaf = False
        self.refuses = ""
        self.full = ""
        """Why its server takes no arrays."""
        self.turn = RLock()
        self.undone: list[TransferDecision] = []
        self.handed: dict[str, str] = {}
        self.began: dict[str, int] = {}
        self.starts: Counter[str] = Counter()
        self._published: PlanSnapshot | None = None
        self._fork: PlanFork | None = None
        super().__init__(nodes, site={"bookings": {"most": 20}})

    def _handle(self, events: tuple[Event, ...]) -> None:
        while True:
            decisions = self.engine.handle(events, self.server.now).decisions
            self.decisions += decisions
            self.undone += [one for one in decisions if isinstance(one, TransferDecision)]
            found: list[Event] = []
            for one in decisions if self.obeys else ():
                if isinstance(one, Run) and self.refuses:
                    found += self.server.refuse(one, 15046, self.refuses)
                elif isinstance(one, Run):
                    came = self.server.run(one)
                    if isinstance(came[0], RunAccepted):
                        self.began[one.job_id] = self.server.now
                        self.starts[one.job_id] += 1
                    found += came
            while self.undone and not self.deaf:
                found += self._carry_out(self.undone.pop(0))
            events = tuple(found)
            wake = self.engine.next_wake
            if not events and (wake is None or wake > self.server.now):
                return

    def _carry_out(self, one: TransferDecision) -> Iterator[Event]:
        server, job = self.server, self.handed.get(one.transfer, "")
        done = True
        if one.step == "submit" and one.submission is not None:
            number, array = len(self.handed) + 1, one.submission.array
            job = f"{number}[].{self.name}" if array else f"{number}.{self.name}"
            if self.full and array:
                job, done = "", False
            else:
                self.handed[one.transfer] = job
            first, _, last = array.partition("-")
            names = (
                [job.replace("[]", f"[{i}]") for i in range(int(first), int(last) + 1)] if array else [job]
            )
            for name in names if job else ():
                facts = JobFacts(
                    id=name,
                    owner=f"{one.submission.user}@login",
                    queue="batch",
                    submitted=server.now,
                    state="H",
                    holds="o",
                    resources=dict(one.submission.resources),
                    family=request_family(one.submission.resources),
                    array=job if array else "",
                )
                yield from server.submit(facts, int(one.submission.variables.get("RUN", 100)))
        elif job:
            for name in self.members(job):
                if one.step == "release":
                    yield from server.release(name)
                elif server.jobs[name].state == "R" and one.step == "withdraw":
                    done = False
                else:
                    yield from server.delete(name)
        yield TransferStepDone(
            id=server.event_id(),
            time=server.now,
            decision_id=one.id,
            transfer=one.transfer,
            step=one.step,
            done=done,
            server_job=job,
            text="" if done else self.full if one.step == "submit" else "some of it run",
        )

    def members(self, job: str) -> list[str]:
        """Return the server's jobs of an array, or the single job."""
        head, bracket, rest = job.partition("[]")
        names = list(self.server.jobs)
        return [
            one
            for one in names
            if one == job or (bracket and one.startswith(f"{head}[") and one.endswith(rest))
        ]

    def started(self) -> dict[str, int]:
        """When jobs that were handed over were started, by transfer."""
        return {name: self.began[job] for name, job in self.handed.items() if job in self.began}

    def fork(self) -> PlanFork:
        """Return what questions are answered from; like a daemon's, it is made once for each generation."""
        published = self._publish()
        if self._fork is None or self._fork.published is not published:
            self._fork = fork_plan(self.engine, published)
        return self._fork

    def _publish(self) -> PlanSnapshot:
        state = self.engine.state
        if self._published is None or self._published.generation != state.generation:
            self._published = publish_snapshot(state)
        return self._published

    def report(self) -> ClusterPollResult:
        published = self._publish()
        found = {}
        for name, record in published.part(PublishedTransfers).transfers.items():
            seen = transfer_view(published, record)
            tasks = asdict(seen.tasks) if seen.tasks is not None else None
            found[name] = TransferStatus(**{one: getattr(seen, one) for one in SEEN} | {"tasks": tasks})
        return ClusterPollResult(transfers=found, cpus=8, generation=published.generation)


class SimulatedConnection(EngineWire):
    """What the keeper takes for a client of the cluster's schedd; requests and answers may be lost."""

    def __init__(self, provider: SimulatedCluster, simulation: "SimulatedFederation") -> None:
        self._at, self._region = provider, simulation
        super().__init__(
            provider.engine,
            self._send,
            provider.server.event_id,
            provider.fork,
            lambda: provider.server.now,
        )

    def _send(self, event: Event) -> None:
        self._region.weather(self._at)
        with self._at.turn:
            self._at.send(event)
        self._region.weather(self._at)
        what = event.act if isinstance(event, BookingStep) else event.type
        if self._region.after.get(what, 0):
            self._region.after[what] -= 1
            raise Unreachable("the answer is lost")

    def do_with_booking(self, name: str, act: Act) -> Any:
        if act == self._region.lost:
            raise Unreachable("the network is cut")
        return super().do_with_booking(name, act)

    def bookings(self) -> Any:
        self._region.weather(self._at)
        return super().bookings()

    def report_bag_end(self, name: str, end: int) -> None:
        self._send(BagEndReported(**self._id(), array=self._at.handed[name], end=end))

    def what_if(self, **asked: Any) -> Any:
        self._region.weather(self._at)
        with self._at.turn:
            return super().what_if(**asked)


class SimulatedCoAllocationWorker(CoAllocationWorker):
    """The keeper, over these wires."""

    simulation: "SimulatedFederation"

    def _client(self, cluster: str) -> Any:
        return SimulatedConnection(self.simulation.clusters[cluster], self.simulation)

    def _query_clusters(self, query: Callable[[_Item], _Answer], of: Sequence[_Item]) -> list[_Answer]:
        """One after the other: the same seed then leads to the same faults, and no threads are started."""
        return [query(one) for one in of]


class SimulatedFederation:
    """``loss``: how likely a request, or its answer, is lost; ``death``: that the federation dies there.
    Those named in ``openpbs`` have such a server, others a TORQUE.
    """

    def __init__(
        self,
        directory: Path,
        names: str = "ab",
        seed: int = 0,
        openpbs: str = "",
        speeds: Mapping[str, float] | None = None,
        recheck: str = "1s",
        **groups: Any,
    ) -> None:
        self.chance = random.Random(seed)
        self.loss = self.death = 0.0
        self.lost = ""
        """An act on bookings that never gets through."""
        self.after: dict[str, int] = {}
        """Number of requests by act that succeed while their answers are lost."""
        self.dies_at = 0
        """Index of the request or answer that kills the federation; 0: none."""
        self.clusters = {name: SimulatedCluster(name) for name in names}
        self.cut: set[str] = set()
        self.cut_after_poll: set[str] = set()
        """Clusters that will be cut off between the next poll and the requests that follow it."""
        (directory / "token").write_text("x")
        one = {"url": "http://127.0.0.1:9", "token_file": str(directory / "token"), "realms": ["org"]}
        self.settings = FederationSettings.model_validate(
            {
                "clusters": {
                    name: {
                        **one,
                        "cluster": name,
                        "family": "openpbs" if name in openpbs else "torque",
                        "speed": (speeds or {}).get(name, 1.0),
                    }
                    for name in names
                },
                "routing": {"recheck": recheck, "poll": 0.1},
                "coallocation": {"gain": "5s", **groups},
            }
        )
        self.log = FederationLog(f"sqlite:///{directory}/fed.sqlite", "here", 600.0)
        assert self.log.leadership.try_acquire()
        self.begin()

    @property
    def now(self) -> int:
        """The moment at all clusters."""
        return next(iter(self.clusters.values())).server.now

    def begin(self) -> None:
        """Start a federation from its log only."""
        self.federation = FederationState(
            self.settings, self.log, dict.fromkeys(self.clusters, "x"), lambda: self.now
        )
        self.keeper = SimulatedCoAllocationWorker(
            self.federation, self.federation.cluster_tokens, Flag(), lambda: self.now
        )
        self.keeper.simulation = self
        self.bags = BagWorker(self.federation, Flag(), lambda: self.now, self.connect)
        self.bookings = BookingWorker(self.federation, Flag(), lambda: self.now, self.connect)
        self.poll()

    def connect(self, settings: MemberClusterSettings, token: str) -> Any:
        """What the threads of jobs and of bags take for a client."""
        del token
        return SimulatedConnection(self.clusters[settings.cluster], self)

    def act(self) -> None:
        """Send the pending requests of single jobs and bag shares."""
        for name, provider in self.clusters.items():
            for one in self.federation.pending_actions(name):
                wire = SimulatedConnection(provider, self)
                try:
                    if one.kind == "submit":
                        wire.submit_held(one.transfer, one.body or {})
                    elif one.kind == "release":
                        wire.release_transfer(one.transfer)
                    else:
                        wire.withdraw_transfer(one.transfer)
                except Unreachable:
                    continue

    def weather(self, provider: SimulatedCluster) -> None:
        """A request, or an answer, is on its way."""
        if self.dies_at:
            self.dies_at -= 1
            if not self.dies_at:
                raise FederationKilledError
        if self.death and self.chance.random() < self.death:
            raise FederationKilledError
        if provider.name in self.cut or self.chance.random() < self.loss:
            raise Unreachable("the network is cut")

    def poll(self) -> None:
        """The federation polls its clusters."""
        for name, provider in self.clusters.items():
            if name in self.cut or self.chance.random() < self.loss:
                self.federation.apply_report(name, ClusterPollResult("it does not answer"))
            else:
                self.federation.apply_report(name, provider.report())

    def go(self, seconds: int, step: int = 1) -> None:
        """Time passes; the federation does its rounds: each minute while nothing is open."""
        end = self.now + seconds
        while self.now < end:
            pause = min(1 if self._starts_soon() else step if self._has_work() else 60, end - self.now)
            for provider in self.clusters.values():
                provider.at(provider.server.now - T + pause)
            try:
                self.poll()
                self.cut |= self.cut_after_poll
                self.cut_after_poll = set()
                for name in list(self.federation.coallocations.open):
                    self.keeper.process(name)
                self.act()
                for name in list(self.federation.bags.open):
                    self.bags.process(name)
                self.bookings.round()
            except FederationKilledError:
                self.begin()

    def finish(self, seconds: int) -> None:
        """Let time pass in steps of 15 s while a co-allocation or a bag is open, then of a minute."""
        end = self.now + seconds
        while self.now < end:
            step = 15 if self.federation.coallocations.open or self.federation.bags.open else 60
            self.go(min(step, end - self.now), step)

    def _has_work(self) -> bool:
        one = self.federation
        return bool(one.jobs.open or one.coallocations.open or one.bags.open or one.bookings.open)

    def _starts_soon(self) -> bool:
        """Whether a group is about to start: then the federation's rounds are a second apart at most."""
        soon = self.now + 2 * self.federation.coallocation_operations.rules.lead
        groups = [self.federation.coallocations[name] for name in self.federation.coallocations.open]
        return any(one.committed and not one.started_at and one.committed.start <= soon for one in groups)

    def submit(self, *components: Mapping[str, Any], owner: str = "ann@org", **options: Any) -> str:
        """A group; each component is nodes or resources, and perhaps ``clusters`` and ``optional``."""
        made = tuple(
            {
                "submission": {
                    "script": "sleep 1",
                    "resources": one.get("resources", {"nodes": one.get("nodes", "1:ppn=4")}),
                },
                "walltime": one.get("walltime", 100),
                "clusters": tuple(one.get("clusters", ())),
                "optional": one.get("optional", False),
            }
            for one in components
        )
        return self.federation.coallocation_operations.submit(owner, made, options).id

    def book(
        self,
        name: str,
        within: tuple[int, int] = (0, 10_000),
        owner: str = "ann@org",
        duration: int = 100,
        **more: Any,
    ) -> str:
        """Book a whole cluster within these seconds after the start; return the booking's number."""
        asked = {
            "resources": {"nodes": "2:ppn=4"},
            "duration": duration,
            "ready": T + within[0],
            "deadline": T + within[1],
            "freeze": 50,
            **more,
        }
        return self.federation.booking_operations.request(owner, name, asked).id

    def booking(self, name: str) -> FederationBooking:
        """Return the booking with this number."""
        return self.federation.bookings[name]

    def booked(self) -> dict[str, list[tuple[str, int]]]:
        """Return cluster and start of the reserved cores, by booking of the federation."""
        found: dict[str, list[tuple[str, int]]] = {}
        for name, provider in self.clusters.items():
            for one in booking_table(provider.engine.state).values():
                if one.phase in LIVE and not one.event.transfer:
                    found.setdefault(one.name.split(".")[1], []).append((name, one.start - T))
        return found

    def group(self, name: str) -> CoAllocation:
        """Return the co-allocation."""
        return self.federation.coallocations[name]

    def starts(self, name: str) -> dict[int, list[int]]:
        """By component, when its jobs were started, in seconds after the beginning."""
        found: dict[int, list[int]] = {}
        for provider in self.clusters.values():
            for transfer, moment in provider.started().items():
                _, group, copy = transfer.split(".")
                if group == name:
                    component = self.group(name).attempts[int(copy) - 1].component
                    found.setdefault(component, []).append(moment - T)
        return found

    def busy(self, cluster: str, count: int, walltime: int, **more: Any) -> None:
        """Local jobs, each of a whole node."""
        provider = self.clusters[cluster]
        for _ in range(count):
            number = len(provider.server.jobs) + len(provider.decisions)
            provider.submit(f"{number}{cluster}l.s", "1:ppn=4", walltime, owner="bob@login", **more)

    def close(self) -> None:
        self.log.close()
