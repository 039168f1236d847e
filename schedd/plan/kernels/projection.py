"""Projection of the plan into the future in one kernel: jobs end, waiting jobs start, the others move up.

Each end is followed by the steps of ``Repairs.move_to_now`` and ``Repairs.run`` on a plan without pending
repair. In Python most of the time would be spent around ``repair``, not in it.
"""

from typing import Final

from schedd.plan.kernels.freed import FreedLog, drop_checked, note_freed_entries
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
    GROW,
    KIND,
    LEVEL,
    LOST,
    NAMED,
    NO_ROOM,
    NODE,
    PARTIAL,
    PLANNED,
    READY,
    SEARCH_FLAGS,
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
from schedd.plan.kernels.place import occupy, place
from schedd.plan.kernels.repair import PAUSED, repair

MOST_NOW: Final = 4_000_000
"""Visited segments after which immediate starts are left to the next call: about 0.2 s."""

WHOLE_PASS: Final = 1 << 60  # an unlimited budget

_EVENT_WORK: Final = 2_000  # cost of an event besides its visited segments, in segments

# state[:]
NOW: Final = 0  # present time of the projection
WORK_LIMIT: Final = 1  # WORK at which it ends; each event lowers it by its cost
NEXT_UNTRIED: Final = 2  # as ``Repairs.next_untried``
N_WAITING: Final = 3  # how many of ``waiting`` may still be planned
REPAIRED: Final = 4  # 1: only the starts of the present event remain
CURSOR: Final = 5  # of a pass that found a full slab,
BEGAN_AT: Final = 6  # and the number of the next freed interval at its begin; -1: none in progress
ENTRIES: Final = 7  # free entries of the allocations required at each event
ALWAYS_BY_CALLER: Final = 8  # 1: the caller handles every event, even if nothing was freed
ARRIVED: Final = 9  # how many of ``arrivals`` have come
RANKED: Final = 10  # 1: jobs have ranks
STATE_FIELDS: Final = 11

# Return codes.
ENDED: Final = 0  # all targets have started, or the work limit is reached
NEEDS_ROOM: Final = 1  # the allocations or slabs are full: make room and call again
BY_CALLER: Final = 2  # the caller handles the end, sets REPAIRED, and calls again
REPAIR_BY_CALLER: Final = 3  # the same, but immediate starts are done


@inner
def _next_event(tb: Tables, waiting: Ints, arrivals: Ints, state: Ints, ends: Ints) -> int:
    """Return the time of the next event; FAR: no job waits any more."""
    first = FAR
    for i in range(state[N_WAITING]):
        slot = waiting[i]
        if tb.jobs[STATE, slot] == PLANNED:
            first = min(first, max(tb.jobs[START, slot], tb.jobs[READY, slot]))
    if first < FAR:
        for slot in range(ends.shape[0]):
            first = min(first, ends[slot])
        if state[ARRIVED] < arrivals.shape[0]:
            first = min(first, tb.jobs[READY, arrivals[state[ARRIVED]]])
    return first


@inner
def _end_jobs(tb: Tables, fr: FreedLog, state: Ints, ends: Ints) -> bool:
    """End all jobs that end by now, in order of end, then slot. Return False if a slab is full, with some
    still running.
    """
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
            note_freed_entries(tb, fr, tb.jobs[ALLOC, which], tb.jobs[ALLOCS, which], now, planned)
        tb.jobs[DUR, which] = ends[which] - tb.jobs[START, which]
        if tb.ctl[PARTIAL] == which + 1:
            tb.ctl[PARTIAL] = 0
        ends[which] = FAR


@lean
def start_due_jobs(tb: Tables, waiting: Ints, run_s: Ints, state: Ints, ends: Ints, started: Ints) -> None:
    """Start all due jobs; set their ends where these are before the planned ends."""
    now = state[NOW]
    kept = 0
    for i in range(state[N_WAITING]):
        slot = waiting[i]
        if tb.jobs[STATE, slot] != PLANNED:
            continue
        start = tb.jobs[START, slot]
        if max(start, tb.jobs[READY, slot]) > now:
            waiting[kept] = slot
            kept += 1
            continue
        tb.jobs[STATE, slot] = FIXED
        started[slot] = now
        end = max(start + run_s[slot], now + 1)
        if end < start + tb.jobs[DUR, slot]:
            ends[slot] = end
    state[N_WAITING] = kept


