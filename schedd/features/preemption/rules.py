"""Rules of preemptions: they are planned ahead, ordered in time, followed to their end, and undone.

A preemption goes through three stages. *Planned*: the victims end in the plan at the preemptor's start; it is
undone without effects if something changes. *Under way*: its decisions are out; the preemptor keeps its place
until the victims are gone. *Over*: the preemptor starts as any other job.
"""

from dataclasses import replace
from typing import Final

from schedd.engine.component.hook_values import PreemptedRun
from schedd.engine.facts.records import Cause, JobRecord, Phase, submission_key
from schedd.engine.facts.state import EngineState
from schedd.engine.rank.promises import loosen_bound, record_move, record_new_places
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.preemption.candidates import (
    find_candidates,
    is_preemptor,
    is_scavenger,
    may_begin,
)
from schedd.features.preemption.descriptions import name_victims, victim_methods, words_of_moves
from schedd.features.preemption.following import (
    GIVEN_UP_AFTER_S,
    preemption_settings,
    restore_victims,
    running_victims,
    still_runs,
    undo_preemption,
)
from schedd.features.preemption.planning import (
    Arrangement,
    PlanAtNow,
    arrange,
    find_preemption,
    still_needed,
)
from schedd.features.preemption.risks import note_displaced
from schedd.features.preemption.settings import PreemptionSettings
from schedd.features.preemption.state import (
    PlannedPreemption,
    PreemptionState,
    Victim,
    preemption_state,
)
from schedd.features.preemption.suspensions import (
    forget_suspension,
    next_resume,
    note_resume_outcome,
    released_resources,
)
from schedd.model import FOREVER
from schedd.plan.columns import PLANNED
from schedd.wire import JobDeleted, JobEnded, JobFacts, Preempt, PreemptionDone

_EXAMINED_EVERY_S: Final = 30  # a waiting preemptor is examined again after this time
_MOST_EXAMINED: Final = 3  # preemptors examined in one batch


# ---- preemptors and scavengers ------------------------------------------------------------------


def note_preemptor(state: EngineState, record: JobRecord) -> None:
    """Note a possible preemptor that is about to be placed; an earlier preemption is undone first."""
    part = preemption_state(state)
    if record.id in part.planned:
        restore_victims(state, part.planned[record.id], state.at_event, "the preemptor is planned again")
    settings = preemption_settings(state)
    if not settings.preemptors.is_empty and is_preemptor(state, settings, record.facts):
        part.waiting[record.id] = None
        if record.slot >= 0:  # an earlier place may have bound it
            loosen_bound(state, record)


def idle_hooks(state: EngineState) -> tuple[str, ...]:
    """Return the hooks without an effect: without scavengers no job is planned last, and without present or
    earlier preemptors none is preempted.
    """
    part, settings = preemption_state(state), preemption_settings(state)
    if not settings.scavengers.is_empty:
        return ()
    if part.planned or part.counted or not settings.preemptors.is_empty:
        return "promises_nothing", "goes_last"
    return "must_wait", "promises_nothing", "goes_last", "job_holds_resources", "run_ended"


def gets_no_promise(known: EngineState | PlanSnapshot, facts: JobFacts) -> bool:
    site = known.site if isinstance(known, EngineState) else known.settings.site
    settings = site.part(PreemptionSettings)
    return not settings.scavengers.is_empty and is_scavenger(known, settings, facts)


def goes_last(state: EngineState, job: str) -> bool:
    settings = preemption_settings(state)
    if settings.scavengers.is_empty:
        return False
    record = state.records.get(job)
    return record is not None and is_scavenger(state, settings, record.facts)


def apply_settings(state: EngineState) -> None:
    """Let ranks have an effect where scavengers go last, and note the preemptors that wait."""
    settings = preemption_settings(state)
    if not settings.scavengers.is_empty:
        state.ranking.has_effect = True
    waiting = preemption_state(state).waiting
    waiting.clear()
    preemption_state(state).tried.clear()
    if not settings.preemptors.is_empty:
        for record in state.records.values():
            if record.phase in (Phase.WAITING, Phase.BLOCKED) and is_preemptor(state, settings, record.facts):
                waiting[record.id] = None


