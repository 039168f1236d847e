"""Kernels on one row: find a time, take and give back capacity over an interval."""

from schedd.plan.kernels.jit import inlined, inner, lean
from schedd.plan.kernels.layout import (
    BASE_RESOURCES,
    CPUS,
    FAR,
    GARBAGE,
    KIND,
    LEN,
    NODE,
    OFF,
    ROOM,
    SEARCH_END,
    SHARE,
    SLAB_TOP,
    VERSION,
    WORK,
    WORK_END,
    Ints,
    Tables,
)


@inlined
def locate(T: Ints, lo: int, hi: int, t: int) -> int:
    """Return the last segment in ``[lo, hi)`` that starts at or before ``t``; ``lo`` if none does."""
    while hi - lo > 1:
        mid = (lo + hi) >> 1
        if T[mid] <= t:
            lo = mid
        else:
            hi = mid
    return lo


@inlined
def is_spent(tb: Tables) -> bool:
    """Return whether the present search, or the request that it is part of, exceeded its work limit."""
    return bool(tb.ctl[WORK] > tb.ctl[SEARCH_END] or tb.ctl[WORK] > tb.ctl[WORK_END])


@lean
def make_room(tb: Tables, row: int, extra: int) -> bool:
    """Ensure that ``row`` can gain ``extra`` segments; move it to the slab's end if necessary. Return False
    if the slab is full.
    """
    length = tb.rows[row, LEN]
    if length + extra <= tb.rows[row, ROOM]:
        return True
    room = 2 * (length + extra)
    top = tb.ctl[SLAB_TOP]
    if top + room > tb.T.shape[0]:
        return False
    off = tb.rows[row, OFF]
    for i in range(length):
        tb.T[top + i] = tb.T[off + i]
    for r in range(tb.F.shape[0]):
        for i in range(length):
            tb.F[r, top + i] = tb.F[r, off + i]
    tb.ctl[GARBAGE] += tb.rows[row, ROOM]
    tb.rows[row, OFF] = top
    tb.rows[row, ROOM] = room
    tb.ctl[SLAB_TOP] = top + room
    return True


@inner
def _split(tb: Tables, row: int, t: int) -> int:
    """Make a segment of ``row`` begin at ``t`` and return it; the row must have room for one more."""
    off = tb.rows[row, OFF]
    end = off + tb.rows[row, LEN]
    k = locate(tb.T, off, end, t)
    if tb.T[k] >= t:
        return k
    for i in range(end, k + 1, -1):
        tb.T[i] = tb.T[i - 1]
    tb.T[k + 1] = t
    # a pool's row may be long, and uses only its first column
    columns = tb.F.shape[0] if tb.rows[row, KIND] == NODE else 1
    for r in range(columns):
        for i in range(end, k, -1):
            tb.F[r, i] = tb.F[r, i - 1]
    for r in range(columns, tb.F.shape[0]):
        tb.F[r, end] = 0
    tb.rows[row, LEN] += 1
    return k + 1


@inner
def _merge(tb: Tables, row: int, k: int) -> None:
    """Merge segment ``k`` with the one before it if both have the same free capacity."""
    off = tb.rows[row, OFF]
    end = off + tb.rows[row, LEN]
    if k <= off or k >= end:
        return
    columns = tb.F.shape[0] if tb.rows[row, KIND] == NODE else 1
    for r in range(columns):
        if tb.F[r, k] != tb.F[r, k - 1]:
            return
    for i in range(k, end - 1):
        tb.T[i] = tb.T[i + 1]
    for r in range(columns):
        for i in range(k, end - 1):
            tb.F[r, i] = tb.F[r, i + 1]
    tb.rows[row, LEN] -= 1


@inner
def amend(tb: Tables, row: int, start: int, end: int, amount: Ints, sign: int) -> tuple[int, int]:
    """Like ``change``, but equal neighbouring segments are not merged. Return the first changed segment, and
    the one after the last.
    """
    tb.rows[row, VERSION] += 1
    first = _split(tb, row, start)
    if end < FAR:
        last = _split(tb, row, end)
    else:
        last = tb.rows[row, OFF] + tb.rows[row, LEN]
    for r in range(tb.F.shape[0]):
        a = sign * amount[r]
        if a != 0:
            for k in range(first, last):
                tb.F[r, k] += a
    return first, last


