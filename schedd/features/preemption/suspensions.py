"""Suspended runs: the resources that they keep in the plan, their returns, and decisions to resume them.

While a run is suspended, a slot of the component holds the resources that it keeps. The job's own slot has
all of its resources from its return on: from the end of its preemptor, or from the first time when they are
free.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from schedd.engine.component.cluster_hooks import component_slots, deferred_slots
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.shares import takes_for_shares
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import displace_for
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.features.preemption.planning import fix_block, suspended_amounts
from schedd.features.preemption.risks import note_suspension
from schedd.features.preemption.settings import PreemptionSettings
from schedd.features.preemption.state import SuspendedRun, preemption_state
from schedd.model import FOREVER
from schedd.plan.columns import FIXED
from schedd.wire import PreemptionDone, Resume

_ASKED_EVERY_S: Final = 60  # a run that does not go on is resumed again after this time
_LATER_S: Final = 60  # a run that cannot go on is tried again after this time
_MOST_TIMES: Final = 200  # number of ends of jobs that are tried for the return of a run
_RESTRICTED: Final = "restrict_res_to_release_on_suspend"


def released_resources(attributes: Mapping[str, str], settings: PreemptionSettings) -> frozenset[str]:
    """Return the names of the resources that suspended jobs release, by the server or the settings."""
    text = attributes.get(_RESTRICTED, "")
    names = frozenset(part.strip().strip("\"'") for part in text.split(",") if part.strip())
    return names or frozenset(settings.released)


# ---- what the server shows ----------------------------------------------------------------------


def note_run(state: EngineState, before: JobRecord | None, record: JobRecord) -> None:
    """Note that a run was suspended as ordered, goes on, or is over."""
    part = preemption_state(state)
    if not (part.suspending or part.suspended):
        return
    job = record.id
    runs = record.phase is Phase.RUNNING
    if not runs and (before is None or before.phase is not Phase.RUNNING):
        return  # after a restart a job is known before its run is
    if job in part.suspended and not (runs and _is_still_suspended(part.suspended[job], record)):
        forget_suspension(state, job)
    elif job in part.suspending and runs and record.facts.state == "S" and job not in part.suspended:
        preemptor = part.suspending.pop(job)
        ran = state.now - record.run.started - record.run.seconds_suspended(state.now)
        part.suspended[job] = SuspendedRun(
            job=job, started=record.run.started, since=state.now, ran=max(0, ran), preemptor=preemptor
        )
        part.count += 1
        note_suspension(state)
    elif job in part.suspending and not runs:
        part.suspending.pop(job)


def _is_still_suspended(one: SuspendedRun, record: JobRecord) -> bool:
    return record.facts.state == "S" and record.run.started == one.started


def forget_suspension(state: EngineState, job: str) -> None:
    """Free what a suspended job keeps, since it goes on or is gone."""
    one = preemption_state(state).suspended.pop(job, None)
    if one is not None and one.kept >= 0:
        state.drop_slot(one.kept)


# ---- in the plan --------------------------------------------------------------------------------


def place_suspended(state: EngineState, event: str) -> frozenset[str]:
    """Give suspended runs without a place in the plan one. Return their jobs."""
    part, found = preemption_state(state), set()
    for job, one in list(part.suspended.items()):
        record = state.records.get(job)
        if record is None or record.phase is not Phase.RUNNING:
            continue  # not known yet, after a restart
        with JobErrorGuard(state, job, event):
            if state.plan.state(record.slot) != FIXED or state.plan.start(record.slot) != one.returns:
                moment = _earliest_return(state, one, record, all_jobs=False)
                _arrange(state, one, record, moment, event)
                found.add(job)
    return frozenset(found)


def follow_suspensions(state: EngineState, new: frozenset[str], event: str) -> None:
    """Follow changes of the plan with the returns of suspended runs, and resume the due ones.

    ``new`` are jobs that got their place in this batch, before the plan of their preemptors was final.
    """
    for job, one in list(preemption_state(state).suspended.items()):
        if one.returns >= 0:
            with JobErrorGuard(state, job, event):
                _follow(state, one, state.records[job], event, new=job in new)


def _follow(state: EngineState, one: SuspendedRun, record: JobRecord, event: str, *, new: bool) -> None:
    plan, slot = state.plan, record.slot
    if one.returns > state.now:
        rows = np.unique(plan.held(np.array([slot], np.int64)).rows)
        crowded = plan.overcommitted_rows(rows, plan.start(slot), plan.end(slot)).shape[0] > 0
        if new or crowded or plan.freed:
            found = _earliest_return(state, one, record, all_jobs=not (new or crowded))
            if found < one.returns or (crowded and found != one.returns):
                _arrange(state, one, record, found, event)
    one = preemption_state(state).suspended[one.job]
    if one.returns > state.now or state.now < one.retry or state.halted:
        return
    if one.asked >= 0 and state.now < one.asked + _ASKED_EVERY_S:
        return
    timed = component_slots(state) + deferred_slots(state)
    if plan.overcommitted_now(slot, state.now, timed) or plan.unusable_nodes(slot):
        found = _earliest_return(state, one, record, all_jobs=False)
        _arrange(state, one, record, max(found, state.now + _LATER_S), event)
        return
    decision = Resume(
        id=state.next_decision(),
        cause=event,
        time=state.now,
        job_id=one.job,
        started=one.started,
        expires=state.now + state.settings.decision_expiry,
    )
    state.decisions.append(decision)
    preemption_state(state).suspended[one.job] = replace(one, decision=decision.id, asked=state.now)


def _seconds_left(one: SuspendedRun, record: JobRecord) -> int:
    return max(1, record.understood.walltime - one.ran)


def _earliest_return(state: EngineState, one: SuspendedRun, record: JobRecord, *, all_jobs: bool) -> int:
    """Return when a run can go on: next to the jobs that run, or next to all planned jobs, too.

    If none of the examined times is possible, return the latest of them.
    """
    now, slot, left = state.now, record.slot, _seconds_left(one, record)
    fork = state.plan.fork()
    passes = state.open_gates(record.facts)
    takes = takes_for_shares(fork, record.understood.request, record.facts.shares, passes)
    fork.remove(slot, now)
    if one.kept >= 0:
        fork.drop_job(one.kept, now)
    fork.set_duration(slot, left, now)
    fork.fix(slot, now, takes)
    rows = np.unique(fork.held(np.array([slot], np.int64)).rows)
    fork.remove(slot, now)
    if not all_jobs:
        stay = _preemptor_slots(state)
        for other in fork.planned().tolist():
            if other not in stay:
                fork.remove(other, now)
    slots = np.flatnonzero(fork.jobs.starts >= 0)
    entries = fork.held(slots)
    beside = slots[np.unique(entries.owner[np.isin(entries.rows, rows)])]
    ends = sorted({fork.end(other) for other in beside.tolist() if fork.end(other) > now})
    times = [now, *ends[:_MOST_TIMES]]
    for moment in times:
        fork.fix(slot, moment, takes)
        if not fork.overcommitted_rows(rows, moment, moment + left).shape[0]:
            return moment
        fork.remove(slot, now)
    return max(times[-1], now + _LATER_S)


def _preemptor_slots(state: EngineState) -> set[int]:
    """Return the slots of preemptors that keep their places: with planned victims or a suspended run."""
    part = preemption_state(state)
    jobs = {*part.planned, *(one.preemptor for one in part.suspended.values())}
    return {state.records[job].slot for job in jobs if job in state.records}


def _arrange(state: EngineState, one: SuspendedRun, record: JobRecord, moment: int, event: str) -> None:
    """Plan a run's return at ``moment`` and the resources that it keeps until then; displace planned jobs."""
    plan, slot, now, left = state.plan, record.slot, state.now, _seconds_left(one, record)
    if one.kept >= 0:
        state.drop_slot(one.kept)
    plan.remove(slot, now)
    plan.set_duration(slot, left, now)
    passes = state.open_gates(record.facts)
    takes = takes_for_shares(plan, record.understood.request, record.facts.shares, passes)
    plan.fix(slot, moment, takes)
    heapq.heappush(state.ends, (moment + left, slot, one.job))
    kept = -1
    if moment > now:
        settings = state.site.part(PreemptionSettings)
        held = suspended_amounts(plan, record, released_resources(state.server.attributes, settings))
        if held:
            kept = fix_block(plan, now, moment - now, held, state.new_slot)
    part = preemption_state(state)
    part.suspended[one.job] = replace(one, kept=kept, returns=moment, asked=-1, decision="")
    state.next_due = None
    displace_for(state, [slot], event, Cause.OVERRUN, f"job {one.job} goes on there after its suspension")


