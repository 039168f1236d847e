"""Rules of preemptions: they are planned ahead, ordered in time, followed to their end, and undone.

A preemption goes through three stages. *Planned*: the victims end in the plan at the preemptor's start; it is
undone without effects if something changes. *Under way*: its decisions are out; the preemptor keeps its place
until the victims are gone. *Over*: the preemptor starts as any other job.
"""

import heapq
from dataclasses import replace
from typing import Final

from schedd.engine.component.hook_values import PreemptedRun
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import displace_for, move_and_displace, replan, replan_displaced
from schedd.engine.rank.promises import record_move, record_moves
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.features.preemption.candidates import (
    earliest_preemption,
    find_candidates,
    is_preemptor,
    is_scavenger,
    is_target_of,
    may_be_preempted,
    may_begin,
    permitted_methods,
)
from schedd.features.preemption.descriptions import name_victims, victim_methods
from schedd.features.preemption.planning import (
    Arrangement,
    EndedRun,
    PlanAtNow,
    arrange,
    block_rest,
    find_preemption,
    is_planned_at,
    kept_amounts,
    still_needed,
)
from schedd.features.preemption.settings import PreemptionSettings
from schedd.features.preemption.state import (
    PlannedPreemption,
    PreemptionState,
    Victim,
    preemption_state,
)
from schedd.features.preemption.suspensions import (
    follow_suspensions,
    forget_suspension,
    next_resume,
    note_resume_outcome,
    place_suspended,
    released_resources,
)
from schedd.model import FOREVER
from schedd.plan.columns import FIXED, PLANNED
from schedd.wire import JobDeleted, JobEnded, Preempt, PreemptionDone

_EXAMINED_EVERY_S: Final = 30  # a waiting preemptor is examined again after this time
_MOST_EXAMINED: Final = 3  # preemptors examined in one batch
_POSTPONED_BY_S: Final = 10  # a preemptor is moved by this time if its victims are late
_GIVEN_UP_AFTER_S: Final = 600
"""A preemption is undone if a victim still runs this long after its decision and grace."""


def _settings(state: EngineState) -> PreemptionSettings:
    return state.site.part(PreemptionSettings)


# ---- preemptors and scavengers ------------------------------------------------------------------


def note_preemptor(state: EngineState, record: JobRecord) -> None:
    """Note a possible preemptor that is about to be placed; an earlier preemption is undone first."""
    part = preemption_state(state)
    if record.id in part.planned:
        _restore(state, part.planned[record.id], "clock", "the preemptor is planned again")
    settings = _settings(state)
    if not settings.preemptors.is_empty and is_preemptor(state, settings, record.facts):
        part.waiting[record.id] = None
        if record.slot >= 0:  # an earlier place may have bound it
            state.bound[record.slot] = max(int(state.bound[record.slot]), int(state.promise[record.slot]))


def gets_no_promise(state: EngineState, record: JobRecord) -> bool:
    settings = _settings(state)
    return not settings.scavengers.is_empty and is_scavenger(state, settings, record.facts)


def goes_last(state: EngineState, job: str) -> bool:
    settings = _settings(state)
    if settings.scavengers.is_empty:
        return False
    record = state.records.get(job)
    return record is not None and is_scavenger(state, settings, record.facts)


def apply_settings(state: EngineState) -> None:
    """Let ranks have an effect where scavengers go last, and note the preemptors that wait."""
    settings = _settings(state)
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
    due.sort(key=lambda one: (-int(state.rank[one.slot]) if one.slot >= 0 else 0, one.facts.submitted))
    settings = _settings(state)
    for record in due[:_MOST_EXAMINED]:
        part.tried[record.id] = state.now
        if not is_preemptor(state, settings, record.facts):
            part.waiting.pop(record.id)  # the settings are others
        elif record.slot >= 0 and state.plan.state(record.slot) == PLANNED and record.facts.state == "Q":
            with JobErrorGuard(state, record.id, event):
                _plan_for(state, settings, record, event)


def preview_preemptions(state: EngineState) -> list[PreemptedRun]:
    """Plan preemptions for all preemptors that wait, in a copy of the state, and return the victims."""
    part, settings = preemption_state(state), _settings(state)
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
    _put_into_plan(state, record, found, locked, event)
    if found.victims:
        _order_if_due(state, part.planned[record.id], event)


def _plan_at_now(state: EngineState) -> PlanAtNow:
    released = released_resources(state.server.attributes, _settings(state))
    return PlanAtNow(state.plan, state.now, state.rank, state.bound, released)


