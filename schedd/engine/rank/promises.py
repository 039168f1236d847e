"""Promises and the log of changes: moved starts, their causes, and the promises that they put at risk or
broke.

A promise is an upper bound of a start. It is made once, when a job is first eligible with a known start. Only
causes in ``MAY_BREAK`` may move the planned start beyond it: the promise is then *at risk*, until the plan
improves. It is *broken* if the job has not started by then; the start planned at that time (with slack) is
promised instead.

``state.bound`` is the latest start that the plan may give a job of its own accord: its promise minus a margin
for jobs ahead that end or start a little late, or its planned start if that is later. So nothing but a cause
in ``MAY_BREAK`` delays a job whose promise is at risk. A component may bind a job to an earlier start, until
the job moves beyond it.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from schedd.engine.component.promise_hooks import gets_no_promise, guaranteed_start, report_ended_promise
from schedd.engine.facts.carried_jobs import CarriedJob
from schedd.engine.facts.displayed_start import are_outdated, is_outdated
from schedd.engine.facts.job_requests import slot_limited
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import (
    MAY_BREAK,
    Breach,
    Cause,
    ChangeSet,
    EndedPromise,
    JobRecord,
    Phase,
    Risk,
)
from schedd.engine.facts.state import EngineState
from schedd.model import FOREVER
from schedd.plan.columns import Ints
from schedd.plan.records import Moves
from schedd.policy.engine_settings import EngineSettings
from schedd.policy.slack import Slack, parse_slack

_CHANGES_KEPT = 2_000_000
_SET_WEIGHT = 20  # weight of a change set in addition to its slots, in slots
_BREACHES_KEPT = 32


def record_moves(
    state: EngineState, event: str, cause: Cause, words: str, slots: Ints, old: Ints, new: Ints
) -> None:
    """Log the moves, judge the affected promises, and mark the starts to publish."""
    if slots.shape[0] == 0:
        return
    changes = _add_change_set(state, event, cause, words, slots, old, new)
    if state.publishes_starts:
        due = are_outdated(state.published_start[slots], new, state.settings.publish_threshold)
        # Without a start, another update may already be due: the waiting reason.
        state.update_due[slots] = np.where(new < 0, state.update_due[slots] | due, due)
        state.updates_marked = True
    promised = state.promise[slots]
    near = promised - state.settings.end_allowance  # the margin is at most that
    matters = (new > near) | (new < 0) | (old > near) | (old < 0)
    hit = np.flatnonzero(((promised < FOREVER) & matters) | (new > state.bound[slots]))
    for i in hit.tolist():
        _judge(state, changes, int(slots[i]), int(promised[i]), int(old[i]), int(new[i]))


def record_new_places(
    state: EngineState, event: str, cause: Cause, words: str, slots: Ints, old: Ints, new: Ints
) -> None:
    """The same for jobs that were placed again. Those with the same start count as changed, too: their nodes
    may be others.
    """
    state.changed[slots] = state.generation
    moved = new != old
    record_moves(state, event, cause, words, slots[moved], old[moved], new[moved])


def record_move(
    state: EngineState, event: str, cause: Cause, words: str, slot: int, old: int, new: int
) -> None:
    """The same for one job; nothing when it did not move. By itself: each job of a long queue comes here."""
    if old == new:
        return
    arrays = [np.array([value], np.int64) for value in (slot, old, new)]
    changes = _add_change_set(state, event, cause, words, *arrays)
    if state.publishes_starts:
        due = is_outdated(int(state.published_start[slot]), new, state.settings.publish_threshold)
        state.update_due[slot] = due or (new < 0 and bool(state.update_due[slot]))
        state.updates_marked |= due
    promised = int(state.promise[slot])
    near = promised - state.settings.end_allowance
    matters = new > near or new < 0 or old > near or old < 0
    if (promised < FOREVER and matters) or new > state.bound[slot]:
        _judge(state, changes, slot, promised, old, new)


def last_move_words(state: EngineState, slot: int) -> str:
    """Return why a job's planned start moved last; empty: the log does not know it any more."""
    number = int(state.last_move[slot])
    place = number - state.changes[0].number if number >= 0 and state.changes else -1
    return state.changes[place].words if place >= 0 else ""


