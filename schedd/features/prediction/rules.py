"""Learning of run times and starts from outcomes, and publication of expected starts."""

from typing import Final

import numpy as np

from schedd.engine.facts.arrays import array_name
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.features.prediction.settings import prediction_settings
from schedd.features.prediction.state import PredictionState, find_predictor
from schedd.predict import (
    LONGEST_DELAY_S,
    CalibratedStart,
    JobFeatures,
    PlannedSpeeds,
    RunTimePredictor,
    speed_range,
)
from schedd.wire import JobFacts, StartsExpected

_MIN_OUTCOMES: Final = 100  # number of outcomes below which the accuracy of expected starts is not judged
_COVERAGE_BOUNDS: Final = (0.80, 0.97)
"""P90 should cover 90 % of the jobs; outside these bounds an alert is raised."""
_CLOSE_S: Final = 60  # a forecast of at most this much before the earliest start is kept
_LATEST_MOVES: Final = 3  # number of latest moves in which the move of a late job to the present is searched


_KIND_TEXTS: Final = {
    "submission": "published at submission",
    "waiting": "published at half of the expected wait",
    "hour": "published within an hour of the start",
}


def job_features(
    facts: JobFacts, understood: ParsedRequest, speeds: tuple[float, float] = (1.0, 1.0)
) -> JobFeatures:
    """Return the features that predict a job's run time, with the ``speeds`` of the slowest and the fastest
    node. The host of its owner is not one: users log in anywhere.

    A walltime that is scaled to the nodes allows the same work on each; it is longest on the slowest.
    """
    request = understood.request
    cpus = request.cpus if request is not None else sum(share.cpus for share in facts.shares)
    name = array_name(facts.id, facts.name)
    slowest, fastest = speeds
    scale, walltime = understood.scale, max(1, understood.walltime)
    if scale is not None:
        walltime, fastest = scale.limit_at(slowest), slowest
    return JobFeatures(facts.owner.partition("@")[0], walltime, cpus, name, fastest)


def update_prediction(state: EngineState, before: JobRecord | None, record: JobRecord) -> None:
    """Follow a new (``before``: None) or changed job: predict its run time, record its start or requeue."""
    predictor = find_predictor(state)
    if predictor is not None:
        _follow_job(state, predictor, before, record)


def _follow_job(
    state: EngineState, predictor: RunTimePredictor, before: JobRecord | None, record: JobRecord
) -> None:
    job, now = record.id, state.now
    runs, ran = record.phase is Phase.RUNNING, before is not None and before.phase is Phase.RUNNING
    if not state.settings.predicts(record.facts.queue):
        if job in predictor.learner:
            _discard_expected_start(state, record)
            predictor.forget(job, now)
        return
    if job not in predictor.learner or (before is not None and not runs and _differs(before, record)):
        if job in predictor.learner:
            _discard_expected_start(state, record)
            predictor.discard_estimates(job)
        features = job_features(record.facts, record.understood, speed_range(state.plan))
        predictor.learner.predict_job(job, features, now)
    if (before is None or before.slot < 0) and record.slot >= 0 and record.phase is Phase.WAITING:
        predictor.arrivals.record(job, record.facts.submitted, now, state.plan, record.slot)
    if runs:
        if before is None or not ran or before.run.started != record.run.started:
            predictor.record_start_delay(job, record.run.started)
            speeds = PlannedSpeeds.from_plan(state.plan)
            speed = speeds.slowest(share.node for share in record.facts.shares) if speeds is not None else 1.0
            predictor.record_start(job, now, record.run.started, counts=before is not None, speed=speed)
            _discard_expected_start(state, record)
        return
    if record.phase is Phase.DISPATCHED:
        if before is None or before.phase is not Phase.DISPATCHED:
            predictor.record_dispatch(job, _due_time(state, record))
    else:
        predictor.withdraw_dispatch(job)
    if ran:
        predictor.learner.record_requeue(job, now)
    if record.phase is Phase.WAITING and record.slot >= 0:
        # A refusal, or a new begin: the forecast did not know it.
        earliest = max(record.facts.not_before or 0, record.back_off.until)
        if earliest > now and 0 <= state.expected[record.slot] < earliest - _CLOSE_S:
            _discard_expected_start(state, record)
    if record.phase is Phase.BLOCKED and (before is None or before.phase is not Phase.BLOCKED):
        predictor.discard_estimates(job)
        _discard_expected_start(state, record)


def _due_time(state: EngineState, record: JobRecord) -> int:
    """Return the planned start of a job dispatched now; a late one was moved just before."""
    for changes in reversed(state.moves[-_LATEST_MOVES:]):
        if changes.cause is Cause.OUTAGE and changes.slots.tolist() == [record.slot]:
            old = int(changes.old[0])
            if int(changes.new[0]) == state.now and old >= 0:
                return old
    return state.now


def _differs(before: JobRecord, record: JobRecord) -> bool:
    if before.facts is record.facts and before.understood is record.understood:
        return False
    return job_features(before.facts, before.understood) != job_features(record.facts, record.understood)