def _put_into_plan(
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
    assert arranged is not None, "a preemption fitted into a fork and not into the plan"
    gone, old, blocks = arranged
    if victims:
        one = PlannedPreemption(preemptor=record.id, start=found.start, victims=victims, blocks=blocks)
        preemption_state(state).planned[record.id] = one
        words = f"job {record.id} {name_victims('will', victim_methods(one))}"
    else:
        words = f"job {record.id}, which may preempt others, is planned before them"
    state.bound[slot] = min(int(state.bound[slot]), found.start)  # nothing displaces it
    state.next_due = None
    new = plan.starts(gone)
    moved = new != old
    record_moves(state, event, Cause.PRIORITY, words, gone[moved], old[moved], new[moved])
    record_move(state, event, Cause.PRIORITY, words, slot, before, found.start)


def _order_if_due(state: EngineState, one: PlannedPreemption, event: str) -> None:
    """Make the decisions of a preemption if its time has come."""
    settings = _settings(state)
    if state.halted or state.now < one.start - settings.lead:
        return
    slot = state.records[one.preemptor].slot
    if not still_needed(state.plan, slot, _runs(state, one), one.blocks):
        _undo(state, one, event, Cause.FREED, "no job has to be preempted for it any more")
        return
    if not may_begin(settings, state.now):
        _undo(state, one, event, Cause.OUTAGE, "the window of preemptions is over")
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
        if victim.method == "checkpoint":
            part.checkpoints[victim.job] = decision.id
        victims.append(replace(victim, decision=decision.id))
    part.planned[one.preemptor] = replace(one, victims=tuple(victims), asked=state.now)


def _runs(state: EngineState, one: PlannedPreemption) -> list[EndedRun]:
    """Return the victims that still run."""
    released = released_resources(state.server.attributes, _settings(state))
    found = []
    for victim in one.victims:
        if _still_runs(state, victim):
            record = state.records[victim.job]
            suspended = victim.method == "suspend"
            kept = kept_amounts(state.plan, record, released) if suspended else None
            found.append(EndedRun(record.slot, victim.end, kept))
    return found


def _still_runs(state: EngineState, victim: Victim) -> bool:
    """Return whether a victim holds its resources as before: its run is neither over nor suspended."""
    record = state.records.get(victim.job)
    if record is None or record.phase is not Phase.RUNNING or record.run.started != victim.started:
        return False
    return record.facts.state != "S"


# ---- following ----------------------------------------------------------------------------------


def follow_preemptions(state: EngineState, event: str) -> None:
    """Follow each preemption after a batch: end it, undo it, or wait longer for its victims."""
    part = preemption_state(state)
    new: frozenset[str] = frozenset()
    if part.suspended:
        _free_suspended(state)
        new = place_suspended(state, event)
    for one in list(part.planned.values()):
        with JobErrorGuard(state, one.preemptor, event):
            _follow(state, one, event)
    if part.suspended:
        follow_suspensions(state, new, event)


def _free_suspended(state: EngineState) -> None:
    """Block only for the other victims after some victims of a preemptor were suspended."""
    part = preemption_state(state)
    for one in list(part.planned.values()):
        new = [v.job for v in one.victims if v.job in part.suspended and part.suspended[v.job].returns < 0]
        record = state.records.get(one.preemptor)
        if new and one.blocks and record is not None and is_planned_at(state.plan, record.slot, one.start):
            _drop_blocks(state, one)
            blocks = block_rest(state.plan, record.slot, _runs(state, one), state.new_slot)
            part.planned[one.preemptor] = replace(one, blocks=blocks)


def _follow(state: EngineState, one: PlannedPreemption, event: str) -> None:
    record = state.records.get(one.preemptor)
    runs = _runs(state, one)
    in_place = record is not None and is_planned_at(state.plan, record.slot, one.start)
    if record is None or record.phase in (Phase.RUNNING, Phase.DISPATCHED):
        _restore(state, one, event, "the preemptor does not wait any more")
    elif in_place and state.plan.unusable_nodes(record.slot):
        _undo(state, one, event, Cause.NODE_LOST, "a node of its planned place cannot be used")
    elif not in_place:
        _undo(state, one, event, Cause.OVERRUN, "the preemptor lost its place")
    elif any(state.plan.end(run.slot) != one.start for run in runs):
        _undo(state, one, event, Cause.OVERRUN, "a job to be preempted for it was altered")
    elif not runs:
        _undo(state, one, event, Cause.FREED, "the jobs to be preempted for it are gone")
    elif one.asked < 0 and not _is_permitted(state, one):
        _undo(
            state,
            one,
            event,
            Cause.ADMIN,
            "settings or jobs were altered, so its preemption is not permitted any more",
        )
    elif one.asked < 0 and len(runs) < len(one.victims):
        _keep_running_victims(state, record, one)
    elif one.asked < 0:
        if state.now >= one.start:
            _undo(state, one, event, Cause.OUTAGE, "the jobs were not preempted in time")
    elif state.now > one.asked + _settings(state).lead + _GIVEN_UP_AFTER_S:
        left = ", ".join(victim.job for victim in one.victims if _still_runs(state, victim))
        words = f"job {left} still runs {state.now - one.asked} s after its preemption was ordered"
        state.alert(event, "preemption", f"{words}; job {one.preemptor} is planned again", one.preemptor)
        _note_refusals(state, one)
        _undo(state, one, event, Cause.REFUSED, words)
    elif state.now >= one.start - 1 and any(run.end <= state.now + _POSTPONED_BY_S for run in runs):
        _undo(state, one, event, Cause.OVERRUN, "jobs that are preempted for it end by themselves now")
    elif state.now >= one.start - 1:
        _postpone(state, record, one, event)


def _is_permitted(state: EngineState, one: PlannedPreemption) -> bool:
    """Return whether the settings and the jobs still permit a planned preemption."""
    part, settings = preemption_state(state), _settings(state)
    preemptor = state.records[one.preemptor].facts
    if not is_preemptor(state, settings, preemptor):
        return False
    begin = one.start - settings.lead
    for victim in one.victims:
        if not _still_runs(state, victim):
            continue
        facts = state.records[victim.job].facts
        if not (may_be_preempted(state, settings, facts) and is_target_of(preemptor, facts)):
            return False
        if victim.method not in permitted_methods(settings, facts):
            return False
        if begin < earliest_preemption(settings, victim.started, part.preempted.get(victim.job)):
            return False
    return True


def _keep_running_victims(state: EngineState, record: JobRecord, one: PlannedPreemption) -> None:
    """Drop victims from a planned preemption after their runs ended; the preemptor keeps its place."""
    _drop_blocks(state, one)
    blocks = block_rest(state.plan, record.slot, _runs(state, one), state.new_slot)
    victims = tuple(victim for victim in one.victims if _still_runs(state, victim))
    preemption_state(state).planned[one.preemptor] = replace(one, victims=victims, blocks=blocks)


def _postpone(state: EngineState, record: JobRecord, one: PlannedPreemption, event: str) -> None:
    """Move the start of a preemptor because victims still run."""
    plan, slot, start = state.plan, record.slot, state.now + _POSTPONED_BY_S
    _drop_blocks(state, one)
    runs = _runs(state, one)
    for run in runs:
        plan.set_duration(run.slot, start - plan.start(run.slot), state.now)
    state.bound[slot] = max(int(state.promise[slot]), start)
    gone, old = move_and_displace(state, slot, start)
    words = "jobs that are preempted have not ended yet"
    if plan.state(slot) == PLANNED:
        plan.set_ready(slot, start)
        blocks = block_rest(plan, slot, runs, state.new_slot)
        preemption_state(state).planned[one.preemptor] = replace(one, start=start, blocks=blocks)
        record_move(state, event, Cause.OUTAGE, words, slot, one.start, start)
        state.bound[slot] = min(int(state.bound[slot]), start)
    else:
        preemption_state(state).planned.pop(one.preemptor)
        _extend_runs(state, replace(one, start=start), event, words)
    replan_displaced(state, gone, old, event, Cause.OUTAGE, words)
    state.next_due = None


def _undo(state: EngineState, one: PlannedPreemption, event: str, cause: Cause, words: str) -> None:
    """Undo a preemption, or end it when its victims are gone, and plan the preemptor again."""
    record = state.records[one.preemptor]
    if record.slot >= 0 and record.phase in (Phase.WAITING, Phase.BLOCKED):
        # Placing it again restores the victims first: see ``note_preemptor``.
        replan(state, record, event, cause, words)
    if one.preemptor in preemption_state(state).planned:
        _restore(state, one, event, words)
    preemption_state(state).tried.pop(one.preemptor, None)  # it is examined at once
    state.next_due = None


def _restore(state: EngineState, one: PlannedPreemption, event: str, words: str) -> None:
    """Let the victims go on in the plan as before, and free the blocks made for them."""
    preemption_state(state).planned.pop(one.preemptor)
    record = state.records.get(one.preemptor)
    if record is not None and record.slot >= 0:
        slot = record.slot
        state.bound[slot] = max(int(state.bound[slot]), int(state.promise[slot]))
        if record.phase in (Phase.WAITING, Phase.BLOCKED) and state.plan.state(slot) == PLANNED:
            state.plan.set_ready(slot, max(state.now, record.facts.not_before or 0, record.back_off.until))
    _drop_blocks(state, one)
    _extend_runs(state, one, event, words)


def _drop_blocks(state: EngineState, one: PlannedPreemption) -> None:
    for block in one.blocks:
        state.drop_slot(block)


def _extend_runs(state: EngineState, one: PlannedPreemption, event: str, words: str) -> None:
    """Give victims that still run their former end; jobs planned there all the same are displaced."""
    extended = []
    for victim in one.victims:
        record = state.records.get(victim.job)
        if record is None or not _still_runs(state, victim) or state.plan.state(record.slot) != FIXED:
            continue
        if state.plan.end(record.slot) != one.start:
            continue  # the server described it again
        end = max(victim.end, state.now + 1)
        state.plan.set_duration(record.slot, end - state.plan.start(record.slot), state.now)
        heapq.heappush(state.ends, (end, record.slot, victim.job))
        extended.append(record.slot)
    if extended:
        displace_for(state, extended, event, Cause.OVERRUN, f"a job is not preempted: {words}")


def leave_preemption(state: EngineState, key: str) -> None:
    """Undo the preemption of a job that has no place in the plan any more."""
    one = preemption_state(state).planned.get(key)
    if one is not None:
        _restore(state, one, "clock", "the preemptor does not wait any more")


# ---- outcomes -----------------------------------------------------------------------------------


def awaits_preemption(state: EngineState, decision: Preempt) -> bool:
    part = preemption_state(state)
    if part.checkpoints.get(decision.job_id) == decision.id:
        return True  # until its outcome is known, the job may be left on hold
    one = part.planned.get(decision.preemptor)
    if one is None:
        return False
    return any(victim.decision == decision.id and _still_runs(state, victim) for victim in one.victims)


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
            _note_refusal(part, victim.job, state.now)
            _undo(state, one, event.id, Cause.REFUSED, words)
            return
    ordered = not any(victim.job == event.job_id for one in part.planned.values() for victim in one.victims)
    known = event.job_id in part.ordered or event.job_id in part.suspending
    if not event.done and ordered and known:  # it was undone before
        _note_refusal(part, event.job_id, state.now)


def _note_refusal(part: PreemptionState, job: str, now: int) -> None:
    """Note that a run was not ended as ordered."""
    part.refused[job] = now
    part.preempted.pop(job, None)
    part.ordered.pop(job, None)
    part.suspending.pop(job, None)


def _note_refusals(state: EngineState, one: PlannedPreemption) -> None:
    part = preemption_state(state)
    for victim in one.victims:
        if _still_runs(state, victim):
            part.refused[victim.job] = state.now


def forget_job(state: EngineState, event: JobDeleted | JobEnded) -> None:
    """Forget a job that is gone from the server."""
    part = preemption_state(state)
    forget_suspension(state, event.job_id)
    times = (part.waiting, part.tried, part.preempted, part.ordered, part.refused)
    for known in (*times, part.suspending, part.checkpoints):
        known.pop(event.job_id, None)


def forget_past(state: EngineState) -> None:
    """Forget preemptions that have no effect any more."""
    part, oldest = preemption_state(state), state.now - max(_settings(state).rest, 3_600)
    part.preempted = {job: at for job, at in part.preempted.items() if at > oldest}
    part.ordered = {job: started for job, started in part.ordered.items() if job in part.preempted}
    part.refused = {job: at for job, at in part.refused.items() if at > oldest}
    given_up = state.now - state.settings.decision_expiry - _settings(state).grace - _GIVEN_UP_AFTER_S
    for job in [one for one in part.suspending if part.preempted.get(one, -1) < given_up]:
        # The order cannot be carried out any more. A later suspension is an administrator's.
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
    lead = _settings(state).lead
    found = [one.start - (lead if one.asked < 0 else 1) for one in part.planned.values()]
    found += [
        part.tried.get(job, state.now) + _EXAMINED_EVERY_S for job in part.waiting if job not in part.planned
    ]
    if part.suspended:
        found.append(next_resume(state))
    return max(state.now + 1, min(found))


# ---- what readers see ---------------------------------------------------------------------------


def block_slots(state: EngineState) -> list[int]:
    """Return the slots that keep what victims leave, or what suspended jobs keep."""
    part = preemption_state(state)
    blocks = [block for one in part.planned.values() for block in one.blocks]
    return blocks + [one.kept for one in part.suspended.values() if one.kept >= 0]
