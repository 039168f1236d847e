"""The repair kernel: after something was freed, let jobs start earlier, one at a time, nobody delayed.

What was freed is kept per row as the hull of its intervals (``dirty``). A job whose eligible rows hold
nothing freed in its reach cannot gain and is skipped without a search; a job of one unit is searched on
freed rows alone, since nothing changed on the others.
"""

from schedd.plan.kernels.bounds import fit_bounded, level_of, set_now, step_of
from schedd.plan.kernels.freed import gather, mark_job, member
from schedd.plan.kernels.jit import kernel
from schedd.plan.kernels.layout import (
    A_ROW,
    ALLOC,
    ALLOCS,
    CHUNK,
    CHUNKS,
    COUNT,
    CPUS,
    DUR,
    DURATIONS,
    EXCLUSIVE,
    NEED,
    PLANNED,
    POOL,
    POOLS,
    READY,
    SET,
    SET_LEN,
    SHAPE,
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

DONE, PAUSED, FULL = 0, 1, 2
"""How a slice of repair ended: all jobs seen; budget spent or stopped; a slab must grow first."""


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
    set_now(tb, now)
    limit = tb.ctl[WORK] + budget
    n_freed = gather(dirty, freed)
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
            if dirty[0, row] < end and dirty[1, row] > ready:
                pool_freed = True

        # The earliest moment before which nothing changed for this job: some chunk of it needs a freed row.
        best = -1
        best_left = 0
        tb.ctl[WORK] += n_freed
        allocs_at = tb.jobs[ALLOC, slot]
        allocs_end = allocs_at + tb.jobs[ALLOCS, slot]
        if not pool_freed:
            latest_start = bound - 1
            for c in range(chunk0, chunk0 + chunks):
                need = tb.chunks[c, NEED:]
                cols = needed(need, exclusive)
                level = level_of(need[CPUS], exclusive)
                step = step_of(dur)
                q = level * DURATIONS + step
                for j in range(n_freed):
                    row = freed[j]
                    own = False
                    if tb.bounds[q, row] > latest_start:
                        # On a row of its own the job may still grow into what is free right before it.
                        for i in range(allocs_at, allocs_end):
                            own = own or tb.alloc[i, A_ROW] == row
                        if not own:
                            continue
                    lo = dirty[0, row]
                    hi = dirty[1, row]
                    if lo >= end or hi <= ready or tb.rows[row, USABLE] == 0:
                        continue
                    # The new interval must reach into what was freed, or nothing changed for it.
                    earliest = max(ready, lo - dur + 1)
                    latest = min(latest_start, hi - 1)
                    if latest < earliest:
                        continue
                    if not member(tb.sets, tb.chunks[c, SET], tb.chunks[c, SET_LEN], row):
                        continue
                    s, left = fit_bounded(tb, row, need, cols, earliest, dur, latest, level, step)
                    if s < 0 or s > earliest:
                        for i in range(allocs_at, allocs_end):
                            own = own or tb.alloc[i, A_ROW] == row
                        if own:
                            since = free_before(tb, row, need, cols, earliest, start)
                            if since <= latest and (s < 0 or since < s):
                                s = since
                                left = 0
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
            n_freed = gather(dirty, freed)
        cursor += 1
    return cursor, n_moves, DONE
