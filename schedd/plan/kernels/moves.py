"""Kernels that try changes of a plan: lift some jobs, insert them again in another order, value it, put back.

A trial leaves the plan as it was, also where it found something better: who wants the move makes it again
through the plan's own operations. What a trial touches is noted: the jobs, the rows with their bounds, the
sums of the evaluation. Versions of rows only grow, so nothing remembered by version is mistaken for new.
"""

from typing import Final, NamedTuple

import numpy as np

from schedd.plan.kernels.evaluate import (
    CRITERIA,
    PARTS,
    WEIGHTED_UTILISATION,
    Floats,
    Scores,
    cost_of,
    update,
    valued,
)
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
    STOP,
    Ints,
    Tables,
)
from schedd.plan.kernels.place import lift, place
from schedd.plan.kernels.rows import change

BETTER: Final = 0
"""The move makes the plan better."""
NO_BETTER: Final = 1
TOO_LATE: Final = 2
"""A job would start after its latest start: given up there."""
STOPPED: Final = 3
FULL: Final = 4
"""A slab is full: grow it and try again."""

LEAST_GAIN: Final = 1e-12
"""What a move must gain of the cost at least; less is what floating-point sums leave."""

# old[:, i], of the i-th job of the move
_START: Final = 0
_ALLOC: Final = 1
_ALLOCS: Final = 2
_SEEN: Final = 3
OLD_FIELDS: Final = 4


class Trial(NamedTuple):
    """Room for one trial; J slots, N rows, Q bounds of a row, U users."""

    slots: Ints
    """(J,) the jobs of the move, in the order in which they are inserted."""
    old: Ints
    """(OLD_FIELDS, J) where they were."""
    parts: Floats
    """(PARTS, J) their parts before."""
    rows: Ints
    """(N,) rows that were touched."""
    mark: Ints
    """(N,) the number of the trial that last touched the row."""
    bounds: Ints
    """(N, Q) the bounds of touched rows before, by place in ``rows``."""
    counts: Ints
    """(2,) the number of this trial; how many rows it touched."""
    sums: Floats
    """(2, PARTS) sums and maxima before."""
    holder: Ints
    """(PARTS,) before."""
    users: Floats
    """(2, U) waited and used before."""
    values: Floats
    """(CRITERIA,) of the plan that was tried."""


def trial(tb: Tables, sc: Scores) -> Trial:
    """Room for trials on a plan with these tables."""
    slots = tb.jobs.shape[1]
    rows = tb.rows.shape[0]
    return Trial(
        slots=np.zeros(slots, np.int64),
        old=np.zeros((OLD_FIELDS, slots), np.int64),
        parts=np.zeros((PARTS, slots)),
        rows=np.zeros(rows, np.int64),
        mark=np.zeros(rows, np.int64),
        bounds=np.zeros((rows, tb.bounds.shape[0]), np.int64),
        counts=np.zeros(2, np.int64),
        sums=np.zeros((2, PARTS)),
        holder=np.zeros(PARTS, np.int64),
        users=np.zeros((2, sc.used.shape[0])),
        values=np.zeros(CRITERIA),
    )


@kernel
def _touch(tb: Tables, tr: Trial, slot: int) -> None:
    """Remember the bounds of the rows that ``slot`` holds."""
    at = tb.jobs[ALLOC, slot]
    for i in range(at, at + tb.jobs[ALLOCS, slot]):
        row = tb.alloc[i, A_ROW]
        if tr.mark[row] != tr.counts[0]:
            tr.mark[row] = tr.counts[0]
            tr.rows[tr.counts[1]] = row
            for q in range(tb.bounds.shape[0]):
                tr.bounds[tr.counts[1], q] = tb.bounds[q, row]
            tr.counts[1] += 1


@kernel
def _change_all(tb: Tables, at: int, n: int, start: int, end: int, sign: int) -> None:
    """Take or give back ``n`` entries of the allocations, the last first for the sake of room."""
    for i in range(at + n - 1, at - 1, -1):
        change(tb, tb.alloc[i, A_ROW], start, end, tb.alloc[i, A_TAKE:], sign)


