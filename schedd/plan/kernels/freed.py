"""Log of freed intervals (*holes*), which may let jobs start earlier.

Whenever capacity is given back on a row, the interval is logged with, for every level of need, the longest
run of segments with that capacity that touches the interval. Only a job no longer than that run can gain
there. Entries are numbered; a job stores (``SEEN``) up to which number it was examined, so that it is never
tried twice for the same entry. The log is bounded: after an overflow, every job that has not seen all of it
is searched as a whole.
"""

from typing import NamedTuple

from schedd.plan.kernels.bounds import level_cpus, most_free
from schedd.plan.kernels.jit import inlined, inner, lean
from schedd.plan.kernels.layout import (
    A_ROW,
    A_TAKE,
    CPUS,
    FAR,
    FREED,
    FREED_AT,
    FREED_BASE,
    KIND,
    LEN,
    LOST,
    MOST,
    NODE,
    NOW,
    OFF,
    SEARCH_FLAGS,
    SHARE,
    SLACK,
    T_BEFORE,
    T_HI,
    T_LO,
    T_ROW,
    T_VERSION,
    TO_SEARCH,
    VERSION,
    WHOLE,
    WORK,
    Ints,
    Table,
    Tables,
)
from schedd.plan.kernels.rows import floor

MOST_FREED = 1 << 16  # maximum number of entries; beyond it all jobs are searched as a whole

_SMALL_LOG = 4096  # a log of this many entries is moved quickly


class FreedLog(NamedTuple):
    """The log; its length is ``ctl[FREED]``, the number of its first entry ``ctl[FREED_BASE]``."""

    entries: Table
    """(T_FIELDS, capacity)."""
    length: Table
    """(levels, capacity) seconds of the longest run that touches the interval."""
    since: Table
    """(levels, capacity) start of the first such run."""
    until: Table
    """(levels, capacity) end of the last such run."""


@inner
def measure_runs(tb: Tables, fr: FreedLog, i: int) -> None:
    """Measure the runs of entry ``i`` again."""
    row = fr.entries[T_ROW, i]
    lo = max(fr.entries[T_LO, i], tb.ctl[NOW])
    hi = fr.entries[T_HI, i]
    fr.entries[T_VERSION, i] = tb.rows[row, VERSION]
    if tb.rows[row, KIND] != NODE:
        # Pools are not searched by runs: jobs that use the pool find the entry by its row.
        for level in range(fr.length.shape[0]):
            fr.length[level, i] = 0
            fr.since[level, i] = FAR
            fr.until[level, i] = 0
        return
    T = tb.T
    F = tb.F
    off = tb.rows[row, OFF]
    end = off + tb.rows[row, LEN]
    first, most, shares = most_free(tb, row, lo, hi)
    for level in range(fr.length.shape[0]):
        column = SHARE if level < 2 else CPUS
        need = WHOLE if level == 0 else max(level_cpus(level), 1)
        longest = 0
        since = FAR
        until = 0
        if need <= (shares if level < 2 else most):
            k = first
            while k > off and F[column, k] >= need and F[column, k - 1] >= need:
                k -= 1
            begin = k
            run = -1
            while k < end:
                nxt = T[k + 1] if k + 1 < end else FAR
                if F[column, k] >= need:
                    if run < 0:
                        run = max(T[k], tb.ctl[NOW])
                        if k == off:
                            run = tb.ctl[NOW]
                        since = min(since, run)
                    longest = max(longest, nxt - run)
                    until = nxt
                else:
                    run = -1
                    if nxt >= hi:
                        break
                k += 1
            tb.ctl[WORK] += k - begin
        fr.length[level, i] = longest
        fr.since[level, i] = since
        fr.until[level, i] = until


@inner
def _append(tb: Tables, fr: FreedLog, row: int, lo: int, hi: int) -> None:
    i = tb.ctl[FREED]
    if i >= fr.entries.shape[1]:
        forget_freed(tb)
        i = 0
    fr.entries[T_ROW, i] = row
    fr.entries[T_LO, i] = lo
    fr.entries[T_HI, i] = hi
    tb.ctl[FREED] = i + 1
    fr.entries[T_BEFORE, i] = tb.rows[row, FREED_AT]
    tb.rows[row, FREED_AT] = tb.ctl[FREED_BASE] + i
    measure_runs(tb, fr, i)


