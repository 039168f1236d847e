"""Start estimates within a replay, as users would see them, and their accuracy.

Waiting jobs are estimated at submission, at half of their wait, and an hour before their start. These times
follow from the starts planned at submission, if all jobs start then; otherwise a first run of the same replay
determines them. An estimate uses nothing that happens later.
"""

from bisect import insort
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, overload

import numpy as np

from schedd.engine import EngineState, JobRecord, backfill_rule
from schedd.model import FOREVER
from schedd.plan.columns import Ints
from schedd.predict import (
    EndForecast,
    JobFeatures,
    Learner,
    PlannedSpeeds,
    Prediction,
    ProbabilityBin,
    RecentArrivals,
    StartCalibration,
    StartDistribution,
    StartSampler,
    start_quantiles,
)
from schedd.replay.coverage import CoveragePart, by_tenth, by_time, tenths
from schedd.replay.end_estimates import AcceptedDeadlines, EndEstimator, planned_nodes
from schedd.replay.prepared import Prepared

ESTIMATE_TIMES: Final = ("submission", "half", "hour")
_HOUR: Final = 3600
_MONTH: Final = 30 * 86_400
_NOT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEstimateFigures:
    """Accuracy of start and run time estimates; the first tenth of the jobs is excluded.

    Shares are between 0 and 1. Unless named otherwise, a figure refers to waiting jobs, estimated at
    submission. ``expected_error_ratio`` is the median of |wait - P50| over the median of |wait - wait by
    walltimes|; ``expected_sharpness`` is the median P90 over the median P50, of waits. None without such
    jobs. ``expected_months`` is the P90 coverage by 30 days since the first submission; ``expected_tenths``
    by tenth of the users with enough estimates.
    """

    expected_jobs: int | None = None
    expected_p90_coverage: float | None = None
    expected_p50_coverage: float | None = None
    expected_error_ratio: float | None = None
    expected_error_s: float | None = None
    expected_sharpness: float | None = None
    expected_half_p90_coverage: float | None = None
    expected_hour_p90_coverage: float | None = None
    expected_months: tuple[CoveragePart, ...] | None = None
    expected_tenths: tuple[CoveragePart, ...] | None = None
    expected_ends: tuple[ProbabilityBin, ...] | None = None
    expected_deadlines: tuple[AcceptedDeadlines, ...] | None = None
    runtime_p90_coverage: float | None = None
    runtime_median_error_s: float | None = None


class SlotIds(Sequence[str]):
    """Job ids by slot, resolved on access: a complete list took as long as two draws."""

    def __init__(self, by_slot: Sequence[JobRecord | None]) -> None:
        self._by_slot = by_slot

    def __len__(self) -> int:
        return len(self._by_slot)

    @overload
    def __getitem__(self, slot: int) -> str: ...

    @overload
    def __getitem__(self, slot: slice) -> Sequence[str]: ...

    def __getitem__(self, slot: int | slice) -> str | Sequence[str]:
        if isinstance(slot, slice):
            return SlotIds(self._by_slot[slot])
        record = self._by_slot[slot]
        return record.id if record is not None else ""


def planned_speed(state: EngineState, paced: bool) -> Callable[[str], float] | None:
    """Return the speed of a job's planned nodes by its id; None: run times do not depend on the nodes."""
    speeds = PlannedSpeeds.from_plan(state.plan) if paced else None
    if speeds is None:
        return None

    def job_speed(job: str) -> float:
        record = state.records.get(job)
        return speeds.job_speed(record.slot if record is not None else -1)

    return job_speed


def record_arrivals(arrivals: RecentArrivals, state: EngineState, new: Sequence[int]) -> None:
    """Record the jobs with these numbers, which arrived in this second."""
    for i in new:
        record = state.records.get(str(i))
        if record is not None and record.slot >= 0:
            arrivals.record(record.id, state.now, state.now, state.plan, record.slot)


