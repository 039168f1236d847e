"""Benchmark `federation`: time to route a job, and the traffic between federation and clusters.

Real planners behind the daemon's real HTTP interface, and a real federation over them with its log in SQLite;
the network is simulated, which passes requests on within the process, and the pbs_servers, which carry out
requests at once. The clusters may have a process of their own, as in production. Every cluster is full of
running jobs, so that all routed jobs wait; each waiting job is examined for a move every minute.
"""

import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from typing_extensions import override

from research.benchmarks.workload import BenchJob, Profile, cluster, jobs
from research.federations.apart import Apart
from research.federations.bench_clusters import (
    OWNER,
    PATIENCE_S,
    TOKEN,
    inside_of,
    settings_of,
    submission,
    write_past,
)
from research.federations.bench_figures import FederationFigures
from research.federations.inside import Traffic
from schedd.federation.event_log import FederationLog
from schedd.federation.events import AttemptReleased, ClusterChosen, LoggedEvent
from schedd.federation.state.federation_state import FederationState
from schedd.federation.workers.cluster_worker import ClusterWorker
from schedd.service.garbage_collector import GarbageCollectorTuning


class _TimedLog(FederationLog):
    """Notes when the choice for a job, and its release, were kept."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "bench", 60.0)
        self.chosen: dict[str, float] = {}
        self.out: dict[str, float] = {}

    @override
    def append(self, events: Iterable[LoggedEvent]) -> None:
        kept = list(events)
        super().append(kept)
        now = time.perf_counter()
        for event in kept:
            if isinstance(event, ClusterChosen):
                self.chosen.setdefault(event.job, now)
            elif isinstance(event, AttemptReleased):
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
    apart: bool = False,
    new: float = 0.0,
    tell: Callable[[str], None] = lambda _: None,
) -> FederationFigures:
    """Raises ValueError, DaemonFailed. ``waiting`` jobs of the federation wait when the first of ``routed``
    comes; jobs have requests of ``shapes`` different shapes. ``apart``: clusters have a process of their own.
    ``new``: the share of routed jobs with an unknown shape, for which all clusters are asked.
    """
    if min(clusters, nodes, waiting, routed, shapes) < 1 or not 0 < rate <= 1_000 or poll <= 0:
        raise ValueError(
            "there must be a cluster, a node, a job and a shape at least, and a rate up to 1,000"
        )
    if not 0 <= new <= 1:
        raise ValueError(f"{new:g} of the jobs ask for something new: it must be a share from 0 to 1")
    kinds = list(jobs(profile, shapes, seed))
    machines = cluster(profile, nodes)
    chance = random.Random(seed)
    traffic = Traffic()
    names = [f"c{number:03}" for number in range(clusters)]
    spread = [kinds[chance.randrange(len(kinds))] for _ in range(waiting)]
    with (
        tempfile.TemporaryDirectory(prefix="schedd-federation-") as directory,
        Apart(names, machines, spread, traffic)
        if apart
        else inside_of(names, machines, spread, traffic, tell) as inside,
    ):
        log = _TimedLog(f"sqlite:///{directory}/federation.sqlite")
        assert log.leadership.try_acquire()
        write_past(log, names, spread)
        tell("the federation reads its log")
        settings = settings_of(names, Path(directory), poll)
        began = time.perf_counter()
        federation = FederationState(settings, log, dict.fromkeys(names, TOKEN))
        log_s = time.perf_counter() - began
        garbage = GarbageCollectorTuning()
        garbage.begin()  # as the daemon does
        stopping = threading.Event()
        peers = [
            ClusterWorker(
                name, federation, TOKEN, stopping, lambda one, token: inside.client(token, one.cluster)
            )
            for name in names
        ]
        for peer in peers:
            peer.start()
        try:
            _ready(federation)
            tell("the clusters are asked")
            for kind in kinds:  # every shape is known before it is measured, as in a federation at work
                federation.submit(OWNER, submission(kind), key=f"warm {kind}")
            _settled(federation, log, clusters)
            traffic.clear()
            began = time.perf_counter()
            time.sleep(4 * poll)
            idle = time.perf_counter() - began
            idle_requests = sum(traffic.requests.values()) / idle
            idle_bytes = (sum(traffic.sent.values()) + sum(traffic.received.values())) / idle
            traffic.clear()
            cpu = inside.cpu_s
            at = _route(federation, kinds, routed, rate, chance, new, tell)
            _settled(federation, log, clusters)
            cpu = inside.cpu_s - cpu
        finally:
            stopping.set()
            for name in names:
                federation.wakeups[name].set()
            for peer in peers:
                peer.join()
            garbage.end()
            log.close()
    refused = [federation.jobs.by_id[job].text for job in at if job not in log.chosen]
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
    federation: FederationState,
    kinds: Sequence[BenchJob],
    routed: int,
    rate: float,
    chance: random.Random,
    new: float,
    tell: Callable[[str], None],
) -> dict[str, _Came]:
    at: dict[str, _Came] = {}
    begin = time.perf_counter()
    for number in range(routed):
        wait = begin + number / rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        kind = kinds[chance.randrange(len(kinds))]
        if new and chance.random() < new:
            kind = replace(kind, walltime=kind.walltime + 1 + number)
        came, cpu = time.perf_counter(), time.thread_time()
        job = federation.submit(OWNER, submission(kind))
        at[job.id] = _Came(came, time.thread_time() - cpu, bool(job.attempts))
        if number % 50 == 0:
            tell(f"{number} of {routed} jobs are routed")
    return at


def _ready(federation: FederationState) -> None:
    end = time.monotonic() + PATIENCE_S
    while any(seen.away for seen in list(federation.clusters.values())):
        if time.monotonic() > end:
            away = {name: seen.away for name, seen in federation.clusters.items() if seen.away}
            raise ValueError(f"not all clusters answer: {away}")
        time.sleep(0.1)


def _settled(federation: FederationState, log: _TimedLog, clusters: int) -> None:
    """Until nothing is under way."""
    del log, clusters
    end = time.monotonic() + PATIENCE_S
    while federation.jobs.unsettled:
        if time.monotonic() > end:
            raise ValueError(
                f"{len(federation.jobs.unsettled)} jobs were not routed within {PATIENCE_S:.0f} s"
            )
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
