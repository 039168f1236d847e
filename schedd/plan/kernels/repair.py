"""The repair kernel: after capacity was freed, move jobs to earlier starts, one at a time, without delaying
any.

A job is tried only on rows where an interval was freed since its last check, and only where the free run is
long enough: elsewhere nothing changed for it. A job of one unit moves to the best of these rows; a job of
several units is searched as a whole, from the first time when a unit gains.
"""

from typing import Final

import numpy as np

from schedd.plan.kernels.bounds import duration_step, lower_bounds
from schedd.plan.kernels.freed import (
    FreedLog,
    index_in_set,
    measure_runs,
    next_reaching,
    note_freed,
    note_freed_entries,
    set_now,
)
from schedd.plan.kernels.gaps import find_start
from schedd.plan.kernels.jit import inner, lean, maker
from schedd.plan.kernels.layout import (
    A_CHUNK,
    A_ROW,
    A_TAKE,
    ALLOC,
    ALLOC_GARBAGE,
    ALLOCS,
    CAME_TO,
    CHUNK,
    CHUNKS,
    COUNT,
    CPUS,
    DONE,
    DUR,
    DURATIONS,
    EXCLUSIVE,
    FAR,
    FREED,
    FREED_AT,
    FREED_BASE,
    FULL,
    GROW,
    LATER,
    LEAST_TIER,
    LEVEL,
    LIMIT,
    LOST,
    NAMED,
    NEED,
    PARTIAL,
    PARTIAL_START,
    PARTIAL_TOP,
    PLANNED,
    POOL,
    POOLS,
    PROTECT_TIER,
    READY,
    SEARCH_FLAGS,
    SEEN,
    SET,
    SET_LEN,
    SHAPE,
    SLACK,
    START,
    STATE,
    STOP,
    T_BEFORE,
    T_HI,
    T_LO,
    T_ROW,
    T_VERSION,
    USABLE,
    VERSION,
    WORK,
    Ints,
    Table,
    Tables,
)
from schedd.plan.kernels.place import ensure_room, place_at, remove
from schedd.plan.kernels.rows import change, fit, floor, free_before, needed

# Results of a slice: DONE (all jobs examined), FULL, or
PAUSED: Final = 2  # the budget is spent, or the search was stopped

_JOB_WORK = 8  # cost of examining a job, in visited segments: its columns lie far apart in memory


@inner
def _find_gain_on_own_rows(tb: Tables, fr: FreedLog, slot: int, seen: int, ready: int) -> tuple[int, int]:
    """Return the first and the last time from which a row of ``slot`` may let it start earlier; or (FAR, -1).

    A job that moves a little earlier overlaps itself, so only the capacity right before its start counts.
    """
    start = tb.jobs[START, slot]
    dur = tb.jobs[DUR, slot]
    shape = tb.jobs[SHAPE, slot]
    exclusive = tb.shapes[shape, EXCLUSIVE]
    chunk0 = tb.shapes[shape, CHUNK]
    at = tb.jobs[ALLOC, slot]
    first = FAR
    last = -1
    for i in range(at, at + tb.jobs[ALLOCS, slot]):
        row = tb.alloc[i, A_ROW]
        if tb.rows[row, FREED_AT] < seen or tb.rows[row, USABLE] == 0:
            continue
        c = tb.alloc[i, A_CHUNK]
        if c >= 0:
            need = tb.chunks[chunk0 + c, NEED:]
            cols = needed(need, exclusive)
        else:
            need = tb.alloc[i, A_TAKE:]
            cols = 1
        since = free_before(tb, row, need, cols, ready, start)
        lo = FAR
        hi = -1
        if since < start or c < 0:
            number = tb.rows[row, FREED_AT]
            while number >= seen and number >= tb.ctl[FREED_BASE]:
                j = number - tb.ctl[FREED_BASE]
                if since < start and fr.entries[T_LO, j] < start and fr.entries[T_HI, j] > since:
                    first = min(first, since)
                    last = max(last, min(start, fr.entries[T_HI, j]) - 1)
                lo = min(lo, fr.entries[T_LO, j])
                hi = max(hi, fr.entries[T_HI, j])
                number = fr.entries[T_BEFORE, j]
                tb.ctl[WORK] += 1
        if c < 0:
            # A job cannot choose its pools: all of it may fit earlier if it overlaps a freed interval.
            latest = min(start, hi) - 1
            since, _ = fit(tb, row, need, cols, max(ready, lo - dur + 1), dur, latest)
            if since >= 0:
                first = min(first, since)
                last = max(last, latest)
    return first, last