def _add_change_set(
    state: EngineState, event: str, cause: Cause, words: str, slots: Ints, old: Ints, new: Ints
) -> ChangeSet:
    state.changed[slots] = state.generation
    state.last_move[slots] = state.change_number
    changes = ChangeSet(
        state.change_number, state.generation, state.now, event, cause, words, slots, old, new
    )
    state.change_number += 1
    state.changes.append(changes)
    state.moves.append(changes)
    state.changes_kept += slots.shape[0] + _SET_WEIGHT
    while state.changes_kept > _CHANGES_KEPT and len(state.changes) > 1:
        state.changes_kept -= state.changes.popleft().slots.shape[0] + _SET_WEIGHT
    return changes


def record_plan_moves(state: EngineState, event: str, cause: Cause, words: str, moves: Moves) -> None:
    """Log the moves of a repair or displacement, and mark jobs that were placed again with the same start."""
    state.changed[moves.elsewhere] = state.generation
    record_moves(state, event, cause, words, moves.slots, moves.old, moves.new)


def _judge(
    state: EngineState, changes: ChangeSet, slot: int, promised: int, before: int, planned: int
) -> None:
    """A job lost its start or got one back, or moved beyond its bound, or to or from about its promise."""
    record = state.by_slot[slot]
    if record is None:
        return
    if 0 <= planned <= promised:  # it can be kept, perhaps again
        own = _own_bound(state, record, planned)
        beyond = planned > state.bound[slot]
        state.bound[slot] = own if beyond else min(own, int(state.bound[slot]))
        if record.lost is not None or record.risk is not None:
            state.store_record(apply_step(record, Step.RISKED, lost=None, risk=None))
        return
    cause, bound = record.lost or changes.cause, int(state.bound[slot])
    if cause not in MAY_BREAK and (bound < state.now or 0 <= before < state.now):
        cause = halt_cause(state)  # its moment went by before this: it was not started in time
    if state.settings.validate_ and cause not in MAY_BREAK and (planned > bound or planned < 0):
        raise AssertionError(f"{record.id}: {cause} ({changes.event}) took it past {bound} to {planned}")
    if planned >= 0:
        state.bound[slot] = planned
    delay = planned - max(before, promised) if planned >= 0 else 0
    risk = _worst_risk(record.risk, Risk(state.now, changes.event, cause, max(0, delay)), lost=planned < 0)
    state.store_record(apply_step(record, Step.RISKED, lost=cause if planned < 0 else None, risk=risk))


def _worst_risk(risk: Risk | None, further: Risk, *, lost: bool) -> Risk:
    """Return the risk of a promise after a ``further`` move of its job, or after it ``lost`` its start."""
    if risk is None:
        return further
    if further.cause is risk.cause:
        return replace(risk, delay=risk.delay + further.delay) if further.delay else risk
    worse = further.cause in MAY_BREAK and (lost or further.delay > risk.delay)
    return further if worse else risk


# ---- overdue promises ---------------------------------------------------------------------------


def break_overdue_promises(state: EngineState) -> None:
    """Break the promises of jobs that should have started by now, each with the cause that delays it most.
    Where none was at risk, time broke it, and not the event that is handled now.

    Not while the server's state is unknown, and not directly after a refused start: the server may be about
    to report the job's deletion.
    """
    if state.stale or state.arriving or not (state.risks or state.next_due_start() <= state.now):
        return
    for slot in state.plan.waiting_before(state.promise, state.now).tolist():
        record = state.by_slot[slot]
        if record is not None and _judged_after(state, record) < state.now:
            start = state.plan.start(slot)
            risk = record.risk or Risk(state.now, f"clock:{state.now}", _delay_cause(state, record))
            _break(state, apply_step(record, Step.RISKED, lost=None, risk=risk), start)
            if start >= 0:
                # The start of an overdue job is unknown; its place is moved on by then.
                soonest = start if start > state.now else state.now + state.lateness
                state.promise[slot] = _latest(state, slot, soonest)
                _bind(state, record, soonest)
            else:  # the next start is promised again
                state.promise[slot] = state.bound[slot] = FOREVER


def next_overdue_promise(state: EngineState) -> int:
    """When the next promise is broken if its job has not started by then; FOREVER: none is at risk."""
    if state.stale or state.arriving or not (state.risks or state.next_due_start() <= state.now):
        return FOREVER
    slots = state.plan.waiting_before(state.promise, FOREVER)
    promised = state.promise[slots]
    late = promised < state.now
    soonest = int(promised[~late].min(initial=FOREVER))
    for slot in slots[late].tolist():
        record = state.by_slot[slot]
        if record is not None:
            soonest = min(soonest, _judged_after(state, record))
    return soonest + 1 if soonest < FOREVER else FOREVER


