"""The kernel that lets one job go before others: all are lifted, it is placed, then they are.

Either every other job finds a place in time, or the plan is left as it was.
"""

from typing import Final, NamedTuple

import numpy as np

from schedd.plan.kernels.freed import tell_now
from schedd.plan.kernels.jit import kernel
from schedd.plan.kernels.layout import (
    A_ROW,
    A_TAKE,
    ALLOC,
    ALLOC_GARBAGE,
    ALLOC_TOP,
    ALLOCS,
    DUR,
    GROW,
    PLANNED,
    SEEN,
    START,
    STATE,
    Ints,
    Tables,
)
from schedd.plan.kernels.place import lift, occupy, place
from schedd.plan.kernels.rows import change, floor

DONE: Final = 0
IN_VAIN: Final = 1
FULL: Final = 2
"""A slab is full: grow it and try again; nothing was changed."""

# old[:, i], of the i-th job; log[:, j], of the j-th change
_START: Final = 0
_ALLOC: Final = 1
_ALLOCS: Final = 2
_SEEN: Final = 3
_SIGN: Final = 3
_SLOT: Final = 4
FIELDS: Final = 5


class Attempt(NamedTuple):
    """Room for one attempt with n jobs on N rows, of Q bounds each."""

    old: Ints
    """(FIELDS, n) where the jobs were."""
    log: Ints
    """(FIELDS, 2 n) what was given back and taken, in order: start, allocations, their number, sign, slot."""
    rows: Ints
    """(M,) rows that were touched, at most."""
    mark: Ints
    """(N,) 1 where a row is among ``rows``."""
    bounds: Ints
    """(M, Q) their bounds before, by place in ``rows``."""
    counts: Ints
    """(2,) changes in the log; rows touched."""


def attempt_for(tb: Tables, n: int, most_rows: int) -> Attempt:
    """Room for an attempt with ``n`` jobs that remembers the bounds of ``most_rows`` rows."""
    return Attempt(
        old=np.zeros((FIELDS, n), np.int64),
        log=np.zeros((FIELDS, 2 * n), np.int64),
        rows=np.zeros(most_rows, np.int64),
        mark=np.zeros(tb.rows.shape[0], np.int64),
        bounds=np.empty((most_rows, tb.bounds.shape[0]), np.int64),
        counts=np.zeros(2, np.int64),
    )


@kernel
def _touch(tb: Tables, at: Attempt, first: int, n: int) -> None:
    """Remember the bounds of the rows of ``n`` allocations; of too many rows not all, which does no harm."""
    for i in range(first, first + n):
        row = tb.alloc[i, A_ROW]
        m = at.counts[1]
        if at.mark[row] == 0 and m < at.rows.shape[0]:
            at.mark[row] = 1
            at.rows[m] = row
            for q in range(tb.bounds.shape[0]):
                at.bounds[m, q] = tb.bounds[q, row]
            at.counts[1] = m + 1


@kernel
def _note(tb: Tables, at: Attempt, slot: int, sign: int) -> None:
    """``slot`` is about to be lifted (+1), or was placed (-1)."""
    j = at.counts[0]
    at.log[_START, j] = tb.jobs[START, slot]
    at.log[_ALLOC, j] = tb.jobs[ALLOC, slot]
    at.log[_ALLOCS, j] = tb.jobs[ALLOCS, slot]
    at.log[_SIGN, j] = sign
    at.log[_SLOT, j] = slot
    at.counts[0] = j + 1


@kernel
def _undo(tb: Tables, at: Attempt, jobs: Ints, top: int, garbage: int) -> None:
    """Put the plan back: what was done last first, so that rows have the room they had."""
    for j in range(at.counts[0] - 1, -1, -1):
        start = at.log[_START, j]
        end = start + tb.jobs[DUR, at.log[_SLOT, j]]
        first = at.log[_ALLOC, j]
        for i in range(first + at.log[_ALLOCS, j] - 1, first - 1, -1):
            change(tb, tb.alloc[i, A_ROW], start, end, tb.alloc[i, A_TAKE:], -at.log[_SIGN, j])
    for i in range(jobs.shape[0]):
        tb.jobs[START, jobs[i]] = at.old[_START, i]
        tb.jobs[ALLOC, jobs[i]] = at.old[_ALLOC, i]
        tb.jobs[ALLOCS, jobs[i]] = at.old[_ALLOCS, i]
        tb.jobs[SEEN, jobs[i]] = at.old[_SEEN, i]
        tb.jobs[STATE, jobs[i]] = PLANNED
    tb.ctl[ALLOC_TOP] = top
    tb.ctl[ALLOC_GARBAGE] = garbage
    for m in range(at.counts[1]):
        for q in range(tb.bounds.shape[0]):
            tb.bounds[q, at.rows[m]] = at.bounds[m, q]


