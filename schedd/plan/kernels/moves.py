"""Kernels that try a change of a plan: lift jobs, insert them again in another order, value it, put back.

A trial leaves the plan as it was, also where it found something better: who wants the move makes it again
through the plan's own operations.
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
from schedd.plan.kernels.layout import ALLOCS, GROW, STOP, Ints, Tables
from schedd.plan.kernels.place import place
from schedd.plan.kernels.undo import OLD_START, Undo, begin, lift_noted, note_placed, take_back, undo_for

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


class Trial(NamedTuple):
    """Room for one trial of up to n jobs; U users."""

    slots: Ints
    """(n,) the jobs of the move, in the order in which they are inserted."""
    undo: Undo
    """How to put the plan back."""
    parts: Floats
    """(PARTS, n) their parts before."""
    sums: Floats
    """(2, PARTS) sums and maxima before."""
    holder: Ints
    """(PARTS,) before."""
    users: Floats
    """(2, U) waited and used before."""
    values: Floats
    """(CRITERIA,) of the plan that was tried."""
    placed: Ints
    """(1,) how many jobs of the last trial found a place."""


def trial(tb: Tables, sc: Scores, most: int) -> Trial:
    """Room for trials of up to ``most`` jobs on a plan with these tables."""
    return Trial(
        slots=np.zeros(most, np.int64),
        undo=undo_for(tb, most, tb.rows.shape[0]),
        parts=np.zeros((PARTS, most)),
        sums=np.zeros((2, PARTS)),
        holder=np.zeros(PARTS, np.int64),
        users=np.zeros((2, sc.used.shape[0])),
        values=np.zeros(CRITERIA),
        placed=np.zeros(1, np.int64),
    )


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
    begin(tb, tr.undo, tr.slots[:k])
    how = BETTER
    for i in range(k):
        if tb.ctl[STOP] != 0:
            how = STOPPED
            break
        if not lift_noted(tb, tr.undo, tr.slots[i], tb.jobs[ALLOCS, tr.slots[i]]):
            how = FULL
            break
    # Without a start that differs nothing differs, but for which nodes are used.
    same = weights[WEIGHTED_UTILISATION] == 0
    placed = 0
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
            note_placed(tb, tr.undo, slot)
            same = same and start == tr.undo.old[OLD_START, placed]
            placed += 1
    tr.placed[0] = placed
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
    take_back(tb, tr.undo)
    return how, after