@inner
def _lowest_tier(tb: Tables, slot: int) -> int:
    """Return the lowest tier of the nodes of a planned job; 0 if a node is unusable."""
    least = FAR
    at = tb.jobs[ALLOC, slot]
    for i in range(at, at + tb.jobs[ALLOCS, slot]):
        if tb.alloc[i, A_CHUNK] >= 0:
            least = min(least, tb.rows[tb.alloc[i, A_ROW], USABLE] - 1)
    return max(least, 0)


@inner
def _gains_in_pools(tb: Tables, slot: int, seen: int) -> bool:
    """Return whether a pool of the job has an interval freed from number ``seen`` on."""
    pool = tb.jobs[POOL, slot]
    for i in range(pool, pool + tb.jobs[POOLS, slot]):
        if tb.rows[tb.pools[i, 0], FREED_AT] >= seen:
            return True
    return False


@inner
def _pools_allow(tb: Tables, slot: int, begin: int) -> bool:
    """Return whether the pools of a planned job have room from ``begin`` on, which is before its start; what
    it holds of them is its own.
    """
    start = tb.jobs[START, slot]
    end = begin + tb.jobs[DUR, slot]
    pool = tb.jobs[POOL, slot]
    for i in range(pool, pool + tb.jobs[POOLS, slot]):
        row = tb.pools[i, 0]
        if tb.rows[row, SLACK]:
            continue
        if floor(tb, row, CPUS, begin, min(start, end)) < tb.pools[i, 1]:
            return False
        if start < end and floor(tb, row, CPUS, start, end) < 0:
            return False
    return True


@inner
def find_gain(
    tb: Tables, fr: FreedLog, slot: int, seen: int, ready: int, latest: int, one: bool
) -> tuple[int, int]:
    """Return the first and last time in ``[ready, latest]`` when a unit of ``slot`` may fit in an
    interval freed from number ``seen`` on; (-1, -1): nothing changed for this job.

    For a job of ``one`` unit the first is its new start, and the row is in ``out[0]``: of equal starts its
    own row, or else the one with the lowest cost, then with the fewest cpus left.
    """
    dur = tb.jobs[DUR, slot]
    shape = tb.jobs[SHAPE, slot]
    exclusive = tb.shapes[shape, EXCLUSIVE]
    begin = seen - tb.ctl[FREED_BASE]
    end = tb.ctl[FREED]
    chunk0 = tb.shapes[shape, CHUNK]
    best_left = 0
    best_cost = 0
    best, bound = _find_gain_on_own_rows(tb, fr, slot, seen, ready)
    if best > latest:
        best, bound = -1, -1
    elif one:
        tb.out[0, 0] = tb.alloc[tb.jobs[ALLOC, slot], A_ROW]
        latest = best
    for c in range(tb.shapes[shape, CHUNKS]):
        need = tb.chunks[chunk0 + c, NEED:]
        level = tb.chunks[chunk0 + c, LEVEL]
        length = fr.length[level]
        since = fr.since[level]
        i = next_reaching(length, since, begin, end, dur, latest)
        if i == end:
            continue
        cols = needed(need, exclusive)
        while i < end:
            if not one and best == ready and bound == latest:
                return best, bound  # no other interval can widen this range
            row = fr.entries[T_ROW, i]
            # the new interval must overlap the freed one, or nothing changed for the job
            earliest = max(ready, fr.entries[T_LO, i] - dur + 1, fr.since[level, i])
            last = min(latest, fr.entries[T_HI, i] - 1, fr.until[level, i] - dur)
            at = -1
            if (
                fr.entries[T_LO, i] < latest + dur
                and fr.entries[T_HI, i] > ready
                and tb.rows[row, USABLE] > tb.ctl[LEAST_TIER]
                and (one or best < 0 or earliest < best or last > bound)
            ):
                at = index_in_set(tb.sets, tb.chunks[chunk0 + c, SET], tb.chunks[chunk0 + c, SET_LEN], row)
            if at >= 0:
                s, left = fit(tb, row, need, cols, earliest, dur, last)
                if s < 0:
                    # Old measurements are upper bounds: only later placements are missing, since
                    # later freed intervals have entries of their own.
                    if fr.entries[T_VERSION, i] != tb.rows[row, VERSION]:
                        measure_runs(tb, fr, i)
                elif not one:
                    best = s if best < 0 else min(best, s)
                    bound = max(bound, last)
                elif (
                    best < 0
                    or s < best
                    or tb.costs[at] < best_cost
                    or (tb.costs[at] == best_cost and left < best_left)
                ):
                    best = s
                    best_left = left
                    best_cost = tb.costs[at]
                    latest = s
                    tb.out[0, 0] = row
            i = next_reaching(length, since, i + 1, end, dur, latest)
    tb.out[0, 1] = 0
    tb.out[0, 2] = 1
    return best, bound


