"""The repair kernel: after something was freed, let jobs start earlier, one at a time, nobody delayed.

What was freed is kept per row as the hull of its intervals (``dirty``). A job whose eligible rows hold
nothing freed in its reach cannot gain and is skipped without a search; a job of one unit is searched on
freed rows alone, since nothing changed on the others.
"""

from schedd.plan.kernels.bounds import fit_bounded, level_of, step_of
from schedd.plan.kernels.jit import kernel
from schedd.plan.kernels.layout import (
    A_ROW,
    ALLOC,
    ALLOCS,
    CHUNK,
    CHUNKS,
    COUNT,
    CPUS,
    CTL_FIELDS,
    DUR,
    EXCLUSIVE,
    FAR,
    NEED,
    NOW,
    PLANNED,
    POOL,
    POOLS,
    READY,
    SET,
    SET_LEN,
    SHAPE,
    SLACK,
    START,
    STATE,
    STOP,
    USABLE,
    WORK,
    Ints,
    Tables,
)
from schedd.plan.kernels.place import lift, occupy, put, room_to_put
from schedd.plan.kernels.rows import free_before, make_room
from schedd.plan.kernels.search import find, needed

# dirty[:, row]: hull of what was freed since the last pass began, and of what this pass itself freed.
LO, HI, NEXT_LO, NEXT_HI = 0, 1, 2, 3
DIRTY_FIELDS = 4

DONE, PAUSED, FULL = 0, 1, 2
"""How a slice of repair ended: all jobs seen; budget spent or stopped; a slab must grow first."""

assert CTL_FIELDS > STOP


@kernel
def mark(dirty: Ints, row: int, lo: int, hi: int) -> None:
    """Note that something was freed on ``row`` over ``[lo, hi)``, for this pass and the next."""
    dirty[0, row] = min(dirty[0, row], lo)
    dirty[1, row] = max(dirty[1, row], hi)
    dirty[2, row] = min(dirty[2, row], lo)
    dirty[3, row] = max(dirty[3, row], hi)


@kernel
def mark_job(tb: Tables, dirty: Ints, slot: int, lo: int, hi: int) -> None:
    """Note that ``slot`` frees over ``[lo, hi)`` what it holds."""
    at = tb.jobs[ALLOC, slot]
    for i in range(at, at + tb.jobs[ALLOCS, slot]):
        mark(dirty, tb.alloc[i, A_ROW], lo, hi)


@kernel
def _member(sets: Ints, at: int, n: int, row: int) -> bool:
    """Whether ``row`` is in the sorted row set ``sets[at:at + n]``."""
    lo = at
    hi = at + n
    while lo < hi:
        mid = (lo + hi) >> 1
        if sets[mid] < row:
            lo = mid + 1
        else:
            hi = mid
    return lo < at + n and sets[lo] == row


@kernel
def _gather(dirty: Ints, rows: Ints) -> int:
    """Write the freed rows to ``rows`` and return their number."""
    n = 0
    for row in range(dirty.shape[1]):
        if dirty[0, row] < FAR:
            rows[n] = row
            n += 1
    return n


