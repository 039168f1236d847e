"""The kernel that lets one job go before others: all are lifted, it is placed, then they are.

Either every other job finds a place in time, or the plan is left as it was.
"""

from typing import Final

from schedd.plan.kernels.freed import tell_now
from schedd.plan.kernels.jit import kernel, lean
from schedd.plan.kernels.layout import (
    A_ROW,
    A_TAKE,
    ALLOC,
    ALLOC_GARBAGE,
    ALLOCS,
    DUR,
    GROW,
    PLANNED,
    START,
    STATE,
    Ints,
    Tables,
)
from schedd.plan.kernels.place import occupy, place
from schedd.plan.kernels.rows import floor
from schedd.plan.kernels.undo import (
    OLD_ALLOC,
    OLD_ALLOCS,
    OLD_START,
    Undo,
    begin,
    lift_noted,
    note_placed,
    take_back,
)

DONE: Final = 0
IN_VAIN: Final = 1
FULL: Final = 2
"""A slab is full: grow it and try again; nothing was changed."""


@lean
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


@lean
def _over(tb: Tables, first: int, n: int, start: int, end: int) -> bool:
    """Whether a row of these allocations is over-committed over ``[start, end)``."""
    for i in range(first, first + n):
        for r in range(tb.F.shape[0]):
            if tb.alloc[i, A_TAKE + r] > 0 and floor(tb, tb.alloc[i, A_ROW], r, start, end) < 0:
                return True
    return False


@lean
def _put_back(tb: Tables, un: Undo, i: int, slot: int) -> int:
    """Put the i-th job back where it was, which looks free."""
    start = un.old[OLD_START, i]
    end = start + tb.jobs[DUR, slot]
    first = un.old[OLD_ALLOC, i]
    held = un.old[OLD_ALLOCS, i]
    tb.jobs[ALLOC, slot] = first
    tb.jobs[ALLOCS, slot] = held
    if not occupy(tb, slot, start, end, -1):
        tb.jobs[ALLOCS, slot] = 0
        return FULL
    tb.jobs[START, slot] = start
    tb.jobs[STATE, slot] = PLANNED
    tb.ctl[ALLOC_GARBAGE] -= held
    note_placed(tb, un, slot)
    return IN_VAIN if _over(tb, first, held, start, end) else DONE


@lean
def _place_by(tb: Tables, un: Undo, slot: int, now: int, latest: int) -> int:
    """Place a job no later than ``latest``."""
    start = place(tb, slot, now, latest + 1)
    if start == GROW:
        return FULL
    if start < 0:
        return IN_VAIN
    note_placed(tb, un, slot)
    return DONE


@kernel
def advance(tb: Tables, un: Undo, jobs: Ints, order: Ints, latest: Ints, now: int) -> int:
    """Let the planned job ``jobs[0]`` start before ``latest[0] + 1`` though the others stand in its way.

    The others follow in their ``order`` (indices in ``jobs``): each is put back where it was if it fits, and
    else placed no later than its own ``latest`` (by index). Returns DONE, IN_VAIN or FULL; once DONE,
    ``un.old`` has where each was.
    """
    tell_now(tb, now)
    begin(tb, un)
    how = DONE
    for i in range(jobs.shape[0]):
        if not lift_noted(tb, un, jobs[i]):
            how = FULL
            break
    if how == DONE:
        how = _place_by(tb, un, jobs[0], now, latest[0])
    k = 0
    while k < order.shape[0] and how == DONE:
        i = order[k]
        slot = jobs[i]
        start = un.old[OLD_START, i]
        end = start + tb.jobs[DUR, slot]
        if start >= now and _fits(tb, un.old[OLD_ALLOC, i], un.old[OLD_ALLOCS, i], start, end):
            how = _put_back(tb, un, i, slot)
        else:
            how = _place_by(tb, un, slot, now, latest[i])
        k += 1
    if how != DONE:
        take_back(tb, un)
    return how