def _discard_expected_start(state: EngineState, record: JobRecord) -> None:
    if record.slot >= 0:
        state.expected[record.slot] = state.expected_by[record.slot] = -1


def record_job_end(state: EngineState, record: JobRecord, at: int, by_itself: bool) -> None:
    """Forget a job that is gone. Learn from its run if it ended by itself, at its walltime, or by its owner's
    order; not if it ended with its node.
    """
    predictor = find_predictor(state)
    if predictor is None:
        return
    try:
        if record.run.started >= 0:
            predictor.record_end_delay(at, state.now)
            predictor.arrivals.record_end(record.id, record.run.computed_s(at))
        else:
            predictor.arrivals.forget(record.id)
        if by_itself:
            predictor.record_end(record.id, state.now, record.run.started + record.run.computed_s(at))
    finally:
        predictor.forget(record.id, state.now)


def on_starts_expected(state: EngineState, event: StartsExpected) -> None:
    """Publish these expected starts for jobs that still wait; see ``RunTimePredictor``."""
    predictor = find_predictor(state)
    if predictor is None:
        return
    if event.until is None:
        predictor.as_of = max(predictor.as_of, event.time)
    else:
        predictor.near_as_of, predictor.near_until = event.time, event.until
    for facts in event.jobs:
        record = state.records.get(facts.job_id)
        if record is None or record.slot < 0 or record.phase is not Phase.WAITING:
            continue
        if facts.job_id not in predictor.learner:
            continue
        slot = record.slot
        state.expected[slot], state.expected_by[slot] = facts.start, facts.by
        state.changed[slot] = state.generation
        if state.publishes_starts and not state.silent:
            state.update_due[slot], state.updates_marked = 1, True
        if facts.kind and facts.by > state.now:  # a P90 that passed during the round is not published
            shown = CalibratedStart(facts.start, facts.by)
            predictor.calibrations[facts.kind].record_estimate(
                facts.job_id,
                event.time,
                shown,
                facts.planned,
                facts.late,
                predictor.start_delays.current,
                facts.predicted if facts.predicted >= 0 else None,
            )


def inaccurate_estimates(state: EngineState) -> dict[str, float]:
    """Return the kinds of expected starts with a coverage of P90 outside the bounds and not by chance, with
    that coverage.
    """
    predictor = find_predictor(state)
    if predictor is None:
        return {}
    return {
        kind: share
        for kind, one in predictor.calibrations.items()
        if len(one.recent_hits) >= _MIN_OUTCOMES
        and (share := one.find_p90_bias(*_COVERAGE_BOUNDS)) is not None
    }


def is_inaccurate(state: EngineState, kind: str) -> bool:
    """Whether expected starts of this kind are inaccurate: the alert about them stays open."""
    return kind in inaccurate_estimates(state)


def note_absence(state: EngineState, _event: str) -> None:
    """Note that nothing could start while the daemon was down, before anything is learned from it."""
    predictor = find_predictor(state)
    if predictor is not None and state.absent_since >= 0 and state.mode == "scheduler":
        predictor.halts.note(state.now, halted=True, since=state.absent_since)


def close_batch(state: EngineState, event: str) -> None:
    """Count predictions that are due, and raise an alert for inaccurate kinds of expected starts."""
    predictor = find_predictor(state)
    if predictor is None:
        return
    # In another mode other schedulers start the jobs.
    # Shorter refusals are usual on a busy machine. Then outcomes must count: only early ones would be left.
    refused = bool(state.starts_refused) and state.now - state.refused_since >= LONGEST_DELAY_S
    halted = state.mode == "scheduler" and (bool(state.halted) or refused)
    since = -1 if state.halted else state.refused_since
    predictor.halts.note(state.now, halted=halted, since=since)
    predictor.advance_clock(state.now)
    for kind, share in inaccurate_estimates(state).items():
        if f"expected {kind}" not in state.alerts:
            held = f"{100 * share:.0f} % of the latest jobs started by the 90 % time"
            how = "too optimistic" if share < _COVERAGE_BOUNDS[0] else "too cautious"
            words = f"forecasts of starts are {how}: {held}"
            state.alert(event, "expected", f"{words} ({_KIND_TEXTS[kind]})", kind)


def begin_predictions(state: EngineState) -> None:
    """Adapt the predictor to the settings: they may differ from the settings when it was saved."""
    part = state.part(PredictionState)
    if not prediction_settings(state.settings).predict:
        part.predictor = None
    elif part.predictor is None:
        part.predictor = RunTimePredictor()


def review_predictions(state: EngineState) -> None:
    """Adapt predictions after a restart: settings may have changed, or the saved state has none."""
    begin_predictions(state)
    predictor = find_predictor(state)
    if predictor is None:
        state.expected = np.full_like(state.expected, -1)
        state.expected_by = np.full_like(state.expected_by, -1)
        return
    for record in state.records.values():
        off = not state.settings.predicts(record.facts.queue)
        if off or record.id not in predictor.learner:
            _follow_job(state, predictor, None, record)
