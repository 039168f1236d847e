"""Planned preemptions and those under way: followed after each batch, postponed, undone."""

import heapq
from dataclasses import replace
from typing import Final

from schedd.engine.facts.explanations import format_length
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import displace_for, move_later, ready_time, replan, replan_displaced
from schedd.engine.rank.promises import loosen_bound, record_move
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.features.preemption.candidates import (
    earliest_preemption,
    is_preempt_target,
    is_preemptor,
    may_be_preempted,
    permitted_methods,
)
from schedd.features.preemption.descriptions import describe_freed_nodes
from schedd.features.preemption.planning import (
    ShortenedRun,
    block_rest,
    is_planned_at,
    suspended_amounts,
)
from schedd.features.preemption.settings import PreemptionSettings
from schedd.features.preemption.state import (
    PlannedPreemption,
    Victim,
    preemption_state,
)
from schedd.features.preemption.suspensions import (
    follow_suspensions,
    place_suspended,
    released_resources,
)
from schedd.plan.columns import FIXED, PLANNED

_POSTPONED_BY_S: Final = 10  # a preemptor is moved by this time if its victims are late
GIVEN_UP_AFTER_S: Final = 600
"""A preemption is undone if a victim still runs this long after its decision and grace."""


def preemption_settings(state: EngineState) -> PreemptionSettings:
    return state.site.part(PreemptionSettings)


def running_victims(state: EngineState, one: PlannedPreemption) -> list[ShortenedRun]:
    """Return the victims that still run."""
    released = released_resources(state.server.attributes, preemption_settings(state))
    found = []
    for victim in one.victims:
        if still_runs(state, victim):
            record = state.records[victim.job]
            suspended = victim.method == "suspend"
            kept = suspended_amounts(state.plan, record, released) if suspended else None
            found.append(ShortenedRun(record.slot, victim.end, kept))
    return found


def still_runs(state: EngineState, victim: Victim) -> bool:
    """Return whether a victim holds its resources as before: its run is neither over nor suspended."""
    record = state.records.get(victim.job)
    if record is None or record.phase is not Phase.RUNNING or record.run.started != victim.started:
        return False
    return record.facts.state != "S"


def _runs_on(state: EngineState, victim: Victim) -> bool:
    """Return whether a victim still runs, or is suspended by others: then it holds its resources, too."""
    record = state.records.get(victim.job)
    if record is None or record.phase is not Phase.RUNNING or record.run.started != victim.started:
        return False
    return victim.job not in preemption_state(state).suspended


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
            blocks = block_rest(state.plan, record.slot, running_victims(state, one), state.new_slot)
            part.planned[one.preemptor] = replace(one, blocks=blocks)


def _follow(state: EngineState, one: PlannedPreemption, event: str) -> None:
    record = state.records.get(one.preemptor)
    runs = running_victims(state, one)
    in_place = record is not None and is_planned_at(state.plan, record.slot, one.start)
    if record is None or record.phase in (Phase.RUNNING, Phase.DISPATCHED):
        restore_victims(state, one, event, "the preemptor is no longer waiting")
    elif in_place and state.plan.unusable_nodes(record.slot):
        undo_preemption(state, one, event, Cause.NODE_LOST, "a node of its planned place cannot be used")
    elif not in_place:
        undo_preemption(state, one, event, Cause.OVERRUN, "the preemptor lost its place")
    elif any(state.plan.end(run.slot) != one.start for run in runs):
        undo_preemption(state, one, event, Cause.OVERRUN, "a job to be preempted for it was altered")
    elif any(_runs_on(state, victim) and not still_runs(state, victim) for victim in one.victims):
        undo_preemption(state, one, event, Cause.OVERRUN, "a job to be preempted for it was suspended")
    elif not runs:
        undo_preemption(state, one, event, Cause.FREED, describe_freed_nodes(one))
    elif one.asked < 0 and not _is_permitted(state, one):
        undo_preemption(
            state,
            one,
            event,
            Cause.ADMIN,
            "settings or jobs were altered, so that its preemption is no longer permitted",
        )
    elif one.asked < 0 and len(runs) < len(one.victims):
        _keep_running_victims(state, record, one)
    elif one.asked < 0:
        if state.now >= one.start:
            undo_preemption(state, one, event, Cause.OUTAGE, "the jobs were not preempted in time")
    elif state.now > one.asked + preemption_settings(state).lead + GIVEN_UP_AFTER_S:
        left = ", ".join(victim.job for victim in one.victims if still_runs(state, victim))
        words = (
            f"job {left} still runs {format_length(state.now - one.asked)} after its preemption was ordered"
        )
        state.alert(event, "preemption", f"{words}; job {one.preemptor} is planned again", one.preemptor)
        _note_refusals(state, one)
        undo_preemption(state, one, event, Cause.REFUSED, words)
    elif state.now >= one.start - 1 and any(run.end <= state.now + _POSTPONED_BY_S for run in runs):
        undo_preemption(
            state, one, event, Cause.OVERRUN, "the jobs to be preempted for it are about to end by themselves"
        )
    elif state.now >= one.start - 1:
        _postpone(state, record, one, event)


