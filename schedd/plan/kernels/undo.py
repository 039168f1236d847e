"""Kernels that lift and place jobs so that all of it can be taken back.

What is touched is noted: where the jobs were, the changes of the timelines in their order, the bounds of the
rows. Versions of rows only grow, so nothing remembered by version is mistaken for new.
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

# old[:, i], of the i-th job lifted
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
    """Room to take back what is done with up to n jobs on N rows, of Q bounds each; M rows are remembered.

    Of the bounds only those are lowered, kept and put back at which searches for these jobs look: ``commit``
    sees to the others when it is known that the attempt stays.
    """

    old: Table
    """(OLD_FIELDS, n) where the jobs were, in the order in which they were lifted."""
    log: Table
    """(_LOG_FIELDS, 3 n) what was given back and taken, in order."""
    rows: Ints
    """(M,) rows that were touched; of too many not all: the bounds of the others stay true, but lower."""
    mark: Ints
    """(N,) the number of the attempt that last touched the row, below 0 where it is not in ``rows``."""
    low: Ints
    """(N,) of rows touched by this attempt: since when things were given back there; FAR: nothing was."""
    high: Ints
    """(N,) and until when."""
    queried: Ints
    """(Q,) the bounds that searches for these jobs look at."""
    known: Ints
    """(Q,) the number of the attempt in which a bound was last among them."""
    bounds: Table
    """(M, Q) what these were before, by place in ``rows`` and in ``asked``."""
    counts: Ints
    """(_COUNTS,) number of this attempt; jobs lifted, changes, rows; top and garbage of the allocations."""


@kernel
def make_undo_log(tb: Tables, jobs: int, most_rows: int) -> UndoLog:
    """Room for attempts with up to ``jobs`` jobs, each lifted, whole or in two parts, and placed once."""
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
    """Begin an attempt with these jobs: from now on all is noted. Tell the plan the present moment before."""
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
    """``slot`` is about to be lifted (+1), or was placed (-1): the bounds of its rows are kept.

    For a lift those that are asked are lowered as well. Who is lifted later on the same row, where nothing
    was searched since, need not lower them again unless it started earlier.
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
    """Give back all that ``slot`` holds, and note it; False (and no change): slab full.

    Most attempts are taken back: so segments are joined by ``commit`` alone, since on a long row joining and
    splitting them again is most of what an attempt costs.
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
    """Lift a planned job from the first ``entries`` of its allocations; False (and no change): slab full.

    What it holds beyond them it keeps until ``remove_rest``, or until it is put back.
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
    """Lift the i-th job lifted, of which only so many ``entries`` were, from the others, too; False (and no
    change): slab full.
    """
    slot = un.old[_OLD_SLOT, i]
    tb.jobs[START, slot] = un.old[OLD_START, i]
    tb.jobs[ALLOC, slot] = un.old[OLD_ALLOC, i] + entries
    tb.jobs[ALLOCS, slot] = un.old[OLD_ALLOCS, i] - entries
    return _remove(tb, un, slot)


@inner
def log_placed(tb: Tables, un: UndoLog, slot: int) -> None:
    """``slot``, lifted before, has just been placed."""
    _log_change(tb, un, slot, -1)


@inner
def commit(tb: Tables, un: UndoLog) -> None:
    """Let it be: only now segments are joined, and those bounds follow that were not asked."""
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
    """Put the plan back: what was done last first, so that rows have the room they had."""
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
