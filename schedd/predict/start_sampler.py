"""Expected starts by simulation: the planner runs ahead on forks, each with other sampled run times."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np

from schedd.model import FOREVER, NodeState
from schedd.plan.backfill import BackfillRule
from schedd.plan.columns import PLANNED, UNPLACED, Ints
from schedd.plan.job_order import ArrayEnds
from schedd.plan.plan import PackedPlan, Plan
from schedd.plan.projection import project_plan
from schedd.predict.arrivals import FutureArrivals, PlanWithArrivals, RecentArrivals, foresee_arrivals
from schedd.predict.predicted_starts import decode_starts, running_slots, waiting_slots
from schedd.predict.predictions import Prediction
from schedd.predict.sampling import MEDIAN, draw_levels, sample_run_times

_MAX_SAMPLES: Final = 9
_MIN_SAMPLES: Final = 5
_DECODED_JOBS: Final = 50_000  # jobs decoded over all samples; bounds the number of samples at long queues
_WORK_SEGMENTS: Final = 240_000_000
"""Plan segments visited by all samples before the remaining jobs are decoded. With a sixteenth of that, the
median error of waits of six hours and more was 6.4 hours in place of 2, with 800 jobs on 1,000 nodes.
"""
_LATER: Final = 1.5
"""The last start is expected at most this much later than by walltimes, shortened as the run times are."""
_P90: Final = 0.9


@dataclass(frozen=True, slots=True)
class Dependency:
    """Jobs that a waiting job is planned behind: it may start when all ``ended`` have ended and all
    ``started`` have started, not before ``least``. Slots of the plan.
    """

    ended: tuple[int, ...] = ()
    started: tuple[int, ...] = ()
    least: int = 0


_INDEPENDENT: Final[Mapping[int, Dependency]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LikelyStarts:
    """Likely starts of all jobs by slot (-1: none), if dependent jobs are ready at ``ready``."""

    starts: Ints
    ready: Ints


def release_dependents(
    fork: Plan, dependencies: Mapping[int, Dependency], likely: LikelyStarts, run_times: Ints, now: int
) -> None:
    """Let each dependent job of ``fork`` be ready when its prerequisites end after ``run_times`` (seconds, by
    slot), instead of after their walltimes.

    A prerequisite that waits has its ``likely`` start, earlier by what its own prerequisites gain.
    """
    jobs = fork.jobs
    slots = [slot for slot in dependencies if jobs.states[slot] == PLANNED]
    gains: dict[int, int] = {}
    for slot in sorted(slots, key=lambda one: int(likely.starts[one])):
        before, ready = int(likely.ready[slot]), max(dependencies[slot].least, now)
        for others, ends in ((dependencies[slot].ended, True), (dependencies[slot].started, False)):
            for other in others:
                start = int(likely.starts[other])
                if start < 0:
                    ready = max(ready, before)
                    continue
                if jobs.states[other] == PLANNED:
                    start = max(start - gains.get(other, 0), now)
                ready = max(ready, max(start + int(run_times[other]), now + 1) if ends else start)
        gains[slot] = before - ready
        if ready < fork.ready(slot):
            fork.set_ready(slot, ready)


@dataclass(frozen=True, slots=True)
class SampledPlan:
    """One sample: the plan simulated up to ``now``, and the starts by slot (-1: none).

    The plan is kept in less memory: at 10,000 nodes a plan has 160 MiB and more.
    """

    plan: PackedPlan
    now: int
    starts: Ints


@dataclass(frozen=True, slots=True)
class StartQuantiles:
    """Quantiles of sampled starts in epoch seconds; ``p50``: -1 if most samples have none."""

    p50: Ints
    p90: Ints  # -1 if more than a tenth of the samples have no start


@dataclass(frozen=True, slots=True, eq=False)
class StartSampler:
    """Sampler of starts: a plan by walltimes, which is never changed, and sampled run times of its jobs."""

    plan: Plan
    now: int
    order: Ints  # slots of the waiting jobs in their expected order of start
    median_run_times: Ints  # seconds, by slot
    sampled_run_times: Ints  # seconds, (samples, slots); the planned duration for a job without a prediction
    turnaround: int = 0
    """Part of the run times of waiting jobs: the delays of their start and of the report of their end."""
    arrays: ArrayEnds | None = None
    rule: BackfillRule | None = None
    dependencies: Mapping[int, Dependency] = field(default_factory=dict)
    future: FutureArrivals | None = None
    """Jobs that are expected to come; None: none is known."""

    @classmethod
    def from_plan(
        cls,
        plan: Plan,
        now: int,
        since: Ints,
        ids: Sequence[str],
        predictions: Mapping[str, Prediction],
        *,
        queued: Collection[int] = (),
        arrays: ArrayEnds | None = None,
        rule: BackfillRule | None = None,
        dependencies: Mapping[int, Dependency] = _INDEPENDENT,
        start_delay: int = 0,
        end_delay: int = 0,
        arrivals: RecentArrivals | None = None,
    ) -> "StartSampler":
        """Sample the run times of all jobs of ``plan``.

        ``ids`` and ``since`` (start of the wait) are by slot. ``queued``: slots that wait under a queue
        policy without a plan. A running job holds its nodes until its end is reported, ``end_delay`` seconds
        after the end; ``predictions`` are of ``end_delay`` seconds ago. A job that waits holds them from the
        moment at which it is due, ``start_delay`` seconds before it starts. Jobs like the latest ``arrivals``
        come again.
        """
        jobs = plan.jobs
        order = waiting_slots(plan, since)
        waits = jobs.states[order] == PLANNED
        if queued:
            waits |= (jobs.states[order] == UNPLACED) & np.isin(order, list(queued))
        order = order[waits]
        slots = np.concatenate((order, running_slots(plan)))
        names = [ids[slot] for slot in slots.tolist()]
        slots = slots[[name in predictions for name in names]]
        names = [name for name in names if name in predictions]
        known = [predictions[name] for name in names]
        states, starts = jobs.states[slots], jobs.starts[slots]
        elapsed = np.where(states == PLANNED, 0, np.where(states == UNPLACED, 0, now - end_delay - starts))
        draws = max(_MIN_SAMPLES, min(_MAX_SAMPLES, _DECODED_JOBS // max(1, order.shape[0])))
        durations = jobs.durations
        medians, lasts = durations.copy(), np.tile(durations, (draws, 1))
        longest, turnaround = durations[slots], start_delay + end_delay
        held = np.where((states == PLANNED) | (states == UNPLACED), turnaround, end_delay)
        medians[slots] = np.minimum(sample_run_times(known, elapsed, MEDIAN)[:, 0] + held, longest)
        levels = draw_levels(names, draws)
        lasts[:, slots] = np.minimum(sample_run_times(known, elapsed, levels).T + held, longest)
        future = None
        if arrivals is not None and len(arrivals) and order.shape[0]:
            open_jobs = dict(zip(names, slots.tolist(), strict=True))
            future = _foresee(plan, now, arrivals, open_jobs, lasts, turnaround)
        return cls(plan, now, order, medians, lasts, turnaround, arrays, rule, dependencies, future)

    @property
    def planned_starts(self) -> Ints:
        """Planned starts of ``order``; decoded by walltimes if the policy does not plan all jobs."""
        jobs = self.plan.jobs
        if self._all_planned:
            return jobs.starts[self.order]
        return decode_starts(self.plan.fork(), self.order, jobs.durations, self.now)

    @property
    def work_limit(self) -> int:
        """Plan segments that one sample may visit before the remaining jobs are decoded."""
        return _WORK_SEGMENTS // int(self.sampled_run_times.shape[0])

    @property
    def _all_planned(self) -> bool:
        return bool((self.plan.jobs.states[self.order] == PLANNED).all())

    def find_likely_starts(self, ready: Callable[[Plan], None] = lambda _: None) -> LikelyStarts | None:
        """Return the starts by median run times; None without dependent jobs.

        Only prerequisites that wait need a plan by these run times.
        """
        if not self.dependencies:
            return None
        jobs = self.plan.jobs
        planned = LikelyStarts(jobs.starts.copy(), self._ready_times(self.plan))
        others = [slot for one in self.dependencies.values() for slot in (*one.ended, *one.started)]
        if not (jobs.states[others] == PLANNED).any():
            return planned
        fork = self.plan.fork()
        ready(fork)
        release_dependents(fork, self.dependencies, planned, self.median_run_times, self.now)
        found = LikelyStarts(planned.starts, self._ready_times(fork))
        found.starts[self.order] = decode_starts(fork, self.order, self.median_run_times, self.now)
        return found

    def _ready_times(self, plan: Plan) -> Ints:
        found = np.zeros(plan.jobs.starts.shape[0], np.int64)
        for slot in self.dependencies:
            found[slot] = plan.ready(slot)
        return found

    def sample_plans(
        self, until: Collection[int] = (), ready: Callable[[Plan], None] = lambda _: None
    ) -> list[SampledPlan]:
        """Return all samples: simulate up to the work limit, then decode the remaining jobs.

        With ``until`` only the starts of these slots are valid. ``ready`` is called with each fork before its
        simulation.
        """
        return [SampledPlan(fork.pack(), now, starts) for fork, now, starts in self._draws(until, ready)]

    def sample_starts(self, until: Collection[int]) -> Ints:
        """Return the sampled starts, (samples, slots)."""
        return np.stack([starts for _, _, starts in self._draws(until)])

    def decode_near(self, until: Collection[int], ready: Callable[[Plan], None] = lambda _: None) -> Ints:
        """Return decoded starts (samples, slots) without simulation; valid for ``until``, all planned."""
        found = np.full(self.sampled_run_times.shape, -1, np.int64)
        order = self.order[np.argsort(self.plan.jobs.starts[self.order], kind="stable")]
        places = np.flatnonzero(np.isin(order, list(until)))
        count = int(places[-1]) + 1 if places.shape[0] else 0
        for k, fork in enumerate(self._forks(ready, self.plan)):
            found[k, order] = decode_starts(fork, order, self.sampled_run_times[k], self.now, count)
        return found

    def with_arrivals(
        self, plan: Plan, rule: BackfillRule | None, until: Collection[int] = ()
    ) -> PlanWithArrivals:
        """Return ``plan``, this one or a fork with further jobs, with the jobs that are expected to come.

        With ``until`` only jobs that may come before the planned starts of these slots: the projection ends
        there at the latest. With a backfilling rule jobs may start later than planned, so all come.
        """
        future = self.future
        if future is not None and until and rule is None:
            future = future.until(int(plan.jobs.starts[list(until)].max()))
        return PlanWithArrivals.of(plan, future, rule)

    def _draws(
        self, until: Collection[int] = (), ready: Callable[[Plan], None] = lambda _: None
    ) -> Iterator[tuple[Plan, int, Ints]]:
        """Iterate over the samples: the plan until the next one is drawn, the time, and the starts."""
        all_planned = self._all_planned
        ahead = self.with_arrivals(self.plan, self.rule, until)
        for k, fork in enumerate(self._forks(ready, ahead.plan)):
            yield fork, *self._draw(k, until, fork, ahead, all_planned=all_planned)

    def _forks(self, ready: Callable[[Plan], None], plan: Plan) -> Iterator[Plan]:
        """Iterate over forks of ``plan``, one for each sample: all in the memory of the first."""
        likely = self.find_likely_starts(ready)
        fork = plan.fork_with_room()
        reset = fork.make_reset(plan)
        for k in range(self.sampled_run_times.shape[0]):
            if k:
                reset()
            ready(fork)
            if likely is not None:
                release_dependents(fork, self.dependencies, likely, self.sampled_run_times[k], self.now)
            yield fork

    def _draw(
        self, k: int, until: Collection[int], fork: Plan, ahead: PlanWithArrivals, *, all_planned: bool
    ) -> tuple[int, Ints]:
        """Return the time up to which ``fork`` was simulated, and the starts."""
        lasts, order = ahead.run_times(k, self.sampled_run_times[k]), self.order
        starts, now = np.full(lasts.shape[0], -1, np.int64), self.now
        if all_planned:
            come = ahead.begin(fork, k)
            wanted = until or (order.tolist() if come.shape[0] else ())
            at = project_plan(fork, lasts, now, self.work_limit, wanted, self.arrays, ahead.rule, come)
            starts, now = at.started, at.now
        if until and (starts[list(until)] >= 0).all():
            return now, starts
        rest = order[starts[order] < 0]
        if all_planned:
            come = ahead.slots[fork.jobs.states[ahead.slots] == PLANNED]
            rest = np.concatenate((rest, come))
            rest = rest[np.argsort(fork.jobs.starts[rest], kind="stable")]
        asked = np.flatnonzero(np.isin(rest, list(until)))
        starts[rest] = decode_starts(fork, rest, lasts, now, int(asked[-1]) + 1 if asked.shape[0] else None)
        return now, starts


def _foresee(
    plan: Plan,
    now: int,
    recent: RecentArrivals,
    open_jobs: Mapping[str, int],
    lasts: Ints,
    turnaround: int,
) -> FutureArrivals | None:
    """Return the jobs to come until all jobs of ``plan`` may have started, which run like the recent ones.

    ``open_jobs``: slots of the open jobs by id; ``lasts``, (draws, slots), has their run times.
    """
    jobs = [one for _, one in recent.items()]
    ran = np.array([one.run_s for one in jobs], np.int64)
    longest = np.array([one.walltime for one in jobs], np.int64)
    run_s = np.tile(np.where(ran > 0, np.minimum(ran + turnaround, longest), longest), (lasts.shape[0], 1))
    still = [(i, open_jobs[job]) for i, (job, _) in enumerate(recent.items()) if job in open_jobs]
    if still:
        which, slots = np.array(still, np.int64).T
        run_s[:, which] = lasts[:, slots]
    cpus = sum(node.cpus for node in plan.nodes.values() if node.state is NodeState.UP)
    waits = np.flatnonzero(plan.jobs.states == PLANNED)
    walltimes = int(plan.jobs.durations[waits].sum())
    share = min(1.0, _LATER * float(lasts[:, waits].mean(axis=0).sum()) / max(1, walltimes))
    until = now + round(share * (int(plan.jobs.starts[waits].max(initial=now)) - now))
    return foresee_arrivals(recent, now, until, run_s, max(1, cpus))


def start_quantiles(starts: Ints) -> StartQuantiles:
    """Return the quantiles of ``starts``, (samples, jobs), -1 for none."""
    n = starts.shape[0]
    ordered = np.sort(np.where(starts < 0, FOREVER, starts), axis=0)
    p50 = (ordered[(n - 1) // 2] + ordered[n // 2]) // 2
    late = ordered[int(np.ceil(_P90 * n)) - 1]
    return StartQuantiles(np.where(ordered[n // 2] < FOREVER, p50, -1), np.where(late < FOREVER, late, -1))
