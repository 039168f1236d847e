"""Urgent jobs in a log: planned preemption, and preemption at the last moment by rules of other schedulers.

The compared rules run on a machine of equal processors with EASY backfilling, urgent jobs first. When the
first waiting job is urgent and cannot start, running jobs that are not urgent are requeued, and lose their
work. ``latest start`` is the default order of OpenPBS (``preempt_sort = min_time_since_start``), ``latest
submission`` is the order of Slurm for jobs of one partition with priority by age. Jobs that turn out not to
be needed go on, the earliest found first.
"""

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from schedd.plan.columns import Ints
from schedd.policy.slack import Slack
from schedd.replay.driver import run
from schedd.replay.prepared import Prepared
from schedd.replay.workload import TraceJob

Rule = Literal["none", "latest start", "latest submission"]
RULES: Final[tuple[Rule, ...]] = ("none", "latest start", "latest submission")
_URGENT: Final = "urgent"
_BATCH: Final = "batch"
_SLACK: Final = Slack(3_600, 0.5)  # the default slack of a site
_SOON_S: Final = 60

_PRIORITY: Final = {"priority": {"queue": 1.0, "queues": {_URGENT: 1000}}}
_SELECTED: Final = {"preemptors": {"queues": [_URGENT]}, "targets": {"queues": [_BATCH]}, "release_time": 1}
_PLANNED: Final[Mapping[str, Mapping[str, Any]]] = {
    "planned, none": _PRIORITY,
    "planned, protected": {**_PRIORITY, "preemption": {**_SELECTED, "min_run": 600, "rest": 21_600}},
    "planned, unprotected": {**_PRIORITY, "preemption": {**_SELECTED, "min_run": 0, "rest": 0}},
}
"""The planner's variants: without preemption, with protection of victims, and without any."""


@dataclass(frozen=True, slots=True)
class PreemptionFigures:
    """One log under one rule. Waits in seconds, from the submission to the start of the last run."""

    log: str
    rule: str
    urgent_wait_mean: float
    urgent_wait_p95: float
    urgent_soon: float
    """Share of urgent jobs that start within a minute."""
    others_wait_mean: float
    others_wait_p95: float
    others_slowdown: float
    """Mean bounded slowdown of the other jobs (10 s)."""
    preempted_runs: int
    most_preempted: int | None
    """Most preemptions of one job; None: not counted."""
    lost_core_hours: float
    promise_breaches: int | None = None

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


def mark_urgent(jobs: Sequence[TraceJob], share: float, seed: int) -> tuple[TraceJob, ...]:
    """Return the jobs with a random ``share`` of them in the urgent queue."""
    draw = random.Random(seed)
    return tuple(replace(job, queue=_URGENT if draw.random() < share else _BATCH) for job in jobs)


def compare_rules(prepared: Prepared, on_result: Callable[[PreemptionFigures], None]) -> None:
    """Report the figures of each rule and of the planner."""
    for rule in RULES:
        found = simulate_easy(prepared.jobs, prepared.site.procs, rule)
        preempted, lost = found.preempted, found.lost
        on_result(_figures(prepared, f"EASY, {rule}", found.start, found.end, preempted, lost))
    for name, site in _PLANNED.items():
        schedule = run(prepared, "conservative", site=site, slack=_SLACK)
        one = _figures(prepared, name, schedule.start, schedule.end, None, schedule.lost_core_s)
        on_result(
            replace(one, preempted_runs=schedule.preempted_runs, promise_breaches=schedule.promise_breaches)
        )


def _figures(
    prepared: Prepared, rule: str, start: Ints, end: Ints, preempted: Ints | None, lost: int
) -> PreemptionFigures:
    jobs = prepared.jobs
    wait = start - np.array([job.submit for job in jobs])
    urgent = np.array([job.queue == _URGENT for job in jobs])
    took = np.maximum(end - start, 10)
    slowdown = np.maximum(1.0, (wait + end - start) / took)
    return PreemptionFigures(
        log=prepared.name,
        rule=rule,
        urgent_wait_mean=float(wait[urgent].mean()),
        urgent_wait_p95=float(np.quantile(wait[urgent], 0.95)),
        urgent_soon=float((wait[urgent] <= _SOON_S).mean()),
        others_wait_mean=float(wait[~urgent].mean()),
        others_wait_p95=float(np.quantile(wait[~urgent], 0.95)),
        others_slowdown=float(slowdown[~urgent].mean()),
        preempted_runs=0 if preempted is None else int(preempted.sum()),
        most_preempted=None if preempted is None else int(preempted.max()),
        lost_core_hours=lost / 3600,
    )