@kernel
def _fits(tb: Tables, first: int, n: int, start: int, end: int) -> bool:
    """Whether all that ``n`` allocations take is free over ``[start, end)``.

    One by one: of one row each by itself, so that several of a job on one row may be let by too easily; then
    ``_over`` sees it.
    """
    for i in range(first, first + n):
        for r in range(tb.F.shape[0]):
            take = tb.alloc[i, A_TAKE + r]
            if take > 0 and floor(tb, tb.alloc[i, A_ROW], r, start, end) < take:
                return False
    return True


@kernel
def _over(tb: Tables, first: int, n: int, start: int, end: int) -> bool:
    """Whether a row of these allocations is over-committed over ``[start, end)``."""
    for i in range(first, first + n):
        for r in range(tb.F.shape[0]):
            if tb.alloc[i, A_TAKE + r] > 0 and floor(tb, tb.alloc[i, A_ROW], r, start, end) < 0:
                return True
    return False


@kernel
def advance(tb: Tables, at: Attempt, jobs: Ints, order: Ints, latest: Ints, now: int) -> int:
    """Let the planned job ``jobs[0]`` start before ``latest[0] + 1`` though the others stand in its way.

    The others follow in their ``order`` (indices in ``jobs``): each is put back where it was if it fits, and
    else placed no later than its own ``latest`` (by index). Returns DONE, IN_VAIN or FULL; ``old`` has where
    each was.
    """
    tell_now(tb, now)
    n = jobs.shape[0]
    at.counts[:] = 0
    at.mark[:] = 0
    top = tb.ctl[ALLOC_TOP]
    garbage = tb.ctl[ALLOC_GARBAGE]
    for i in range(n):
        slot = jobs[i]
        at.old[_START, i] = tb.jobs[START, slot]
        at.old[_ALLOC, i] = tb.jobs[ALLOC, slot]
        at.old[_ALLOCS, i] = tb.jobs[ALLOCS, slot]
        at.old[_SEEN, i] = tb.jobs[SEEN, slot]
    how = DONE
    for i in range(n):
        slot = jobs[i]
        _touch(tb, at, tb.jobs[ALLOC, slot], tb.jobs[ALLOCS, slot])
        _note(tb, at, slot, 1)
        if not lift(tb, slot):
            at.counts[0] -= 1
            how = FULL
            break
    if how == DONE:
        start = place(tb, jobs[0], now, latest[0] + 1)
        if start == GROW:
            how = FULL
        elif start < 0:
            how = IN_VAIN
        else:
            _touch(tb, at, tb.jobs[ALLOC, jobs[0]], tb.jobs[ALLOCS, jobs[0]])
            _note(tb, at, jobs[0], -1)
    k = 0
    while k < order.shape[0] and how == DONE:
        i = order[k]
        slot = jobs[i]
        start = at.old[_START, i]
        end = start + tb.jobs[DUR, slot]
        first = at.old[_ALLOC, i]
        held = at.old[_ALLOCS, i]
        if start >= now and _fits(tb, first, held, start, end):
            tb.jobs[ALLOC, slot] = first
            tb.jobs[ALLOCS, slot] = held
            if not occupy(tb, slot, start, end, -1):
                tb.jobs[ALLOCS, slot] = 0
                how = FULL
                break
            tb.jobs[START, slot] = start
            tb.jobs[STATE, slot] = PLANNED
            tb.ctl[ALLOC_GARBAGE] -= held
            _note(tb, at, slot, -1)
            if _over(tb, first, held, start, end):
                how = IN_VAIN
        else:
            start = place(tb, slot, now, latest[i] + 1)
            if start == GROW:
                how = FULL
            elif start < 0:
                how = IN_VAIN
            else:
                _touch(tb, at, tb.jobs[ALLOC, slot], tb.jobs[ALLOCS, slot])
                _note(tb, at, slot, -1)
        k += 1
    if how != DONE:
        _undo(tb, at, jobs, top, garbage)
    return how