def _judged_after(state: EngineState, record: JobRecord) -> int:
    """Return the last moment when the promise does not count as broken."""
    promised = int(state.promise[record.slot])
    return promised + state.settings.check_wait if record.back_off.refusal else promised


def judge_start(state: EngineState, record: JobRecord, event: str, started: int) -> JobRecord:
    """A job has started: its promise was kept or, if not, that is recorded. Returns its record, not yet put.

    It counts as started when its run decision was made, if it runs within that decision's life.
    """
    if record.slot < 0:
        return apply_step(record, Step.RISKED, lost=None, risk=None)
    promised, in_time = int(state.promise[record.slot]), started
    if (
        record.phase is Phase.DISPATCHED
        and started <= record.attempt.decided + state.settings.decision_expiry
    ):
        in_time = min(started, record.attempt.decided)
    if in_time > promised:
        risk = record.risk or Risk(state.now, event, _delay_cause(state, record))
        record = apply_step(record, Step.RISKED, lost=record.lost, risk=risk)
        record = _break(state, record, started)
    if record.lost is None and record.risk is None:
        return record
    return apply_step(record, Step.RISKED, lost=None, risk=None)


def _break(state: EngineState, record: JobRecord, planned: int) -> JobRecord:
    risk = record.risk
    assert risk is not None
    breach = Breach(state.now, risk.event, risk.cause, int(state.promise[record.slot]), planned)
    kept = record.breaches
    if len(kept) >= _BREACHES_KEPT:
        kept = (kept[0], *kept[2:])
    state.breaches += 1
    return state.store_record(apply_step(record, Step.BROKEN, breaches=(*kept, breach)))


def _delay_cause(state: EngineState, record: JobRecord) -> Cause:
    """Why a job has not been started though it was planned in time."""
    if record.lost in MAY_BREAK:
        return record.lost
    if record.slot >= 0:
        names = (state.plan.node_names[take.row] for take in state.plan.takes(record.slot))
        if any(name in state.down_since for name in names):
            return Cause.NODE_LOST
    if slot_limited(record.facts):
        return Cause.QUEUE
    before = record.back_off
    # Outages refuse starts, too: then neither the job nor its nodes have refusals of their own.
    refused = before.refusal and (before.refusals or before.busy or before.returns)
    return Cause.REFUSED if refused else halt_cause(state)


def halt_cause(state: EngineState) -> Cause:
    """Return why jobs are not started in time: an admin's pause, or an outage."""
    return Cause.ADMIN if state.paused else Cause.OUTAGE


def make_promise(state: EngineState, record: JobRecord, start: int) -> None:
    """Promise a start to an eligible job without a promise. An earlier promise is brought forward to the
    guarantees that components give from now on.
    """
    slot = record.slot
    if record.eligible_since < 0 or gets_no_promise(state, record.facts):
        return
    guaranteed = guaranteed_start(state, record, start)
    record = state.records[record.id]
    if state.promise[slot] < FOREVER:
        state.promise[slot] = min(int(state.promise[slot]), guaranteed)
        state.bound[slot] = min(int(state.bound[slot]), _own_bound(state, record, start))
        return
    state.promise[slot] = min(slack_start(state, slot, start), guaranteed)
    _bind(state, record, start)
    weak = bool(state.assumed) and _follows_assumed_walltime(state, slot)
    if weak != record.weak:
        state.store_record(apply_step(record, Step.PROMISED, weak=weak))


def loosen_bound(state: EngineState, record: JobRecord) -> None:
    """Bind a job that a component bound to an earlier start only by its promise."""
    slot = record.slot
    own = _own_bound(state, record, state.plan.start(slot))
    state.bound[slot] = max(int(state.bound[slot]), own)


def _bind(state: EngineState, record: JobRecord, planned: int) -> None:
    """Bind a job that is planned to start at ``planned`` (-1: it is not planned) by its promise."""
    state.bound[record.slot] = _own_bound(state, record, planned)


