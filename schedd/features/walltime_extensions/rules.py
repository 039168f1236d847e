"""Extensions of walltimes, without I/O.

A run that is selected is examined shortly before its walltime ends. If its resources can be kept for longer
without a broken promise, the plan keeps them at once, and the server is asked for the longer walltime. If the
server refuses, the plan gives them back.
"""

import heapq
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from schedd.engine.component.job_hooks import selects_job
from schedd.engine.component.placement_hooks import may_lengthen, unmovable_jobs
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.place.costs import effective_cost_limit
from schedd.engine.place.placement import displace_for
from schedd.engine.place.start_holds import last_starts_on_hold
from schedd.engine.rank.promises import record_plan_moves
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.engine.run.running import fix_shares
from schedd.features.walltime_extensions.settings import WalltimeExtensionSettings
from schedd.features.walltime_extensions.state import RunExtension, extensions_state
from schedd.model import FOREVER
from schedd.plan.columns import Ints
from schedd.plan.plan import Plan
from schedd.plan.records import NO_MOVES, Moves
from schedd.wire import ExtendRun, ExtensionDone, JobDeleted, JobEnded

_AGAIN_S: Final = 60  # a run that could not be extended is examined again after this time
_MOST_DISPLACED: Final = 100  # planned jobs that one extension may move
_SHARES: Final = (1, 2, 4)  # divisors of the step that are tried
_TOLERANCE_S: Final = 60  # a run that the plan shortens by more than this will be preempted


def extension_settings(state: EngineState) -> WalltimeExtensionSettings:
    return state.site.part(WalltimeExtensionSettings)


# ---- which runs are examined, and when ----------------------------------------------------------


def note_settings(state: EngineState) -> None:
    """Note whether the site's settings let any job be extended."""
    extensions_state(state).selects = not extension_settings(state).jobs.is_empty


def follow_settings(state: EngineState) -> None:
    """Select the runs again under the present settings."""
    note_settings(state)
    part = extensions_state(state)
    part.due, part.first = {}, FOREVER
    if part.selects:
        for record in state.records.values():
            note_run(state, None, record)


def note_run(state: EngineState, before: JobRecord | None, record: JobRecord) -> None:
    """Note when a run is examined next, as its record is new or was changed."""
    part = extensions_state(state)
    one = part.runs.get(record.id)
    runs = record.phase is Phase.RUNNING
    ran = (
        before is not None and before.phase is Phase.RUNNING
    )  # after a restart a job is known before its run
    if one is not None and (one.started != record.run.started if runs else ran):
        del part.runs[record.id]
        one = None
    elif one is not None and one.walltime and record.understood.walltime != one.before:
        part.runs[record.id] = one = replace(one, walltime=0)  # the server shows this one or an altered one
    if not _may_be_extended(state, record, one):
        part.due.pop(record.id, None)
        return
    before_end = record.run_end(state.now) - extension_settings(state).before
    part.due[record.id] = moment = max(before_end, one.again if one is not None else 0)
    part.first = min(part.first, moment)


def _may_be_extended(state: EngineState, record: JobRecord, one: RunExtension | None) -> bool:
    settings = extension_settings(state)
    if record.phase is not Phase.RUNNING or record.facts.state != "R" or record.facts.run_lost:
        return False
    if one is not None and (one.decision or one.final or one.times >= settings.times):
        return False
    return not record.understood.assumed and selects_job(settings.jobs, state, record.facts)


def forget_job(state: EngineState, event: JobDeleted | JobEnded) -> None:
    """Forget a job that is gone from the server."""
    part = extensions_state(state)
    part.due.pop(event.job_id, None)
    part.runs.pop(event.job_id, None)


def forget_past(state: EngineState) -> None:
    """Forget jobs that are gone without an event."""
    part = extensions_state(state)
    if state.records and not state.arriving:
        part.runs = {job: one for job, one in part.runs.items() if job in state.records}


def next_examination(state: EngineState) -> int:
    """Return when a run is examined; FOREVER: never."""
    part = extensions_state(state)
    return max(state.now + 1, part.first) if part.due and state.policy is None else FOREVER


# ---- extending ----------------------------------------------------------------------------------


