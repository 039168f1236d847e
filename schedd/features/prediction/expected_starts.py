"""Expected starts of all waiting jobs, computed on a fork of the plan in the background."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from schedd.dialect import Until
from schedd.engine.component.job_hooks import job_delay_risk
from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.state import EngineState
from schedd.engine.place.backfilling import backfill_rule_outline, with_expected_run_times
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.prediction.state import find_predictor
from schedd.features.prediction.throughput import AppRates, measured_run_times, with_measured_run_times
from schedd.model import FOREVER
from schedd.plan.backfill import BackfillRule
from schedd.plan.columns import Ints
from schedd.plan.job_order import ArrayEnds
from schedd.plan.plan import Plan
from schedd.predict import (
    CalibratedStart,
    Delay,
    DelayRisk,
    Dependency,
    EstimateKind,
    OpenJobs,
    PlannedSpeeds,
    Prediction,
    RecentArrivals,
    SampledPlan,
    StartCalibration,
    StartSampler,
    classify_estimate,
    decode_starts,
    delayed_quantiles,
    is_unchanged,
    release_dependents,
    start_quantiles,
)
from schedd.wire import ExpectedFacts, StartsExpected

_WORK = 20_000_000_000  # segments of the plan that a round visits at most: some minutes of a processor
_SLICE = 500  # maximum number of jobs per event, to keep each event short


@dataclass(frozen=True, slots=True)
class ExpectedStartsInput:
    """Input of a round, copied between two batches; read-only."""

    plan: Plan
    now: int
    by_slot: tuple[JobRecord | None, ...]
    apps: AppRates
    queued: frozenset[int]  # slots of jobs that a queue policy has waiting
    since: Ints
    promise: Ints
    expected: Ints
    expected_by: Ints
    open_jobs: OpenJobs
    kinds: Mapping[EstimateKind, StartCalibration]
    start_delay: Delay
    end_delay: Delay
    arrivals: RecentArrivals
    arrays: ArrayEnds | None = None
    outline: BackfillRule | None = None
    """The backfilling rule, without predictions."""
    published: PlanSnapshot | None = None
    """What components know of risks; None: no risk is considered."""

    # These properties iterate over all jobs; they are computed outside of the engine.

    @property
    def ids(self) -> tuple[str, ...]:
        """By slot; empty where there is no job."""
        return tuple(record.id if record is not None else "" for record in self.by_slot)

    @property
    def measured(self) -> Mapping[str, int]:
        """How long jobs run by their throughput, where they are planned, in seconds."""
        return measured_run_times(self.by_slot, self.plan, self.apps)

    @property
    def predictions(self) -> Mapping[str, Prediction]:
        """Predicted run times at the time of the copy, by job."""
        return self.predict_run_times(self.measured)

    def predict_run_times(self, measured: Mapping[str, int]) -> dict[str, Prediction]:
        """Return the predicted run times on the planned nodes by job; ``measured`` ones take precedence."""
        speed = self._planned_speed
        return with_measured_run_times(self.open_jobs.renew_predictions(speed), measured)

    @property
    def _planned_speed(self) -> Callable[[str], float] | None:
        """Speed of a job's planned nodes by its id; None: all nodes have speed 1."""
        speeds = PlannedSpeeds.from_plan(self.plan)
        if speeds is None:
            return None
        slots = {record.id: slot for slot, record in enumerate(self.by_slot) if record is not None}
        return lambda job: speeds.job_speed(slots.get(job, -1))

    @property
    def rule(self) -> BackfillRule | None:
        """The backfilling rule with predictions. None: repair alone assigns free capacity."""
        if self.outline is None:
            return None
        initial, speed = self.open_jobs.predictions_by_id(), self._planned_speed
        if speed is not None:
            initial = {job: one.at_speed(speed(job)) for job, one in initial.items()}
        return with_expected_run_times(self.outline, self.by_slot, initial.get)


@dataclass(frozen=True, slots=True, eq=False)
class SampledStart:
    """Sampled starts of a job (-1: none), and the expected start that follows from them."""

    samples: Ints
    expected: CalibratedStart


