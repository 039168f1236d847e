"""Kernels that remove and place jobs reversibly.

Everything touched is logged: old places of jobs, changes of timelines in order, bounds of rows. Versions of
rows only grow, so nothing cached by version is mistaken for current.
"""

from typing import Final, NamedTuple

import numpy as np

from schedd.plan.kernels.bounds import STEPS, duration_step, lower_bounds
from schedd.plan.kernels.jit import inner, kernel
from schedd.plan.kernels.layout import (
    A_ROW,
    A_TAKE,
    ALLOC,
    ALLOC_GARBAGE,
    ALLOC_TOP,
    ALLOCS,
    CHUNK,
    CHUNKS,
    DUR,
    DURATIONS,
    FAR,
    HELD,
    KIND,
    LEVEL,
    NODE,
    PLANNED,
    SEEN,
    SHAPE,
    START,
    STATE,
    VERSION,
    Ints,
    Table,
    Tables,
)
from schedd.plan.kernels.place import change_rows, mark_unplaced
from schedd.plan.kernels.rows import change, join

# old[:, i], of the i-th removed job
OLD_START: Final = 0
OLD_ALLOC: Final = 1
OLD_ALLOCS: Final = 2
_OLD_SEEN: Final = 3
_OLD_SLOT: Final = 4
_OLD_HELD: Final = 5
OLD_FIELDS: Final = 6

# log[:, j], of the j-th change: start, allocations and their number as in ``old``
_SIGN: Final = 3
_SLOT: Final = 4
_LOG_FIELDS: Final = 5

# counts[:]
_NUMBER: Final = 0
_REMOVED: Final = 1
_CHANGES: Final = 2
_ROWS: Final = 3
_TOP: Final = 4
_GARBAGE: Final = 5
_QUERIED: Final = 6
_COUNTS: Final = 7


class UndoLog(NamedTuple):
    """Buffers to revert changes of up to n jobs on N rows, with Q bounds each; M rows are saved.

    Only the bounds that searches for these jobs use are lowered, saved and restored; ``commit`` updates the
    others.
    """

    old: Table
    """(OLD_FIELDS, n) old places of the jobs, in the order of removal."""
    log: Table
    """(_LOG_FIELDS, 3 n) changes of timelines, in order."""
    rows: Ints
    """(M,) touched rows; if there are too many, some are missing: their bounds stay valid, but lower."""
    mark: Ints
    """(N,) number of the attempt that last touched the row, negative if it is not in ``rows``."""
    low: Ints
    """(N,) first time at which something was given back on a row touched by this attempt; FAR: none."""
    high: Ints
    """(N,) and the last."""
    queried: Ints
    """(Q,) the bounds that searches for these jobs use."""
    known: Ints
    """(Q,) number of the last attempt that used a bound."""
    bounds: Table
    """(M, Q) old bounds, by index in ``rows`` and in ``queried``."""
    counts: Ints
    """(_COUNTS,) number of this attempt; removed jobs, changes, rows; top and garbage of the allocations."""


@kernel
def make_undo_log(tb: Tables, jobs: int, most_rows: int) -> UndoLog:
    """Allocate buffers for attempts with up to ``jobs`` jobs, each removed, in one or two parts, and placed
    once.
    """
    return UndoLog(
        np.zeros((OLD_FIELDS, jobs), np.int64),
        np.zeros((_LOG_FIELDS, 3 * jobs), np.int64),
        np.zeros(most_rows, np.int64),
        np.zeros(tb.rows.shape[0], np.int64),
        np.empty(tb.rows.shape[0], np.int64),
        np.empty(tb.rows.shape[0], np.int64),
        np.empty(tb.bounds.shape[0], np.int64),
        np.zeros(tb.bounds.shape[0], np.int64),
        np.empty((most_rows, tb.bounds.shape[0]), np.int64),
        np.zeros(_COUNTS, np.int64),
    )


