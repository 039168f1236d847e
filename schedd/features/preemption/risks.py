"""Risk of jobs that may be preempted: they may be displaced while they wait, and preempted while they run."""

from typing import Final

from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.preemption.candidates import may_be_preempted, permitted_methods
from schedd.features.preemption.settings import PreemptionSettings
from schedd.features.preemption.state import PreemptionState, PublishedPreemptions, preemption_state
from schedd.plan.columns import Ints
from schedd.predict import DelayRisk
from schedd.wire import JobFacts

_HALF_LIFE_S: Final = 7 * 86_400
"""Past waits and runs count half as much after this time."""


def note_run_end(state: EngineState, record: JobRecord, at: int, *, preempted: bool) -> None:
    """Count a run that ended in the rate of preemptions."""
    part = preemption_state(state)
    _forget_runs_by_age(part, at)
    part.exposed_runs += preempted
    part.exposed_s += record.run.computed_s(at)


def note_suspension(state: EngineState) -> None:
    """Count a suspended run in the rate of preemptions."""
    part = preemption_state(state)
    _forget_runs_by_age(part, state.now)
    part.exposed_runs += 1


def _forget_runs_by_age(part: PreemptionState, at: int) -> None:
    kept = _remaining_weight(part.exposed_until, at)
    part.exposed_runs, part.exposed_s = part.exposed_runs * kept, part.exposed_s * kept
    part.exposed_until = max(at, part.exposed_until)


def note_start(state: EngineState, record: JobRecord) -> None:
    """Count the wait of a job that began to run, once for each run: the server may correct its start."""
    part, started = preemption_state(state), record.run.started
    if record.phase is not Phase.RUNNING or record.id in part.counted:
        return
    if not may_be_preempted(state, state.site.part(PreemptionSettings), record.facts):
        return
    part.counted[record.id] = started
    if started < state.first_snapshot:
        return  # it started before there was a plan
    _forget_by_age(part, started)
    part.waited_s += max(0, started - record.run_waited_since)
    preempted = part.away.pop(record.id, None)
    if preempted is not None and preempted <= started:
        part.returns += 1
        part.returns_s += started - preempted


def note_displaced(state: EngineState, slots: Ints, old: Ints, new: Ints) -> None:
    """Count waiting jobs that may be preempted, and that a preemptor displaced to later starts."""
    part, settings = preemption_state(state), state.site.part(PreemptionSettings)
    _forget_by_age(part, state.now)
    for slot, before, after in zip(slots.tolist(), old.tolist(), new.tolist(), strict=True):
        record = state.by_slot[slot]
        if after > before >= 0 and record is not None and may_be_preempted(state, settings, record.facts):
            part.displaced += 1
            part.displaced_s += after - before


def _forget_by_age(part: PreemptionState, now: int) -> None:
    kept = _remaining_weight(part.waits_until, now)
    part.waited_s, part.displaced, part.displaced_s = (
        part.waited_s * kept,
        part.displaced * kept,
        part.displaced_s * kept,
    )
    part.returns, part.returns_s = part.returns * kept, part.returns_s * kept
    part.waits_until = max(now, part.waits_until)


def _remaining_weight(until: int, now: int) -> float:
    """Return the part of past waits and runs that still counts."""
    weight: float = 0.5 ** (max(0, now - until) / _HALF_LIFE_S)
    return weight


def delay_risk(published: PlanSnapshot, facts: JobFacts, runs: bool) -> DelayRisk | None:
    """Return the risk of a job that may be preempted, while it waits or ``runs``; None: it may not, or
    nothing is known yet.
    """
    known = published.part(PublishedPreemptions)
    rate, delay = (known.rate, known.return_delay) if runs else (known.displaced_rate, known.displaced_delay)
    settings = published.settings.site.part(PreemptionSettings)
    if not rate or not may_be_preempted(published, settings, facts):
        return None
    return DelayRisk(rate, delay, repeats=runs and permitted_methods(settings, facts)[0] == "requeue")
