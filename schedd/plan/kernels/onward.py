"""The planner run on into the future by one kernel: jobs end, who can starts, the others move up.

What is done after an end is what ``Repairs.now`` and ``Repairs.run`` do in a plan that has nothing left to
repair when it comes. From Python most of the time of that was spent around ``repair``, not in it.
"""

from typing import Final

from schedd.plan.kernels.freed import Freed, drop_seen, note_entries
from schedd.plan.kernels.jit import inner, lean
from schedd.plan.kernels.layout import (
    ALLOC,
    ALLOC_TOP,
    ALLOCS,
    CHUNK,
    CHUNKS,
    DONE,
    DUR,
    FAR,
    FIXED,
    FREED,
    FREED_BASE,
    FULL,
    HALF,
    KIND,
    LEVEL,
    LOOK,
    LOST,
    NAMED,
    NO_ROOM,
    NODE,
    PLANNED,
    READY,
    SHAPE,
    START,
    STATE,
    STOP,
    T_LO,
    T_ROW,
    TO_SEARCH,
    WORK,
    Ints,
    Table,
    Tables,
)
from schedd.plan.kernels.place import occupy
from schedd.plan.kernels.repair import PAUSED, repair

__all__ = ["MOST_NOW", "WHOLE_PASS", "run_on", "start_due"]

MOST_NOW: Final = 4_000_000
"""Visited segments after which it is left to the next call who else can start at once: some 0.2 s."""

WHOLE_PASS: Final = 1 << 60
"""A budget that no repair spends."""

_EVENT_WORK: Final = 2_000
"""What an event costs besides the segments that it visits, in such."""

# state[:]
NOW: Final = 0  # the moment that the plan has come to
WORK_LIMIT: Final = 1  # WORK beyond which it is not run on; each event takes its price off
LOOKED: Final = 2  # as ``Repairs`` has it
TURNS: Final = 3  # how many of ``turns`` may still be planned
REPAIRED: Final = 4  # 1: of the present event only the starts are left
CURSOR: Final = 5  # of a pass that found a slab full,
BEGAN_AT: Final = 6  # and the number of the next hole when it began; -1: none is under way
ENTRIES: Final = 7  # so many entries of the allocations are to be free when an event begins
EVERY: Final = 8  # 1: every event is the caller's, though nothing was freed
STATE_FIELDS: Final = 9

# How it went.
ENDED: Final = 0  # all have started who were asked for, or the work is done
ROOM: Final = 1  # the allocations or the slabs are short of room: make some and call again
BY_HAND: Final = 2  # the caller does all that follows an end, says so by REPAIRED, and calls again
REST: Final = 3  # the same, but that those who could start at once did already


@inner
def _moment(tb: Tables, turns: Ints, state: Ints, ends: Ints) -> int:
    """When something happens next; FAR when nobody waits any more."""
    first = FAR
    for i in range(state[TURNS]):
        slot = turns[i]
        if tb.jobs[STATE, slot] == PLANNED:
            first = min(first, max(tb.jobs[START, slot], tb.jobs[READY, slot]))
    if first < FAR:
        for slot in range(ends.shape[0]):
            first = min(first, ends[slot])
    return first


@inner
def _end(tb: Tables, fr: Freed, state: Ints, ends: Ints) -> bool:
    """Let all end that are to by now, of equals by slot; False: a slab is full, and some still run."""
    now = state[NOW]
    while True:
        which = -1
        for slot in range(ends.shape[0]):
            if ends[slot] <= now and (which < 0 or ends[slot] < ends[which]):
                which = slot
        if which < 0:
            return True
        planned = tb.jobs[START, which] + tb.jobs[DUR, which]
        if not occupy(tb, which, ends[which], planned, 1):
            return False
        if now < planned:
            note_entries(tb, fr, tb.jobs[ALLOC, which], tb.jobs[ALLOCS, which], now, planned)
        tb.jobs[DUR, which] = ends[which] - tb.jobs[START, which]
        if tb.ctl[HALF] == which + 1:
            tb.ctl[HALF] = 0
        ends[which] = FAR


@lean
def start_due(tb: Tables, turns: Ints, lasts: Ints, state: Ints, ends: Ints, started: Ints) -> None:
    """Start all that is due, and note when it ends where that is before what is planned."""
    now = state[NOW]
    kept = 0
    for i in range(state[TURNS]):
        slot = turns[i]
        if tb.jobs[STATE, slot] != PLANNED:
            continue
        start = tb.jobs[START, slot]
        if max(start, tb.jobs[READY, slot]) > now:
            turns[kept] = slot
            kept += 1
            continue
        tb.jobs[STATE, slot] = FIXED
        started[slot] = now
        end = max(start + lasts[slot], now + 1)
        if end < start + tb.jobs[DUR, slot]:
            ends[slot] = end
    state[TURNS] = kept


