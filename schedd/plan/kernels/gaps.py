"""Kernels that find the earliest start of a request on the same nodes over the whole interval.

A node that is free first and another that is free later are no gap: some rows must have the needed capacity
free from one start to one end. Three cases, from fast to general: one unit; many equal units; several chunks.
Each returns the start, or NONE, and writes the rows to ``out``. The kernels for many units advance from time
to time, and may pause between two times if a repair has set a limit. All return SPENT when they exceed the
work limit of a search or of its request.
"""

from typing import Final

from schedd.plan.kernels.assign import assign, choose_spread
from schedd.plan.kernels.bounds import duration_step, fit_bounded, need_level, raise_bound
from schedd.plan.kernels.fewest_sets import assign_fewest_sets, restrict_to_fewest_sets
from schedd.plan.kernels.jit import inner
from schedd.plan.kernels.layout import (
    CAME_TO,
    CHUNK,
    CHUNKS,
    COUNT,
    CPUS,
    DURATIONS,
    EXCLUSIVE,
    FAR,
    FRESH,
    HOLDERS,
    KEY,
    LATER,
    LEAST_TIER,
    LEN,
    LIMIT,
    MOST_WORK,
    NEED,
    NEXT,
    NONE,
    OFF,
    PER_NODE,
    POOL_NEED,
    SEARCH_END,
    SET,
    SET_LEN,
    SETS,
    SHARE,
    SLACK,
    SORT,
    SPENT,
    UNITS,
    USABLE,
    WAIT,
    WORK,
    WORK_END,
    Ints,
    Tables,
)
from schedd.plan.kernels.rows import fit, is_spent, locate, needed
from schedd.plan.kernels.selection import select_kth, sift_down, sift_up

_MANY_ROWS: Final = 1024  # a search over fewer rows examines all at once
_SAMPLES: Final = 128  # rows that are sampled to estimate a bound
_FIRST_ROWS: Final = 64  # approximate number of rows for the first step of a search
_MORE_ROWS: Final = 8  # factor of the number of rows for each further step of a search


