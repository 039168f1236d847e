"""Kernels that lift and place jobs so that all of it can be taken back.

What is touched is noted: where the jobs were, the changes of the timelines in their order, the bounds of the
rows. Versions of rows only grow, so nothing remembered by version is mistaken for new.
"""

from typing import Final, NamedTuple

import numpy as np

from schedd.plan.kernels.jit import lean
from schedd.plan.kernels.layout import (
    A_ROW,
    A_TAKE,
    ALLOC,
    ALLOC_GARBAGE,
    ALLOC_TOP,
    ALLOCS,
    DUR,
    PLANNED,
    SEEN,
    START,
    STATE,
    Ints,
    Tables,
)
from schedd.plan.kernels.place import lift
from schedd.plan.kernels.rows import change

# old[:, i], of the i-th job lifted
OLD_START: Final = 0
OLD_ALLOC: Final = 1
OLD_ALLOCS: Final = 2
_OLD_SEEN: Final = 3
_OLD_SLOT: Final = 4
OLD_FIELDS: Final = 5

# log[:, j], of the j-th change; begin, allocations and their number as in ``old``
_SIGN: Final = 3
_SLOT: Final = 4
_LOG_FIELDS: Final = 5

# counts[:]
_NUMBER: Final = 0
_LIFTED: Final = 1
_CHANGES: Final = 2
_ROWS: Final = 3
_TOP: Final = 4
_GARBAGE: Final = 5
_COUNTS: Final = 6


class Undo(NamedTuple):
    """Room to take back what is done with up to n jobs on N rows, of Q bounds each; M rows are remembered."""

    old: Ints
    """(OLD_FIELDS, n) where the jobs were, in the order in which they were lifted."""
    log: Ints
    """(_LOG_FIELDS, 2 n) what was given back and taken, in order."""
    rows: Ints
    """(M,) rows that were touched; of too many not all, which does no harm: bounds stay true, but lower."""
    mark: Ints
    """(N,) the number of the attempt that last touched the row."""
    bounds: Ints
    """(M, Q) their bounds before, by place in ``rows``."""
    counts: Ints
    """(_COUNTS,) number of this attempt; jobs lifted, changes, rows; top and garbage of the allocations."""


def undo_for(tb: Tables, jobs: int, most_rows: int) -> Undo:
    """Room for attempts with up to ``jobs`` jobs, each lifted and placed once."""
    return Undo(
        old=np.zeros((OLD_FIELDS, jobs), np.int64),
        log=np.zeros((_LOG_FIELDS, 2 * jobs), np.int64),
        rows=np.zeros(most_rows, np.int64),
        mark=np.zeros(tb.rows.shape[0], np.int64),
        bounds=np.empty((most_rows, tb.bounds.shape[0]), np.int64),
        counts=np.zeros(_COUNTS, np.int64),
    )


@lean
def begin(tb: Tables, un: Undo) -> None:
    """Begin an attempt: from now on all is noted. Tell the plan the present moment before."""
    un.counts[_NUMBER] += 1
    un.counts[_LIFTED] = 0
    un.counts[_CHANGES] = 0
    un.counts[_ROWS] = 0
    un.counts[_TOP] = tb.ctl[ALLOC_TOP]
    un.counts[_GARBAGE] = tb.ctl[ALLOC_GARBAGE]


@lean
def _note(tb: Tables, un: Undo, slot: int, sign: int) -> None:
    """``slot`` is about to be lifted (+1), or was placed (-1); the bounds of its rows are kept."""
    first = tb.jobs[ALLOC, slot]
    held = tb.jobs[ALLOCS, slot]
    for i in range(first, first + held):
        row = tb.alloc[i, A_ROW]
        m = un.counts[_ROWS]
        if un.mark[row] != un.counts[_NUMBER] and m < un.rows.shape[0]:
            un.mark[row] = un.counts[_NUMBER]
            un.rows[m] = row
            for q in range(tb.bounds.shape[0]):
                un.bounds[m, q] = tb.bounds[q, row]
            un.counts[_ROWS] = m + 1
    j = un.counts[_CHANGES]
    un.log[OLD_START, j] = tb.jobs[START, slot]
    un.log[OLD_ALLOC, j] = first
    un.log[OLD_ALLOCS, j] = held
    un.log[_SIGN, j] = sign
    un.log[_SLOT, j] = slot
    un.counts[_CHANGES] = j + 1


@lean
def lift_noted(tb: Tables, un: Undo, slot: int) -> bool:
    """Lift a planned job; False (and no change) when a slab is full."""
    i = un.counts[_LIFTED]
    un.old[OLD_START, i] = tb.jobs[START, slot]
    un.old[OLD_ALLOC, i] = tb.jobs[ALLOC, slot]
    un.old[OLD_ALLOCS, i] = tb.jobs[ALLOCS, slot]
    un.old[_OLD_SEEN, i] = tb.jobs[SEEN, slot]
    un.old[_OLD_SLOT, i] = slot
    _note(tb, un, slot, 1)
    if not lift(tb, slot):
        un.counts[_CHANGES] -= 1
        return False
    un.counts[_LIFTED] = i + 1
    return True


@lean
def note_placed(tb: Tables, un: Undo, slot: int) -> None:
    """``slot``, lifted before, has just been placed."""
    _note(tb, un, slot, -1)


@lean
def take_back(tb: Tables, un: Undo) -> None:
    """Put the plan back: what was done last first, so that rows have the room they had."""
    for j in range(un.counts[_CHANGES] - 1, -1, -1):
        start = un.log[OLD_START, j]
        end = start + tb.jobs[DUR, un.log[_SLOT, j]]
        first = un.log[OLD_ALLOC, j]
        for i in range(first + un.log[OLD_ALLOCS, j] - 1, first - 1, -1):
            change(tb, tb.alloc[i, A_ROW], start, end, tb.alloc[i, A_TAKE:], -un.log[_SIGN, j])
    for i in range(un.counts[_LIFTED]):
        slot = un.old[_OLD_SLOT, i]
        tb.jobs[START, slot] = un.old[OLD_START, i]
        tb.jobs[ALLOC, slot] = un.old[OLD_ALLOC, i]
        tb.jobs[ALLOCS, slot] = un.old[OLD_ALLOCS, i]
        tb.jobs[SEEN, slot] = un.old[_OLD_SEEN, i]
        tb.jobs[STATE, slot] = PLANNED
    tb.ctl[ALLOC_TOP] = un.counts[_TOP]
    tb.ctl[ALLOC_GARBAGE] = un.counts[_GARBAGE]
    for m in range(un.counts[_ROWS]):
        for q in range(tb.bounds.shape[0]):
            tb.bounds[q, un.rows[m]] = un.bounds[m, q]
