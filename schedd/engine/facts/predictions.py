"""Predicted run times and expected starts: learning from outcomes, and publication."""

from typing import TYPE_CHECKING, Final

import numpy as np

from schedd.engine.facts.arrays import array_name
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.records import JobRecord, Phase
from schedd.predict import CalibratedStart, JobFeatures, RunTimePredictor
from schedd.wire import JobFacts, StartsExpected

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

_ENOUGH: Final = 100
"""Outcomes, below which nothing is said of how good expected starts are."""
_COVERED: Final = (0.80, 0.97)
"""P90 should cover 90 % of the jobs; outside these bounds an alert is raised."""

__all__ = [
    "alert_inaccurate_estimates",
    "inaccurate_estimates",
    "job_features",
    "on_starts_expected",
    "record_run_end",
    "review_predictions",
    "update_prediction",
]


_WHEN: Final = {
    "submission": "published at submission",
    "waiting": "published at half of the expected wait",
    "hour": "published within an hour of the start",
}


def job_features(facts: JobFacts, understood: ParsedRequest) -> JobFeatures:
    """What a job's run time is predicted from. Hosts of owners are left out: people log in anywhere."""
    request = understood.request
    cpus = request.cpus if request is not None else sum(share.cpus for share in facts.shares)
    name = array_name(facts.id, facts.name)
    return JobFeatures(facts.owner.partition("@")[0], max(1, understood.walltime), cpus, name)


def update_prediction(
    state: "EngineState", outlook: RunTimePredictor, before: JobRecord | None, record: JobRecord
) -> None:
    """A job is new (``before``: None) or changed: predict it, note that it runs, or that it waits again."""
    job, now = record.id, state.now
    runs, ran = record.phase is Phase.RUNNING, before is not None and before.phase is Phase.RUNNING
    if not state.settings.predicts(record.facts.queue):
        if job in outlook.learner:
            _discard_expected_start(state, record)
            outlook.forget(job, now)
        return
    if job not in outlook.learner or (before is not None and not runs and _differs(before, record)):
        if job in outlook.learner:
            _discard_expected_start(state, record)
            outlook.discard_estimates(job)
        outlook.learner.predict_job(job, job_features(record.facts, record.understood), now)
    if runs:
        if before is None or not ran or before.run.started != record.run.started:
            outlook.record_start(job, now, record.run.started, counts=before is not None)
            _discard_expected_start(state, record)
        return
    if ran:
        outlook.learner.record_requeue(job, now)
    if record.phase is Phase.BLOCKED and (before is None or before.phase is not Phase.BLOCKED):
        outlook.discard_estimates(job)
        _discard_expected_start(state, record)


def _differs(before: JobRecord, record: JobRecord) -> bool:
    same = before.understood is record.understood and before.facts.name == record.facts.name
    return not same and job_features(before.facts, before.understood) != job_features(
        record.facts, record.understood
    )


def _discard_expected_start(state: "EngineState", record: JobRecord) -> None:
    if record.slot >= 0:
        state.expected[record.slot] = state.expected_by[record.slot] = -1


def record_run_end(state: "EngineState", record: JobRecord, at: int) -> None:
    """Record the run time of a job that ended by itself, at its walltime, or by its owner's order. Not for a
    job that ended with its node.
    """
    if state.predictor is not None:
        state.predictor.record_end(record.id, state.now, max(at, record.run.started))


def on_starts_expected(state: "EngineState", event: StartsExpected) -> None:
    """Publish these expected starts for jobs that still wait; see ``RunTimePredictor``."""
    outlook = state.predictor
    if outlook is None:
        return
    if event.until is None:
        outlook.as_of = max(outlook.as_of, event.time)
    else:
        outlook.near_as_of, outlook.near_until = event.time, event.until
    for facts in event.jobs:
        record = state.records.get(facts.job_id)
        if record is None or record.slot < 0 or record.phase is not Phase.WAITING:
            continue
        if facts.job_id not in outlook.learner:
            continue
        slot = record.slot
        state.expected[slot], state.expected_by[slot] = facts.start, facts.by
        state.changed[slot] = state.generation
        if state.publishes_starts and not state.silent:
            state.update_due[slot] = 1
        if facts.kind and facts.by > state.now:  # a P90 that passed during the round was not shown to anybody
            told = CalibratedStart(facts.start, facts.by)
            outlook.calibrations[facts.kind].record_estimate(
                facts.job_id, event.time, told, facts.planned, facts.late
            )


def inaccurate_estimates(state: "EngineState") -> dict[str, float]:
    """Return the kinds of expected starts with a coverage of P90 outside the bounds, with that coverage."""
    if state.predictor is None:
        return {}
    known = {
        kind: one.coverage[1]
        for kind, one in state.predictor.calibrations.items()
        if len(one.recent_hits) >= _ENOUGH
    }
    return {kind: share for kind, share in known.items() if not _COVERED[0] <= share <= _COVERED[1]}


def alert_inaccurate_estimates(state: "EngineState", event: str) -> None:
    """Raise an alert for inaccurate kinds of expected starts."""
    for kind, share in inaccurate_estimates(state).items():
        if f"expected {kind}" not in state.alerts:
            held = f"{100 * share:.0f} % of the latest jobs started by the 90 % time"
            how = "too optimistic" if share < _COVERED[0] else "too cautious"
            words = f"forecasts of starts are {how}: {held}"
            state.alert(event, "expected", f"{words} ({_WHEN[kind]})", kind)


def review_predictions(state: "EngineState") -> None:
    """Adapt predictions after a restart: settings may have changed, or the saved state has none."""
    if not state.settings.predict:
        state.predictor = None
        state.expected = np.full_like(state.expected, -1)
        state.expected_by = np.full_like(state.expected_by, -1)
        return
    if state.predictor is None:
        state.predictor = RunTimePredictor()
    for record in state.records.values():
        off = not state.settings.predicts(record.facts.queue)
        if off or record.id not in state.predictor.learner:
            update_prediction(state, state.predictor, None, record)
