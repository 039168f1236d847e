"""Kernels that delay planned jobs on their nodes, and then the jobs that these run into.

They do to all jobs in one call what a removal and a new placement of each would do, and log the same freed
intervals: an outage may delay every job of a long queue.
"""

from typing import Final

from schedd.plan.kernels.freed import FreedLog, note_freed_entries
from schedd.plan.kernels.jit import inner, lean
from schedd.plan.kernels.layout import (
    A_ROW,
    ALLOC,
    ALLOCS,
    DONE,
    DUR,
    FULL,
    HELD,
    KIND,
    LEN,
    NODE,
    OFF,
    PARTIAL,
    START,
    Ints,
    Tables,
)
from schedd.plan.kernels.place import held_bits, occupy, remove
from schedd.plan.kernels.rows import locate

# Result of ``delay_jobs``: DONE, FULL, or
ASK: Final = 2  # of the next job it is not known whether it may be delayed

HALF: Final = 2  # result of ``_move``

# Progress of a job, by its index in the order of starts.
UNTOUCHED: Final = 0
NEXT: Final = 1  # it has to be delayed, or removed
HALFWAY: Final = 2  # its former interval is given back
DELAYED: Final = 3
REMOVED: Final = 4

# Whether a job may be delayed, by its index.
UNKNOWN: Final = -1
STAYS: Final = 0
YIELDS: Final = 1


@inner
def _is_crowded(tb: Tables, row: int, since: int, end: int) -> bool:
    """Return whether ``row`` is over-committed at some time in ``[since, end)``."""
    first = tb.rows[row, OFF]
    last = first + tb.rows[row, LEN]
    columns = tb.F.shape[0] if tb.rows[row, KIND] == NODE else 1
    for k in range(locate(tb.T, first, last, since), last):
        if tb.T[k] >= end:
            return False
        for r in range(columns):
            if tb.F[r, k] < 0:
                return True
    return False


@inner
def _holds(tb: Tables, slot: int, row: int) -> bool:
    """Return whether a placed job holds part of this row, of a node or a pool."""
    if tb.rows[row, KIND] == NODE:
        bits = held_bits(row)
        if tb.jobs[HELD, slot] & bits != bits:
            return False
    first = tb.jobs[ALLOC, slot]
    for i in range(first, first + tb.jobs[ALLOCS, slot]):
        if tb.alloc[i, A_ROW] == row:
            return True
    return False


@inner
def _mark_conflicts(
    tb: Tables, slot: int, since: int, end: int, order: Ints, starts: Ints, progress: Ints
) -> None:
    """Mark the untouched jobs with a start in ``[since, end)`` that hold part of a row of ``slot`` which is
    over-committed then.
    """
    begin = -1
    at = tb.jobs[ALLOC, slot]
    for i in range(at, at + tb.jobs[ALLOCS, slot]):
        row = tb.alloc[i, A_ROW]
        if not _is_crowded(tb, row, since, end):
            continue
        if begin < 0:
            begin = 0
            last = starts.shape[0]
            while begin < last:
                middle = (begin + last) >> 1
                if starts[middle] < since:
                    begin = middle + 1
                else:
                    last = middle
        j = begin
        while j < starts.shape[0] and starts[j] < end:
            if progress[j] == UNTOUCHED and _holds(tb, order[j], row):
                progress[j] = NEXT
            j += 1


@inner
def _move(tb: Tables, fr: FreedLog, slot: int, start: int, now: int, halfway: bool) -> int:
    """Move a planned job to ``start`` on its rows, free or not, and log the interval that it leaves.

    Return DONE; or, if a slab is full, FULL with no change or HALF with the former interval given back, where
    the next call continues ``halfway``.
    """
    old = tb.jobs[START, slot]
    dur = tb.jobs[DUR, slot]
    if not halfway and not occupy(tb, slot, old, old + dur, 1):
        return FULL
    if not occupy(tb, slot, start, start + dur, -1):
        return HALF
    tb.jobs[START, slot] = start
    if max(now, old) < old + dur:
        note_freed_entries(tb, fr, tb.jobs[ALLOC, slot], tb.jobs[ALLOCS, slot], max(now, old), old + dur)
    if tb.ctl[PARTIAL] == slot + 1:
        tb.ctl[PARTIAL] = 0
    return DONE


@lean
def delay_jobs(
    tb: Tables,
    fr: FreedLog,
    order: Ints,
    starts: Ints,
    progress: Ints,
    willing: Ints,
    left: Ints,
    begin: int,
    delay: int,
    now: int,
    most: int,
) -> tuple[int, int]:
    """Delay the marked jobs of ``order`` by ``delay`` seconds, from index ``begin`` on, and mark and delay
    the jobs that conflict with the end of these.

    ``order`` has planned jobs by their ``starts``, which are those of before. A job that is not ``willing``,
    or comes after ``most`` delayed ones, is removed from the plan. Its rows are set to 1 in ``left``. Return
    DONE, FULL or ASK, and the index to continue with.
    """
    delayed = 0
    for j in range(begin):
        delayed += progress[j] == DELAYED
    for j in range(begin, order.shape[0]):
        if progress[j] != NEXT and progress[j] != HALFWAY:
            continue
        slot = order[j]
        if willing[j] == UNKNOWN and delayed < most:
            return ASK, j
        if delayed >= most or willing[j] == STAYS:
            start = starts[j]
            end = start + tb.jobs[DUR, slot]
            at = tb.jobs[ALLOC, slot]
            n = tb.jobs[ALLOCS, slot]
            if not remove(tb, slot):
                return FULL, j
            for i in range(at, at + n):
                left[tb.alloc[i, A_ROW]] = 1
            if max(now, start) < end:
                note_freed_entries(tb, fr, at, n, max(now, start), end)
            progress[j] = REMOVED
            continue
        how = _move(tb, fr, slot, starts[j] + delay, now, progress[j] == HALFWAY)
        if how != DONE:
            progress[j] = HALFWAY if how == HALF else progress[j]
            return FULL, j
        progress[j] = DELAYED
        delayed += 1
        end = starts[j] + tb.jobs[DUR, slot]
        _mark_conflicts(tb, slot, end, end + delay, order, starts, progress)
    return DONE, order.shape[0]


@lean
def advance_jobs(
    tb: Tables, fr: FreedLog, slots: Ints, later: Ints, start: int, now: int, begin: int, halfway: bool
) -> tuple[int, bool]:
    """Move these planned jobs, one after another, from ``later`` to an earlier ``start`` on their nodes if
    they have room there.

    Return (index to continue with, ``halfway`` of the next call); the index is the length when done, else a
    slab is full.
    """
    for j in range(begin, slots.shape[0]):
        slot = slots[j]
        crowded = halfway
        if tb.jobs[START, slot] == later[j]:
            how = _move(tb, fr, slot, start, now, halfway)
            if how != DONE:
                return j, how == HALF
            halfway = False
            crowded = False
        if not crowded:
            at = tb.jobs[ALLOC, slot]
            for i in range(at, at + tb.jobs[ALLOCS, slot]):
                crowded = crowded or _is_crowded(tb, tb.alloc[i, A_ROW], start, later[j])
        if crowded:
            how = _move(tb, fr, slot, later[j], now, halfway)
            if how != DONE:
                return j, how == HALF
        halfway = False
    return slots.shape[0], False
