"""``schedd bench federation``: how long a federation takes to route a job, and what crosses the network.

Real planners behind the daemon's real HTTP interface, and a real federation over them with its log in SQLite;
what is simulated is the network, which passes requests on within the process, and the pbs_servers, which do
at once what they are asked for. Every cluster is full with running jobs, so that all that is routed waits; of
each waiting job it is looked every minute whether it should move.
"""

import hashlib
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from rich.table import Table

from schedd.api.app import create_app
from schedd.bench.workload import BenchJob, Profile, cluster, jobs
from schedd.cli.federations.inside import Inside, Traffic
from schedd.engine import EngineSettings
from schedd.federation.events import Chosen, Event, Held, Leased, LetGo, Out, Submitted
from schedd.federation.log import Log
from schedd.federation.peers import Peer
from schedd.federation.roof import Roof
from schedd.federation.settings import Settings
from schedd.model import Node
from schedd.service.access.roles import Bearer
from schedd.service.access.tokens import Tokens
from schedd.service.cluster.clock import SystemClock
from schedd.service.cluster.loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.warmup import warm_up
from schedd.wire import (
    Event as ClusterEvent,
)
from schedd.wire import (
    HandOver,
    Handover,
    HandoverDone,
    JobDeleted,
    JobFacts,
    JobHeld,
    JobQueued,
    JobReleased,
    LetRun,
    NodeChanged,
    NodeFacts,
    ServerChanged,
    ServerFacts,
    ShareFacts,
    SubmissionFacts,
)

__all__ = ["FederationFigures", "bench_federation", "table_of", "to_json"]

_TOKEN: Final = "the-federation-of-the-benchmark"
_USER: Final = "ann"
_OWNER: Final = f"{_USER}@org"
_SCRIPT: Final = "#!/bin/sh\n" + "echo a line of a script as long as most are\n" * 20
_DAY: Final = 86_400
_ROUND_S: Final = 0.02
_HEAR_S: Final = 10.0
_PATIENCE_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class FederationFigures:
    """Times in ms, from when a job is handed over until it is kept in the log where it goes.

    ``known`` are those for which every cluster had said what it offers when the job came; ``asked`` the
    others, whose clusters were asked in parallel. ``routed_s``: until the server of the cluster has let the
    job go. Traffic is by routed job, all rounds of looking at clusters included, in bytes and requests.
    """

    clusters: int
    nodes: int
    waiting: int
    shapes: int
    routed: int
    rate: float
    poll_s: float
    decision_ms: Mapping[str, float]
    decision_cpu_ms: Mapping[str, float]
    """Processor time of the thread that hands a job over, all offers being known: on a machine that does
    other things, too, this is what a decision costs."""
    known_ms: Mapping[str, float]
    asked_ms: Mapping[str, float]
    known: int
    asked: int
    routed_s: Mapping[str, float]
    cpu_ms: float
    """Of the whole process, clusters included, by routed job."""
    requests: Mapping[str, float]
    sent: Mapping[str, float]
    received: Mapping[str, float]
    idle_requests_s: float
    """Requests a second while nothing is routed."""
    idle_bytes_s: float
    log_s: float
    """Until a federation that starts has read its log."""
    rss_mib: float


class _Server(threading.Thread):
    """All pbs_servers and their adapters: does what the planners decide, at once."""

    def __init__(self, loops: Sequence[PlanLoop], stopping: threading.Event) -> None:
        super().__init__(name="servers", daemon=True)
        self._loops = loops
        self._stopping = stopping
        self._places = {loop.name: "" for loop in loops}
        self._number = 0
        self._jobs: dict[str, JobFacts] = {}

    def run(self) -> None:
        heard = 0.0
        while not self._stopping.wait(_ROUND_S):
            if time.monotonic() - heard > _HEAR_S:
                heard = time.monotonic()
                for loop in self._loops:
                    loop.hear(0.0)
            for loop in self._loops:
                if loop.decisions.last != self._places[loop.name]:
                    self._serve(loop)

    def _serve(self, loop: PlanLoop) -> None:
        page = loop.decisions.after(self._places[loop.name], 100_000)
        self._places[loop.name] = page.last
        events: list[ClusterEvent] = []
        for decision in page.decisions:
            if isinstance(decision, Handover):
                events += self._done(loop, decision)
        if events:
            loop.submit(events)

    def _done(self, loop: PlanLoop, step: Handover) -> Iterator[ClusterEvent]:
        self._number += 1
        now, name = loop.now(), f"{loop.name}:{self._number}"
        job = step.server_job
        if step.step == "submit" and step.submission is not None:
            job = f"{self._number}.{loop.name}"
            self._jobs[step.handover] = JobFacts(
                id=job,
                owner=f"{step.submission.user}@login",
                queue="batch",
                submitted=now,
                state="H",
                holds="o",
                resources=step.submission.resources,
                version="1",
            )
            yield JobQueued(id=f"{name}:q", time=now, job=self._jobs[step.handover])
        elif step.step == "release":
            yield JobReleased(id=f"{name}:r", time=now, job_id=job)
        elif step.step == "withdraw":
            yield JobHeld(id=f"{name}:h", time=now, job_id=job, holds="o")
        yield HandoverDone(
            id=name,
            time=now,
            decision_id=step.id,
            handover=step.handover,
            step=step.step,
            done=True,
            server_job=job,
        )
        if step.step == "withdraw":
            yield JobDeleted(id=f"{name}:d", time=now, job_id=job)