@inner
def begin_attempt(tb: Tables, un: UndoLog, jobs: Ints) -> None:
    """Begin an attempt with these jobs: from now on everything is logged. Call ``set_now`` before."""
    un.counts[_NUMBER] += 1
    un.counts[_REMOVED] = 0
    un.counts[_CHANGES] = 0
    un.counts[_ROWS] = 0
    un.counts[_TOP] = tb.ctl[ALLOC_TOP]
    un.counts[_GARBAGE] = tb.ctl[ALLOC_GARBAGE]
    n = 0
    for slot in jobs:
        shape = tb.jobs[SHAPE, slot]
        step = duration_step(tb.jobs[DUR, slot])
        first = tb.shapes[shape, CHUNK]
        for c in range(first, first + tb.shapes[shape, CHUNKS]):
            q = tb.chunks[c, LEVEL] * DURATIONS + step
            if un.known[q] != un.counts[_NUMBER]:
                un.known[q] = un.counts[_NUMBER]
                un.queried[n] = q
                n += 1
    un.counts[_QUERIED] = n


@inner
def _log_change(tb: Tables, un: UndoLog, slot: int, sign: int) -> None:
    """Log that ``slot`` is about to be removed (+1), or was placed (-1); save the bounds of its rows.

    A removal also lowers the queried bounds. A later removal on the same row, with no search in between, need
    not lower them again unless the job started earlier.
    """
    first = tb.jobs[ALLOC, slot]
    held = tb.jobs[ALLOCS, slot]
    start = tb.jobs[START, slot]
    number = un.counts[_NUMBER]
    for i in range(first, first + held):
        row = tb.alloc[i, A_ROW]
        if tb.rows[row, KIND] != NODE:
            continue
        if abs(un.mark[row]) != number:
            un.mark[row] = -number
            un.low[row] = FAR
            un.high[row] = 0
            m = un.counts[_ROWS]
            if m < un.rows.shape[0]:
                un.mark[row] = number
                un.rows[m] = row
                for k in range(un.counts[_QUERIED]):
                    un.bounds[m, k] = tb.bounds[un.queried[k], row]
                un.counts[_ROWS] = m + 1
        if sign > 0:
            un.high[row] = max(un.high[row], start + tb.jobs[DUR, slot])
        if sign > 0 and start < un.low[row]:
            un.low[row] = start
            if un.mark[row] < 0:
                continue  # see ``_remove``
            for k in range(un.counts[_QUERIED]):
                q = un.queried[k]
                tb.bounds[q, row] = min(tb.bounds[q, row], start - STEPS[q % DURATIONS])
    j = un.counts[_CHANGES]
    un.log[OLD_START, j] = start
    un.log[OLD_ALLOC, j] = first
    un.log[OLD_ALLOCS, j] = held
    un.log[_SIGN, j] = sign
    un.log[_SLOT, j] = slot
    un.counts[_CHANGES] = j + 1


@inner
def _remove(tb: Tables, un: UndoLog, slot: int) -> bool:
    """Give back everything that ``slot`` holds, and log it. Return False, with no change, if a slab is full.

    Most attempts are reverted: so only ``commit`` merges segments, since merging and splitting on a long row
    would take most of the time of an attempt.
    """
    start = tb.jobs[START, slot]
    _log_change(tb, un, slot, 1)
    end = start + tb.jobs[DUR, slot]
    if not change_rows(tb, slot, start, end, 1, False):
        un.counts[_CHANGES] -= 1
        return False
    for i in range(tb.jobs[ALLOC, slot], tb.jobs[ALLOC, slot] + tb.jobs[ALLOCS, slot]):
        row = tb.alloc[i, A_ROW]
        if un.mark[row] == -un.counts[_NUMBER]:
            lower_bounds(tb, row, start, end)
    mark_unplaced(tb, slot)
    return True


