"""Clusters of the benchmark `federation`, all full, over servers that carry out decisions at once."""

import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fastapi import FastAPI
from typing_extensions import override

from research.benchmarks.workload import BenchJob
from research.federations.inside import Inside, Traffic
from schedd.api.app import create_app
from schedd.engine import EngineSettings
from schedd.features.transfers.state import PublishedTransfers
from schedd.federation.event_log import FederationLog
from schedd.federation.events import (
    AttemptHeld,
    AttemptReleased,
    AttemptReleaseRequested,
    ClusterChosen,
    FederationEvent,
    JobSubmitted,
)
from schedd.federation.settings import FederationSettings
from schedd.model import Node
from schedd.service.access.roles import Bearer
from schedd.service.access.tokens import Tokens
from schedd.service.cluster.clock import SystemClock
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.warmup import warm_up
from schedd.wire import (
    Event as ClusterEvent,
)
from schedd.wire import (
    JobDeleted,
    JobFacts,
    JobHeld,
    JobQueued,
    JobReleased,
    NodeChanged,
    NodeFacts,
    ServerChanged,
    ServerFacts,
    ShareFacts,
    SubmissionFacts,
    TransferDecision,
    TransferRelease,
    TransferRequest,
    TransferStepDone,
)

TOKEN: Final = "the-federation-of-the-benchmark"
_USER: Final = "ann"
OWNER: Final = f"{_USER}@org"
_SCRIPT: Final = "#!/bin/sh\n" + "echo a line of a script as long as most are\n" * 20
_DAY: Final = 86_400
_ROUND_S: Final = 0.02
_HEAR_S: Final = 10.0
PATIENCE_S: Final = 600.0


class _ServersThread(threading.Thread):
    """All pbs_servers and their adapters: does what the planners decide, at once."""

    def __init__(self, loops: Sequence[PlanLoop], stopping: threading.Event) -> None:
        super().__init__(name="servers", daemon=True)
        self._loops = loops
        self._stopping = stopping
        self._places = {loop.name: "" for loop in loops}
        self._number = 0
        self._jobs: dict[str, JobFacts] = {}

    @override
    def run(self) -> None:
        heard = 0.0
        while not self._stopping.wait(_ROUND_S):
            if time.monotonic() - heard > _HEAR_S:
                heard = time.monotonic()
                for loop in self._loops:
                    loop.record_adapter_request(0.0)
            for loop in self._loops:
                if loop.decisions.last_id != self._places[loop.name]:
                    self._serve(loop)

    def _serve(self, loop: PlanLoop) -> None:
        page = loop.decisions.page_after(self._places[loop.name], 100_000)
        self._places[loop.name] = page.last
        events: list[ClusterEvent] = []
        for decision in page.decisions:
            if isinstance(decision, TransferDecision):
                events += self._done(loop, decision)
        if events:
            loop.submit(events)

    def _done(self, loop: PlanLoop, step: TransferDecision) -> Iterator[ClusterEvent]:
        self._number += 1
        now, name = loop.now(), f"{loop.name}:{self._number}"
        job = step.server_job
        if step.step == "submit" and step.submission is not None:
            job = f"{self._number}.{loop.name}"
            self._jobs[step.transfer] = JobFacts(
                id=job,
                owner=f"{step.submission.user}@login",
                queue="batch",
                submitted=now,
                state="H",
                holds="o",
                resources=step.submission.resources,
                version="1",
            )
            yield JobQueued(id=f"{name}:q", time=now, job=self._jobs[step.transfer])
        elif step.step == "release":
            yield JobReleased(id=f"{name}:r", time=now, job_id=job)
        elif step.step == "withdraw":
            yield JobHeld(id=f"{name}:h", time=now, job_id=job, holds="o")
        yield TransferStepDone(
            id=name,
            time=now,
            decision_id=step.id,
            transfer=step.transfer,
            step=step.step,
            done=True,
            server_job=job,
        )
        if step.step == "withdraw":
            yield JobDeleted(id=f"{name}:d", time=now, job_id=job)