@lean
def forget_freed(tb: Tables) -> None:
    """Clear the log; every planned job must then be searched as a whole."""
    tb.ctl[FREED_BASE] += tb.ctl[FREED] + 1
    tb.ctl[FREED] = 0
    tb.ctl[SEARCH_FLAGS] |= TO_SEARCH | LOST


@lean
def set_now(tb: Tables, now: int) -> None:
    """Let no search begin before ``now``. Bounds and the log rely on that; if it goes back they are
    discarded.
    """
    if now < tb.ctl[NOW]:
        tb.bounds[:] = 0
        tb.exact[:] = 0
        forget_freed(tb)
    tb.ctl[NOW] = now


@lean
def note_freed(tb: Tables, fr: FreedLog, row: int, lo: int, hi: int) -> None:
    """Log that capacity was given back on ``row`` over ``[lo, hi)``; call it after all changes."""
    last = tb.T[tb.rows[row, OFF] + tb.rows[row, LEN] - 1]
    if hi >= FAR and lo < last:
        # the endless run gets its own entry, or no job would be too long for the interval
        _append(tb, fr, row, lo, last)
        lo = last
    if lo < hi:
        _append(tb, fr, row, lo, hi)


@lean
def note_freed_entries(tb: Tables, fr: FreedLog, at: int, n: int, lo: int, hi: int) -> None:
    """Log that the entries ``[at, at + n)`` of the allocations were given back over ``[lo, hi)``."""
    for i in range(at, at + n):
        row = tb.alloc[i, A_ROW]
        if tb.rows[row, KIND] != NODE:
            # if the largest need fitted before, no job waited for the pool
            if tb.rows[row, SLACK]:
                continue
            if floor(tb, row, CPUS, lo, hi) - tb.alloc[i, A_TAKE] >= tb.rows[row, MOST]:
                continue
        note_freed(tb, fr, row, lo, hi)


@lean
def drop_checked(tb: Tables, fr: FreedLog, number: int) -> None:
    """Drop the entries below ``number``, which all planned jobs have seen; if many follow, only when the log
    is getting full.
    """
    gone = min(max(number - tb.ctl[FREED_BASE], 0), tb.ctl[FREED])
    kept = tb.ctl[FREED] - gone
    if gone == 0 or (kept > _SMALL_LOG and 2 * tb.ctl[FREED] < MOST_FREED):
        return
    for f in range(fr.entries.shape[0]):
        for i in range(kept):
            fr.entries[f, i] = fr.entries[f, i + gone]
    for level in range(fr.length.shape[0]):
        for i in range(kept):
            fr.length[level, i] = fr.length[level, i + gone]
            fr.since[level, i] = fr.since[level, i + gone]
            fr.until[level, i] = fr.until[level, i + gone]
    tb.ctl[WORK] += kept * fr.length.shape[0] >> 3
    tb.ctl[FREED_BASE] += gone
    tb.ctl[FREED] = kept


@inlined
def next_reaching(length: Ints, since: Ints, begin: int, end: int, dur: int, latest: int) -> int:
    """Return the first entry of ``[begin, end)`` with a run of at least ``dur`` that begins by ``latest``;
    ``end``: none.

    ``length`` and ``since`` are those of the level.
    """
    i = begin
    found = end
    while i < end and found == end:
        stop = min(i + 64, end)
        hits = 0
        for j in range(i, stop):  # without a branch: eight at a time
            hits += (length[j] >= dur) & (since[j] <= latest)
        if hits > 0:
            for j in range(i, stop):
                if length[j] >= dur and since[j] <= latest:
                    found = j
                    break
        i = stop
    return found


@inner
def index_in_set(sets: Ints, at: int, n: int, row: int) -> int:
    """Return the index of ``row`` in the sorted row set ``sets[at:at + n]``; -1: absent."""
    lo = at
    hi = at + n
    while lo < hi:
        mid = (lo + hi) >> 1
        if sets[mid] < row:
            lo = mid + 1
        else:
            hi = mid
    return lo if lo < at + n and sets[lo] == row else -1