# ---- EASY with preemption at the last moment ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class EasySchedule:
    """Start and end of the last run of each job, its preemptions, and the core-seconds of lost work."""

    start: Ints
    end: Ints
    preempted: Ints
    lost: int


def simulate_easy(jobs: Sequence[TraceJob], procs: int, rule: Rule) -> EasySchedule:
    """Run the jobs, in order of submission, on a machine of equal processors."""
    return _EasyMachine(jobs, procs, rule).run()


class _EasyMachine:
    def __init__(self, jobs: Sequence[TraceJob], procs: int, rule: Rule) -> None:
        self._jobs, self._free, self._rule = jobs, procs, rule
        self._start = np.full(len(jobs), -1, np.int64)
        self._end = np.full(len(jobs), -1, np.int64)
        self._preempted = np.zeros(len(jobs), np.int64)
        self._ends: list[tuple[int, int]] = []
        self._running: set[int] = set()
        self._waiting: list[int] = []
        self._lost = 0

    def run(self) -> EasySchedule:
        arrived = 0
        while arrived < len(self._jobs) or self._running:
            moments = [self._jobs[arrived].submit] if arrived < len(self._jobs) else []
            while self._ends and not self._is_end(*self._ends[0]):
                heapq.heappop(self._ends)
            now = min([*moments, *(end for end, _ in self._ends[:1])])
            while self._ends and self._ends[0][0] <= now:
                end, job = heapq.heappop(self._ends)
                if self._is_end(end, job):
                    self._running.discard(job)
                    self._free += self._jobs[job].procs
            while arrived < len(self._jobs) and self._jobs[arrived].submit <= now:
                self._waiting.append(arrived)
                arrived += 1
            self._schedule(now)
        return EasySchedule(self._start, self._end, self._preempted, self._lost)

    def _is_end(self, end: int, job: int) -> bool:
        return job in self._running and self._end[job] == end

    def _is_urgent(self, job: int) -> bool:
        return self._jobs[job].queue == _URGENT

    def _begin(self, job: int, now: int) -> None:
        self._waiting.remove(job)
        self._running.add(job)
        self._free -= self._jobs[job].procs
        self._start[job], self._end[job] = now, now + self._jobs[job].run
        heapq.heappush(self._ends, (int(self._end[job]), job))

    def _schedule(self, now: int) -> None:
        while self._waiting:
            self._waiting.sort(key=lambda job: (not self._is_urgent(job), job))
            first = self._waiting[0]
            if self._jobs[first].procs > self._free and not self._preempt_for(first, now):
                break
            self._begin(first, now)
        if self._waiting:
            self._backfill(now)

    def _backfill(self, now: int) -> None:
        """Start later jobs that do not delay the first one, by their requested times."""
        first, free = self._waiting[0], self._free
        shadow = now
        for end, procs in sorted(
            (max(now, int(self._start[job]) + self._jobs[job].estimate), self._jobs[job].procs)
            for job in self._running
        ):
            if free >= self._jobs[first].procs:
                break
            shadow, free = end, free + procs
        extra = free - self._jobs[first].procs
        for job in self._waiting[1:]:
            one = self._jobs[job]
            if one.procs > self._free:
                continue
            ends_in_time = now + one.estimate <= shadow
            if ends_in_time or one.procs <= extra:
                extra -= 0 if ends_in_time else one.procs
                self._begin(job, now)

    def _preempt_for(self, first: int, now: int) -> bool:
        """Requeue running jobs until the first one fits; return whether it does."""
        if self._rule == "none" or not self._is_urgent(first):
            return False
        order: Callable[[int], tuple[int, int]] = (
            (lambda job: (-int(self._start[job]), job))
            if self._rule == "latest start"
            else (lambda job: (-self._jobs[job].submit, job))
        )
        missing, found = self._jobs[first].procs - self._free, []
        for job in sorted((job for job in self._running if not self._is_urgent(job)), key=order):
            if missing <= 0:
                break
            found.append(job)
            missing -= self._jobs[job].procs
        if missing > 0:
            return False
        for job in list(found):
            if missing + self._jobs[job].procs <= 0:
                missing += self._jobs[job].procs
                found.remove(job)
        for job in found:
            self._running.discard(job)
            self._free += self._jobs[job].procs
            self._lost += self._jobs[job].procs * (now - int(self._start[job]))
            self._preempted[job] += 1
            self._waiting.append(job)
        return True