@inner
def remove_logged(tb: Tables, un: UndoLog, slot: int, entries: int) -> bool:
    """Remove a planned job from the first ``entries`` of its allocations. Return False, with no change, if a
    slab is full.

    It keeps its other allocations until ``remove_rest``, or until it is restored.
    """
    i = un.counts[_REMOVED]
    un.old[OLD_START, i] = tb.jobs[START, slot]
    un.old[OLD_ALLOC, i] = tb.jobs[ALLOC, slot]
    un.old[OLD_ALLOCS, i] = tb.jobs[ALLOCS, slot]
    un.old[_OLD_SEEN, i] = tb.jobs[SEEN, slot]
    un.old[_OLD_SLOT, i] = slot
    un.old[_OLD_HELD, i] = tb.jobs[HELD, slot]
    tb.jobs[ALLOCS, slot] = entries
    if not _remove(tb, un, slot):
        tb.jobs[ALLOCS, slot] = un.old[OLD_ALLOCS, i]
        return False
    un.counts[_REMOVED] = i + 1
    return True


@inner
def remove_rest(tb: Tables, un: UndoLog, i: int, entries: int) -> bool:
    """Remove the i-th removed job, of which only ``entries`` allocations were removed, from the others.
    Return False, with no change, if a slab is full.
    """
    slot = un.old[_OLD_SLOT, i]
    tb.jobs[START, slot] = un.old[OLD_START, i]
    tb.jobs[ALLOC, slot] = un.old[OLD_ALLOC, i] + entries
    tb.jobs[ALLOCS, slot] = un.old[OLD_ALLOCS, i] - entries
    return _remove(tb, un, slot)


@inner
def log_placed(tb: Tables, un: UndoLog, slot: int) -> None:
    """Log that ``slot``, removed before, has just been placed."""
    _log_change(tb, un, slot, -1)


@inner
def commit(tb: Tables, un: UndoLog) -> None:
    """Keep the changes: only now segments are merged, and the other bounds are updated."""
    for j in range(un.counts[_CHANGES]):
        if un.log[_SIGN, j] < 0:
            continue
        start = un.log[OLD_START, j]
        end = start + tb.jobs[DUR, un.log[_SLOT, j]]
        first = un.log[OLD_ALLOC, j]
        for i in range(first, first + un.log[OLD_ALLOCS, j]):
            join(tb, tb.alloc[i, A_ROW], end)
            join(tb, tb.alloc[i, A_ROW], start)
    for m in range(un.counts[_ROWS]):
        row = un.rows[m]
        if un.low[row] < FAR:
            tb.rows[row, VERSION] += 1
            lower_bounds(tb, row, un.low[row], un.high[row])


@inner
def revert(tb: Tables, un: UndoLog) -> None:
    """Restore the plan, last change first, so that rows have the space they had."""
    for j in range(un.counts[_CHANGES] - 1, -1, -1):
        start = un.log[OLD_START, j]
        end = start + tb.jobs[DUR, un.log[_SLOT, j]]
        first = un.log[OLD_ALLOC, j]
        for i in range(first + un.log[OLD_ALLOCS, j] - 1, first - 1, -1):
            change(tb, tb.alloc[i, A_ROW], start, end, tb.alloc[i, A_TAKE:], -un.log[_SIGN, j])
    for i in range(un.counts[_REMOVED]):
        slot = un.old[_OLD_SLOT, i]
        tb.jobs[START, slot] = un.old[OLD_START, i]
        tb.jobs[ALLOC, slot] = un.old[OLD_ALLOC, i]
        tb.jobs[ALLOCS, slot] = un.old[OLD_ALLOCS, i]
        tb.jobs[SEEN, slot] = un.old[_OLD_SEEN, i]
        tb.jobs[HELD, slot] = un.old[_OLD_HELD, i]
        tb.jobs[STATE, slot] = PLANNED
    tb.ctl[ALLOC_TOP] = un.counts[_TOP]
    tb.ctl[ALLOC_GARBAGE] = un.counts[_GARBAGE]
    for m in range(un.counts[_ROWS]):
        for k in range(un.counts[_QUERIED]):
            tb.bounds[un.queried[k], un.rows[m]] = un.bounds[m, k]