def extend_due_runs(state: EngineState, event: str) -> None:
    """Extend the runs that are about to reach their walltime, where they can."""
    part = extensions_state(state)
    if part.first > state.now:
        return
    ready = state.mode == "scheduler" and not (state.halted or state.arriving or state.to_reevaluate)
    for job in [job for job, moment in part.due.items() if moment <= state.now]:
        record = state.records.get(job)
        if record is None or record.phase is not Phase.RUNNING or record.run_end(state.now) <= state.now:
            del part.due[job]
            continue
        part.due[job] = state.now + _AGAIN_S
        if ready:
            with JobErrorGuard(state, job, event):
                _extend(state, record, event)
    part.first = min(part.due.values(), default=FOREVER)


def _extend(state: EngineState, record: JobRecord, event: str) -> None:
    """Extend a run by the largest possible part of the step, or note why it cannot be."""
    part, now = extensions_state(state), state.now
    one = part.runs.get(record.id) or RunExtension(record.id, record.run.started)
    obstacle = _find_obstacle(state, record)
    seconds, moves = (0, NO_MOVES) if obstacle else _lengthen_in_plan(state, record)
    if not seconds:
        obstacle = obstacle or "planned jobs or reservations need its resources at that time"
        part.runs[record.id] = replace(one, refusal=obstacle, again=now + _AGAIN_S)
        return
    before = record.understood.walltime
    walltime = max(before, record.run.ordered_walltime) + seconds
    decision = ExtendRun(
        id=state.next_decision(),
        cause=event,
        time=now,
        job_id=record.id,
        started=record.run.started,
        before=before,
        walltime=walltime,
        expires=now + state.settings.decision_expiry,
    )
    state.decisions.append(decision)
    part.runs[record.id] = replace(one, before=before, walltime=walltime, decision=decision.id, refusal="")
    _order_walltime(state, record, walltime)
    heapq.heappush(state.ends, (state.plan.end(record.slot), record.slot, record.id))
    record_plan_moves(state, event, Cause.EXTENDED, f"the walltime of job {record.id} is extended", moves)
    state.next_due = None


def _lengthen_in_plan(state: EngineState, record: JobRecord) -> tuple[int, Moves]:
    """Let a run keep its resources for as much of the step as is possible. Return the seconds, 0 for none,
    and the moves of planned jobs.
    """
    settings, slot, end = (
        extension_settings(state),
        record.slot,
        record.run_end(state.now),
    )
    lengthen = partial(
        _lengthen,
        slot=slot,
        latest=last_starts_on_hold(state),
        delay=settings.delay,
        kept={state.records[job].slot for job in (*state.capped, *unmovable_jobs(state))},
        now=state.now,
    )
    for seconds in _step_parts(settings):
        if not may_lengthen(state, _lengthened(record, seconds)):
            continue
        if lengthen(state.plan.fork(), until=end + seconds) is not None:
            moves = lengthen(state.plan, until=end + seconds)
            if moves is None:
                raise AssertionError(f"job {record.id} could be extended only in a fork of the plan")
            return seconds, moves
    return 0, NO_MOVES


def _order_walltime(state: EngineState, record: JobRecord, walltime: int) -> JobRecord:
    run = replace(record.run, ordered_walltime=walltime)
    return state.store_record(apply_step(record, Step.EXTENDED, run=run))


def _find_obstacle(state: EngineState, record: JobRecord) -> str:
    """Return why a run cannot be extended, whatever is planned after it; empty: it may be possible."""
    planned = state.plan.end(record.slot) - state.plan.start(record.slot)
    if record.run_end(state.now) - record.run.started - planned > _TOLERANCE_S:
        return "it will be preempted before its end"
    parts = _step_parts(extension_settings(state))
    longer, least = _lengthened(record, parts[0]), _lengthened(record, parts[-1])
    pools = state.pools_for(record.facts, longer.understood)
    if pools != state.pools_for(record.facts, record.understood):
        return "a limit counts its walltime"
    if effective_cost_limit(state, longer) is not None:
        return "its cost limit counts its walltime"
    return (
        ""
        if may_lengthen(state, least)
        else "too little is left of a limit on use, or of its account's budget"
    )