# ---- planning -----------------------------------------------------------------------------------


def plan_preemptions(state: EngineState, event: str) -> None:
    """Plan preemptions for waiting preemptors, and order the due ones."""
    part = preemption_state(state)
    if not (part.waiting or part.planned):
        return
    if state.policy is not None or state.halted or state.to_reevaluate or state.arriving:
        return
    for one in list(part.planned.values()):
        if one.asked < 0:
            _order_if_due(state, one, event)
    due = []
    for job in list(part.waiting):
        record = state.records.get(job)
        if record is None or record.phase in (Phase.RUNNING, Phase.DISPATCHED):
            part.waiting.pop(job)
            part.tried.pop(job, None)
        elif state.now >= part.tried.get(job, -1) + _EXAMINED_EVERY_S and job not in part.planned:
            due.append(record)
    due.sort(key=lambda one: (-int(state.rank[one.slot]) if one.slot >= 0 else 0, submission_key(one)))
    settings = preemption_settings(state)
    for record in due[:_MOST_EXAMINED]:
        part.tried[record.id] = state.now
        if not is_preemptor(state, settings, record.facts):
            part.waiting.pop(record.id)  # the settings were changed
        elif record.slot >= 0 and state.plan.state(record.slot) == PLANNED and record.facts.state == "Q":
            with JobErrorGuard(state, record.id, event):
                _plan_for(state, settings, record, event)


def preview_preemptions(state: EngineState) -> list[PreemptedRun]:
    """Plan preemptions for all preemptors that wait, in a copy of the state, and return the victims."""
    part, settings = preemption_state(state), preemption_settings(state)
    for job in list(part.waiting) if state.policy is None else ():
        record = state.records.get(job)
        if record is None or job in part.planned or not is_preemptor(state, settings, record.facts):
            continue
        if record.slot >= 0 and state.plan.state(record.slot) == PLANNED and record.facts.state == "Q":
            _plan_for(state, settings, record, "preview")
    return [
        PreemptedRun(
            victim.job,
            state.records[victim.job].facts.owner,
            one.preemptor,
            one.start,
            victim.lost_at(one.start),
            victim.method,
        )
        for one in part.planned.values()
        for victim in one.victims
        if victim.job in state.records
    ]


def _plan_for(state: EngineState, settings: PreemptionSettings, record: JobRecord, event: str) -> None:
    part = preemption_state(state)
    if state.plan.start(record.slot) <= state.now + settings.wait:
        return
    candidates = list(
        find_candidates(
            state,
            state.records.values(),
            state.plan,
            state.now,
            settings,
            part.planned.values(),
            part.preempted,
            part.refused,
        )
    )
    locked = [state.records[job].slot for job in part.planned if job in state.records]
    at_now = _plan_at_now(state)
    found = find_preemption(at_now, settings, record.slot, record.facts, candidates, locked)
    if found is None:
        return
    _apply_arrangement(state, record, found, locked, event)
    if found.victims:
        _order_if_due(state, part.planned[record.id], event)


def _plan_at_now(state: EngineState) -> PlanAtNow:
    released = released_resources(state.server.attributes, preemption_settings(state))
    return PlanAtNow(state.plan, state.now, state.rank, state.bound, released)


