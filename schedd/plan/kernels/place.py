"""Kernels that place and remove jobs."""

import numpy as np

from schedd.plan.kernels.bounds import lower_bounds
from schedd.plan.kernels.freed import FreedLog, index_in_set, note_freed_entries, set_now
from schedd.plan.kernels.gaps import find_start
from schedd.plan.kernels.jit import inlined, inner, kernel, lean
from schedd.plan.kernels.layout import (
    A_CHUNK,
    A_ROW,
    A_TAKE,
    A_UNITS,
    ALLOC,
    ALLOC_GARBAGE,
    ALLOC_TOP,
    ALLOCS,
    CHUNK,
    CHUNKS,
    COUNT,
    DUR,
    EXCLUSIVE,
    EXTRA,
    FREED,
    FREED_BASE,
    GATES,
    GROW,
    HELD,
    HOLDERS,
    KIND,
    LEN,
    NEED,
    NODE,
    NONE,
    OFF,
    PLANNED,
    POOL,
    POOLS,
    READY,
    SEEN,
    SET,
    SET_LEN,
    SHAPE,
    SPENT,
    START,
    STATE,
    UNPLACED,
    WAIT,
    WANTED_ENTRIES,
    WANTED_SEGMENTS,
    Ints,
    Table,
    Tables,
)
from schedd.plan.kernels.rows import amend, change, floor, locate, make_room