def _own_bound(state: EngineState, record: JobRecord, planned: int) -> int:
    """Return the latest start that the plan may give a job by its promise.

    It lies before the promise by the end allowance, or a quarter of a shorter slack: a job ahead that is
    ended at its walltime ends some seconds later, and each start takes seconds. Without this margin a search
    uses up all slack, and these seconds break the promise.
    """
    promised = int(state.promise[record.slot])
    if promised >= FOREVER:
        return promised
    slack = queue_slack(state.settings, record.facts.queue)
    margin = state.settings.end_allowance
    if not slack.share:
        margin = min(margin, slack.seconds // 4)
    return max(planned, promised - margin)


def _latest(state: EngineState, slot: int, planned: int) -> int:
    """The last start that is promised to a job that is planned to start then; FOREVER: none is."""
    record = state.by_slot[slot]
    guaranteed = guaranteed_start(state, record, planned) if record is not None else FOREVER
    return min(slack_start(state, slot, planned), guaranteed)


def slack_start(state: EngineState, slot: int, planned: int) -> int:
    """The planned start of a job plus the slack of its queue; FOREVER: the queue promises nothing."""
    record = state.by_slot[slot]
    slack = queue_slack(state.settings, record.facts.queue if record is not None else "")
    return slack.latest(planned, max(0, planned - int(state.waits_since[slot])))


def queue_slack(settings: EngineSettings, queue: str) -> Slack:
    """By how much the jobs of a queue may start later than was planned first."""
    return parse_slack(settings.queue_slack.get(queue, settings.slack))


def restore_promises(state: EngineState, found: Mapping[str, CarriedJob], event: str) -> None:
    """Restore recorded promises by job, instead of those made in a replay of the log. ``eligible_since`` of
    each is the time of the promise.

    A promise that ended later stays ended. Unknown jobs get theirs when the server lists them.
    """
    for job, kept in found.items():
        record = state.records.get(job)
        if record is None:
            before = state.carried_jobs.get(job)
            if before is not None:
                kept = replace(before, promised=kept.promised, weak=kept.weak, risk=kept.risk or before.risk)
            state.carried_jobs[job] = kept
            continue
        if record.slot < 0 or not kept.is_same_job(record.facts.owner, record.facts.submitted):
            continue
        ended = record.ended is not None and record.ended.time > kept.eligible_since
        if record.phase is not Phase.RUNNING and (record.eligible_since < 0 or ended):
            continue
        state.promise[record.slot] = kept.promised
        _bind(state, record, state.plan.start(record.slot))
        record = apply_step(record, Step.BROKEN, breaches=kept.breaches)
        if record.weak != kept.weak and record.phase is Phase.WAITING:
            record = apply_step(record, Step.PROMISED, weak=kept.weak)
        if kept.risk is not None:
            record = apply_step(record, Step.RISKED, lost=record.lost, risk=kept.risk)
        judge_restored(state, state.store_record(record), event)


def judge_restored(state: EngineState, record: JobRecord, event: str) -> None:
    """Judge a promise that was restored when the plan was rebuilt, once its job has a place or has none: one
    that was not at risk before and cannot be kept now is put down to the outage.
    """
    slot = record.slot
    if slot < 0 or state.promise[slot] >= FOREVER or record.phase is Phase.RUNNING:
        return
    start = state.plan.start(slot)
    if 0 <= start <= state.promise[slot]:
        _bind(state, record, start)
        state.store_record(apply_step(record, Step.RISKED, lost=None, risk=None))
        return
    if start >= 0:
        state.bound[slot] = start
    lost = Cause.OUTAGE if start < 0 else None
    risk = record.risk or Risk(state.now, event, Cause.OUTAGE)
    state.store_record(apply_step(record, Step.RISKED, lost=lost, risk=risk))


def end_promise(state: EngineState, record: JobRecord, event: str, words: str) -> JobRecord:
    """End a job's promise, keeping why; returns the record to go on with, which is not yet put."""
    report_ended_promise(state, record)
    if record.slot < 0 or state.promise[record.slot] >= FOREVER:
        return apply_step(record, Step.UNPROMISED, ended=record.ended)
    ended = note_replaced_promise(state, record, event, words)
    state.promise[record.slot] = state.bound[record.slot] = FOREVER
    return apply_step(record, Step.UNPROMISED, ended=ended)


def note_replaced_promise(state: EngineState, record: JobRecord, event: str, words: str) -> EndedPromise:
    """Note for the log why the present promise of a job ends, or is replaced by a later one."""
    ended = EndedPromise(state.now, event, words, int(state.promise[record.slot]))
    state.ended_promises.append((record.id, ended))
    return ended


def _follows_assumed_walltime(state: EngineState, slot: int) -> bool:
    """Return whether a job with an assumed walltime precedes this one on a node of it."""
    plan = state.plan
    others = np.fromiter(state.assumed, np.int64, len(state.assumed))
    starts = plan.starts(others)
    others = others[(starts >= 0) & (starts < plan.start(slot)) & (others != slot)]
    if not others.shape[0]:
        return False
    own = plan.held(np.array([slot], np.int64)).rows
    return bool(np.isin(plan.held(others).rows, own).any())
