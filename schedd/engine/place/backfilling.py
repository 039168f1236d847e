"""Free room goes to the shortest by what is expected, where the site wants that: see ``plan.backfill``."""

from typing import Final

import numpy as np

from schedd.engine.facts.records import Cause
from schedd.engine.facts.state import EngineState
from schedd.engine.place.chains import last_starts
from schedd.engine.rank.promises import note_moves
from schedd.model import FOREVER
from schedd.plan.backfill import FRONT, Waiting, backfill
from schedd.plan.columns import PLANNED, Ints

__all__ = ["give_room", "gives_room", "next_room"]

_LEVEL: Final = 7
"""Of what is predicted (``predict.LEVELS``): 60 % of such jobs run no longer."""


def gives_room(state: EngineState) -> bool:
    """Whether the site wants that, and jobs are started at all. Where jobs are kept on faster nodes that are
    worth waiting for, repair alone knows how.
    """
    busy = state.halted or state.arriving or state.rereading or state.keeps_speed
    return state.settings.backfill == "shortest" and not busy


def next_room(state: EngineState) -> int:
    """When it is to be done though nothing happens; FOREVER: not before something does."""
    return state.room_due if gives_room(state) else FOREVER


def give_room(state: EngineState, event: str) -> None:
    """Let those start now whose turn it is. No promise is broken by it, and no deadline missed that holds."""
    plan, now = state.plan, state.now
    changed = plan.freed or state.change_number != state.backfilled or state.room_due <= now
    if not changed and state.soonest() > now:
        return
    if state.room_given == now:  # once a second: what it frees is repaired, and that is no news
        if not event.startswith("clock:"):
            state.room_due = now + 1
        return
    state.room_given, state.room_due = now, FOREVER
    slots = _movable(state)
    slots = np.sort(slots[np.argsort(plan.starts(slots), kind="stable")[:FRONT]])
    moves = backfill(plan, _waiting(state, slots), now, state.settings.search_patience)
    if len(moves):
        note_moves(state, event, Cause.IMPROVED, "who is expected to be shorter goes first", moves)
        state.due = None
    state.backfilled = state.change_number


def _movable(state: EngineState) -> Ints:
    """The slots of planned jobs that may go elsewhere.

    Who is due and waits for the server's release or for a node keeps its place until dispatch gives it up:
    moved on each time, it would never be given up. Jobs leave a node that is down in their own time. Places
    that are kept or booked, and those that a job can pay for, are not to be had elsewhere.
    """
    plan, now = state.plan, state.now
    starts, ready = plan.jobs.starts, plan.jobs.ready
    may = (plan.jobs.states == PLANNED) & ((starts > now) | (ready <= now))
    booked = (job for booking in state.bookings.values() for job in booking.jobs)
    for job in (*state.kept_places, *state.capped, *booked):
        record = state.records.get(job)
        if record is not None and record.slot >= 0:
            may[record.slot] = False
    down = [name for name in state.down_since if name in plan.row_of]
    if down:
        may[plan.on_nodes(down)] = False
    found: Ints = np.flatnonzero(may)
    return found


def _waiting(state: EngineState, slots: Ints) -> Waiting:
    starts, durations = state.plan.starts(slots), state.plan.jobs.durations[slots]
    latest, in_time = last_starts(state)[slots], state.due_by[slots] - durations
    latest = np.where(starts <= in_time, np.minimum(latest, in_time), latest)
    return Waiting(
        slots, state.waits_since[slots], _expected(state, slots, durations), latest, state.rank[slots]
    )


def _expected(state: EngineState, slots: Ints, durations: Ints) -> Ints:
    """How long these jobs are expected to run; as long as planned where nothing is predicted."""
    expected = durations.copy()
    outlook = state.outlook
    if outlook is not None:
        for i, slot in enumerate(slots.tolist()):
            record = state.by_slot[slot]
            if record is not None and record.id in outlook.learner:
                expected[i] = outlook.learner.prediction(record.id).told[_LEVEL]
    least: Ints = np.minimum(expected, durations)
    return least
