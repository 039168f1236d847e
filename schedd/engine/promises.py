"""Promises and the record of changes: who moved, why, and which promises that broke.

A promise is an upper bound on a planned start. It is made once, when a job is first eligible with a known
start. Only the causes of ``MAY_BREAK`` may break one: the breach is then recorded, and the new start (with
the site's slack) is promised instead, since a bound that has failed bounds nothing.
"""

from dataclasses import replace

import numpy as np

from schedd.engine.records import MAY_BREAK, Breach, Cause, ChangeSet, Ended, JobRecord
from schedd.engine.slack import Slack
from schedd.engine.state import EngineState
from schedd.model import FOREVER
from schedd.plan.columns import Ints
from schedd.plan.plan import Moves

__all__ = ["end_promise", "make_promise", "note", "note_moves", "note_one"]

_CHANGES_KEPT = 2_000_000
_SET_WEIGHT = 20
"""What a change set weighs beside its slots, counted in slots."""
_BREACHES_KEPT = 32


def note(state: EngineState, event: str, cause: Cause, words: str, slots: Ints, old: Ints, new: Ints) -> None:
    """Keep who moved and why; find the promises that were broken, and the starts to tell."""
    if slots.shape[0] == 0:
        return
    state.changed[slots] = state.generation
    state.last_move[slots] = state.change_number
    changes = ChangeSet(
        state.change_number, state.generation, state.now, event, cause, words, slots, old, new
    )
    state.change_number += 1
    state.changes.append(changes)
    state.changes_kept += slots.shape[0] + _SET_WEIGHT
    while state.changes_kept > _CHANGES_KEPT and len(state.changes) > 1:
        state.changes_kept -= state.changes.popleft().slots.shape[0] + _SET_WEIGHT
    if state.tells:
        told = state.told[slots]
        far = np.abs(new - told) > state.settings.tell_threshold
        due = far | ((new < 0) != (told < 0))
        # Without a start there may be another reason to tell already: what it waits for.
        state.tell_due[slots] = np.where(new < 0, state.tell_due[slots] | due, due)
    promised = state.promise[slots]
    # An unknown start is no breach yet: the promise may still be kept.
    hit = np.flatnonzero((promised < FOREVER) & ((new > promised) | (new < 0) | (old < 0)))
    for i in hit.tolist():
        _judge(state, changes, int(slots[i]), int(promised[i]), int(old[i]), int(new[i]))


def note_one(state: EngineState, event: str, cause: Cause, words: str, slot: int, old: int, new: int) -> None:
    """The same for one job; nothing when it did not move."""
    if old != new:
        note(state, event, cause, words, *(np.array([value], np.int64) for value in (slot, old, new)))


def note_moves(state: EngineState, event: str, cause: Cause, words: str, moves: Moves) -> None:
    """The same for what a repair moved."""
    note(state, event, cause, words, moves.slots, moves.old, moves.new)


def _judge(
    state: EngineState, changes: ChangeSet, slot: int, promised: int, before: int, planned: int
) -> None:
    """A promised job lost its start, got one back, or moved past its promise."""
    record = state.by_slot[slot]
    if record is None:
        return
    cause = record.lost or changes.cause
    if cause not in MAY_BREAK and (promised < state.now or 0 <= before < state.now):
        cause = Cause.OUTAGE  # its moment went by before this: it was not started in time
    if planned < 0:
        state.put(replace(record, lost=cause))
        return
    if planned <= promised:
        if record.lost is not None:
            state.put(replace(record, lost=None))
        return
    if cause not in MAY_BREAK and state.settings.validate:
        raise AssertionError(f"{record.id}: {cause} ({changes.event}) took it past {promised} to {planned}")
    breach = Breach(state.now, changes.event, cause, promised, planned)
    kept = record.breaches
    if len(kept) >= _BREACHES_KEPT:
        kept = (kept[0], *kept[2:])
    state.breaches += 1
    state.put(replace(record, breaches=(*kept, breach), lost=None))
    state.promise[slot] = _bound(state, slot, planned)


def make_promise(state: EngineState, record: JobRecord, start: int) -> None:
    """Promise a start to a job that is eligible and has none promised yet."""
    slot = record.slot
    if record.eligible_since < 0 or state.promise[slot] < FOREVER:
        return
    state.promise[slot] = _bound(state, slot, start)
    weak = bool(state.assumed) and _behind_assumed(state, slot)
    if weak != record.weak:
        state.put(replace(record, weak=weak))


def _bound(state: EngineState, slot: int, planned: int) -> int:
    """The last start that is promised to a job that is planned to start then; FOREVER: its queue promises
    none.
    """
    settings, record = state.settings, state.by_slot[slot]
    own = settings.queue_slack.get(record.facts.queue) if record is not None else None
    slack = Slack(settings.slack, settings.slack_share) if own is None else Slack.parse(own)
    return slack.latest(planned, max(0, planned - int(state.waits_since[slot])))


def end_promise(state: EngineState, record: JobRecord, event: str, words: str) -> JobRecord:
    """End a job's promise, keeping why; returns the record to go on with, which is not yet put."""
    if record.slot < 0 or state.promise[record.slot] >= FOREVER:
        return replace(record, weak=False, lost=None, eligible_since=-1)
    ended = Ended(state.now, event, words, int(state.promise[record.slot]))
    state.promise[record.slot] = FOREVER
    return replace(record, weak=False, lost=None, eligible_since=-1, ended=ended)


def _behind_assumed(state: EngineState, slot: int) -> bool:
    """Whether a job whose end nobody guarantees comes before this one on one of its nodes."""
    plan = state.plan
    others = np.fromiter(state.assumed, np.int64, len(state.assumed))
    starts = plan.starts(others)
    others = others[(starts >= 0) & (starts < plan.start(slot)) & (others != slot)]
    own = plan.held(np.array([slot], np.int64)).rows
    return bool(np.isin(plan.held(others).rows, own).any())