@contextmanager
def planners(names: Sequence[str]) -> Iterator[Clusters]:
    """The planners of these clusters, and their servers, at work until the end."""
    clusters = Clusters({name: EngineSettings() for name in names}, SystemClock())
    stopping = threading.Event()
    loops = list(clusters)
    for loop in loops:
        loop.start()
    clusters.ready = True
    server = _ServersThread(loops, stopping)
    server.start()
    try:
        yield clusters
    finally:
        stopping.set()
        server.join()
        for loop in loops:
            loop.stop()


def answering(clusters: Clusters) -> FastAPI:
    """Their HTTP interface."""
    digest = hashlib.sha256(TOKEN.encode()).digest()
    return create_app(clusters, Tokens([(Bearer("ours", "federation"), digest)]))


@contextmanager
def inside_of(
    names: Sequence[str],
    machines: Sequence[Node],
    spread: Sequence[BenchJob],
    traffic: Traffic,
    tell: Callable[[str], None],
) -> Iterator[Inside]:
    """Full clusters and their HTTP interface within this process; what passes is counted."""
    tell("compiling")
    warm_up()
    with planners(names) as loops, Inside(answering(loops), traffic) as inside:
        tell("filling the clusters")
        fill(loops, machines, spread, tell)
        yield inside


def fill(
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
        loop.submit(events).result(PATIENCE_S)
        mine = range(place, len(spread), len(loops))
        loop.submit(
            [
                TransferRequest(
                    id=f"give {number}",
                    time=now,
                    transfer=f"fed.{number + 1}.1",
                    by="ours",
                    submission=SubmissionFacts(_USER, _SCRIPT, "", spread[number].resources),
                )
                for number in mine
            ]
        ).result(PATIENCE_S)
        _until(loop, "held", mine)
        loop.submit(
            [TransferRelease(id=f"let {number}", time=now, transfer=f"fed.{number + 1}.1") for number in mine]
        ).result(PATIENCE_S)
        _until(loop, "released", mine)
        tell(f"{place + 1} of {len(loops)} clusters are full")


def _until(loop: PlanLoop, phase: str, numbers: Iterable[int]) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        seen = loop.published.part(PublishedTransfers).transfers
        if all(
            (one := seen.get(f"fed.{number + 1}.1")) is not None and one.phase == phase for number in numbers
        ):
            return
        if time.monotonic() > end:
            raise ValueError(f"cluster {loop.name} did not come to {phase} within {PATIENCE_S:.0f} s")
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


def submission(kind: BenchJob) -> dict[str, object]:
    """A job as submitted to the federation."""
    return {
        "script": _SCRIPT,
        "resources": kind.resources,
        "attributes": {},
        "variables": {},
        "queues": {},
        "cpu_seconds": kind.walltime,
        "walltime": kind.walltime,
    }


def write_past(log: FederationLog, names: Sequence[str], spread: Sequence[BenchJob]) -> None:
    """The past of the waiting jobs, in the form of the log."""
    now = int(time.time())
    for first in range(0, len(spread), 2_000):
        events: list[FederationEvent] = []
        for number in range(first, min(len(spread), first + 2_000)):
            job = str(number + 1)
            events += [
                JobSubmitted(job=job, time=now, owner=OWNER, submission=submission(spread[number])),
                ClusterChosen(
                    job=job,
                    attempt=1,
                    time=now,
                    cluster=names[number % len(names)],
                    user=_USER,
                    start=None,
                    end=None,
                    why="plan",
                ),
                AttemptHeld(job=job, attempt=1, time=now, server_job="there"),
                AttemptReleaseRequested(job=job, attempt=1, time=now),
                AttemptReleased(job=job, attempt=1, time=now),
            ]
        log.append(events)


def settings_of(names: Sequence[str], directory: Path, poll: float) -> FederationSettings:
    """The settings of the federation over these clusters, each polled every ``poll`` seconds."""
    return FederationSettings.model_validate(
        {
            # Waiting jobs are looked at, and stay: they were not spread by any plan.
            "routing": {"poll": poll, "recheck": "60s", "patience": "60s", "threshold": 864_000},
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