@lean
def change(tb: Tables, row: int, start: int, end: int, amount: Ints, sign: int) -> None:
    """Add ``sign * amount`` (one per resource) to the free capacity of ``row`` over ``[start, end)``.

    The row must have room for two more segments.
    """
    first, last = amend(tb, row, start, end, amount, sign)
    _merge(tb, row, last)
    _merge(tb, row, first)


@inner
def join(tb: Tables, row: int, t: int) -> None:
    """Merge the segments that meet at ``t`` if both have the same free capacity."""
    off = tb.rows[row, OFF]
    k = locate(tb.T, off, off + tb.rows[row, LEN], t)
    if tb.T[k] == t:
        _merge(tb, row, k)


@lean
def forget_past(tb: Tables, now: int) -> None:
    """Drop the segments that ended at or before ``now`` from every row."""
    for row in range(tb.rows.shape[0]):
        off = tb.rows[row, OFF]
        n = tb.rows[row, LEN]
        k = locate(tb.T, off, off + n, now)
        gone = k - off
        if gone > 0:
            for i in range(off, off + n - gone):
                tb.T[i] = tb.T[i + gone]
            for r in range(tb.F.shape[0]):
                for i in range(off, off + n - gone):
                    tb.F[r, i] = tb.F[r, i + gone]
            tb.rows[row, LEN] = n - gone


@inlined
def fit(tb: Tables, row: int, need: Ints, cols: int, ready: int, dur: int, latest: int) -> tuple[int, int]:
    """Return the earliest start in ``[ready, latest]`` from which ``need`` is free on ``row`` for ``dur``
    seconds.

    ``cols`` has a bit for each needed resource. Return (start, fewest cpus free over the interval), or (-1,
    0).
    """
    T = tb.T
    F = tb.F
    off = tb.rows[row, OFF]
    end = off + tb.rows[row, LEN]
    k = locate(T, off, end, ready)
    first = k
    resources = need.shape[0]
    c0 = 0
    while c0 + 1 < resources and (cols >> c0) & 1 == 0:
        c0 += 1
    need0 = need[c0]
    run = -1
    left = 0
    found = -1
    while k < end:
        ok = F[c0, k] >= need0
        if ok:
            for c in range(c0 + 1, resources):
                if (cols >> c) & 1 and F[c, k] < need[c]:
                    ok = False
                    break
        nxt = T[k + 1] if k + 1 < end else FAR
        if ok:
            if run < 0:
                run = max(T[k], ready)
                if run > latest:
                    break
                left = F[0, k]
            elif F[0, k] < left:
                left = F[0, k]
            if nxt - run >= dur:
                found = run
                break
        else:
            run = -1
            if nxt > latest:
                break
        k += 1
    tb.ctl[WORK] += k - first + 4
    if found < 0:
        return -1, 0
    return found, left


@lean
def floor(tb: Tables, row: int, column: int, start: int, end: int) -> int:
    """Return the minimum free amount of one resource on ``row`` over ``[start, end)``."""
    off = tb.rows[row, OFF]
    stop = off + tb.rows[row, LEN]
    k = locate(tb.T, off, stop, start)
    least = int(tb.F[column, k])
    k += 1
    while k < stop and tb.T[k] < end:
        if tb.F[column, k] < least:
            least = int(tb.F[column, k])
        k += 1
    return least


@inner
def free_before(tb: Tables, row: int, need: Ints, cols: int, ready: int, start: int) -> int:
    """Return since when (at least ``ready``) ``need`` is free on ``row`` without interruption up to
    ``start``.
    """
    off = tb.rows[row, OFF]
    k = locate(tb.T, off, off + tb.rows[row, LEN], start - 1)
    since = start
    while since > ready:
        for c in range(need.shape[0]):
            if (cols >> c) & 1 and tb.F[c, k] < need[c]:
                return since
        tb.ctl[WORK] += 1
        if k == off:
            return ready
        since = max(tb.T[k], ready)
        k -= 1
    return since


@inner
def needed(need: Ints, exclusive: int) -> int:
    """Return the resources to check for ``need``, a bit for each."""
    cols = 0
    if exclusive:
        # on an idle node everything else is free, too, except gates
        cols = 1 << SHARE
        for c in range(BASE_RESOURCES, need.shape[0]):
            if need[c] > 0:
                cols |= 1 << c
        return cols
    for c in range(need.shape[0]):
        if need[c] > 0 and (c != SHARE or need[CPUS] == 0):
            cols |= 1 << c
    return cols