@kernel
def repair(
    tb: Tables,
    dirty: Ints,
    freed: Ints,
    order: Ints,
    cursor: int,
    now: int,
    only_now: bool,
    budget: int,
    moves: Ints,
) -> tuple[int, int, int]:
    """One slice of repair over the planned jobs of ``order``, from ``cursor`` on.

    ``only_now``: move only jobs that can start at ``now``. ``budget`` is in segments visited. ``freed`` is
    room for row numbers; ``moves`` (at least as long as ``order``, 3) gets slot, old start, new start.
    Returns (cursor to go on with, number of moves, DONE | PAUSED | FULL).
    """
    tb.ctl[NOW] = now
    limit = tb.ctl[WORK] + budget
    n_freed = _gather(dirty, freed)
    n_moves = 0
    while cursor < order.shape[0]:
        if tb.ctl[WORK] > limit or tb.ctl[STOP] != 0:
            return cursor, n_moves, PAUSED
        slot = order[cursor]
        tb.ctl[WORK] += 1
        start = tb.jobs[START, slot]
        ready = max(now, tb.jobs[READY, slot])
        if tb.jobs[STATE, slot] != PLANNED or start <= ready or (only_now and ready > now):
            cursor += 1
            continue
        dur = tb.jobs[DUR, slot]
        end = start + dur
        bound = now + 1 if only_now else start
        shape = tb.jobs[SHAPE, slot]
        pool = tb.jobs[POOL, slot]
        pools = tb.jobs[POOLS, slot]
        exclusive = tb.shapes[shape, EXCLUSIVE]
        chunk0 = tb.shapes[shape, CHUNK]
        chunks = tb.shapes[shape, CHUNKS]
        one = chunks == 1 and tb.chunks[chunk0, COUNT] == 1

        pool_freed = False
        for i in range(pool, pool + pools):
            row = tb.pools[i, 0]
            if tb.rows[row, SLACK] == 0 and dirty[0, row] < end and dirty[1, row] > ready:
                pool_freed = True

        # The earliest moment before which nothing changed for this job: some chunk of it needs a freed row.
        best = -1
        best_left = 0
        tb.ctl[WORK] += n_freed
        if not pool_freed:
            latest_start = bound - 1
            for c in range(chunk0, chunk0 + chunks):
                need = tb.chunks[c, NEED:]
                cols = needed(need, exclusive)
                level = level_of(need[CPUS], exclusive)
                step = step_of(dur)
                for j in range(n_freed):
                    row = freed[j]
                    lo = dirty[0, row]
                    hi = dirty[1, row]
                    if lo >= end or hi <= ready or tb.rows[row, USABLE] == 0:
                        continue
                    # The new interval must reach into what was freed, or nothing changed for it.
                    earliest = max(ready, lo - dur + 1)
                    latest = min(latest_start, hi - 1)
                    if latest < earliest or not _member(tb.sets, tb.chunks[c, SET], tb.chunks[c, SET_LEN], row):
                        continue
                    s, left = fit_bounded(tb, row, need, cols, earliest, dur, latest, level, step)
                    if s < 0 or s > earliest:
                        # On a row of its own the job may grow into what is free right before it.
                        for i in range(tb.jobs[ALLOC, slot], tb.jobs[ALLOC, slot] + tb.jobs[ALLOCS, slot]):
                            if tb.alloc[i, A_ROW] == row:
                                since = free_before(tb, row, need, cols, earliest, start)
                                if since <= latest and (s < 0 or since < s):
                                    s = since
                                    left = 0
                                break
                    if s >= 0 and (best < 0 or s < best or left < best_left):
                        best = s
                        best_left = left
                        latest_start = s
                        tb.out[0, 0] = row
                        tb.out[0, 1] = 0
                        tb.out[0, 2] = 1
            if best < 0:
                cursor += 1
                continue
            if one and pools == 0:
                if not room_to_put(tb, slot, 1):
                    return cursor, n_moves, FULL
                mark_job(tb, dirty, slot, start, end)
                if not lift(tb, slot):
                    return cursor, n_moves, FULL
                put(tb, slot, best, 1)
        if pool_freed or not one or pools > 0:
            allocs = tb.jobs[ALLOCS, slot]
            at = tb.jobs[ALLOC, slot]
            for i in range(at, at + allocs):
                if not make_room(tb, tb.alloc[i, A_ROW], 4 * allocs):
                    return cursor, n_moves, FULL
            occupy(tb, slot, start, end, 1)
            best, found = find(tb, shape, pool, pools, max(ready, best), dur, bound)
            if best >= 0:
                if not room_to_put(tb, slot, found):
                    occupy(tb, slot, start, end, -1)
                    return cursor, n_moves, FULL
                mark_job(tb, dirty, slot, start, end)
                occupy(tb, slot, start, end, -1)
                lift(tb, slot)
                put(tb, slot, best, found)
            else:
                occupy(tb, slot, start, end, -1)
        if best >= 0:
            moves[n_moves, 0] = slot
            moves[n_moves, 1] = start
            moves[n_moves, 2] = best
            n_moves += 1
            n_freed = _gather(dirty, freed)
        cursor += 1
    return cursor, n_moves, DONE


@kernel
def next_pass(dirty: Ints) -> bool:
    """Begin another pass over what the last one freed; False when it freed nothing."""
    any_left = False
    for row in range(dirty.shape[1]):
        dirty[0, row] = dirty[2, row]
        dirty[1, row] = dirty[3, row]
        dirty[2, row] = FAR
        dirty[3, row] = 0
        any_left = any_left or dirty[0, row] < FAR
    return any_left
