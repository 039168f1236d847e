"""The kernel that lets one job go before others: all are lifted, it is placed, then they are.

Either every other job finds a place in time, or the plan is left as it was.
"""

from typing import Final

from schedd.plan.kernels.freed import tell_now
from schedd.plan.kernels.jit import kernel, lean
from schedd.plan.kernels.layout import (
    A_CHUNK,
    A_ROW,
    A_TAKE,
    ALLOC,
    ALLOC_GARBAGE,
    ALLOCS,
    DUR,
    GROW,
    PLANNED,
    READY,
    SHAPE,
    START,
    STATE,
    Ints,
    Tables,
)
from schedd.plan.kernels.place import occupy, place
from schedd.plan.kernels.rows import floor
from schedd.plan.kernels.search import find
from schedd.plan.kernels.undo import (
    OLD_ALLOC,
    OLD_ALLOCS,
    OLD_START,
    Undo,
    begin,
    keep,
    let_go,
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
def _nodes_of(tb: Tables, first: int, n: int) -> int:
    """How many of ``n`` allocations are of nodes: they come before those of pools."""
    nodes = 0
    while nodes < n and tb.alloc[first + nodes, A_CHUNK] >= 0:
        nodes += 1
    return nodes


@lean
def _put_back(tb: Tables, un: Undo, i: int, slot: int, entries: int) -> int:
    """Put the i-th job back where it was, which looks free, on so many of its allocations."""
    start = un.old[OLD_START, i]
    end = start + tb.jobs[DUR, slot]
    first = un.old[OLD_ALLOC, i]
    tb.jobs[ALLOC, slot] = first
    tb.jobs[ALLOCS, slot] = entries
    if not occupy(tb, slot, start, end, -1):
        tb.jobs[ALLOCS, slot] = 0
        return FULL
    tb.jobs[START, slot] = start
    tb.jobs[STATE, slot] = PLANNED
    tb.ctl[ALLOC_GARBAGE] -= entries
    note_placed(tb, un, slot)
    tb.jobs[ALLOCS, slot] = un.old[OLD_ALLOCS, i]
    return IN_VAIN if _over(tb, first, entries, start, end) else DONE


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


@lean
def _is_vain(tb: Tables, un: Undo, jobs: Ints, order: Ints, latest: Ints, now: int, pools: bool) -> bool:
    """Whether one of the others, all lifted, finds no place in time even before the rest is put back.

    To see that at once is what most attempts come to.
    """
    for i in order:
        slot = jobs[i]
        start = un.old[OLD_START, i]
        dur = tb.jobs[DUR, slot]
        first = un.old[OLD_ALLOC, i]
        n = un.old[OLD_ALLOCS, i]
        if start >= now and _fits(tb, first, n if pools else _nodes_of(tb, first, n), start, start + dur):
            continue
        # Its pools are left out: it may hold them still.
        ready = max(now, tb.jobs[READY, slot])
        sooner, _ = find(tb, tb.jobs[SHAPE, slot], 0, 0, ready, dur, latest[i] + 1)
        if sooner < 0:
            return True
    return False


@kernel
def advance(tb: Tables, un: Undo, jobs: Ints, order: Ints, latest: Ints, now: int, pools: bool) -> int:
    """Let the planned job ``jobs[0]`` start before ``latest[0] + 1`` though the others stand in its way.

    The others follow in their ``order`` (indices in ``jobs``): each is put back where it was if it fits,
    else placed no later than its own ``latest`` (by index). Without ``pools`` each keeps what it holds of
    pools until it is placed elsewhere: their rows may be long. Returns DONE, IN_VAIN or FULL; once DONE,
    ``un.old`` has where each was.
    """
    tell_now(tb, now)
    begin(tb, un, jobs)
    how = DONE
    for i in range(jobs.shape[0]):
        entries = tb.jobs[ALLOCS, jobs[i]]
        if i > 0 and not pools:
            entries = _nodes_of(tb, tb.jobs[ALLOC, jobs[i]], entries)
        if not lift_noted(tb, un, jobs[i], entries):
            how = FULL
            break
    if how == DONE:
        how = _place_by(tb, un, jobs[0], now, latest[0])
    if how == DONE and _is_vain(tb, un, jobs, order, latest, now, pools):
        how = IN_VAIN
    k = 0
    while k < order.shape[0] and how == DONE:
        i = order[k]
        slot = jobs[i]
        start = un.old[OLD_START, i]
        end = start + tb.jobs[DUR, slot]
        first = un.old[OLD_ALLOC, i]
        held = un.old[OLD_ALLOCS, i]
        entries = held if pools else _nodes_of(tb, first, held)
        if start >= now and _fits(tb, first, entries, start, end):
            how = _put_back(tb, un, i, slot, entries)
        elif entries < held and not let_go(tb, un, i, entries):
            how = FULL
        else:
            how = _place_by(tb, un, slot, now, latest[i])
        k += 1
    if how == DONE:
        keep(tb, un)
    else:
        take_back(tb, un)
    return how