def _step_parts(settings: WalltimeExtensionSettings) -> list[int]:
    """Return the extensions that are tried, in seconds, the longest first."""
    return [settings.step // share for share in _SHARES if settings.step >= share]


def _lengthened(record: JobRecord, seconds: int) -> JobRecord:
    """Return the record of a run with a longer walltime."""
    understood = replace(record.understood, walltime=record.understood.walltime + seconds)
    return replace(record, understood=understood)


def _lengthen(
    plan: Plan, *, slot: int, until: int, latest: Ints, delay: int, kept: Collection[int], now: int
) -> Moves | None:
    """Let a running job keep its resources ``until`` then, and move planned jobs, each by at most ``delay``
    and to no later than its ``latest`` start (by slot); those in ``kept`` may not move.

    Return the moves. None: it is impossible, and the plan is of no use any more.
    """
    end = plan.end(slot)
    plan.set_duration(slot, until - plan.start(slot), now)
    own = np.unique(plan.held(np.array([slot], np.int64)).rows)
    rows = plan.overcommitted_rows(own, end, until)
    if not rows.shape[0]:
        return NO_MOVES
    slots = _planned_after(plan, rows, end)
    slots = slots[plan.starts(slots) < until]
    if not 0 < slots.shape[0] <= _MOST_DISPLACED or np.isin(slots, list(kept)).any():
        return None
    if delay:  # the jobs behind them make room in turn
        behind = _planned_after(plan, own, int(plan.starts(slots).min()))
        behind = behind[~np.isin(behind, [*kept, *slots])][: _MOST_DISPLACED - slots.shape[0]]
        slots = np.concatenate([slots, behind])
        slots = slots[np.argsort(plan.starts(slots), kind="stable")]
    moves = plan.displace(slots, np.minimum(latest[slots], plan.starts(slots) + delay), now)
    return moves if moves is not None and not plan.overcommitted_rows(own, end, until).shape[0] else None


def _planned_after(plan: Plan, rows: Ints, since: int) -> Ints:
    """Return the planned jobs on these rows that end later than ``since``, by their start."""
    slots = plan.planned()
    slots = slots[(plan.starts(slots) + plan.jobs.durations[slots] > since)]
    held = plan.held(slots)
    slots = slots[np.unique(held.owner[np.isin(held.rows, rows)])]
    return np.ascontiguousarray(slots[np.argsort(plan.starts(slots), kind="stable")])


def restore_orders(state: EngineState, event: str) -> None:
    """Let the plan count ordered walltimes again after it was rebuilt from the server's state."""
    for one in list(extensions_state(state).runs.values()):
        record = state.records.get(one.job)
        if not one.walltime or record is None or record.phase is not Phase.RUNNING:
            continue
        if record.run.started != one.started or record.run.ordered_walltime:
            continue
        with JobErrorGuard(state, one.job, event):
            fix_shares(state, _order_walltime(state, record, one.walltime))
            words = f"job {one.job} was given a longer walltime before"
            displace_for(state, [record.slot], event, Cause.OUTAGE, words)


# ---- outcomes -----------------------------------------------------------------------------------


def awaits_extension(state: EngineState, decision: ExtendRun) -> bool:
    one = extensions_state(state).runs.get(decision.job_id)
    return one is not None and one.decision == decision.id


def note_outcome(state: EngineState, event: ExtensionDone) -> None:
    """Note the outcome of an extension; if it was refused, the plan has the former end again."""
    part = extensions_state(state)
    one, record = part.runs.get(event.job_id), state.records.get(event.job_id)
    if one is None or record is None or not event.decision_id or one.decision != event.decision_id:
        return
    if event.done:
        added = max(record.understood.walltime, one.walltime) - one.before
        done = replace(one, decision="", times=one.times + 1, added=one.added + added, last=state.now)
        part.runs[one.job] = done
        part.extended += 1
        note_run(state, None, record)
        return
    part.refused += 1
    text = event.text or f"code {event.code}"
    part.runs[one.job] = replace(
        one,
        decision="",
        walltime=0,
        refusal=f"the server refused it: {text}" if event.code else text,
        again=state.now + _AGAIN_S,
        final=not event.outage,
    )
    state.alert(event.id, "walltime_extension", f"job {one.job} could not be extended: {text}", one.job)
    if record.run.ordered_walltime:
        fix_shares(state, _order_walltime(state, record, 0))
        state.freed_by = (event.id, f"job {one.job} was not extended")
    else:
        note_run(state, None, record)


def still_refused(state: EngineState, job: str) -> bool:
    """Return whether the run of an alert goes on without the extension."""
    one = extensions_state(state).runs.get(job)
    return one is not None and bool(one.refusal) and not one.decision