def _apply_arrangement(
    state: EngineState, record: JobRecord, found: Arrangement, locked: list[int], event: str
) -> None:
    plan, slot, before = state.plan, record.slot, state.plan.start(record.slot)
    victims = tuple(
        Victim(
            job=one.record.id,
            started=one.record.run.started,
            end=plan.end(one.record.slot),
            cpus=one.cpus,
            method=one.method,
        )
        for one in found.victims
    )
    at_now = _plan_at_now(state)
    runs = [at_now.ended_run(one) for one in found.victims]
    arranged = arrange(
        plan, slot, found.start, found.takes, runs, state.bound, state.now, state.new_slot, locked
    )
    assert arranged is not None, "a preemption was possible in a fork, but not in the plan"
    gone, old, blocks = arranged
    if victims:
        one = PlannedPreemption(preemptor=record.id, start=found.start, victims=victims, blocks=blocks)
        preemption_state(state).planned[record.id] = one
        words = f"job {record.id} {name_victims('will', victim_methods(one))}"
    else:
        words = words_of_moves(record.id)
    state.bound[slot] = min(int(state.bound[slot]), found.start)  # nothing displaces it
    state.next_due = None
    new = plan.starts(gone)
    record_new_places(state, event, Cause.PRIORITY, words, gone, old, new)
    note_displaced(state, gone, old, new)
    record_move(state, event, Cause.PRIORITY, words, slot, before, found.start)


def _order_if_due(state: EngineState, one: PlannedPreemption, event: str) -> None:
    """Emit the decisions of a preemption if it is due."""
    settings = preemption_settings(state)
    if state.halted or state.now < one.start - settings.lead:
        return
    slot = state.records[one.preemptor].slot
    if not still_needed(state.plan, slot, running_victims(state, one), one.blocks):
        undo_preemption(state, one, event, Cause.FREED, "no job needs to be preempted for it any longer")
        return
    if not may_begin(settings, state.now):
        undo_preemption(state, one, event, Cause.OUTAGE, "the window for preemptions has ended")
        return
    part = preemption_state(state)
    victims = []
    for victim in one.victims:
        decision = Preempt(
            id=state.next_decision(),
            cause=event,
            time=state.now,
            job_id=victim.job,
            started=victim.started,
            method=victim.method,
            preemptor=one.preemptor,
            expires=state.now + state.settings.decision_expiry,
            signal=settings.signal,
            grace=settings.grace if settings.signal else 0,
        )
        state.decisions.append(decision)
        part.preempted[victim.job] = state.now
        if victim.method == "suspend":
            part.suspending[victim.job] = one.preemptor
        else:
            part.ordered[victim.job] = victim.started
            part.away[victim.job] = state.now
        if victim.method == "checkpoint":
            part.checkpoints[victim.job] = decision.id
        victims.append(replace(victim, decision=decision.id))
    part.planned[one.preemptor] = replace(one, victims=tuple(victims), asked=state.now)


# ---- outcomes -----------------------------------------------------------------------------------


def awaits_preemption(state: EngineState, decision: Preempt) -> bool:
    part = preemption_state(state)
    if part.checkpoints.get(decision.job_id) == decision.id:
        return True  # until its outcome is known, the job may be left on hold
    one = part.planned.get(decision.preemptor)
    if one is None:
        return False
    return any(victim.decision == decision.id and still_runs(state, victim) for victim in one.victims)


def note_outcome(state: EngineState, event: PreemptionDone) -> None:
    """Note the outcome of a preemption or resume; ends and suspensions are reported by the server."""
    part = preemption_state(state)
    if note_resume_outcome(state, event):
        return
    if part.checkpoints.get(event.job_id) == event.decision_id:
        part.checkpoints.pop(event.job_id)
    for one in list(part.planned.values()):
        for victim in one.victims:
            if not event.decision_id or victim.decision != event.decision_id:
                continue
            if event.done:
                rest = tuple(replace(v, decision="") if v is victim else v for v in one.victims)
                part.planned[one.preemptor] = replace(one, victims=rest)
                return
            words = f"job {victim.job} could not be preempted: {event.text or f'code {event.code}'}"
            state.alert(
                event.id, "preemption", f"{words}; job {one.preemptor} is planned again", one.preemptor
            )
            if event.outage:  # the job did not refuse: the same jobs may be chosen again later
                _forget_order(part, victim.job)
                undo_preemption(state, one, event.id, Cause.OUTAGE, words)
                part.tried[one.preemptor] = state.now
                return
            _note_refusal(part, victim.job, state.now)
            undo_preemption(state, one, event.id, Cause.REFUSED, words)
            return
    ordered = not any(victim.job == event.job_id for one in part.planned.values() for victim in one.victims)
    known = event.job_id in part.ordered or event.job_id in part.suspending
    if not event.done and ordered and known:  # it was undone before
        if event.outage:
            _forget_order(part, event.job_id)
        else:
            _note_refusal(part, event.job_id, state.now)


