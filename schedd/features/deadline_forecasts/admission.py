"""Admission by the forecast of a job's end, and the calibration of forecasts by outcomes.

Forecasts are computed in the background and come as events, so that the engine's state follows from its log.
"""

from schedd.dialect.deadline import read_deadline, read_required_probability
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.features.deadline_forecasts.settings import DeadlineForecastSettings
from schedd.features.deadline_forecasts.state import (
    DeadlineForecastsState,
    JudgedDeadline,
    forecasts_state,
)
from schedd.features.prediction.state import find_predictor
from schedd.predict import NO_HALTS
from schedd.wire import DeadlineForecastFacts, DeadlinesForecast, JobDeleted, JobEnded


def on_deadlines_forecast(state: EngineState, event: DeadlinesForecast) -> None:
    """Judge deadlines by their forecasts, and record the forecasts for learning from their outcomes."""
    part = forecasts_state(state)
    if not state.site.part(DeadlineForecastSettings).admission:
        return
    for facts in event.jobs:
        record = state.records.get(facts.job_id)
        if record is None or record.slot < 0:
            continue
        runs = record.phase is Phase.RUNNING
        if facts.counts and runs is facts.running and facts.deadline >= state.now:
            kind = part.running if facts.running else part.waiting
            kind.issue(facts.job_id, event.time, facts.deadline, facts.raw, facts.probability)
        if facts.required and _is_requested(record, facts):
            _judge(state, record, facts, event.time)


def _is_requested(record: JobRecord, facts: DeadlineForecastFacts) -> bool:
    """Return whether the job still has this deadline, and may start or runs."""
    if record.phase is Phase.BLOCKED:
        return False
    resources = record.facts.resources
    return (
        read_required_probability(resources) == facts.required
        and read_deadline(resources, record.facts.submitted) == facts.deadline
    )


def _judge(state: EngineState, record: JobRecord, facts: DeadlineForecastFacts, time: int) -> None:
    part = forecasts_state(state)
    known = part.judged.get(record.id)
    accepted = facts.probability >= facts.required
    if known is None or (accepted and not known.accepted):
        part.count("accepted" if accepted else "refused")
    part.judged[record.id] = JudgedDeadline(
        facts.deadline,
        facts.required,
        accepted or (known is not None and known.accepted),
        facts.probability,
        facts.earliest,
        time,
    )
    part.published = None
    state.changed[record.slot] = state.generation
    if not state.silent:
        state.update_due[record.slot], state.updates_marked = state.publishes_starts, True


def follow_record(state: EngineState, before: JobRecord | None, record: JobRecord) -> None:
    """Withdraw the admission of a job that was held or altered: it is judged again when it may start."""
    part = forecasts_state(state)
    job = record.id
    if before is None or record.facts.resources is not before.facts.resources:
        _note_request(part, record)
    if before is None or not (job in part.judged or job in part.waiting.open):
        return
    held = record.phase is Phase.BLOCKED and before.phase is not Phase.BLOCKED
    if held or record.facts.resources != before.facts.resources:
        part.waiting.forget(job)
        part.running.forget(job)
        _withdraw(state, job)


def _note_request(part: DeadlineForecastsState, record: JobRecord) -> None:
    requested = read_required_probability(record.facts.resources) is not None
    if requested is (record.id in part.requested):
        return
    if requested:
        part.requested[record.id] = None
    else:
        del part.requested[record.id]
    part.published = None


def _withdraw(state: EngineState, job: str) -> JudgedDeadline | None:
    part = forecasts_state(state)
    found = part.judged.pop(job, None)
    if found is not None:
        part.published = None
    return found


def forget_unstarted(state: EngineState, record: JobRecord, _at: int, _by_itself: bool) -> None:
    """Forget the forecast of a job that is gone and never ran."""
    if record.run.started < 0:
        forecasts_state(state).waiting.forget(record.id)


def count_outcome(state: EngineState, event: JobDeleted | JobEnded) -> None:
    """Learn from a job that is gone, and count whether it met an accepted deadline; a deleted one counts only
    if it did not. A job that the server ended, as with its node, stays a miss: its exit status is negative.
    """
    part = forecasts_state(state)
    for kind in (part.waiting, part.running):
        if isinstance(event, JobDeleted):
            kind.forget(event.job_id)
        elif _ended_by_itself(event):
            kind.record_end(event.job_id, event.time)
    if event.job_id in part.requested:
        del part.requested[event.job_id]
        part.published = None
    known = _withdraw(state, event.job_id)
    if known is None or not known.accepted:
        return
    if event.time > known.deadline:
        part.count("missed")
    elif isinstance(event, JobEnded):
        part.count("kept" if _ended_by_itself(event) else "missed")


def _ended_by_itself(event: JobEnded) -> bool:
    """Return whether the server did not end it; one without a known exit status counts as its own."""
    return event.exit_status is None or event.exit_status >= 0


def close_batch(state: EngineState, _event: str) -> None:
    """Count the forecasts with a past deadline."""
    part = forecasts_state(state)
    predictor = find_predictor(state)
    halts = predictor.halts if predictor is not None else NO_HALTS
    waiting, running = part.waiting.advance_clock(state.now, halts), part.running.advance_clock(state.now)
    if waiting or running:
        part.published = None


def follow_policy(state: EngineState) -> None:
    """Forget all judgements where deadlines with a probability are wishes now."""
    part = forecasts_state(state)
    if not state.site.part(DeadlineForecastSettings).admission:
        part.judged.clear()
    part.published = None