@inlined
def held_bits(row: int) -> int:
    """Return the two bits of a node's row in HELD, a Bloom filter: up to 1,953 rows have different ones."""
    first = row % 63
    return 1 << first | 1 << (first + 1 + row // 63 % 31) % 63


@lean
def note_held(tb: Tables, slot: int) -> None:
    """Set the HELD bits of a placed job."""
    first = tb.jobs[ALLOC, slot]
    held = 0
    for i in range(first, first + tb.jobs[ALLOCS, slot]):
        if tb.alloc[i, A_CHUNK] < 0:
            break  # from here on there are only pools
        held |= held_bits(tb.alloc[i, A_ROW])
    tb.jobs[HELD, slot] = held


@lean
def note_all_held(tb: Tables) -> None:
    """Set the HELD bits of all jobs."""
    for slot in range(tb.jobs.shape[1]):
        note_held(tb, slot)


@inner
def _note_wanted_segments(tb: Tables, row: int) -> None:
    """Add the segments wanted for ``row`` (see ``EXTRA``) after a slab was found full, once per row."""
    extra = tb.scratch[EXTRA]
    if extra[row] > 0:
        tb.ctl[WANTED_SEGMENTS] += 2 * (tb.rows[row, LEN] + extra[row])
        extra[row] = 0


@inner
def entries_fit(tb: Tables, n: int) -> bool:
    """Return whether the allocations have room for ``n`` entries; if not, note that they are wanted."""
    if tb.ctl[ALLOC_TOP] + n <= tb.alloc.shape[0]:
        return True
    tb.ctl[WANTED_ENTRIES] = n
    return False


@inner
def most_entries(tb: Tables, slot: int) -> int:
    """Return the maximum number of entries of the allocations that a placement of ``slot`` takes."""
    n = tb.jobs[POOLS, slot]
    first = tb.shapes[tb.jobs[SHAPE, slot], CHUNK]
    for c in range(first, first + tb.shapes[tb.jobs[SHAPE, slot], CHUNKS]):
        n += min(tb.chunks[c, COUNT], tb.chunks[c, SET_LEN])
    return int(n)


@inner
def ensure_room(tb: Tables, slot: int, found: int) -> bool:
    """Ensure that ``slot`` can be removed from its placement and placed on the entries of ``out``.

    Return False if a slab is full; the required size is noted in ``ctl``.
    """
    first = tb.jobs[ALLOC, slot]
    allocs = tb.jobs[ALLOCS, slot]
    pool = tb.jobs[POOL, slot]
    pools = tb.jobs[POOLS, slot]
    if not entries_fit(tb, found + pools):
        return False
    # Several entries may be of one row: each adds at most two segments.
    extra = tb.scratch[EXTRA]
    for i in range(first, first + allocs):
        extra[tb.alloc[i, A_ROW]] = 0
    for i in range(found):
        extra[tb.out[i, 0]] = 0
    for i in range(pool, pool + pools):
        extra[tb.pools[i, 0]] = 0
    for i in range(first, first + allocs):
        extra[tb.alloc[i, A_ROW]] += 2
    for i in range(found):
        extra[tb.out[i, 0]] += 2
    for i in range(pool, pool + pools):
        extra[tb.pools[i, 0]] += 2
    good = True
    for i in range(first, first + allocs):
        good = good and make_room(tb, tb.alloc[i, A_ROW], extra[tb.alloc[i, A_ROW]])
    for i in range(found):
        good = good and make_room(tb, tb.out[i, 0], extra[tb.out[i, 0]])
    for i in range(pool, pool + pools):
        good = good and make_room(tb, tb.pools[i, 0], extra[tb.pools[i, 0]])
    if not good:
        tb.ctl[WANTED_SEGMENTS] = 0
        for i in range(first, first + allocs):
            _note_wanted_segments(tb, tb.alloc[i, A_ROW])
        for i in range(found):
            _note_wanted_segments(tb, tb.out[i, 0])
        for i in range(pool, pool + pools):
            _note_wanted_segments(tb, tb.pools[i, 0])
    return good


@inner
def place_at(tb: Tables, slot: int, start: int, found: int) -> bool:
    """Place ``slot`` at ``start`` on the ``found`` entries of ``out``. Return False, with no change, if a
    slab is full.
    """
    shape = tb.jobs[SHAPE, slot]
    chunk0 = tb.shapes[shape, CHUNK]
    exclusive = tb.shapes[shape, EXCLUSIVE]
    pool = tb.jobs[POOL, slot]
    pools = tb.jobs[POOLS, slot]
    if not ensure_room(tb, slot, found):
        return False
    top = tb.ctl[ALLOC_TOP]
    end = start + tb.jobs[DUR, slot]
    resources = tb.F.shape[0]
    for i in range(found):
        row = tb.out[i, 0]
        c = tb.out[i, 1]
        n = tb.out[i, 2]
        tb.alloc[top + i, A_ROW] = row
        tb.alloc[top + i, A_CHUNK] = c
        tb.alloc[top + i, A_UNITS] = n
        taken = False
        if exclusive:
            for j in range(i):
                taken = taken or tb.out[j, 0] == row
        for r in range(resources):
            if exclusive and taken:
                tb.alloc[top + i, A_TAKE + r] = 0
            elif exclusive and (tb.ctl[GATES] >> r) & 1 == 0:
                tb.alloc[top + i, A_TAKE + r] = tb.cap[row, r]
            elif exclusive:
                tb.alloc[top + i, A_TAKE + r] = tb.chunks[chunk0 + c, NEED + r]
            else:
                tb.alloc[top + i, A_TAKE + r] = n * tb.chunks[chunk0 + c, NEED + r]
        change(tb, row, start, end, tb.alloc[top + i, A_TAKE:], -1)
    for i in range(pools):
        k = top + found + i
        tb.alloc[k, :] = 0
        tb.alloc[k, A_ROW] = tb.pools[pool + i, 0]
        tb.alloc[k, A_CHUNK] = -1
        tb.alloc[k, A_UNITS] = 1
        tb.alloc[k, A_TAKE] = tb.pools[pool + i, 1]
        change(tb, tb.alloc[k, A_ROW], start, end, tb.alloc[k, A_TAKE:], -1)
    tb.ctl[ALLOC_TOP] = top + found + pools
    tb.jobs[ALLOC, slot] = top
    tb.jobs[ALLOCS, slot] = found + pools
    tb.jobs[START, slot] = start
    tb.jobs[STATE, slot] = PLANNED
    tb.jobs[SEEN, slot] = tb.ctl[FREED_BASE] + tb.ctl[FREED]
    note_held(tb, slot)
    return True


@inner
def change_rows(tb: Tables, slot: int, start: int, end: int, sign: int, joined: bool) -> bool:
    """Take (-1) or give back (+1) over ``[start, end)`` what ``slot`` holds. Return False, with no change, if
    a slab is full.

    The bounds of its rows are not updated: see ``occupy``. Unless ``joined``, equal neighbouring segments are
    not merged, so that a job that is restored finds its edges there.
    """
    at = tb.jobs[ALLOC, slot]
    n = tb.jobs[ALLOCS, slot]
    if start >= end:
        return True
    extra = tb.scratch[EXTRA]
    for i in range(at, at + n):
        extra[tb.alloc[i, A_ROW]] = 0
    for i in range(at, at + n):
        extra[tb.alloc[i, A_ROW]] += 2
    good = True
    for i in range(at, at + n):
        good = good and make_room(tb, tb.alloc[i, A_ROW], extra[tb.alloc[i, A_ROW]])
    if not good:
        tb.ctl[WANTED_SEGMENTS] = 0
        for i in range(at, at + n):
            _note_wanted_segments(tb, tb.alloc[i, A_ROW])
        return False
    for i in range(at, at + n):
        if joined:
            change(tb, tb.alloc[i, A_ROW], start, end, tb.alloc[i, A_TAKE:], sign)
        else:
            amend(tb, tb.alloc[i, A_ROW], start, end, tb.alloc[i, A_TAKE:], sign)
    return True


@lean
def occupy(tb: Tables, slot: int, start: int, end: int, sign: int) -> bool:
    """Take (-1) or give back (+1) over ``[start, end)`` what ``slot`` holds. Return False, with no change, if
    a slab is full.
    """
    if not change_rows(tb, slot, start, end, sign, True):
        return False
    if sign > 0 and start < end:
        for i in range(tb.jobs[ALLOC, slot], tb.jobs[ALLOC, slot] + tb.jobs[ALLOCS, slot]):
            lower_bounds(tb, tb.alloc[i, A_ROW], start, end)
    return True


@kernel
def replace_pools(tb: Tables, slot: int) -> bool:
    """Let a placed ``slot`` hold its present pools instead of the former ones. Return False, with no change,
    if a slab is full.
    """
    at = tb.jobs[ALLOC, slot]
    n = tb.jobs[ALLOCS, slot]
    pool = tb.jobs[POOL, slot]
    pools = tb.jobs[POOLS, slot]
    start = tb.jobs[START, slot]
    end = start + tb.jobs[DUR, slot]
    nodes = 0
    while nodes < n and tb.alloc[at + nodes, A_CHUNK] >= 0:
        nodes += 1
    top = tb.ctl[ALLOC_TOP]
    if not entries_fit(tb, nodes + pools):
        return False
    good = True
    extra = tb.scratch[EXTRA]
    for i in range(at + nodes, at + n):
        extra[tb.alloc[i, A_ROW]] = 4
        good = good and make_room(tb, tb.alloc[i, A_ROW], 4)
    for i in range(pool, pool + pools):
        extra[tb.pools[i, 0]] = 4
        good = good and make_room(tb, tb.pools[i, 0], 4)
    if not good:
        tb.ctl[WANTED_SEGMENTS] = 0
        for i in range(at + nodes, at + n):
            _note_wanted_segments(tb, tb.alloc[i, A_ROW])
        for i in range(pool, pool + pools):
            _note_wanted_segments(tb, tb.pools[i, 0])
        return False
    for i in range(at + nodes, at + n):
        change(tb, tb.alloc[i, A_ROW], start, end, tb.alloc[i, A_TAKE:], 1)
    tb.alloc[top : top + nodes] = tb.alloc[at : at + nodes]
    for i in range(pools):
        k = top + nodes + i
        tb.alloc[k, :] = 0
        tb.alloc[k, A_ROW] = tb.pools[pool + i, 0]
        tb.alloc[k, A_CHUNK] = -1
        tb.alloc[k, A_UNITS] = 1
        tb.alloc[k, A_TAKE] = tb.pools[pool + i, 1]
        change(tb, tb.alloc[k, A_ROW], start, end, tb.alloc[k, A_TAKE:], -1)
    tb.ctl[ALLOC_TOP] = top + nodes + pools
    tb.ctl[ALLOC_GARBAGE] += n
    tb.jobs[ALLOC, slot] = top
    tb.jobs[ALLOCS, slot] = nodes + pools
    return True


@lean
def remove(tb: Tables, slot: int) -> bool:
    """Remove ``slot`` from the plan, which leaves it unplaced. Return False, with no change, if a slab is
    full.
    """
    start = tb.jobs[START, slot]
    if not occupy(tb, slot, start, start + tb.jobs[DUR, slot], 1):
        return False
    mark_unplaced(tb, slot)
    return True


@inner
def mark_unplaced(tb: Tables, slot: int) -> None:
    """Mark ``slot``, which has given back its resources, as unplaced."""
    tb.ctl[ALLOC_GARBAGE] += tb.jobs[ALLOCS, slot]
    tb.jobs[ALLOCS, slot] = 0
    tb.jobs[START, slot] = -1
    tb.jobs[STATE, slot] = UNPLACED


@lean
def probe(tb: Tables, slot: int, now: int, bound: int) -> int:
    """Return the earliest start before ``bound`` of an unplaced job, NONE or SPENT; changes nothing."""
    set_now(tb, now)
    start, _ = find_start(
        tb,
        tb.jobs[SHAPE, slot],
        tb.jobs[POOL, slot],
        tb.jobs[POOLS, slot],
        max(now, tb.jobs[READY, slot]),
        tb.jobs[DUR, slot],
        bound,
    )
    return start


@lean
def find_best_variant(
    tb: Tables, variants: Table, ready: int, now: int, bound: int, promised: int
) -> tuple[int, int]:
    """Return the index of the best of several requests for one job, and its earliest start before ``bound``;
    (NONE, NONE): none has one, or (SPENT, SPENT). Changes nothing.

    ``variants`` are rows of shape, duration, first entry in pools, and number of these. Starts up to
    ``promised`` precede later ones, then the earliest end counts, then the earliest start, then the order.
    """
    set_now(tb, now)
    best = NONE
    best_start = NONE
    best_dur = 0
    for i in range(variants.shape[0]):
        dur = variants[i, 1]
        before = bound
        if best >= 0 and best_start <= promised:
            # A longer one with an equal end starts earlier.
            before = min(before, best_start + best_dur - dur + int(dur > best_dur))
        if before <= ready:
            continue
        start, _ = find_start(tb, variants[i, 0], variants[i, 2], variants[i, 3], ready, dur, before)
        if start == SPENT:
            return SPENT, SPENT
        if start < 0:
            continue
        late = start > promised
        if best >= 0 and late and best_start > promised:
            end, best_end = start + dur, best_start + best_dur
            if end > best_end or (end == best_end and start >= best_start):
                continue
        elif best >= 0 and late:
            continue
        best = i
        best_start = start
        best_dur = dur
    return best, best_start


@lean
def place(tb: Tables, slot: int, now: int, bound: int) -> int:
    """Place an unplaced job in its earliest gap in ``[now, bound)``. Return its start, NONE, GROW or
    SPENT.
    """
    set_now(tb, now)
    start, found = find_start(
        tb,
        tb.jobs[SHAPE, slot],
        tb.jobs[POOL, slot],
        tb.jobs[POOLS, slot],
        max(now, tb.jobs[READY, slot]),
        tb.jobs[DUR, slot],
        bound,
    )
    if start < 0:
        return start
    if not place_at(tb, slot, start, found):
        return GROW
    return start


@lean
def first_startable(tb: Tables, slots: Ints, begin: int, now: int) -> int:
    """Return the index in ``slots``, from ``begin`` on, of the first unplaced job that could start at
    ``now``, or the length.

    The jobs are checked independently of each other; nothing is changed.
    """
    for i in range(begin, slots.shape[0]):
        if tb.jobs[READY, slots[i]] <= now and probe(tb, slots[i], now, now + 1) == now:
            return int(i)
    return int(slots.shape[0])


@lean
def remove_overcommitted(tb: Tables, fr: FreedLog, slots: Ints, begin: int, gone: Ints) -> tuple[int, int]:
    """Remove those planned ``slots`` that lie on an over-committed row, one by one, until none does.

    Slots are given in the order in which they may be removed. Removed slots are written to ``gone``, freed
    intervals to ``fr``. Return (index to continue with: the length when done, number removed).
    """
    lifted = 0
    for j in range(begin, slots.shape[0]):
        slot = slots[j]
        if tb.jobs[STATE, slot] != PLANNED:
            continue
        start = tb.jobs[START, slot]
        end = start + tb.jobs[DUR, slot]
        at = tb.jobs[ALLOC, slot]
        bad = False
        for i in range(at, at + tb.jobs[ALLOCS, slot]):
            for r in range(tb.F.shape[0]):
                if tb.alloc[i, A_TAKE + r] > 0 and floor(tb, tb.alloc[i, A_ROW], r, start, end) < 0:
                    bad = True
                    break
            if bad:
                break
        if bad:
            held = tb.jobs[ALLOCS, slot]
            if not remove(tb, slot):
                return j, lifted
            note_freed_entries(tb, fr, at, held, start, end)
            gone[lifted] = slot
            lifted += 1
    return slots.shape[0], lifted


@inner
def holds_row(tb: Tables, slot: int, row: int) -> bool:
    """Return whether a placed job holds part of this node's row."""
    bits = held_bits(row)
    if tb.jobs[HELD, slot] & bits != bits:
        return False
    first = tb.jobs[ALLOC, slot]
    for i in range(first, first + tb.jobs[ALLOCS, slot]):
        if tb.alloc[i, A_CHUNK] < 0:
            return False  # from here on there are only pools
        if tb.alloc[i, A_ROW] == row:
            return True
    return False


@kernel
def jobs_on_rows(tb: Tables, slots: Ints, rows: Ints) -> Ints:
    """Return the jobs of ``slots`` that hold part of one of these ``rows``, in their order."""
    sought = np.zeros(tb.rows.shape[0], np.bool_)
    pools = False
    bits = 0
    for row in rows:
        sought[row] = True
        pools = pools or tb.rows[row, KIND] != NODE
        bits |= held_bits(row)
    hit = np.empty(slots.shape[0], np.int64)
    m = 0
    for slot in slots:
        if not pools and tb.jobs[HELD, slot] & bits == 0:
            continue
        at = tb.jobs[ALLOC, slot]
        for i in range(at, at + tb.jobs[ALLOCS, slot]):
            if sought[tb.alloc[i, A_ROW]]:
                hit[m] = slot
                m += 1
                break
    return hit[:m]


@kernel
def jobs_in_conflict(tb: Tables, slot: int, since: int, end: int, others: Ints) -> Ints:
    """Return the jobs of ``others`` that hold part of a row that the placed job ``slot`` holds and that is
    over-committed at some time in ``[since, end)``.
    """
    over = np.zeros(tb.rows.shape[0], np.bool_)
    found = False
    at = tb.jobs[ALLOC, slot]
    for i in range(at, at + tb.jobs[ALLOCS, slot]):
        row = tb.alloc[i, A_ROW]
        first = tb.rows[row, OFF]
        last = first + tb.rows[row, LEN]
        columns = tb.F.shape[0] if tb.rows[row, KIND] == NODE else 1
        for k in range(locate(tb.T, first, last, since), last):
            if tb.T[k] >= end:
                break
            for r in range(columns):
                over[row] = over[row] or tb.F[r, k] < 0
        found = found or over[row]
    hit = np.empty(others.shape[0] if found else 0, np.int64)
    m = 0
    for j in range(hit.shape[0]):
        at = tb.jobs[ALLOC, others[j]]
        for i in range(at, at + tb.jobs[ALLOCS, others[j]]):
            if over[tb.alloc[i, A_ROW]]:
                hit[m] = others[j]
                m += 1
                break
    return hit[:m]


@inner
def _is_within_sets(tb: Tables, slot: int, chunk0: int) -> bool:
    """Return whether all rows that ``slot`` holds are in the row sets of these chunks."""
    at = tb.jobs[ALLOC, slot]
    for i in range(at, at + tb.jobs[ALLOCS, slot]):
        c = tb.alloc[i, A_CHUNK]
        if c < 0:
            continue
        row = tb.alloc[i, A_ROW]
        if index_in_set(tb.sets, tb.chunks[chunk0 + c, SET], tb.chunks[chunk0 + c, SET_LEN], row) < 0:
            return False
    return True


@kernel
def misplaced(tb: Tables, slots: Ints) -> Ints:
    """Return the jobs of ``slots`` on a row outside the row set of its chunk, or on several node sets
    although one of them must hold all.
    """
    hit = np.empty(slots.shape[0], np.int64)
    m = 0
    for j in range(slots.shape[0]):
        shape = tb.jobs[SHAPE, slots[j]]
        chunk0 = tb.shapes[shape, CHUNK]
        good = _is_within_sets(tb, slots[j], chunk0)
        if good and tb.shapes[shape, WAIT] < 0 and tb.shapes[shape, HOLDERS] > 0:
            good = False
            for g in range(1, tb.shapes[shape, HOLDERS] + 1):
                good = good or _is_within_sets(tb, slots[j], chunk0 + g * tb.shapes[shape, CHUNKS])
        if not good:
            hit[m] = slots[j]
            m += 1
    return hit[:m]
