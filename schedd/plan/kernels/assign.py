"""Assignment of rows to a job at a start at which each of its chunks fits by itself.

``choose_spread`` serves one chunk; the units of several chunks compete for rows.
"""

import numpy as np

from schedd.plan.kernels.jit import inner, maker
from schedd.plan.kernels.layout import (
    CLOSED,
    COUNT,
    CPUS,
    KEY,
    LEAST_TIER,
    NEED,
    NONE,
    PER_NODE,
    SET,
    SET_LEN,
    SHARE,
    SORT,
    SPENT,
    UNITS,
    USABLE,
    WHOLE,
    WORK,
    Ints,
    Table,
    Tables,
)
from schedd.plan.kernels.rows import fit, floor, is_spent, needed
from schedd.plan.kernels.selection import select_kth, sift_down

_MOST_CPUS = 1 << 25  # upper bound of the cpus of a node
_MOST_UNITS = 1 << 32  # upper bound of the units of a job


@inner
def choose_spread(
    tb: Tables, sets_at: int, sets_len: int, count: int, per_node: int, t: int, dur: int
) -> int:
    """Choose the rows for a start that ``find_spread`` has just found. Return the number of entries of
    ``out``.

    Rows with lower cost first. With one unit per row: then the rows left with the fewest cpus, so that wide
    holes stay whole. With several units: then the rows that hold most, so that the job uses few nodes.
    """
    u = tb.scratch[UNITS]
    key = tb.scratch[KEY]
    tmp = tb.scratch[SORT]
    n = 0
    found = 0
    if per_node == 1:
        for i in range(sets_len):
            if u[i] > 0:
                left_over = max(floor(tb, tb.sets[sets_at + i], CPUS, t, t + dur), 0)
                key[i] = (tb.costs[sets_at + i] * _MOST_CPUS + left_over) * sets_len + i
                tmp[n] = key[i]
                n += 1
        limit = select_kth(tmp, n, min(count, n))
        for i in range(sets_len):
            if u[i] > 0 and key[i] <= limit:
                tb.out[found, 0] = tb.sets[sets_at + i]
                tb.out[found, 1] = 0
                tb.out[found, 2] = 1
                found += 1
        return found
    for i in range(sets_len):
        if u[i] > 0:
            key[i] = tb.costs[sets_at + i] * _MOST_UNITS - min(u[i], count)
            tmp[n] = i
            n += 1
    for j in range(n // 2 - 1, -1, -1):
        sift_down(tmp, n, key, j)
    left = count
    while left > 0 and n > 0:
        i = tmp[0]
        n -= 1
        tmp[0] = tmp[n]
        sift_down(tmp, n, key, 0)
        tb.out[found, 0] = tb.sets[sets_at + i]
        tb.out[found, 1] = 0
        tb.out[found, 2] = min(u[i], left)
        left -= tb.out[found, 2]
        found += 1
    return found


@maker
def _by_cost(tb: Tables, chunk0: int, chunks: int) -> tuple[Table, Ints]:
    """Return the rows of each chunk by cost, then number, and their counts."""
    lengths = np.empty(chunks, np.int64)
    longest = 0
    for c in range(chunks):
        lengths[c] = tb.chunks[chunk0 + c, SET_LEN]
        longest = max(longest, lengths[c])
    ordered = np.empty((chunks, longest), np.int64)
    for c in range(chunks):
        at = tb.chunks[chunk0 + c, SET]
        most = 0
        for i in range(at, at + lengths[c]):
            most = max(most, tb.costs[i])
        first = np.zeros(most + 2, np.int64)
        for i in range(at, at + lengths[c]):
            first[tb.costs[i] + 1] += 1
        for cost in range(most):
            first[cost + 1] += first[cost]
        for i in range(at, at + lengths[c]):
            ordered[c, first[tb.costs[i]]] = tb.sets[i]
            first[tb.costs[i]] += 1
    return ordered, lengths


@maker
def assign_distinct(tb: Tables, chunk0: int, chunks: int, exclusive: int, t: int, dur: int) -> int:
    """Assign a row of its own to every unit of several chunks at ``t``: maximum matching by augmenting paths.

    Return the entries written to ``out``; NONE if some unit finds no row, or SPENT.
    """
    n = tb.rows.shape[0]
    can = np.zeros((chunks, n), np.bool_)
    for c in range(chunks):
        need = tb.chunks[chunk0 + c, NEED:]
        cols = needed(need, exclusive)
        at = tb.chunks[chunk0 + c, SET]
        for i in range(at, at + tb.chunks[chunk0 + c, SET_LEN]):
            row = tb.sets[i]
            if tb.rows[row, USABLE] > tb.ctl[LEAST_TIER] and tb.scratch[CLOSED, row] == 0:
                start, _ = fit(tb, row, need, cols, t, dur, t)
                can[c, row] = start == t
        if is_spent(tb):
            return SPENT
    ordered, lengths = _by_cost(tb, chunk0, chunks)
    owner = np.full(n, -1, np.int64)
    came_row = np.empty(chunks, np.int64)
    came_from = np.empty(chunks, np.int64)
    queue = np.empty(chunks, np.int64)
    for c in range(chunks):
        for _ in range(tb.chunks[chunk0 + c, COUNT]):
            # Breadth-first over chunks: c takes a row of d, d takes a row of e, ... e finds a free one.
            came_from[:] = -2
            came_from[c] = -1
            queue[0] = c
            head = 0
            tail = 1
            done = False
            while head < tail and not done:
                d = queue[head]
                head += 1
                tb.ctl[WORK] += n >> 2
                for i in range(lengths[d]):
                    row = ordered[d, i]
                    if not can[d, row]:
                        continue
                    holder = owner[row]
                    if holder < 0:
                        free = row
                        e = d
                        while e >= 0:
                            owner[free] = e
                            free = came_row[e]
                            e = came_from[e]
                        done = True
                        break
                    if came_from[holder] == -2:
                        came_from[holder] = d
                        came_row[holder] = row
                        queue[tail] = holder
                        tail += 1
            if not done:
                return NONE
            if is_spent(tb):
                return SPENT
    found = 0
    for c in range(chunks):
        for row in range(n):
            if owner[row] == c:
                tb.out[found, 0] = row
                tb.out[found, 1] = c
                tb.out[found, 2] = 1
                found += 1
    return found


@maker
def assign_shared(tb: Tables, chunk0: int, chunks: int, exclusive: int, t: int, dur: int) -> int:
    """Assign rows to the units of several chunks at ``t``: first fit in the order of chunks, then of rows by
    cost.

    Units may share rows. Return the entries written to ``out``; NONE if some unit finds no room, or SPENT.
    """
    n = tb.rows.shape[0]
    resources = tb.F.shape[0]
    free = np.zeros((n, resources), np.int64)
    known = np.zeros(n, np.bool_)
    ordered, lengths = _by_cost(tb, chunk0, chunks)
    found = 0
    for c in range(chunks):
        need = tb.chunks[chunk0 + c, NEED:]
        left = tb.chunks[chunk0 + c, COUNT]
        for i in range(lengths[c]):
            row = ordered[c, i]
            if tb.rows[row, USABLE] <= tb.ctl[LEAST_TIER] or tb.scratch[CLOSED, row] != 0:
                continue
            if not known[row]:
                known[row] = True
                for r in range(resources):
                    free[row, r] = floor(tb, row, r, t, t + dur)
                if exclusive and free[row, SHARE] < WHOLE:
                    free[row, :] = -1
            fits = left
            for r in range(resources):
                if need[r] > 0 and (r != SHARE or not exclusive):
                    fits = min(fits, max(free[row, r], 0) // need[r])
            if fits > 0:
                for r in range(resources):
                    if r != SHARE or not exclusive:
                        free[row, r] -= fits * need[r]
                tb.out[found, 0] = row
                tb.out[found, 1] = c
                tb.out[found, 2] = fits
                found += 1
                left -= fits
                if left == 0:
                    break
        tb.ctl[WORK] += tb.chunks[chunk0 + c, SET_LEN]
        if left > 0:
            return NONE
        if is_spent(tb):
            return SPENT
    return found


@inner
def assign(tb: Tables, chunk0: int, chunks: int, exclusive: int, t: int, dur: int) -> int:
    """Assign rows to the units of several chunks at ``t``. Return the entries written to ``out``, NONE or
    SPENT.
    """
    if tb.chunks[chunk0, PER_NODE] == 1:
        return int(assign_distinct(tb, chunk0, chunks, exclusive, t, dur))
    return int(assign_shared(tb, chunk0, chunks, exclusive, t, dur))