class StartEstimator:
    """Estimates starts within a replay and stores the estimates. Times are those of the engine's clock."""

    def __init__(self, prepared: Prepared, start: Ints | None = None) -> None:
        """``start``: start of each job in the log's seconds; None: as planned at its submission."""
        self._jobs = prepared.jobs
        self._offset = prepared.offset
        self._as_planned = start is None
        self._new: list[int] = []  # jobs that arrived in this second
        self.is_valid = True
        """Whether all jobs have started as planned; otherwise estimates were at wrong times, and end."""
        n = len(prepared.jobs)
        self._start = np.full(n, _NOT, np.int64) if start is None else start + prepared.offset
        self._submit = np.array([job.submit for job in prepared.jobs], np.int64) + prepared.offset
        self._learner, self._arrivals = Learner(), RecentArrivals()
        self._paced = prepared.site.paced
        speeds = prepared.site.speeds.values() if self._paced else (1.0,)
        self._slowest, self._fastest = min(speeds), max(speeds)
        self._kinds = tuple(StartCalibration() for _ in ESTIMATE_TIMES)
        self._asked = np.full((len(ESTIMATE_TIMES), n), _NOT, np.int64)
        self._p50, self._p90, self._planned = (self._asked.copy() for _ in range(3))
        self._run50 = np.zeros(n, np.int64)
        self._run90 = np.zeros(n, np.int64)
        self._ends = EndEstimator(n)
        self._asks: list[tuple[int, int, int]] = []
        """Pending estimates of submitted jobs as (time, horizon, job), latest first."""

    def queued(self, i: int, now: int) -> None:
        """Process the arrival of job number ``i``."""
        if not self.is_valid:
            return
        job = self._jobs[i]
        prediction = self._learner.predict_job(
            str(i), JobFeatures(job.user, job.estimate, job.procs, job.name, self._fastest), now
        )
        on_slowest = prediction.at_speed(self._slowest)  # the nodes of the workload's run times
        self._run50[i], self._run90[i] = on_slowest.p50, on_slowest.p90
        self._new.append(i)
        if not self._as_planned:
            self._schedule_estimates(now, i)

    def has_starts(self, start: Ints) -> bool:
        """Return whether all estimates are for these starts, in the log's seconds."""
        return self.is_valid and bool((self._start == start + self._offset).all())

    def _note_arrivals(self, state: EngineState) -> None:
        """Note the jobs that arrived in this second, and the planned starts of those that still wait."""
        record_arrivals(self._arrivals, state, self._new)
        for i in self._new if self._as_planned else ():
            record = state.records.get(str(i))
            if self._start[i] == _NOT:
                self._start[i] = (
                    state.plan.start(record.slot) if record is not None and record.slot >= 0 else _NOT
                )
            self.is_valid &= bool(self._start[i] >= 0)
            self._schedule_estimates(int(self._submit[i]), i)
        self._new.clear()

    def _schedule_estimates(self, now: int, i: int) -> None:
        wait = int(self._start[i]) - now
        if wait > 0:
            self._schedule_estimate(now, 0, i)
            self._schedule_estimate(now + wait // 2, 1, i)
            if wait > _HOUR:
                self._schedule_estimate(now + wait - _HOUR, 2, i)

    def _schedule_estimate(self, moment: int, horizon: int, i: int) -> None:
        insort(self._asks, (-moment, -horizon, -i))

    def started(self, i: int, now: int, speed: float) -> None:
        """Process a start on nodes of this ``speed``."""
        if self._as_planned:
            if self._start[i] == _NOT:  # in the second of its arrival
                self._start[i] = now
            self.is_valid &= bool(self._start[i] == now)
        if not self.is_valid:
            return
        self._learner.record_start(str(i), now, speed=speed)
        for kind in self._kinds:
            kind.record_start(str(i), now)

    def ended(self, i: int, now: int, *, killed: bool) -> None:
        """Process an end, normal or with the node."""
        if not self.is_valid:
            return
        if killed:
            self._learner.forget(str(i), now)
        else:
            self._learner.record_end(str(i), now)
        self._arrivals.record_end(str(i), now - int(self._start[i]))
        self._ends.record_end(i, now, killed=killed)

    def estimate_starts(self, state: EngineState, before: int | None) -> None:
        """Compute all estimates due before ``before``, the next change of the plan (None: all)."""
        self._note_arrivals(state)
        while self.is_valid and self._asks and (before is None or -self._asks[-1][0] < before):
            moment = -self._asks[-1][0]
            asked: list[tuple[int, int]] = []
            while self._asks and -self._asks[-1][0] == moment:
                _, horizon, i = self._asks.pop()
                asked.append((-horizon, -i))
            starts = self._starts(state, moment, {i for _, i in asked})
            for horizon, i in asked:
                if i not in starts:
                    continue  # the job waits for another event, or is too hard to plan
                planned, predicted, late, samples, run_time, slot = starts[i]
                expected = self._kinds[horizon].issue_estimate(str(i), moment, predicted, planned, late)
                if horizon == 0:
                    start = StartDistribution.from_samples(moment, samples, expected, FOREVER)
                    forecast = EndForecast.for_waiting_job(start, run_time, planned_nodes(state, slot))
                    self._ends.estimate_end(i, moment, state, forecast)
                self._asked[horizon, i] = moment
                self._p50[horizon, i], self._p90[horizon, i] = expected.p50, expected.p90
                self._planned[horizon, i] = planned

    def _starts(
        self, state: EngineState, now: int, asked: Collection[int]
    ) -> dict[int, tuple[int, int, int, Ints, Prediction, int]]:
        """Return planned start, P50, P90, sampled starts, predicted run time and slot of these jobs."""
        predictions = self._learner.renew_predictions(now, planned_speed(state, self._paced))
        ids = SlotIds(state.by_slot)
        sampler = StartSampler.from_plan(
            state.plan,
            now,
            state.columns.release,
            ids,
            predictions,
            queued=state.queue,
            arrays=state.arrays,
            rule=backfill_rule(state),
            arrivals=self._arrivals,
        )
        at = [k for k, slot in enumerate(sampler.order.tolist()) if int(ids[slot]) in asked]
        slots = sampler.order[at]
        samples = sampler.sample_starts(slots.tolist())[:, slots]
        found = start_quantiles(samples)
        rows = zip(
            slots.tolist(),
            sampler.planned_starts[at].tolist(),
            found.p50.tolist(),
            found.p90.tolist(),
            samples.T,
            strict=True,
        )
        return {
            int(ids[slot]): (by_plan, p50, late, starts, predictions[ids[slot]], slot)
            for slot, by_plan, p50, late, starts in rows
            if min(by_plan, p50) >= 0
        }

    def figures(self, killed: Ints) -> StartEstimateFigures:
        """Return the accuracy over jobs that were not ``killed`` with a node."""
        n = len(self._jobs)
        late = np.arange(n) >= n // 10
        ran = late & (killed == 0)
        run = np.array([min(job.run, job.estimate) for job in self._jobs], np.int64)
        found = StartEstimateFigures(
            runtime_p90_coverage=_share((run <= self._run90)[ran]),
            runtime_median_error_s=float(np.median(np.abs(run - self._run50)[ran])) if ran.any() else None,
        )
        of = [late & (self._asked[horizon] >= 0) for horizon in range(len(ESTIMATE_TIMES))]
        covered = [
            _share((self._start <= self._p90[horizon])[of[horizon]]) for horizon in range(len(ESTIMATE_TIMES))
        ]
        found = replace(
            found,
            expected_jobs=int(of[0].sum()),
            expected_half_p90_coverage=covered[1],
            expected_hour_p90_coverage=covered[2],
        )
        if not of[0].any():
            return found
        start, p50, p90, planned = (
            array[of[0]] for array in (self._start, self._p50[0], self._p90[0], self._planned[0])
        )
        submit = self._submit[of[0]]
        held, users = start <= p90, np.array([job.user for job in self._jobs])[of[0]]
        error, of_plan = np.median(np.abs(start - p50)), np.median(np.abs(start - planned))
        return replace(
            found,
            expected_p90_coverage=covered[0],
            expected_months=by_time(held, submit - self._submit[0], _MONTH),
            expected_tenths=by_tenth(held, users, tenths(users)),
            expected_p50_coverage=_share(start <= p50),
            expected_ends=self._ends.bins(n // 10),
            expected_deadlines=self._ends.accepted(n // 10),
            expected_error_s=float(error),
            expected_error_ratio=float(error / of_plan) if of_plan > 0 else None,
            expected_sharpness=float(np.median(p90 - submit) / np.median(p50 - submit)),
        )


def _share(hits: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> float | None:
    return float(hits.mean()) if hits.size else None
