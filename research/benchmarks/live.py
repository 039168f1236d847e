"""The engine at full size: what an arrival, an early end and the publication of a snapshot cost."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import thread_time_ns

import numpy as np

from research.benchmarks.workload import BenchJob
from schedd.engine import SITE_SLACK, Cause, Engine, EngineSettings, publish_snapshot
from schedd.model import Node
from schedd.policy.site import site_policy
from schedd.wire import (
    Event,
    JobEnded,
    JobFacts,
    JobQueued,
    JobStarted,
    NodeChanged,
    NodeFacts,
    Run,
    ServerChanged,
    ServerFacts,
)

_START = 1_700_000_000
_BATCH = 500
_ENDS = 100
_REPAIRED = 2_000_000
"""Total number of jobs in the repairs between the early ends: each repair goes through all waiting jobs."""


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """Of arrivals the means unless said otherwise; ``first_dispatch_ms`` and ``snapshot_us`` are medians."""

    slack: str
    arrival_us: float
    """Until the job has its place and its promise; the first slice of a repair is in it."""
    arrival_us_p50: float
    arrival_us_p99: float
    rest_us: float
    """The same with all that follows, until nothing is left to do."""
    went_before: float
    """Share of the arriving jobs that displaced others. The capacity left by these is repaired afterwards."""
    first_dispatch_ms: float
    first_dispatch_ms_max: float
    snapshot_us: float


_BARE = EngineSettings()
_STRICT = EngineSettings(
    site=site_policy({"priority": {"wish": 1.0, "waiting": 1.0, "fair_share": 10.0}, "fair_share": {}}),
)
POLICIES = (
    _STRICT,
    _STRICT.with_changes(slack=str(SITE_SLACK)),
)
"""Priorities, first without room for them, then with the default slack; the limits are below."""
_LIMITS = {
    "max_running": "2000",
    "max_user_run": "60",
    "max_run_res.ncpus": "[u:PBS_GENERIC=300],[g:PBS_GENERIC=1000]",
    "resources_available.matlab": "50",
}


def engine_figures(
    nodes: Sequence[Node],
    queued: Sequence[BenchJob],
    arriving: Sequence[BenchJob],
    policy: EngineSettings | None = None,
) -> EngineFigures:
    """Queue all of ``queued`` in an engine, then measure it.

    First the jobs ``arriving`` come one by one, each in a batch of its own; then running jobs end early, one
    by one, until in a hundred cases (fewer in a very long plan) another job was started for it. Under a
    ``policy`` the jobs are of 200 users in 20 groups with limits, priorities and fair share, one in 20 wants
    a licence.
    """
    live = _Live(nodes, policy)
    for i in range(0, len(queued), _BATCH):
        live.handle([live.queued(job) for job in queued[i : i + _BATCH]])
        live.rest()
    # As the daemon does after a snapshot: no look for garbage goes through all the records.
    gc.collect()
    gc.freeze()
    arrivals, rests = [], []
    went_before = 0
    for job in arriving:
        event = live.queued(job)
        live.went_before = False
        arrivals.append(live.handle([event]))
        went_before += live.went_before
        rests.append(arrivals[-1] + live.rest())
    dispatches: list[float] = []
    ends = max(5, min(_ENDS, _REPAIRED // max(len(queued), 1)))
    for job_id in list(live.running):
        if len(dispatches) == ends:
            break
        live.now += 1
        live.rest()
        if job_id not in live.running:
            continue
        started = len(live.running)
        took = live.handle([live.ended(job_id)])
        if len(live.running) > started - 1:
            dispatches.append(took)
        live.rest()
    published = []
    for _ in range(9):
        before = thread_time_ns()
        publish_snapshot(live.engine.state)
        published.append((thread_time_ns() - before) / 1e3)
    settings = live.engine.state.settings
    return EngineFigures(
        slack=settings.slack,
        arrival_us=float(np.mean(arrivals)) if arrivals else 0.0,
        arrival_us_p50=float(np.percentile(arrivals, 50)) if arrivals else 0.0,
        arrival_us_p99=float(np.percentile(arrivals, 99)) if arrivals else 0.0,
        rest_us=float(np.mean(rests)) if rests else 0.0,
        went_before=went_before / len(arrivals) if arrivals else 0.0,
        first_dispatch_ms=float(np.median(dispatches)) / 1e3 if dispatches else 0.0,
        first_dispatch_ms_max=max(dispatches, default=0.0) / 1e3,
        snapshot_us=float(np.median(published)),
    )


class _Live:
    """An engine, and a server that carries out each run decision at once."""

    def __init__(self, nodes: Sequence[Node], policy: EngineSettings | None) -> None:
        self.now = _START
        self.policy = policy is not None
        self.engine = Engine(policy or _BARE, self.now)
        self.running: dict[str, None] = {}
        self.went_before = False
        """Whether a job went before others, of lower priority, since this was set back."""
        self._facts: dict[str, JobFacts] = {}
        self._events = 0
        self.handle([self._node(node) for node in nodes])
        if self.policy:
            facts = ServerFacts(limits=_LIMITS)
            self.handle([ServerChanged(id=self._id(), time=self.now, server=facts)])

    def _id(self) -> str:
        self._events += 1
        return f"bench:{self._events}"

    def _node(self, node: Node) -> NodeChanged:
        facts = NodeFacts(
            name=node.name, cpus=node.cpus, mem=node.mem, properties=tuple(sorted(node.features))
        )
        return NodeChanged(id=self._id(), time=self.now, node=facts)

    def queued(self, job: BenchJob) -> JobQueued:
        """The event of an arrival."""
        facts = JobFacts(
            id=f"{len(self._facts)}.bench",
            owner="user@bench",
            queue="batch",
            submitted=self.now,
            resources=job.resources,
        )
        if self.policy:
            number = len(self._facts)
            licence = {"matlab": "1"} if number % 20 == 0 else {}
            facts = replace(
                facts,
                owner=f"u{number * 7919 % 200}@bench",
                group=f"g{number * 7919 % 20}",
                priority=number * 31 % 5,
                resources={**job.resources, **licence},
            )
        self._facts[facts.id] = facts
        return JobQueued(id=self._id(), time=self.now, job=facts)

    def ended(self, job_id: str) -> JobEnded:
        """The event of an end."""
        del self.running[job_id]
        return JobEnded(id=self._id(), time=self.now, job_id=job_id)

    def handle(self, events: list[Event]) -> float:
        """Let the engine handle a batch, and carry out its decisions; return the batch's microseconds."""
        before = thread_time_ns()
        outcome = self.engine.handle(events, self.now)
        took = (thread_time_ns() - before) / 1e3
        starts: list[Event] = []
        for decision in outcome.decisions:
            if isinstance(decision, Run):
                self.running[decision.job_id] = None
                starts.append(
                    JobStarted(id=self._id(), time=self.now, job_id=decision.job_id, shares=decision.shares)
                )
        self.went_before |= any(one.cause is Cause.PRIORITY for one in outcome.moves)
        if starts:
            self.handle(starts)
        return took

    def rest(self) -> float:
        """Let the engine finish its work between events; return microseconds."""
        took = 0.0
        while self.engine.next_wake is not None and self.engine.next_wake <= self.now:
            took += self.handle([])
        return took