def _note_refusal(part: PreemptionState, job: str, now: int) -> None:
    """Note that a run was not ended as ordered."""
    part.refused[job] = now
    _forget_order(part, job)


def _forget_order(part: PreemptionState, job: str) -> None:
    """Forget the order to end a run, which goes on."""
    part.preempted.pop(job, None)
    part.ordered.pop(job, None)
    part.ended.pop(job, None)
    part.away.pop(job, None)
    part.suspending.pop(job, None)


def forget_job(state: EngineState, event: JobDeleted | JobEnded) -> None:
    """Forget a job that is gone from the server."""
    part = preemption_state(state)
    forget_suspension(state, event.job_id)
    times = (part.waiting, part.tried, part.preempted, part.ordered, part.refused, part.counted)
    for known in (*times, part.away, part.ended, part.suspending, part.checkpoints):
        known.pop(event.job_id, None)


def forget_past(state: EngineState) -> None:
    """Forget preemptions that no longer have an effect."""
    part, oldest = preemption_state(state), state.now - max(preemption_settings(state).rest, 3_600)
    part.preempted = {job: at for job, at in part.preempted.items() if at > oldest}
    part.ordered = {job: started for job, started in part.ordered.items() if job in part.preempted}
    part.ended = {job: method for job, method in part.ended.items() if job in part.preempted}
    part.refused = {job: at for job, at in part.refused.items() if at > oldest}
    given_up = (
        state.now - state.settings.decision_expiry - preemption_settings(state).grace - GIVEN_UP_AFTER_S
    )
    for job in [one for one in part.suspending if part.preempted.get(one, -1) < given_up]:
        # The order can no longer be carried out. A later suspension is an administrator's.
        part.suspending.pop(job)
    if state.records and not state.arriving:  # after a restart, jobs may be gone without an event
        for job in {*part.suspending, *part.suspended, *part.checkpoints} - set(state.records):
            forget_suspension(state, job)
            part.suspending.pop(job, None)
            part.checkpoints.pop(job, None)


def has_failed(state: EngineState, job: str) -> bool:
    """Return whether the preemptor of an alert still waits."""
    record = state.records.get(job)
    return record is not None and record.phase in (Phase.WAITING, Phase.BLOCKED)


def still_suspended(state: EngineState, job: str) -> bool:
    """Return whether the job of an alert is still suspended for a preemptor."""
    return job in preemption_state(state).suspended


def next_step(state: EngineState) -> int:
    """Return when a preemption is to be ordered, followed or examined; FOREVER: never."""
    part = preemption_state(state)
    if not (part.planned or part.waiting):
        return max(state.now + 1, next_resume(state)) if part.suspended else FOREVER
    idle = state.policy is not None or bool(state.halted)  # none is ordered, and no job is examined
    lead = 0 if idle else preemption_settings(state).lead
    found = [one.start - (lead if one.asked < 0 else 1) for one in part.planned.values()]
    if not idle:
        found += [
            part.tried.get(job, state.now) + _EXAMINED_EVERY_S
            for job in part.waiting
            if job not in part.planned
        ]
    if part.suspended:
        found.append(next_resume(state))
    return max(state.now + 1, min(found, default=FOREVER))


# ---- what readers see ---------------------------------------------------------------------------


def block_slots(state: EngineState) -> list[int]:
    """Return the slots that keep what victims leave, or what suspended jobs keep."""
    part = preemption_state(state)
    blocks = [block for one in part.planned.values() for block in one.blocks]
    return blocks + [one.kept for one in part.suspended.values() if one.kept >= 0]