@dataclass(frozen=True, slots=True)
class ExpectedStarts:
    """Result of a round: starts by predicted run times, and the expected starts to publish.

    ``plan`` is decoded with the median run times; ``sampler`` and ``drawn`` answer questions on further jobs.
    """

    as_of: int
    plan: Plan
    sampler: StartSampler = field(repr=False)
    drawn: tuple[SampledPlan, ...] = field(repr=False)
    starts: Mapping[str, SampledStart] = field(repr=False)  # by job
    expected: tuple[ExpectedFacts, ...]
    predictions: Mapping[str, Prediction] = field(repr=False)
    """Run times by job; ``measured`` has those with a known throughput, in seconds."""
    measured: Mapping[str, int]
    kinds: Mapping[EstimateKind, StartCalibration] = field(repr=False)
    start_delay: Delay

    def events(self, name: str) -> Iterator[StartsExpected]:
        """Return the engine's events, at least one, with the time; ``name`` is their ids' prefix."""
        return _events(name, self.as_of, self.expected, None)


@dataclass(frozen=True, slots=True)
class NearStarts:
    """Result of a round of near starts: the estimates to publish, of jobs expected until ``until``."""

    as_of: int
    until: int
    starts: Mapping[str, SampledStart] = field(repr=False)  # by job
    expected: tuple[ExpectedFacts, ...]
    predictions: Mapping[str, Prediction] = field(repr=False)

    def events(self, name: str) -> Iterator[StartsExpected]:
        """Return the events for the engine; see ``ExpectedStarts.events``."""
        return _events(name, self.as_of, self.expected, self.until)


def _events(
    name: str, as_of: int, estimates: tuple[ExpectedFacts, ...], until: int | None
) -> Iterator[StartsExpected]:
    for first in range(0, max(1, len(estimates)), _SLICE):
        part = estimates[first : first + _SLICE]
        yield StartsExpected(id=f"{name}:{first // _SLICE}", time=as_of, jobs=part, until=until)


def expected_starts_input(
    state: EngineState, published: PlanSnapshot | None = None
) -> ExpectedStartsInput | None:
    """Return the input of a round; None without predictions. To be called between two batches. ``published``:
    a snapshot with the risks of delays.
    """
    predictor = find_predictor(state)
    if predictor is None:
        return None
    plan = state.plan.fork()
    plan.limit_work(all_of_them=_WORK)
    end_delay = predictor.end_delay
    return ExpectedStartsInput(
        plan=plan,
        now=state.now,
        by_slot=tuple(state.by_slot),
        apps=state.site.throughput,
        queued=frozenset(state.queue),
        since=state.columns.release.copy(),
        promise=state.promise.copy(),
        expected=state.expected.copy(),
        expected_by=state.expected_by.copy(),
        open_jobs=predictor.learner.snapshot_open_jobs(state.now - end_delay.p50),
        kinds={kind: one.copy() for kind, one in predictor.calibrations.items()},
        start_delay=predictor.start_delays.current,
        end_delay=end_delay,
        arrivals=predictor.arrivals.copy(),
        arrays=_own(state.arrays),
        outline=backfill_rule_outline(state),
        published=published,
    )


def compute_expected_starts(
    given: ExpectedStartsInput, ready: Callable[[Plan], None] = lambda _: None
) -> ExpectedStarts:
    """Compute the expected starts of all waiting jobs. ``ready`` is called with each plan used, so that its
    searches can be stopped from outside.
    """
    now, seconds = given.now, given.measured
    predictions = given.predict_run_times(seconds)
    sampler = _make_sampler(given, predictions)
    order = sampler.order
    drawn = sampler.sample_plans(ready=ready)
    plan = given.plan.fork()
    ready(plan)
    likely = sampler.find_likely_starts(ready)
    if likely is not None:
        release_dependents(plan, sampler.dependencies, likely, sampler.median_run_times, now)
    decode_starts(plan, order, sampler.median_run_times, now)
    sampled = np.stack([one.starts[order] for one in drawn])
    starts, expected = _estimate_starts(given, order, sampled, sampler.planned_starts, predictions)
    return ExpectedStarts(
        as_of=now,
        plan=plan,
        sampler=sampler,
        drawn=tuple(drawn),
        starts=starts,
        expected=expected,
        predictions=predictions,
        measured=seconds,
        kinds=given.kinds,
        start_delay=given.start_delay,
    )


def compute_near_starts(
    given: ExpectedStartsInput, nearest: int, ready: Callable[[Plan], None] = lambda _: None
) -> NearStarts:
    """Compute the expected starts of the ``nearest`` jobs by expected or planned start, whichever is earlier.

    They are decoded, not simulated: with a long queue a round of all starts simulates little more. Needs a
    plan of all jobs.
    """
    now, ids = given.now, given.ids
    predictions = given.predictions
    sampler = _make_sampler(given, predictions)
    order, planned = sampler.order, sampler.planned_starts
    expected = given.expected[order]
    near = np.where(expected >= 0, np.minimum(expected, planned), planned)
    if not order.shape[0]:
        return NearStarts(now, now, {}, (), predictions)
    last = min(nearest, near.shape[0]) - 1
    until = int(np.partition(near, last)[last])
    wanted = near <= until
    slots = order[wanted]
    starts = sampler.decode_near(slots.tolist(), ready)[:, slots]
    found, estimates = _estimate_starts(given, slots, starts, planned[wanted], predictions)
    missed = np.array([ids[slot] not in found for slot in slots.tolist()])
    until = min(until, int(near[wanted][missed].min(initial=FOREVER)) - 1)
    return NearStarts(now, until, found, estimates, predictions)