@maker
def _try_move(tb: Tables, slot: int, ready: int, bound: int, limit: int) -> int:
    """Search a planned job as if it were removed, and move it if it can start before ``bound``.

    Return the new start; or, with nothing changed, NONE, GROW if a slab is full, LATER if the search paused
    beyond ``limit``, SPENT if it exceeded the work limit. If the job stays, the bounds of its rows are
    restored, or every check would slow down later searches.
    """
    start = tb.jobs[START, slot]
    dur = tb.jobs[DUR, slot]
    end = start + dur
    shape = tb.jobs[SHAPE, slot]
    chunk0 = tb.shapes[shape, CHUNK]
    chunks = tb.shapes[shape, CHUNKS]
    pool = tb.jobs[POOL, slot]
    pools = tb.jobs[POOLS, slot]
    at = tb.jobs[ALLOC, slot]
    n = tb.jobs[ALLOCS, slot]
    step = duration_step(dur)
    if not ensure_room(tb, slot, 0):
        return GROW
    kept = np.empty((n, 2 * chunks + 1), np.int64)
    for i in range(n):
        row = tb.alloc[at + i, A_ROW]
        kept[i, 0] = tb.rows[row, VERSION]
        for c in range(chunks):
            q = tb.chunks[chunk0 + c, LEVEL] * DURATIONS + step
            kept[i, 1 + c] = tb.bounds[q, row]
            kept[i, 1 + chunks + c] = tb.exact[q, row]
    for i in range(n):
        change(tb, tb.alloc[at + i, A_ROW], start, end, tb.alloc[at + i, A_TAKE:], 1)
    for i in range(n):
        row = tb.alloc[at + i, A_ROW]
        for c in range(chunks):
            q = tb.chunks[chunk0 + c, LEVEL] * DURATIONS + step
            tb.bounds[q, row] = min(tb.bounds[q, row], start - dur)
    tb.ctl[LIMIT] = limit
    best, found = find_start(tb, shape, pool, pools, ready, dur, bound)
    tb.ctl[LIMIT] = 0
    full = best >= 0 and not ensure_room(tb, slot, found)
    if best < 0 or full:
        for i in range(n):
            change(tb, tb.alloc[at + i, A_ROW], start, end, tb.alloc[at + i, A_TAKE:], -1)
        for i in range(n - 1, -1, -1):
            row = tb.alloc[at + i, A_ROW]
            tb.rows[row, VERSION] = kept[i, 0]
            for c in range(chunks):
                q = tb.chunks[chunk0 + c, LEVEL] * DURATIONS + step
                tb.bounds[q, row] = kept[i, 1 + c]
                tb.exact[q, row] = kept[i, 1 + chunks + c]
        return GROW if full else best
    tb.ctl[ALLOC_GARBAGE] += n
    tb.jobs[ALLOCS, slot] = 0
    place_at(tb, slot, best, found)
    for i in range(n):
        lower_bounds(tb, tb.alloc[at + i, A_ROW], start, end)
    return best


@inner
def _is_partial_search_valid(tb: Tables, start: int, seen: int) -> bool:
    """Return whether a paused search is still valid for the job, now at ``start``: not if the job was moved,
    or if the log of freed intervals since then was lost.
    """
    return bool(
        tb.ctl[PARTIAL_START] == start
        and seen <= tb.ctl[PARTIAL_TOP]
        and tb.ctl[PARTIAL_TOP] >= tb.ctl[FREED_BASE]
    )


