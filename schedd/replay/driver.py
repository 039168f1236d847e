"""The driver of a replay: the daemon's own engine under a simulated clock.

Jobs arrive as the log says, a run decision starts its job in the same second, a job ends after its run time.
What happens in one second is handled together, ends before arrivals, before anything starts.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

import numpy as np

from schedd.engine import Engine, EngineSettings
from schedd.plan.kernels.layout import Ints
from schedd.replay.limits import peaks
from schedd.replay.metrics import measure, series
from schedd.replay.prepare import Prepared
from schedd.replay.result import ReplayResult
from schedd.replay.searching import SEARCH_POLICY, Searches, Searching
from schedd.replay.timing import TimedPlan
from schedd.wire import (
    Decision,
    Event,
    JobEnded,
    JobQueued,
    JobStarted,
    NodeChanged,
    NodeFacts,
    Run,
    ShareFacts,
)

__all__ = ["PLANNING_POLICY", "Defect", "Progress", "Schedule", "replay", "run"]

PLANNING_POLICY = "conservative"

_REPORT_EVERY = 256
_MOST_ROUNDS = 1000


class Defect(RuntimeError):
    """The engine did what it must never do; the message says what, and when in simulated time."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replay is: jobs ended of all, events handled, the simulated clock in the log's seconds."""

    ended: int
    jobs: int
    events: int
    time: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """When each job of a selection ran, in the log's seconds, and what the engine did for it."""

    start: Ints
    end: Ints
    events: int
    promise_breaches: int
    plan: TimedPlan | None
    searches: int = 0