def _make_sampler(given: ExpectedStartsInput, predictions: Mapping[str, Prediction]) -> StartSampler:
    return StartSampler.from_plan(
        given.plan,
        given.now,
        given.since,
        given.ids,
        predictions,
        queued=given.queued,
        arrays=given.arrays,
        rule=given.rule,
        dependencies=_find_dependencies(given.by_slot),
        start_delay=given.start_delay.p50,
        end_delay=given.end_delay.p50,
        arrivals=given.arrivals,
    )


def _find_dependencies(by_slot: Sequence[JobRecord | None]) -> dict[int, Dependency]:
    """Return the jobs that each dependent job is planned behind, by slot."""
    chained = [record for record in by_slot if record is not None and record.behind]
    if not chained:
        return {}
    slots: dict[str, list[int]] = {}
    for record in by_slot:
        if record is not None and record.slot >= 0:
            for name in {record.id, record.facts.array}:
                slots.setdefault(name, []).append(record.slot)
    found = {}
    for record in chained:
        ended: list[int] = []
        started: list[int] = []
        for link in record.behind:
            (started if link.kind == Until.STARTED else ended).extend(slots.get(link.job, ()))
        least = max(record.facts.not_before or 0, record.back_off.until)
        found[record.slot] = Dependency(tuple(ended), tuple(started), least)
    return found


def _estimate_starts(
    given: ExpectedStartsInput,
    slots: Ints,
    sampled: Ints,
    planned: Ints,
    predictions: Mapping[str, Prediction],
) -> tuple[dict[str, SampledStart], tuple[ExpectedFacts, ...]]:
    """Return the ``sampled`` starts, (samples, jobs), by job, and the estimates to publish."""
    now, ids = given.now, given.ids
    found = start_quantiles(sampled)
    estimates = []
    starts = {}
    rows = zip(slots.tolist(), found.p50.tolist(), found.p90.tolist(), planned.tolist(), strict=True)
    for i, (slot, start, late, by_plan) in enumerate(rows):
        job = ids[slot]
        if min(start, by_plan) < 0 or job not in predictions:
            continue
        risk = _delay_risk(given, slot)
        if risk is not None and late >= 0:
            start, late = delay_start(sampled[:, i], risk, now, start, late)
        kind, counts = classify_estimate(given.kinds, job, now, int(given.since[slot]), start)
        new = given.kinds[kind].estimate(now, start, by_plan, late, given.start_delay)
        new = cap_at_promise(new, now, int(given.promise[slot]))
        starts[job] = SampledStart(sampled[:, i], new)
        p50 = int(given.expected[slot])
        old = CalibratedStart(p50, int(given.expected_by[slot])) if p50 >= 0 else None
        if counts or not is_unchanged(old, new, now):
            estimates.append(
                ExpectedFacts(job, new.p50, new.p90, by_plan, kind if counts else "", late, start)
            )
    return starts, tuple(estimates)


def _delay_risk(given: ExpectedStartsInput, slot: int) -> DelayRisk | None:
    record = given.by_slot[slot]
    if given.published is None or record is None:
        return None
    return job_delay_risk(given.published, record.facts, runs=False)


def delay_start(sampled: Ints, risk: DelayRisk, now: int, start: int, late: int) -> tuple[int, int]:
    """Return P50 and P90 of the (samples,) starts under the risk, no earlier than without it."""
    half, most = delayed_quantiles(sampled[sampled >= 0], risk, now, now)
    return max(start, half), max(late, most)


def _own(arrays: ArrayEnds | None) -> ArrayEnds | None:
    """Return a copy, because the engine changes its own."""
    return ArrayEnds(arrays.number.copy(), arrays.end.copy()) if arrays is not None else None


def cap_at_promise(expected: CalibratedStart, now: int, promised: int) -> CalibratedStart:
    """Return the estimate, limited to the promised start unless that has passed."""
    if promised <= now or expected.p90 <= promised:
        return expected
    return CalibratedStart(min(expected.p50, promised), promised)