@kernel
def _undo(tb: Tables, tr: Trial, lifted: int, placed: int, top: int, garbage: int) -> None:
    """Put the plan back to where it was: what was done last first, so that rows have the room they had."""
    for i in range(placed - 1, -1, -1):
        slot = tr.slots[i]
        start = tb.jobs[START, slot]
        _change_all(tb, tb.jobs[ALLOC, slot], tb.jobs[ALLOCS, slot], start, start + tb.jobs[DUR, slot], 1)
    for i in range(lifted - 1, -1, -1):
        slot = tr.slots[i]
        start = tr.old[_START, i]
        _change_all(tb, tr.old[_ALLOC, i], tr.old[_ALLOCS, i], start, start + tb.jobs[DUR, slot], -1)
        tb.jobs[START, slot] = start
        tb.jobs[ALLOC, slot] = tr.old[_ALLOC, i]
        tb.jobs[ALLOCS, slot] = tr.old[_ALLOCS, i]
        tb.jobs[SEEN, slot] = tr.old[_SEEN, i]
        tb.jobs[STATE, slot] = PLANNED
    tb.ctl[ALLOC_TOP] = top
    tb.ctl[ALLOC_GARBAGE] = garbage
    for j in range(tr.counts[1]):
        for q in range(tb.bounds.shape[0]):
            tb.bounds[q, tr.rows[j]] = tr.bounds[j, q]


@kernel
def attempt(
    tb: Tables,
    sc: Scores,
    tr: Trial,
    k: int,
    latest: Ints,
    now: int,
    weights: Floats,
    reference: Floats,
    cost: float,
) -> tuple[int, float]:
    """Try the move of ``tr.slots[:k]``: planned jobs, lifted and inserted one by one in this order.

    ``latest`` are the last starts allowed, by slot; ``cost`` is what the plan costs now. Returns (BETTER |
    NO_BETTER | TOO_LATE | STOPPED | FULL, the cost with the move); nothing is changed.
    """
    tell_now(tb, now)  # before bounds are remembered: they are void where now went back
    tr.counts[0] += 1
    tr.counts[1] = 0
    top = tb.ctl[ALLOC_TOP]
    garbage = tb.ctl[ALLOC_GARBAGE]
    lifted = 0
    placed = 0
    how = BETTER
    while lifted < k and how == BETTER:
        slot = tr.slots[lifted]
        tr.old[_START, lifted] = tb.jobs[START, slot]
        tr.old[_ALLOC, lifted] = tb.jobs[ALLOC, slot]
        tr.old[_ALLOCS, lifted] = tb.jobs[ALLOCS, slot]
        tr.old[_SEEN, lifted] = tb.jobs[SEEN, slot]
        _touch(tb, tr, slot)
        if not lift(tb, slot):
            how = FULL
        else:
            lifted += 1
    # Without a start that differs nothing differs, but for which nodes are used.
    same = weights[WEIGHTED_UTILISATION] == 0
    while placed < k and how == BETTER:
        slot = tr.slots[placed]
        if tb.ctl[STOP] != 0:
            how = STOPPED
            break
        start = place(tb, slot, now, latest[slot] + 1)
        if start == GROW:
            how = FULL
        elif start < 0:
            how = TOO_LATE
        else:
            _touch(tb, tr, slot)
            same = same and start == tr.old[_START, placed]
            placed += 1
    after = np.inf
    if how == BETTER and same:
        how = NO_BETTER
        after = cost
    if how == BETTER:
        for i in range(k):
            for p in range(PARTS):
                tr.parts[p, i] = sc.part[p, tr.slots[i]]
        tr.sums[0] = sc.sums
        tr.sums[1] = sc.most
        tr.holder[:] = sc.holder
        tr.users[0] = sc.waited
        tr.users[1] = sc.used
        update(tb, sc, tr.slots, k)
        valued(sc, tr.values)
        after = cost_of(tr.values, weights, reference)
        if not after < cost - LEAST_GAIN:
            how = NO_BETTER
        for i in range(k):
            for p in range(PARTS):
                sc.part[p, tr.slots[i]] = tr.parts[p, i]
        sc.sums[:] = tr.sums[0]
        sc.most[:] = tr.sums[1]
        sc.holder[:] = tr.holder
        sc.waited[:] = tr.users[0]
        sc.used[:] = tr.users[1]
    _undo(tb, tr, lifted, placed, top, garbage)
    return how, after