@inner
def _sample_bounds(
    tb: Tables, sets_at: int, sets_len: int, q: int, ready: int, wanted: int, most: int
) -> int:
    """Return a time by which about ``wanted`` of these rows have their bound, but at least ``ready``; or
    ``most``, if that is earlier or the rows are few.
    """
    if sets_len < _MANY_ROWS or wanted > sets_len >> 1:
        return most
    sample = tb.scratch[NEXT]
    stride = sets_len // _SAMPLES
    for j in range(_SAMPLES):
        sample[j] = max(tb.bounds[q, tb.sets[sets_at + j * stride]], ready)
    return min(select_kth(sample, _SAMPLES, wanted * _SAMPLES // sets_len + 1), most)


@inner
def _sample_gains(nxt: Ints, sample: Ints, n: int, wanted: int, most: int) -> int:
    """Return a time by which about ``wanted`` of these rows gain; or ``most``, if that is earlier or the rows
    are few.
    """
    if n < _MANY_ROWS or wanted > n >> 1:
        return most
    stride = n // _SAMPLES
    for j in range(_SAMPLES):
        sample[j] = nxt[j * stride]
    return min(select_kth(sample, _SAMPLES, wanted * _SAMPLES // n + 1), most)


@inner
def _gather(
    tb: Tables, sets_at: int, sets_len: int, nxt: Ints, heap: Ints, n: int, low: int, until: int
) -> int:
    """Add the usable rows that gain after ``low``, but by ``until``, to the heap of ``n`` rows. Return the
    number of rows in it.
    """
    for i in range(sets_len):
        if low < nxt[i] <= until:
            if tb.rows[tb.sets[sets_at + i], USABLE] <= tb.ctl[LEAST_TIER]:
                nxt[i] = FAR
            else:
                heap[n] = i
                n += 1
    for j in range(n // 2 - 1, -1, -1):
        sift_down(heap, n, nxt, j)
    return n


@inner
def find_single(
    tb: Tables,
    sets_at: int,
    sets_len: int,
    need: Ints,
    cols: int,
    exclusive: int,
    ready: int,
    dur: int,
    bound: int,
) -> int:
    """Return the earliest start before ``bound`` of one unit; of rows with that start, the one with the
    lowest cost is chosen, then with the fewest cpus left.
    """
    level = need_level(need[CPUS], exclusive)
    step = duration_step(dur)
    q = level * DURATIONS + step
    key = tb.scratch[KEY]
    heap = tb.scratch[SORT]
    best = bound - 1
    best_row = -1
    best_left = 0
    best_cost = 0
    closest = False
    tb.ctl[WORK] += sets_len >> 2
    # Rows by bound, earliest first, up to the best start; those after `until` are looked for only if needed.
    low = ready - 1
    wanted = _FIRST_ROWS
    until = _sample_bounds(tb, sets_at, sets_len, q, ready, wanted, best)
    while not closest:
        n = 0
        limit = min(until, best)
        for i in range(sets_len):
            row = tb.sets[sets_at + i]
            begin = max(tb.bounds[q, row], ready)
            if low < begin <= limit and tb.rows[row, USABLE] > tb.ctl[LEAST_TIER]:
                key[i] = begin
                heap[n] = i
                n += 1
        for j in range(n // 2 - 1, -1, -1):
            sift_down(heap, n, key, j)
        while n > 0 and key[heap[0]] <= best:
            lead = heap[0]
            row = tb.sets[sets_at + lead]
            start = raise_bound(tb, row, level, step, best)
            if key[lead] < start <= until:
                key[lead] = start
                sift_down(heap, n, key, 0)
                continue
            n -= 1
            heap[0] = heap[n]
            sift_down(heap, n, key, 0)
            if start > until:
                continue  # its bound brings it back
            cost = tb.costs[sets_at + lead]
            if best_row >= 0 and key[lead] == best and cost > best_cost:
                continue  # it is no earlier, and costs more
            start, left = fit(tb, row, need, cols, key[lead], dur, best)
            if start >= 0 and (
                start < best
                or best_row < 0
                or cost < best_cost
                or (cost == best_cost and (left < best_left or (left == best_left and row < best_row)))
            ):
                best = start
                best_row = row
                best_left = left
                best_cost = cost
                if left == need[CPUS] and start == key[lead] and cost == 0:
                    # Those left over are no earlier, cost no less and fit no closer; of equals this is the
                    # first.
                    closest = True
                    break
        if until >= best:
            break
        low = until
        wanted *= _MORE_ROWS
        until = _sample_bounds(tb, sets_at, sets_len, q, ready, wanted, best)
        if until <= low:
            until = best
    if best_row < 0:
        return NONE
    tb.out[0, 0] = best_row
    tb.out[0, 1] = 0
    tb.out[0, 2] = 1
    return best


@inner
def count_units(
    tb: Tables,
    row: int,
    need: Ints,
    cols: int,
    exclusive: int,
    most: int,
    t: int,
    dur: int,
    bound: int,
    level: int,
    step: int,
) -> tuple[int, int]:
    """Return how many units (at most ``most``) fit on ``row`` over ``[t, t + dur)``, and when more could fit.

    The second number is a lower bound on the next start with more units; if none fits now, it is the next
    start where one does (FAR: none before ``bound``).
    """
    if most == 1:
        known = tb.bounds[level * DURATIONS + step, row]
        if known > t:
            return 0, min(known, FAR)
        start, _ = fit_bounded(tb, row, need, cols, t, dur, bound - 1, level, step)
        if start == t:
            return 1, FAR
        return 0, start if start >= 0 else FAR
    T = tb.T
    F = tb.F
    if exclusive:
        for c in range(need.shape[0]):
            if need[c] > 0 and c != SHARE:
                most = min(most, tb.cap[row, c] // need[c])
    off = tb.rows[row, OFF]
    end = off + tb.rows[row, LEN]
    k = locate(T, off, end, t)
    tb.ctl[WORK] += 4
    m = most
    again = FAR
    stop = t + dur
    while k < end and (T[k] < stop or T[k] <= t):
        nxt = T[k + 1] if k + 1 < end else FAR
        v = most
        for c in range(need.shape[0]):
            if (cols >> c) & 1 == 0:
                continue
            f = F[c, k]
            if f < need[c]:
                v = 0
                break
            w = f // need[c]
            if w < v and not exclusive:
                v = w
        if v < most and v <= m:
            m = v
            again = nxt
        k += 1
        tb.ctl[WORK] += 1
    if m <= 0 and most > 0:
        m = 0
        if again < FAR:
            start, _ = fit_bounded(tb, row, need, cols, again, dur, bound - 1, level, step)
            again = start if start >= 0 else FAR
    return m, again


@inner
def find_spread(
    tb: Tables,
    sets_at: int,
    sets_len: int,
    need: Ints,
    cols: int,
    exclusive: int,
    count: int,
    per_node: int,
    ready: int,
    dur: int,
    bound: int,
) -> int:
    """Return the earliest start in ``[ready, bound)`` of ``count`` equal units, at most ``per_node`` on a
    row.

    Advances to the next time when enough rows may have gained, so that no start is missed: between these
    times the counts are upper bounds. Only the rows that gain first are in order: on a large cluster
    a few. Beyond the limit it returns LATER, but not before it has done as much work as its
    initialisation took; otherwise restarting would cost more than pausing saves.
    """
    u = tb.scratch[UNITS]
    nxt = tb.scratch[NEXT]
    fresh = tb.scratch[FRESH]
    heap = tb.scratch[SORT]  # indices of the rows that gain by `until`, the first to gain on top
    sample = tb.scratch[KEY]
    sets = tb.sets
    t = ready
    end = min(bound, FAR)
    total = 0
    most = min(per_node, count)
    level = need_level(need[CPUS], exclusive)
    step = duration_step(dur)
    q = level * DURATIONS + step
    begun = tb.ctl[WORK]
    for i in range(sets_len):
        row = sets[sets_at + i]
        u[i] = 0
        nxt[i] = FAR
        if most == 1 and tb.bounds[q, row] > t:
            nxt[i] = min(tb.bounds[q, row], FAR)  # as `count_units` says
        elif tb.rows[row, USABLE] > tb.ctl[LEAST_TIER]:
            u[i], nxt[i] = count_units(tb, row, need, cols, exclusive, most, t, dur, bound, level, step)
            fresh[i] = t
            total += u[i]
    limit = FAR
    if tb.ctl[LIMIT] > 0:
        limit = max(tb.ctl[LIMIT], 2 * tb.ctl[WORK] - begun)
    wanted = _FIRST_ROWS + 2 * count
    until = _sample_gains(nxt, sample, sets_len, wanted, end - 1)
    n = _gather(tb, sets_at, sets_len, nxt, heap, 0, t, until)
    while True:
        if total >= count:
            total = 0
            changed = False
            for i in range(sets_len):
                if u[i] == 0:
                    continue
                if fresh[i] < t:
                    before = nxt[i]
                    u[i], nxt[i] = count_units(
                        tb, sets[sets_at + i], need, cols, exclusive, most, t, dur, bound, level, step
                    )
                    fresh[i] = t
                    changed = changed or nxt[i] != before
                total += u[i]
            if total >= count:
                return t
            if changed:
                n = _gather(tb, sets_at, sets_len, nxt, heap, 0, t, until)
        # At least this many rows must gain before enough units fit.
        gain = (count - total + most - 1) // most
        if gain > sets_len:
            return NONE
        tb.ctl[WORK] += sets_len
        while gain > n and until < end - 1:
            low = until
            wanted *= _MORE_ROWS
            until = _sample_gains(nxt, sample, sets_len, wanted, end - 1)
            if until <= low:
                until = end - 1
            n = _gather(tb, sets_at, sets_len, nxt, heap, n, low, until)
        if gain > n:
            return NONE
        # The rows that gain until then go to the end of the heap's array, and are counted again.
        first = n
        while n > 0 and (first - n < gain or nxt[heap[0]] <= t):
            i = heap[0]
            t = nxt[i]
            n -= 1
            heap[0] = heap[n]
            heap[n] = i
            sift_down(heap, n, nxt, 0)
        if tb.ctl[WORK] > limit:
            tb.ctl[CAME_TO] = t
            return LATER
        if is_spent(tb):
            return SPENT
        for j in range(n, first):
            i = heap[j]
            total -= u[i]
            u[i], nxt[i] = count_units(
                tb, sets[sets_at + i], need, cols, exclusive, most, t, dur, bound, level, step
            )
            fresh[i] = t
            total += u[i]
            if nxt[i] <= until:
                heap[n] = i
                sift_up(heap, nxt, n)
                n += 1


@inner
def _next_edge(tb: Tables, chunk0: int, chunks: int, t: int) -> int:
    """Return the first time after ``t`` when anything changes on a row of these chunks."""
    edge = FAR
    for c in range(chunk0, chunk0 + chunks):
        at = tb.chunks[c, SET]
        tb.ctl[WORK] += tb.chunks[c, SET_LEN]
        for i in range(at, at + tb.chunks[c, SET_LEN]):
            row = tb.sets[i]
            off = tb.rows[row, OFF]
            end = off + tb.rows[row, LEN]
            k = locate(tb.T, off, end, t) + 1
            if k < end and tb.T[k] > t and tb.T[k] < edge:
                edge = tb.T[k]
    return edge


@inner
def _find_mixed(
    tb: Tables, chunk0: int, chunks: int, exclusive: int, ready: int, dur: int, bound: int
) -> tuple[int, int]:
    """Return the earliest start of several chunks: each must fit by itself, then all together.

    Beyond the limit it returns LATER, but not before it has examined a second time.
    """
    t = ready
    begun = tb.ctl[WORK]
    limit = FAR
    while True:
        moved = True
        while moved:
            moved = False
            for c in range(chunk0, chunk0 + chunks):
                need = tb.chunks[c, NEED:]
                cols = needed(need, exclusive)
                s = find_spread(
                    tb,
                    tb.chunks[c, SET],
                    tb.chunks[c, SET_LEN],
                    need,
                    cols,
                    exclusive,
                    tb.chunks[c, COUNT],
                    tb.chunks[c, PER_NODE],
                    t,
                    dur,
                    bound,
                )
                if s < 0:
                    return s, 0
                if s > t:
                    t = s
                    moved = True
        found = assign(tb, chunk0, chunks, exclusive, t, dur)
        if found >= 0:
            return t, found
        if found == SPENT or is_spent(tb):
            return SPENT, 0
        t = _next_edge(tb, chunk0, chunks, t)
        if t >= bound or t >= FAR:
            return NONE, 0
        if tb.ctl[WORK] > limit:
            tb.ctl[CAME_TO] = t
            return LATER, 0
        if tb.ctl[LIMIT] > 0:
            limit = max(tb.ctl[LIMIT], 2 * tb.ctl[WORK] - begun)


@inner
def _find_in_pools(tb: Tables, pool: int, pools: int, ready: int, dur: int, bound: int) -> int:
    """Return the earliest start before ``bound`` when every pool has room, NONE or SPENT."""
    t = ready
    need = tb.scratch[POOL_NEED, :1]
    agreed = 0
    i = 0
    while agreed < pools:
        if tb.rows[tb.pools[pool + i, 0], SLACK]:
            agreed += 1
            i = i + 1 if i + 1 < pools else 0
            continue
        need[0] = tb.pools[pool + i, 1]
        s, _ = fit(tb, tb.pools[pool + i, 0], need, 1, t, dur, bound - 1)
        if s < 0:
            return NONE
        if is_spent(tb):
            return SPENT
        if s > t:
            t = s
            agreed = 0
        agreed += 1
        i = i + 1 if i + 1 < pools else 0
    return t


@inner
def _find_agreed(
    tb: Tables,
    chunk0: int,
    chunks: int,
    exclusive: int,
    pool: int,
    pools: int,
    ready: int,
    dur: int,
    bound: int,
) -> tuple[int, int]:
    """Return the earliest start in ``[ready, bound)`` that both the rows of these chunks and the pools allow.

    Return it, NONE, LATER or SPENT, and the entries in ``out``; rows for equal units are still to be chosen.
    """
    count = tb.chunks[chunk0, COUNT]
    at = tb.chunks[chunk0, SET]
    n = tb.chunks[chunk0, SET_LEN]
    need = tb.chunks[chunk0, NEED:]
    cols = needed(need, exclusive)
    t = ready
    while True:
        if pools > 0:
            t = _find_in_pools(tb, pool, pools, t, dur, bound)
            if t < 0:
                return t, 0
        if t >= bound:
            return NONE, 0
        found = 1
        if chunks > 1:
            start, found = _find_mixed(tb, chunk0, chunks, exclusive, t, dur, bound)
        elif count == 1:
            start = find_single(tb, at, n, need, cols, exclusive, t, dur, bound)
        else:
            per_node = tb.chunks[chunk0, PER_NODE]
            start = find_spread(tb, at, n, need, cols, exclusive, count, per_node, t, dur, bound)
        if start < 0:
            return start, 0
        if pools == 0 or start == t:
            break
        s = _find_in_pools(tb, pool, pools, start, dur, bound)
        if s == start:
            break
        if s < 0:
            return s, 0
        t = s
    return start, found


@inner
def _find_in_sets(
    tb: Tables, shape: int, pool: int, pools: int, ready: int, dur: int, bound: int
) -> tuple[int, int, int]:
    """Return the start of a request that prefers one node set, or else as few as possible.

    It is the earliest start on one set, if that is at most WAIT seconds later than the earliest on any nodes;
    else the latter. Which sets are considered does not depend on ``bound``, so the result is the same under
    every bound that allows it. Return (start, NONE, LATER or SPENT; first of the chunks that it uses; entries
    in ``out``).
    """
    chunk0 = tb.shapes[shape, CHUNK]
    chunks = tb.shapes[shape, CHUNKS]
    exclusive = tb.shapes[shape, EXCLUSIVE]
    sets = tb.shapes[shape, SETS]
    holders = tb.shapes[shape, HOLDERS]
    wait = tb.shapes[shape, WAIT]
    spread = wait >= 0 or holders == 0
    anywhere = ready
    until = bound
    if spread:
        anywhere, _ = _find_agreed(tb, chunk0, chunks, exclusive, pool, pools, ready, dur, bound)
        if anywhere < 0:
            return anywhere, chunk0, 0
        until = anywhere + wait + 1
    # a search cannot pause here: it could not be resumed
    limit = tb.ctl[LIMIT]
    tb.ctl[LIMIT] = 0
    best = NONE
    first = chunk0
    for g in range(1, holders + 1):
        at = chunk0 + g * chunks
        s, _ = _find_agreed(tb, at, chunks, exclusive, pool, pools, anywhere, dur, until)
        if s >= 0:
            best = s
            until = s
            first = at
            if s == anywhere:
                break
        elif s == SPENT:
            tb.ctl[LIMIT] = limit
            return SPENT, chunk0, 0
    if best < 0 and spread:
        best = anywhere
    found = 0
    if best >= bound:
        best = NONE
    if best >= 0:
        best, found = _find_agreed(tb, first, chunks, exclusive, 0, 0, best, dur, best + 1)
        if best >= 0 and first == chunk0 and chunks > 1:
            found = assign_fewest_sets(tb, chunk0, chunks, sets, exclusive, best, dur)
            if found < 0:
                best = SPENT
        elif best >= 0 and first == chunk0:
            restrict_to_fewest_sets(tb, chunk0, sets, tb.chunks[chunk0, COUNT])
    tb.ctl[LIMIT] = limit
    return best, first, found


@inner
def find_start(
    tb: Tables,
    shape: int,
    pool: int,
    pools: int,
    ready: int,
    dur: int,
    bound: int,
) -> tuple[int, int]:
    """Return the earliest start in ``[ready, bound)`` of a request, including its pools.

    Return (start, entries in ``out``), (NONE, 0), (LATER, 0), or (SPENT, 0).
    """
    tb.ctl[SEARCH_END] = tb.ctl[WORK] + tb.ctl[MOST_WORK]
    if tb.ctl[WORK] >= tb.ctl[WORK_END]:
        return SPENT, 0
    chunk0 = tb.shapes[shape, CHUNK]
    chunks = tb.shapes[shape, CHUNKS]
    if tb.shapes[shape, SETS] > 0:
        start, chunk0, found = _find_in_sets(tb, shape, pool, pools, ready, dur, bound)
    else:
        start, found = _find_agreed(
            tb, chunk0, chunks, tb.shapes[shape, EXCLUSIVE], pool, pools, ready, dur, bound
        )
    if start < 0:
        return start, 0
    count = tb.chunks[chunk0, COUNT]
    if chunks == 1 and count > 1:
        at = tb.chunks[chunk0, SET]
        n = tb.chunks[chunk0, SET_LEN]
        found = choose_spread(tb, at, n, count, tb.chunks[chunk0, PER_NODE], start, dur)
    return start, found