class _TimedLog(Log):
    """Notes when the choice for a job, and its release, were kept."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "bench", 60.0)
        self.chosen: dict[str, float] = {}
        self.out: dict[str, float] = {}

    def append(self, events: Iterable[Event | Leased]) -> None:
        kept = list(events)
        super().append(kept)
        now = time.perf_counter()
        for event in kept:
            if isinstance(event, Chosen):
                self.chosen.setdefault(event.job, now)
            elif isinstance(event, Out):
                self.out.setdefault(event.job, now)


@dataclass(frozen=True, slots=True)
class _Came:
    """When a job came, what taking it cost (seconds of the processor), and whether it was routed with it."""

    came: float
    cpu: float
    at_once: bool


def bench_federation(
    clusters: int = 100,
    nodes: int = 1_000,
    waiting: int = 100_000,
    routed: int = 1_000,
    rate: float = 5.0,
    shapes: int = 40,
    seed: int = 1,
    profile: Profile = "uniform",
    poll: float = 5.0,
    tell: Callable[[str], None] = lambda _: None,
) -> FederationFigures:
    """Raises ValueError. ``waiting`` jobs of the federation wait when the first of ``routed`` comes; a job
    has one of so many ``shapes`` of request.
    """
    if min(clusters, nodes, waiting, routed, shapes) < 1 or not 0 < rate <= 1_000 or poll <= 0:
        raise ValueError(
            "there must be a cluster, a node, a job and a shape at least, and a rate up to 1,000"
        )
    kinds = list(jobs(profile, shapes, seed))
    machines = cluster(profile, nodes)
    chance = random.Random(seed)
    tell("compiling")
    warm_up()
    traffic = Traffic()
    names = [f"c{number:03}" for number in range(clusters)]
    with (
        tempfile.TemporaryDirectory(prefix="schedd-federation-") as directory,
        _planners(names) as loops,
        _inside(loops, traffic) as inside,
    ):
        tell("filling the clusters")
        spread = [kinds[chance.randrange(len(kinds))] for _ in range(waiting)]
        _fill(loops, machines, spread, tell)
        log = _TimedLog(f"sqlite:///{directory}/federation.sqlite")
        assert log.lead.take()
        _write(log, names, spread)
        tell("the federation reads its log")
        settings = _settings(names, Path(directory), poll)
        began = time.perf_counter()
        roof = Roof(settings, log, dict.fromkeys(names, _TOKEN))
        log_s = time.perf_counter() - began
        stopping = threading.Event()
        peers = [
            Peer(name, roof, _TOKEN, stopping, lambda one, token: inside.client(token, one.cluster))
            for name in names
        ]
        for peer in peers:
            peer.start()
        try:
            _ready(roof)
            tell("the clusters are asked")
            for kind in kinds:  # every shape is known before it is measured, as in a federation at work
                roof.submit(_OWNER, _job(kind), key=f"warm {kind}")
            _settled(roof, log, clusters)
            traffic.clear()
            began = time.perf_counter()
            time.sleep(4 * poll)
            idle = time.perf_counter() - began
            idle_requests = sum(traffic.requests.values()) / idle
            idle_bytes = (sum(traffic.sent.values()) + sum(traffic.received.values())) / idle
            traffic.clear()
            cpu = time.process_time()
            at = _route(roof, kinds, routed, rate, chance, tell)
            _settled(roof, log, clusters)
            cpu = time.process_time() - cpu
        finally:
            stopping.set()
            for name in names:
                roof.bells[name].set()
            for peer in peers:
                peer.join()
            log.close()
    refused = [roof.jobs.by_id[job].text for job in at if job not in log.chosen]
    if refused:
        raise ValueError(f"no cluster takes {len(refused)} of the jobs: {refused[0][:200]}")
    took = {job: 1e3 * (log.chosen[job] - one.came) for job, one in at.items()}
    known = [took[job] for job, one in at.items() if one.at_once]
    asked = [took[job] for job, one in at.items() if not one.at_once]
    return FederationFigures(
        clusters=clusters,
        nodes=nodes,
        waiting=waiting,
        shapes=shapes,
        routed=routed,
        rate=rate,
        poll_s=poll,
        decision_ms=_shares(list(took.values())),
        decision_cpu_ms=_shares([1e3 * one.cpu for one in at.values() if one.at_once]),
        known_ms=_shares(known),
        asked_ms=_shares(asked),
        known=len(known),
        asked=len(asked),
        routed_s=_shares([log.out[job] - one.came for job, one in at.items() if job in log.out]),
        cpu_ms=1e3 * cpu / routed,
        requests={kind: count / routed for kind, count in sorted(traffic.requests.items())},
        sent={kind: count / routed for kind, count in sorted(traffic.sent.items())},
        received={kind: count / routed for kind, count in sorted(traffic.received.items())},
        idle_requests_s=idle_requests,
        idle_bytes_s=idle_bytes,
        log_s=log_s,
        rss_mib=_rss(),
    )


def _route(
    roof: Roof,
    kinds: Sequence[BenchJob],
    routed: int,
    rate: float,
    chance: random.Random,
    tell: Callable[[str], None],
) -> dict[str, _Came]:
    """By job, how it came."""
    at: dict[str, _Came] = {}
    begin = time.perf_counter()
    for number in range(routed):
        wait = begin + number / rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        came, cpu = time.perf_counter(), time.thread_time()
        job = roof.submit(_OWNER, _job(kinds[chance.randrange(len(kinds))]))
        at[job.id] = _Came(came, time.thread_time() - cpu, bool(job.attempts))
        if number % 50 == 0:
            tell(f"{number} of {routed} jobs are routed")
    return at


@contextmanager
def _planners(names: Sequence[str]) -> Iterator[Clusters]:
    clusters = Clusters({name: EngineSettings() for name in names}, SystemClock())
    stopping = threading.Event()
    loops = list(clusters)
    for loop in loops:
        loop.start()
    clusters.ready = True
    server = _Server(loops, stopping)
    server.start()
    try:
        yield clusters
    finally:
        stopping.set()
        server.join()
        for loop in loops:
            loop.stop()


@contextmanager
def _inside(clusters: Clusters, traffic: Traffic) -> Iterator[Inside]:
    digest = hashlib.sha256(_TOKEN.encode()).digest()
    app = create_app(clusters, Tokens([(Bearer("ours", "federation"), digest)]))
    with Inside(app, traffic) as inside:
        yield inside


def _fill(
    clusters: Clusters, machines: Sequence[Node], spread: Sequence[BenchJob], tell: Callable[[str], None]
) -> None:
    """Every node runs a job, for 1 to 48 hours; the jobs are handed over round about, and let run."""
    loops = list(clusters)
    chance = random.Random(7)
    for place, loop in enumerate(loops):
        now = loop.now()
        events: list[ClusterEvent] = [
            ServerChanged(id="server", time=now, server=ServerFacts(version="6.1.3")),
            *(
                NodeChanged(
                    id=f"node {node.name}",
                    time=now,
                    node=NodeFacts(
                        name=node.name,
                        cpus=node.cpus,
                        mem=node.mem,
                        vmem=node.mem,
                        properties=tuple(sorted(node.features)),
                    ),
                )
                for node in machines
            ),
            *(_running(node, now, chance.randrange(3_600, 2 * _DAY)) for node in machines),
        ]
        loop.submit(events).result(_PATIENCE_S)
        mine = range(place, len(spread), len(loops))
        loop.submit(
            [
                HandOver(
                    id=f"give {number}",
                    time=now,
                    handover=f"fed.{number + 1}.1",
                    by="ours",
                    submission=SubmissionFacts(_USER, _SCRIPT, "", spread[number].resources),
                )
                for number in mine
            ]
        ).result(_PATIENCE_S)
        _until(loop, "held", mine)
        loop.submit(
            [LetRun(id=f"let {number}", time=now, handover=f"fed.{number + 1}.1") for number in mine]
        ).result(_PATIENCE_S)
        _until(loop, "released", mine)
        tell(f"{place + 1} of {len(loops)} clusters are full")


def _until(loop: PlanLoop, phase: str, numbers: Iterable[int]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while True:
        seen = loop.published.handovers
        if all(
            (one := seen.get(f"fed.{number + 1}.1")) is not None and one.phase == phase for number in numbers
        ):
            return
        if time.monotonic() > end:
            raise ValueError(f"cluster {loop.name} did not come to {phase} within {_PATIENCE_S:.0f} s")
        time.sleep(_ROUND_S)


def _running(node: Node, now: int, walltime: int) -> JobQueued:
    return JobQueued(
        id=f"run {node.name}",
        time=now,
        job=JobFacts(
            id=f"r{node.name}.server",
            owner="bob@login",
            queue="batch",
            submitted=now,
            state="R",
            resources={"nodes": f"1:ppn={node.cpus}", "walltime": str(walltime)},
            started=now,
            shares=(ShareFacts(node.name, node.cpus),),
            version="1",
        ),
    )


def _job(kind: BenchJob) -> dict[str, object]:
    return {
        "script": _SCRIPT,
        "resources": kind.resources,
        "attributes": {},
        "variables": {},
        "queues": {},
        "cpu_seconds": kind.walltime,
        "walltime": kind.walltime,
    }


def _write(log: Log, names: Sequence[str], spread: Sequence[BenchJob]) -> None:
    """The past of the jobs that wait, as it would stand in the log."""
    now = int(time.time())
    for first in range(0, len(spread), 2_000):
        events: list[Event] = []
        for number in range(first, min(len(spread), first + 2_000)):
            job = str(number + 1)
            events += [
                Submitted(job=job, time=now, owner=_OWNER, submission=_job(spread[number])),
                Chosen(
                    job=job,
                    attempt=1,
                    time=now,
                    cluster=names[number % len(names)],
                    user=_USER,
                    start=None,
                    end=None,
                    why="plan",
                ),
                Held(job=job, attempt=1, time=now, server_job="there"),
                LetGo(job=job, attempt=1, time=now),
                Out(job=job, attempt=1, time=now),
            ]
        log.append(events)


def _settings(names: Sequence[str], directory: Path, poll: float) -> Settings:
    return Settings.model_validate(
        {
            # Waiting jobs are looked at, and stay: they were not spread by any plan.
            "routing": {"poll": poll, "again": "60s", "patience": "60s", "threshold": 864_000},
            "clusters": {
                name: {
                    "url": "http://inside",
                    "cluster": name,
                    "token_file": str(directory / "token"),
                    "disclosure": "load",
                    "realms": ["org"],
                    "timeout": 60.0,
                }
                for name in names
            },
        }
    )


def _ready(roof: Roof) -> None:
    end = time.monotonic() + _PATIENCE_S
    while any(seen.away for seen in list(roof.seen.values())):
        if time.monotonic() > end:
            away = {name: seen.away for name, seen in roof.seen.items() if seen.away}
            raise ValueError(f"not all clusters answer: {away}")
        time.sleep(0.1)


def _settled(roof: Roof, log: _TimedLog, clusters: int) -> None:
    """Until nothing is under way."""
    del log, clusters
    end = time.monotonic() + _PATIENCE_S
    while roof.jobs.stirring:
        if time.monotonic() > end:
            raise ValueError(f"{len(roof.jobs.stirring)} jobs were not routed within {_PATIENCE_S:.0f} s")
        time.sleep(0.1)


def _shares(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    p50, p90, p99 = np.percentile(values, [50, 90, 99]).tolist()
    return {"p50": p50, "p90": p90, "p99": p99, "longest": max(values)}


def _rss() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def to_json(found: FederationFigures) -> str:
    """As a JSON document."""
    return json.dumps(asdict(found), indent=2) + "\n"


def table_of(found: FederationFigures) -> Table:
    """For people."""
    table = Table(
        title=f"{found.clusters} clusters of {found.nodes:,} nodes, {found.waiting:,} jobs wait; "
        f"{found.routed:,} are routed, {found.rate:g} a second"
    )
    table.add_column("")
    for head in ("p50", "p90", "p99", "longest"):
        table.add_column(head, justify="right")
    rows = (
        ("a routing decision, ms", found.decision_ms),
        (f"  all offers known ({found.known}), ms", found.known_ms),
        ("    processor time of it, ms", found.decision_cpu_ms),
        (f"  clusters were asked ({found.asked}), ms", found.asked_ms),
        ("until the server let it go, s", found.routed_s),
    )
    for name, shares in rows:
        table.add_row(name, *(f"{value:,.1f}" for value in shares.values()))
    requests, sent, received = (sum(one.values()) for one in (found.requests, found.sent, found.received))
    table.add_section()
    for name, value in (
        ("requests for each routed job", f"{requests:,.1f}"),
        ("bytes sent, received for each routed job", f"{sent:,.0f}, {received:,.0f}"),
        (
            "requests, bytes a second while nothing is routed",
            f"{found.idle_requests_s:,.1f}, {found.idle_bytes_s:,.0f}",
        ),
        ("processor time for each routed job, all clusters included, ms", f"{found.cpu_ms:,.1f}"),
        ("reading the log, s", f"{found.log_s:,.1f}"),
        ("memory, MiB", f"{found.rss_mib:,.0f}"),
    ):
        table.add_row(name, value)
    return table