@inner
def _select_startable(
    tb: Tables, fr: FreedLog, waiting: Ints, n: int, now: int, since: int, longest: Ints, order: Ints
) -> int:
    """As ``Repairs._select_startable``: write to ``order`` the jobs that may start now in intervals freed
    from number ``since`` on. Return their number.
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
        slot = waiting[i]
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
def _start_jobs_now(
    tb: Tables, fr: FreedLog, waiting: Ints, state: Ints, longest: Ints, order: Ints, moves: Table
) -> bool:
    """As ``Repairs.move_to_now``: move jobs to the present that can start there. Return False if a slab is
    full.
    """
    now = state[NOW]
    since = max(state[NEXT_UNTRIED], tb.ctl[FREED_BASE])
    anew = tb.ctl[SEARCH_FLAGS] & (NAMED | LOST)
    top = tb.ctl[FREED_BASE] + tb.ctl[FREED]
    if since == top and anew == 0:
        return True
    how = DONE
    first = since
    for again in range(2):  # once more for what the moved jobs have left
        if anew:
            n = 0
            for i in range(state[N_WAITING]):
                if tb.jobs[STATE, waiting[i]] == PLANNED:
                    order[n] = waiting[i]
                    n += 1
        else:
            n = _select_startable(tb, fr, waiting, state[N_WAITING], now, first, longest, order)
        if n == 0 and again == 0:
            break
        base = tb.ctl[FREED_BASE]
        _, moved, how = repair(tb, fr, order[:n], 0, now, True, since, MOST_NOW, moves)
        tb.ctl[SEARCH_FLAGS] &= TO_SEARCH
        if moved == 0 or how == FULL:
            break
        anew = base != tb.ctl[FREED_BASE]
        first = top
    state[NEXT_UNTRIED] = tb.ctl[FREED_BASE] + tb.ctl[FREED]
    return how != FULL


@inner
def _repair_all(tb: Tables, fr: FreedLog, waiting: Ints, state: Ints, moves: Table) -> int:
    """As ``Repairs.run`` with an unlimited budget. Return DONE, PAUSED (stopped) or FULL."""
    while tb.ctl[FREED] or tb.ctl[SEARCH_FLAGS]:
        state[BEGAN_AT] = tb.ctl[FREED_BASE] + tb.ctl[FREED]
        tb.ctl[SEARCH_FLAGS] = 0
        cursor, _, how = repair(
            tb, fr, waiting[: state[N_WAITING]], 0, state[NOW], False, 0, WHOLE_PASS, moves
        )
        state[NEXT_UNTRIED] = tb.ctl[FREED_BASE] + tb.ctl[FREED]
        tb.ctl[SEARCH_FLAGS] &= TO_SEARCH
        if how != DONE:
            state[CURSOR] = cursor
            return how
        drop_checked(tb, fr, state[BEGAN_AT])
        state[BEGAN_AT] = -1
    return DONE


@inner
def _place_arrivals(tb: Tables, waiting: Ints, arrivals: Ints, state: Ints) -> bool:
    """Place the jobs that have come by now; among ranked jobs they are the last. Return False if a slab is
    full, with some still to come. A job without any start is left unplaced.
    """
    while state[ARRIVED] < arrivals.shape[0]:
        slot = arrivals[state[ARRIVED]]
        if tb.jobs[READY, slot] > state[NOW]:
            break
        work = tb.ctl[WORK]
        start = place(tb, slot, state[NOW], FAR)
        if start == GROW:
            tb.ctl[WORK] = work  # nothing depends on a failed attempt
            return False
        if start >= 0:
            i = state[N_WAITING]
            while state[RANKED] == 0 and i > 0 and tb.jobs[READY, waiting[i - 1]] > tb.jobs[READY, slot]:
                waiting[i] = waiting[i - 1]
                i -= 1
            waiting[i] = slot
            state[N_WAITING] += 1
        state[ARRIVED] += 1
    return True


@lean
def project_events(
    tb: Tables,
    fr: FreedLog,
    waiting: Ints,
    arrivals: Ints,
    run_s: Ints,
    targets: Ints,
    by_caller: bool,
    state: Ints,
    ends: Ints,
    started: Ints,
    longest: Ints,
    order: Ints,
    moves: Table,
) -> int:
    """Advance from event to event. Return ENDED, NEEDS_ROOM, BY_CALLER or REPAIR_BY_CALLER.

    ``waiting``: the planned jobs, oldest first, with room for ``arrivals``: unplaced jobs by the time at
    which they come, their earliest start. By slot: ``run_s``, the run time of a job; ``ends``, the end of a
    running job if it is before the planned one, else FAR; ``started``. ``targets``: slots that must
    start to complete the projection; empty: all. ``by_caller``: the caller handles all consequences of an
    end. Buffers: ``longest`` (levels of need,), ``order`` (slots,), ``moves`` (slots, 3).
    """
    while tb.ctl[STOP] == 0:
        if state[REPAIRED] == 0:
            moment = _next_event(tb, waiting, arrivals, state, ends)
            if moment >= FAR:
                break
            state[NOW] = max(state[NOW], moment)
            if tb.ctl[ALLOC_TOP] + state[ENTRIES] > tb.alloc.shape[0] or not _end_jobs(tb, fr, state, ends):
                return NEEDS_ROOM
            if tb.ctl[FREED] or tb.ctl[SEARCH_FLAGS] or state[ALWAYS_BY_CALLER]:
                state[BEGAN_AT] = -1
                if by_caller:
                    return BY_CALLER
                fits = _start_jobs_now(tb, fr, waiting, state, longest, order, moves)
                start_due_jobs(tb, waiting, run_s, state, ends, started)
                how = _repair_all(tb, fr, waiting, state, moves) if fits else FULL
                if how == PAUSED:
                    break
                if how == FULL:
                    tb.ctl[NO_ROOM] = 1
                    return REPAIR_BY_CALLER
        state[REPAIRED] = 1
        if not _place_arrivals(tb, waiting, arrivals, state):
            return NEEDS_ROOM
        state[REPAIRED] = 0
        start_due_jobs(tb, waiting, run_s, state, ends, started)
        state[WORK_LIMIT] -= _EVENT_WORK
        if tb.ctl[WORK] > state[WORK_LIMIT]:
            break
        if targets.shape[0]:
            left = 0
            for i in range(targets.shape[0]):
                left += started[targets[i]] < 0
            if left == 0:
                break
    return ENDED
