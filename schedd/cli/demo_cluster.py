"""The demo's cluster: nodes, jobs that arrive, run and end. Told what to start; no I/O, no clock."""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from schedd.replay.lublin import generate
from schedd.replay.prepare import Prepared, prepare
from schedd.replay.site import Site, equal_nodes
from schedd.replay.workload import TIME_LIMIT, Trace, select
from schedd.wire import (
    Event,
    JobEnded,
    JobFacts,
    JobQueued,
    JobStarted,
    NodeFacts,
    QueueFacts,
    Run,
    RunAccepted,
    RunRefused,
    Snapshot,
)

__all__ = ["DemoCluster", "DemoJob", "Workload", "of_trace", "synthetic"]

_GIB = 1 << 20
_LONGEST_PAUSE = 3600
"""Seconds: nights are dull to look at."""
_BUSY = 15046
"""PBSE_RESCUNAV: not now."""


@dataclass(frozen=True, slots=True)
class DemoJob:
    """A job that will arrive: ``after`` seconds after the beginning, to run for ``run`` seconds."""

    facts: JobFacts
    after: int
    run: int


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs and the nodes they run on; the first ``waiting`` are there from the beginning."""

    trace: Trace
    site: Site
    waiting: int
    pause: int

    def jobs(self) -> list[DemoJob]:
        """What will arrive; raises TraceError when nothing can run. Needs kernels."""
        chosen = select(self.trace, estimates="user", procs=self.site.procs)
        prepared: Prepared = prepare(chosen, self.site)
        after, before = 0, prepared.jobs[0].submit
        jobs = []
        for i, job in enumerate(prepared.jobs):
            if i >= self.waiting:
                after += min(job.submit - before, self.pause)
            before = job.submit
            facts = replace(prepared.facts(i), id=f"{i + 1}.demo", owner=f"{job.user}@login", version="1")
            jobs.append(DemoJob(facts, after, job.run))
        return jobs


def synthetic(nodes: int, cpus: int, jobs: int, seed: int, waiting: int) -> Workload:
    """A workload of Lublin and Feitelson's model that keeps the machine busy; the first ``waiting`` jobs are
    there from the beginning, and no pause between two arrivals is longer than ``_LONGEST_PAUSE``.
    """
    trace = generate(jobs, nodes * cpus, seed, load=0.95)
    spec = [
        replace(job, nodes_spec=_whole_nodes(job.procs, cpus) if job.procs > cpus else f"1:ppn={job.procs}")
        for job in trace.jobs
    ]
    site = equal_nodes(nodes, cpus, cpus * 4 * _GIB)
    return Workload(replace(trace, jobs=tuple(spec)), site, waiting, _LONGEST_PAUSE)


def of_trace(trace: Trace, cpus: int) -> Workload:
    """The jobs of a log on nodes of ``cpus`` cpus, as many as the log's machine had processors."""
    widest = max((job.procs for job in trace.jobs), default=1)
    procs = trace.max_procs or widest
    return Workload(trace, equal_nodes(max(1, -(-procs // cpus)), cpus), 0, TIME_LIMIT)


def _whole_nodes(procs: int, cpus: int) -> str:
    """``procs`` processors as equal nodes, or as whole nodes and one for the rest."""
    nodes, rest = divmod(procs, cpus)
    return f"{nodes}:ppn={cpus}" + (f"+1:ppn={rest}" if rest else "")


class DemoCluster:
    """What a server would know. Every method that changes something returns the events that tell of it."""

    def __init__(self, nodes: Sequence[NodeFacts], jobs: Sequence[DemoJob], epoch: str) -> None:
        self.nodes = tuple(nodes)
        self._begin = 0
        self._epoch = epoch
        self._numbers = count(1)
        self._to_come = iter(sorted(jobs, key=lambda job: job.after))
        self._next: DemoJob | None = next(self._to_come, None)
        self._queued: dict[str, DemoJob] = {}
        self._running: dict[str, Run] = {}
        self._ends: list[tuple[int, str]] = []
        self._free = Counter({node.name: node.cpus for node in self.nodes})

    @property
    def over(self) -> bool:
        """Whether all jobs came and went."""
        return self._next is None and not self._queued and not self._running

    @property
    def next_moment(self) -> int | None:
        """When something happens by itself; None when nothing does."""
        moments = [self._begin + self._next.after] if self._next is not None else []
        moments += [self._ends[0][0]] if self._ends else []
        return min(moments, default=None)

    def snapshot(self, now: int) -> Snapshot:
        """The cluster as it is before the first job; from now on jobs arrive."""
        self._begin = now
        queue = QueueFacts(name="batch")
        return Snapshot(id=self._id(), time=now, jobs=(), nodes=self.nodes, queues=(queue,))

    def advance(self, now: int) -> list[Event]:
        """Jobs that ended and jobs that arrived up to ``now``."""
        return [*self._ended(now), *self._arrived(now)]

    def _ended(self, now: int) -> Iterator[Event]:
        while self._ends and self._ends[0][0] <= now:
            moment, job_id = heapq.heappop(self._ends)
            for share in self._running.pop(job_id).shares:
                self._free[share.node] += share.cpus
            yield JobEnded(id=self._id(), time=moment, job_id=job_id)

    def _arrived(self, now: int) -> Iterator[Event]:
        while self._next is not None and self._begin + self._next.after <= now:
            job, moment = self._next, self._begin + self._next.after
            facts = replace(job.facts, submitted=moment, queue="batch")
            self._queued[facts.id] = job
            self._next = next(self._to_come, None)
            yield JobQueued(id=self._id(), time=moment, job=facts)

    def start(self, run: Run, now: int) -> list[Event]:
        """Start a job as decided, or refuse."""
        job = self._queued.get(run.job_id)
        if job is None or run.job_id in self._running:
            return [self._refused(run, now, 0, "no such job in the queue")]
        if any(self._free[share.node] < share.cpus for share in run.shares):
            return [self._refused(run, now, _BUSY, "the nodes are not free yet")]
        for share in run.shares:
            self._free[share.node] -= share.cpus
        del self._queued[run.job_id]
        self._running[run.job_id] = run
        heapq.heappush(self._ends, (now + job.run, run.job_id))
        return [
            RunAccepted(id=self._id(), time=now, decision_id=run.id, job_id=run.job_id),
            JobStarted(id=self._id(), time=now, job_id=run.job_id, shares=run.shares),
        ]

    def _refused(self, run: Run, now: int, code: int, text: str) -> RunRefused:
        return RunRefused(
            id=self._id(), time=now, decision_id=run.id, job_id=run.job_id, code=code, text=text
        )

    def _id(self) -> str:
        return f"{self._epoch}:{next(self._numbers)}"