@lean
def repair(
    tb: Tables,
    fr: FreedLog,
    order: Ints,
    cursor: int,
    now: int,
    only_now: bool,
    since: int,
    budget: int,
    moves: Table,
) -> tuple[int, int, int]:
    """Run one slice of repair over the planned jobs of ``order``, from ``cursor`` on.

    ``only_now``: move only jobs that can start at ``now``. Intervals numbered below ``since`` are skipped.
    ``budget`` is in visited segments; a search that exceeds it continues in the next slice. ``moves`` (at
    least as long as the rest of ``order``, 3) gets slot, old start, new start. Return (cursor to continue
    with, number of moves, DONE | PAUSED | FULL).
    """
    set_now(tb, now)
    limit = tb.ctl[WORK] + budget
    n_moves = 0
    while cursor < order.shape[0]:
        if tb.ctl[WORK] > limit or tb.ctl[STOP] != 0:
            return cursor, n_moves, PAUSED
        slot = order[cursor]
        tb.ctl[WORK] += _JOB_WORK
        start = tb.jobs[START, slot]
        ready = max(now, tb.jobs[READY, slot])
        seen = max(since, tb.jobs[SEEN, slot])
        if only_now and tb.jobs[SEEN, slot] < tb.ctl[FREED_BASE]:
            look = LOST | NAMED if tb.jobs[SEEN, slot] < 0 else LOST
            if tb.ctl[SEARCH_FLAGS] & look:
                seen = tb.jobs[SEEN, slot]
        top = tb.ctl[FREED_BASE] + tb.ctl[FREED]
        if tb.jobs[STATE, slot] != PLANNED or start <= ready or (only_now and ready > now) or seen == top:
            cursor += 1
            continue
        resuming = not only_now and tb.ctl[PARTIAL] == slot + 1 and _is_partial_search_valid(tb, start, seen)
        if resuming:
            # intervals freed since that search began are examined after it
            top = tb.ctl[PARTIAL_TOP]
        latest = now if only_now else start - 1
        shape = tb.jobs[SHAPE, slot]
        whole = seen < tb.ctl[FREED_BASE]
        one = (
            tb.shapes[shape, CHUNKS] == 1
            and tb.chunks[tb.shapes[shape, CHUNK], COUNT] == 1
            and not _gains_in_pools(tb, slot, seen)
            and not whole
        )
        least = _lowest_tier(tb, slot) if tb.ctl[PROTECT_TIER] else 0
        if whole:
            best, last = ready, latest
        else:
            # Most jobs are done here, so this quick check precedes the exact one.
            hope = False
            chunk0 = tb.shapes[shape, CHUNK]
            begin = seen - tb.ctl[FREED_BASE]
            dur = tb.jobs[DUR, slot]
            for c in range(chunk0, chunk0 + tb.shapes[shape, CHUNKS]):
                level = tb.chunks[c, LEVEL]
                i = next_reaching(fr.length[level], fr.since[level], begin, tb.ctl[FREED], dur, latest)
                hope = hope or i < tb.ctl[FREED]
            tb.ctl[WORK] += (tb.ctl[FREED] - begin) >> 3
            for i in range(tb.jobs[ALLOC, slot], tb.jobs[ALLOC, slot] + tb.jobs[ALLOCS, slot]):
                hope = hope or tb.rows[tb.alloc[i, A_ROW], FREED_AT] >= seen
            if not hope:
                if not only_now:
                    tb.jobs[SEEN, slot] = top
                cursor += 1
                continue
            tb.ctl[LEAST_TIER] = least
            best, last = find_gain(tb, fr, slot, seen, ready, latest, one)
            tb.ctl[LEAST_TIER] = 0
            if one and best >= 0 and not _pools_allow(tb, slot, best):
                # no start within a freed interval; a whole search finds any other
                one = False
                last = latest
        if best >= 0:
            end = start + tb.jobs[DUR, slot]
            at = tb.jobs[ALLOC, slot]
            n = tb.jobs[ALLOCS, slot]
            if one:
                row = tb.out[0, 0]
                if not ensure_room(tb, slot, 1):
                    return cursor, n_moves, FULL
                remove(tb, slot)
                place_at(tb, slot, best, 1)
                lo = start
                if tb.alloc[at, A_ROW] == row:
                    lo = max(start, best + tb.jobs[DUR, slot])
                note_freed(tb, fr, tb.alloc[at, A_ROW], lo, end)
                # its pools are the same on every node
                note_freed_entries(tb, fr, at + 1, n - 1, max(start, best + tb.jobs[DUR, slot]), end)
            else:
                if resuming:
                    best = max(best, tb.ctl[CAME_TO])
                tb.ctl[LEAST_TIER] = least
                best = _try_move(tb, slot, best, min(last, latest) + 1, 0 if only_now else limit)
                tb.ctl[LEAST_TIER] = 0
                if best == GROW:
                    return cursor, n_moves, FULL
                if best == LATER:
                    tb.ctl[PARTIAL] = slot + 1
                    tb.ctl[PARTIAL_START] = start
                    tb.ctl[PARTIAL_TOP] = top
                    return cursor, n_moves, PAUSED
                if best >= 0:
                    note_freed_entries(tb, fr, at, n, start, end)
            if best >= 0:
                moves[n_moves, 0] = slot
                moves[n_moves, 1] = start
                moves[n_moves, 2] = best
                n_moves += 1
        if resuming:
            tb.ctl[PARTIAL] = 0
            tb.jobs[SEEN, slot] = top
        elif best >= 0:
            # its old place is no use to itself, and it now starts as early as it can
            tb.jobs[SEEN, slot] = tb.ctl[FREED_BASE] + tb.ctl[FREED]
        elif not only_now:
            tb.jobs[SEEN, slot] = top
        cursor += 1
    return cursor, n_moves, DONE