def suspended_slots(state: EngineState) -> Iterable[int]:
    """Return the slots of suspended jobs: in the plan they hold their resources from their return on."""
    part = preemption_state(state)
    return [state.records[job].slot for job, one in part.suspended.items() if one.returns >= 0]


def next_resume(state: EngineState) -> int:
    """Return when a suspended run is to be resumed; FOREVER: never."""
    found = FOREVER
    for one in preemption_state(state).suspended.values():
        if one.returns < 0:
            continue
        again = one.asked + _ASKED_EVERY_S if one.asked >= 0 else 0
        moment = max(one.returns, one.retry, again)
        if moment > state.now or not state.halted:  # the end of a halt is an event
            found = min(found, moment)
    return found


# ---- outcomes -----------------------------------------------------------------------------------


def awaits_resume(state: EngineState, decision: Resume) -> bool:
    one = preemption_state(state).suspended.get(decision.job_id)
    return one is not None and one.decision == decision.id


def note_resume_outcome(state: EngineState, event: PreemptionDone) -> bool:
    """Note the outcome of a decision to resume a run. Return whether the event is one."""
    part = preemption_state(state)
    one = part.suspended.get(event.job_id)
    if one is None or not event.decision_id or one.decision != event.decision_id:
        return False
    if event.done:
        part.suspended[one.job] = replace(one, decision="")
        return True
    words = f"job {one.job} could not be resumed: {event.text or f'code {event.code}'}"
    if not event.outage:
        state.alert(event.id, "suspension", f"{words}; it is tried again", one.job)
    part.suspended[one.job] = replace(one, decision="", asked=-1, retry=state.now + _ASKED_EVERY_S)
    return True