@inner
def _within_reach(
    tb: Tables, fr: Freed, turns: Ints, n: int, now: int, since: int, longest: Ints, order: Ints
) -> int:
    """As ``Repairs._within_reach``: in turn, into ``order``, who may start now in what was freed from number
    ``since`` on; returns how many.
    """
    levels = longest.shape[0]
    begin = since - tb.ctl[FREED_BASE]
    until = FAR
    most = 0
    for level in range(levels):
        longest[level] = 0
    for i in range(begin, tb.ctl[FREED]):
        if tb.rows[fr.entries[T_ROW, i], KIND] != NODE:
            until = min(until, fr.entries[T_LO, i])
            continue
        for level in range(levels):
            if fr.since[level, i] <= now and fr.length[level, i] > longest[level]:
                longest[level] = fr.length[level, i]
                most = max(most, longest[level])
    if most == 0 and until == FAR:
        return 0
    found = 0
    for i in range(n):
        slot = turns[i]
        if tb.jobs[STATE, slot] != PLANNED:
            continue
        shape = tb.jobs[SHAPE, slot]
        reach = 0
        for c in range(tb.shapes[shape, CHUNK], tb.shapes[shape, CHUNK] + tb.shapes[shape, CHUNKS]):
            reach = max(reach, longest[min(tb.chunks[c, LEVEL], levels - 1)])
        dur = tb.jobs[DUR, slot]
        if dur <= reach or (reach > 0 and tb.jobs[START, slot] <= now + reach) or dur > until - now:
            order[found] = slot
            found += 1
    return found


@inner
def _start_now(
    tb: Tables, fr: Freed, turns: Ints, state: Ints, longest: Ints, order: Ints, moves: Table
) -> bool:
    """As ``Repairs.now``: move to the present who can start there; False: a slab is full."""
    now = state[NOW]
    since = max(state[LOOKED], tb.ctl[FREED_BASE])
    anew = tb.ctl[LOOK] & (NAMED | LOST)
    top = tb.ctl[FREED_BASE] + tb.ctl[FREED]
    if since == top and anew == 0:
        return True
    how = DONE
    first = since
    for again in range(2):  # once more for what those who moved have left
        if anew:
            n = 0
            for i in range(state[TURNS]):
                if tb.jobs[STATE, turns[i]] == PLANNED:
                    order[n] = turns[i]
                    n += 1
        else:
            n = _within_reach(tb, fr, turns, state[TURNS], now, first, longest, order)
        if n == 0 and again == 0:
            break
        base = tb.ctl[FREED_BASE]
        _, moved, how = repair(tb, fr, order[:n], 0, now, True, since, MOST_NOW, moves)
        tb.ctl[LOOK] &= TO_SEARCH
        if moved == 0 or how == FULL:
            break
        anew = base != tb.ctl[FREED_BASE]
        first = top
    state[LOOKED] = tb.ctl[FREED_BASE] + tb.ctl[FREED]
    return how != FULL


@inner
def _move_up(tb: Tables, fr: Freed, turns: Ints, state: Ints, moves: Table) -> int:
    """As ``Repairs.run`` with all the budget that it takes; DONE, PAUSED (stopped) or FULL."""
    while tb.ctl[FREED] or tb.ctl[LOOK]:
        state[BEGAN_AT] = tb.ctl[FREED_BASE] + tb.ctl[FREED]
        tb.ctl[LOOK] = 0
        cursor, _, how = repair(tb, fr, turns[: state[TURNS]], 0, state[NOW], False, 0, WHOLE_PASS, moves)
        state[LOOKED] = tb.ctl[FREED_BASE] + tb.ctl[FREED]
        tb.ctl[LOOK] &= TO_SEARCH
        if how != DONE:
            state[CURSOR] = cursor
            return how
        drop_seen(tb, fr, state[BEGAN_AT])
        state[BEGAN_AT] = -1
    return DONE


@lean
def run_on(
    tb: Tables,
    fr: Freed,
    turns: Ints,
    lasts: Ints,
    wanted: Ints,
    by_hand: bool,
    state: Ints,
    ends: Ints,
    started: Ints,
    longest: Ints,
    order: Ints,
    moves: Table,
) -> int:
    """Go on from event to event; returns ENDED, ROOM, BY_HAND or REST.

    ``turns``: the planned jobs, who waits longest first. By slot: ``lasts``, how long a job runs; ``ends``,
    when those that run end before the planned end, FAR: not; ``started``. ``wanted``: slots with whose starts
    it ends; none: with everybody's. ``by_hand``: whether the caller does what follows an end. Room:
    ``longest`` (levels of need,), ``order`` (slots,), ``moves`` (slots, 3).
    """
    while tb.ctl[STOP] == 0:
        if state[REPAIRED] == 0:
            moment = _moment(tb, turns, state, ends)
            if moment >= FAR:
                break
            state[NOW] = max(state[NOW], moment)
            if tb.ctl[ALLOC_TOP] + state[ENTRIES] > tb.alloc.shape[0] or not _end(tb, fr, state, ends):
                return ROOM
            if tb.ctl[FREED] or tb.ctl[LOOK] or state[EVERY]:
                state[BEGAN_AT] = -1
                if by_hand:
                    return BY_HAND
                fits = _start_now(tb, fr, turns, state, longest, order, moves)
                start_due(tb, turns, lasts, state, ends, started)
                how = _move_up(tb, fr, turns, state, moves) if fits else FULL
                if how == PAUSED:
                    break
                if how == FULL:
                    tb.ctl[NO_ROOM] = 1
                    return REST
        state[REPAIRED] = 0
        start_due(tb, turns, lasts, state, ends, started)
        state[WORK_LIMIT] -= _EVENT_WORK
        if tb.ctl[WORK] > state[WORK_LIMIT]:
            break
        if wanted.shape[0]:
            left = 0
            for i in range(wanted.shape[0]):
                left += started[wanted[i]] < 0
            if left == 0:
                break
    return ENDED