def replay(
    prepared: Prepared,
    policy: str,
    *,
    site: Mapping[str, Any] | None = None,
    slack: int = 0,
    searching: Searching | None = None,
    validate: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> ReplayResult:
    """Replay ``prepared`` under ``policy`` and measure it. Raises Defect.

    With ``site``, a site's policy as plain values, its limits and priorities hold, too; all of ``prepared``
    must be allowed by its limits. ``slack`` seconds are what promises leave for priorities and searches to
    work with. With ``searching`` the planning policy's plan is searched now and then.
    """
    begin, begin_cpu = perf_counter(), process_time()
    schedule = run(
        prepared,
        policy,
        site=site,
        slack=slack,
        searching=searching,
        validate=validate,
        on_progress=on_progress,
    )
    wall, cpu = perf_counter() - begin, process_time() - begin_cpu
    jobs = prepared.jobs
    submit = [job.submit for job in jobs]
    procs = [job.procs for job in jobs]
    capacity = prepared.site.procs
    _check_room(schedule, procs, capacity)
    used = peaks(site, jobs, schedule.start.tolist(), schedule.end.tolist()) if site is not None else []
    for peak in used:
        if peak.used > peak.amount:
            raise Defect(f"{peak.limit}: {peak.used} at once by {peak.by}")
    plan = schedule.plan
    add_mean, add_p99 = plan.add_us if plan is not None else (None, None)
    return ReplayResult(
        log=prepared.name,
        policy=_name(policy, site is not None, searching is not None),
        estimates=prepared.estimates,
        kill=prepared.kill,
        procs=capacity,
        jobs=len(jobs),
        skipped=prepared.skipped,
        metrics=measure(submit, schedule.start, schedule.end, procs, [job.user for job in jobs], capacity),
        promise_breaches=schedule.promise_breaches,
        repairs=len(plan.repair_ns) if plan is not None else 0,
        searches=schedule.searches,
        wall_s=wall,
        cpu_s=cpu,
        events_per_s=schedule.events / wall,
        plan_add_us_mean=add_mean,
        plan_add_us_p99=add_p99,
        repair_us_p99=plan.repair_us_p99 if plan is not None else None,
        unix_start_time=prepared.unix_start_time,
        limits=tuple(used),
        series=series(submit, schedule.start, schedule.end, procs, capacity),
    )


def run(
    prepared: Prepared,
    policy: str,
    *,
    site: Mapping[str, Any] | None = None,
    slack: int = 0,
    searching: Searching | None = None,
    validate: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Schedule:
    """Run ``prepared`` under ``policy`` to the end of its last job. Raises Defect."""
    simulation = _Simulation(
        prepared, policy, site=site or {}, slack=slack, searching=searching, validate=validate
    )
    simulation.run(on_progress)
    return simulation.schedule()


def _name(policy: str, site: bool, search: bool) -> str:
    return (SEARCH_POLICY if search else policy) + (", site" if site else "")


class _Simulation:
    """The shell around the engine: a clock, the arrivals still to come, and a heap of ends."""

    def __init__(
        self,
        prepared: Prepared,
        policy: str,
        *,
        site: Mapping[str, Any] | None = None,
        slack: int = 0,
        searching: Searching | None = None,
        validate: bool,
    ) -> None:
        self._prepared = prepared
        self._jobs = prepared.jobs
        # The engine's clock counts from the epoch, a log's own perhaps from before its first job.
        self._offset = prepared.offset
        first = self._jobs[0].submit + self._offset
        settings = EngineSettings(
            policy=policy,
            slack=slack,
            end_allowance=0,
            tell=False,
            repair_slice=1 << 60,
            log_batches=1,
            site=site or {},
            validate=validate,
        )
        self._engine = Engine(settings, first)
        self._plan: TimedPlan | None = None
        if policy == PLANNING_POLICY:
            self._plan = TimedPlan(first)
            self._engine.state.plan = self._plan
        nodes = [NodeChanged(id=f"n{i}", time=first, node=node) for i, node in enumerate(prepared.site.nodes)]
        self._engine.handle(nodes, first)
        if self._plan is not None:
            self._plan.clear_timings()
        self._floor = _Floor(prepared.site.nodes)
        self._start = np.full(len(self._jobs), -1, np.int64)
        self._ends: list[tuple[int, int]] = []
        self._arrived = 0
        self._ended = 0
        self._events = 0
        self._late = 0
        self._searches = Searches(searching, first + searching.every) if searching is not None else None

    def run(self, on_progress: Callable[[Progress], None] | None) -> None:
        engine = self._engine
        rounds = 0
        while (t := self._next_moment()) is not None:
            self._second(t)
            rounds += 1
            if on_progress is not None and rounds % _REPORT_EVERY == 0:
                on_progress(self._progress(t))
        if self._ended < len(self._jobs):
            waiting = int(np.argmax(self._start < 0))
            raise Defect(
                f"{len(self._jobs) - self._ended} jobs never ran, the first of them job "
                f"{self._jobs[waiting].id} of the log: nothing more happens after "
                f"{engine.state.now - self._offset}"
            )
        if on_progress is not None:
            on_progress(self._progress(engine.state.now))

    def schedule(self) -> Schedule:
        start = self._start - self._offset
        return Schedule(
            start=start,
            end=start + np.array([job.run for job in self._jobs], np.int64),
            events=self._events,
            promise_breaches=self._engine.state.breaches + self._late,
            plan=self._plan,
            searches=len(self._searches.reports) if self._searches is not None else 0,
        )

    def _progress(self, t: int) -> Progress:
        return Progress(self._ended, len(self._jobs), self._events, t - self._offset)

    def _next_moment(self) -> int | None:
        """The next end, arrival or wish of the engine; None when the log is through."""
        moments = []
        if self._ends:
            moments.append(self._ends[0][0])
        if self._arrived < len(self._jobs):
            moments.append(self._jobs[self._arrived].submit + self._offset)
        if moments or self._ended < len(self._jobs):
            wake = self._engine.next_wake
            if wake is not None:
                moments.append(wake)
        return min(moments) if moments else None

    def _second(self, t: int) -> None:
        """All that happens at ``t``: ends and arrivals in one batch, then starts until none is left."""
        batch = self._batch(t)
        for _ in range(_MOST_ROUNDS):
            self._events += len(batch)
            batch = self._starts(self._engine.handle(batch, t), t)
            if not batch and self._searches is not None:
                improved = self._searches.improved(self._engine)
                batch = [improved] if improved is not None else []
            if not batch:
                return
        raise Defect(f"the engine does not come to rest at {t - self._offset}")

    def _batch(self, t: int) -> list[Event]:
        batch: list[Event] = []
        ends = self._ends
        while ends and ends[0][0] == t:
            _, job = heapq.heappop(ends)
            batch.append(JobEnded(id=f"e{job}", time=t, job_id=str(job)))
            self._floor.leave(job)
            self._ended += 1
        jobs, facts, offset = self._jobs, self._prepared.facts, self._offset
        i = self._arrived
        while i < len(jobs) and jobs[i].submit + offset == t:
            batch.append(JobQueued(id=f"q{i}", time=t, job=facts(i)))
            i += 1
        self._arrived = i
        return batch

    def _starts(self, decisions: tuple[Decision, ...], t: int) -> list[Event]:
        """Do what the engine decided: what it starts does start."""
        events: list[Event] = []
        for decision in decisions:
            if not isinstance(decision, Run):
                raise Defect(f"at {t - self._offset}: {decision}")
            job = int(decision.job_id)
            # Beside what the engine counts itself: did the job really start by the moment it was promised?
            state = self._engine.state
            self._late += t > int(state.promise[state.records[decision.job_id].slot])
            if self._start[job] >= 0:
                raise Defect(f"job {self._jobs[job].id} was started twice, at {t - self._offset} again")
            full = self._floor.enter(job, decision.shares)
            if full:
                raise Defect(f"job {self._jobs[job].id} was started at {t - self._offset} on {full}")
            self._start[job] = t
            heapq.heappush(self._ends, (t + self._jobs[job].run, job))
            events.append(JobStarted(id=f"s{job}", time=t, job_id=decision.job_id, shares=decision.shares))
        return events


class _Floor:
    """What runs where, kept without asking the engine, which is what it checks."""

    def __init__(self, nodes: Sequence[NodeFacts]) -> None:
        self._cpus = {node.name: node.cpus for node in nodes}
        self._mem = {node.name: node.mem for node in nodes if node.mem}
        self._held: dict[int, Sequence[ShareFacts]] = {}

    def enter(self, job: int, shares: Sequence[ShareFacts]) -> str:
        """A job starts on these shares; returns the node that has no room for it, or nothing."""
        self._held[job] = shares
        full = ""
        for share in shares:
            self._cpus[share.node] -= share.cpus
            if share.node in self._mem:
                self._mem[share.node] -= share.mem
            if self._cpus[share.node] < 0 or self._mem.get(share.node, 0) < 0:
                full = f"{share.node}, which has no room for it"
        return full

    def leave(self, job: int) -> None:
        """A job has ended."""
        for share in self._held.pop(job):
            self._cpus[share.node] += share.cpus
            if share.node in self._mem:
                self._mem[share.node] += share.mem


def _check_room(schedule: Schedule, procs: list[int], capacity: int) -> None:
    """No moment may have more processors in use than there are: checked from the outside, every time."""
    width = np.array(procs, np.int64)
    times = np.concatenate([schedule.end, schedule.start])  # ends of a second come before its starts
    change = np.concatenate([-width, width])
    order = np.argsort(times, kind="stable")
    level = np.cumsum(change[order])
    worst = int(level.argmax())
    if int(level[worst]) > capacity:
        raise Defect(f"{level[worst]} processors of {capacity} in use at {times[order[worst]]}")