def _is_permitted(state: EngineState, one: PlannedPreemption) -> bool:
    """Return whether the settings and the jobs still permit a planned preemption."""
    part, settings = preemption_state(state), preemption_settings(state)
    preemptor = state.records[one.preemptor].facts
    if not is_preemptor(state, settings, preemptor):
        return False
    begin = one.start - settings.lead
    for victim in one.victims:
        if not still_runs(state, victim):
            continue
        facts = state.records[victim.job].facts
        if not (may_be_preempted(state, settings, facts) and is_preempt_target(preemptor, facts)):
            return False
        if victim.method not in permitted_methods(settings, facts):
            return False
        if begin < earliest_preemption(settings, victim.started, part.preempted.get(victim.job)):
            return False
    return True


def _keep_running_victims(state: EngineState, record: JobRecord, one: PlannedPreemption) -> None:
    """Drop victims from a planned preemption after their runs ended; the preemptor keeps its place."""
    _drop_blocks(state, one)
    blocks = block_rest(state.plan, record.slot, running_victims(state, one), state.new_slot)
    victims = tuple(victim for victim in one.victims if still_runs(state, victim))
    preemption_state(state).planned[one.preemptor] = replace(one, victims=victims, blocks=blocks)


def _postpone(state: EngineState, record: JobRecord, one: PlannedPreemption, event: str) -> None:
    """Move the start of a preemptor because victims still run."""
    plan, slot, start = state.plan, record.slot, state.now + _POSTPONED_BY_S
    _drop_blocks(state, one)
    runs = running_victims(state, one)
    for run in runs:
        plan.set_duration(run.slot, start - plan.start(run.slot), state.now)
    state.bound[slot] = max(int(state.promise[slot]), start)
    words = "jobs that are preempted have not ended yet"
    gone, old = move_later(state, slot, start, event, Cause.OUTAGE, words)
    if plan.state(slot) == PLANNED:
        plan.set_ready(slot, start)
        blocks = block_rest(plan, slot, runs, state.new_slot)
        preemption_state(state).planned[one.preemptor] = replace(one, start=start, blocks=blocks)
        record_move(state, event, Cause.OUTAGE, words, slot, one.start, start)
        state.bound[slot] = min(int(state.bound[slot]), start)
        if blocks:  # jobs delayed by the preemptor may now lie where its victims' rest is blocked
            displace_for(state, blocks, event, Cause.OUTAGE, words)
    else:
        preemption_state(state).planned.pop(one.preemptor)
        _extend_runs(state, replace(one, start=start), event, words)
    replan_displaced(state, gone, old, event, Cause.OUTAGE, words)
    state.next_due = None


def undo_preemption(state: EngineState, one: PlannedPreemption, event: str, cause: Cause, words: str) -> None:
    """Undo a preemption, or end it when its victims are gone, and plan the preemptor again."""
    record = state.records[one.preemptor]
    if record.slot >= 0 and record.phase in (Phase.WAITING, Phase.BLOCKED):
        # Placing it again restores the victims first: see ``note_preemptor``.
        replan(state, record, event, cause, words)
    if one.preemptor in preemption_state(state).planned:
        restore_victims(state, one, event, words)
    preemption_state(state).tried.pop(one.preemptor, None)  # it is examined at once
    state.next_due = None


def restore_victims(state: EngineState, one: PlannedPreemption, event: str, words: str) -> None:
    """Let the victims go on in the plan as before, and free the blocks made for them."""
    preemption_state(state).planned.pop(one.preemptor)
    record = state.records.get(one.preemptor)
    if record is not None and record.slot >= 0:
        slot = record.slot
        loosen_bound(state, record)
        if record.phase in (Phase.WAITING, Phase.BLOCKED) and state.plan.state(slot) == PLANNED:
            state.plan.set_ready(slot, ready_time(state, record))
    _drop_blocks(state, one)
    _extend_runs(state, one, event, words)


def _drop_blocks(state: EngineState, one: PlannedPreemption) -> None:
    for block in one.blocks:
        state.drop_slot(block)


def _extend_runs(state: EngineState, one: PlannedPreemption, event: str, words: str) -> None:
    """Restore the former ends of victims that still run; jobs planned in that time are displaced."""
    extended = []
    for victim in one.victims:
        record = state.records.get(victim.job)
        if record is None or not _runs_on(state, victim) or state.plan.state(record.slot) != FIXED:
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
    """Undo the preemption of a job that no longer has a place in the plan."""
    one = preemption_state(state).planned.get(key)
    if one is not None:
        restore_victims(state, one, state.at_event, "the preemptor is no longer waiting")


def _note_refusals(state: EngineState, one: PlannedPreemption) -> None:
    part = preemption_state(state)
    for victim in one.victims:
        if still_runs(state, victim):
            part.refused[victim.job] = state.now
