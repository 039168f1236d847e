"""Kernels that try a change of a plan: lift jobs, insert them again in another order, value it, put back.

A trial leaves the plan unchanged, even if it found an improvement: the caller then makes the move again
through the plan's own operations.
"""

from typing import Final, NamedTuple

import numpy as np

from schedd.plan.kernels.displace import PLACE_ALL_AGAIN, displace
from schedd.plan.kernels.evaluate import (
    CRITERIA,
    PARTS,
    WEIGHTED_UTILISATION,
    Floats,
    FloatTable,
    Scores,
    update_scores,
    weighted_cost,
    write_values,
)
from schedd.plan.kernels.jit import inner, kernel
from schedd.plan.kernels.layout import DONE, FAR, START, Ints, Tables
from schedd.plan.kernels.undo import OLD_START, UndoLog, make_undo_log, revert

# How a trial went: as its displacement did, or
BETTER: Final = DONE  # the move makes the plan better
NO_BETTER: Final = 4

LEAST_GAIN: Final = 1e-12
"""What a move must gain of the cost at least; less is what floating-point sums leave."""


class Trial(NamedTuple):
    """Room for one trial of up to n jobs; U users."""

    slots: Ints
    """(n,) the jobs of the move, in the order of their insertion."""
    order: Ints
    """(n,) 0, 1, ..."""
    latest: Ints
    """(n,) their latest starts."""
    undo: UndoLog
    """How to put the plan back."""
    parts: FloatTable
    """(PARTS, n) their parts before."""
    sums: FloatTable
    """(2, PARTS) sums and maxima before."""
    holder: Ints
    """(PARTS,) before."""
    users: FloatTable
    """(2, U) waited and used before."""
    values: Floats
    """(CRITERIA,) of the plan that was tried."""
    placed: Ints
    """(1,) how many jobs of the last trial found a place."""


def trial(tb: Tables, sc: Scores, most: int) -> Trial:
    """Room for trials of up to ``most`` jobs on a plan with these tables."""
    return Trial(
        slots=np.zeros(most, np.int64),
        order=np.arange(most),
        latest=np.zeros(most, np.int64),
        undo=make_undo_log(tb, most, tb.rows.shape[0]),
        parts=np.zeros((PARTS, most)),
        sums=np.zeros((2, PARTS)),
        holder=np.zeros(PARTS, np.int64),
        users=np.zeros((2, sc.used.shape[0])),
        values=np.zeros(CRITERIA),
        placed=np.zeros(1, np.int64),
    )


@inner
def _passes_higher_rank(tb: Tables, sc: Scores, tr: Trial, k: int) -> bool:
    """Whether some job of the move is delayed, and one of lower rank, planned after it before, is planned
    before it now.
    """
    lowest_advanced = np.int64(FAR)
    highest_delayed = np.int64(-FAR)
    for i in range(k):
        slot = tr.slots[i]
        if tb.jobs[START, slot] < tr.undo.old[OLD_START, i]:
            lowest_advanced = min(lowest_advanced, sc.rank[slot])
        elif tb.jobs[START, slot] > tr.undo.old[OLD_START, i]:
            highest_delayed = max(highest_delayed, sc.rank[slot])
    if highest_delayed <= lowest_advanced:
        return False
    for i in range(k):
        start, old = tb.jobs[START, tr.slots[i]], tr.undo.old[OLD_START, i]
        if start <= old or sc.rank[tr.slots[i]] <= lowest_advanced:
            continue
        for j in range(k):
            if (
                sc.rank[tr.slots[j]] < sc.rank[tr.slots[i]]
                and tr.undo.old[OLD_START, j] >= old
                and tb.jobs[START, tr.slots[j]] < start
                and tb.jobs[START, tr.slots[j]] < tr.undo.old[OLD_START, j]
            ):
                return True
    return False


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
    NO_BETTER | TOO_LATE | STOPPED | FULL, the cost with the move); nothing is changed. A move that delays a
    job while a job of lower rank passes it is never better.
    """
    for i in range(k):
        tr.latest[i] = latest[tr.slots[i]]
    how, tr.placed[0] = displace(tb, tr.undo, tr.slots[:k], tr.order[:k], tr.latest[:k], now, PLACE_ALL_AGAIN)
    if how != DONE:
        return how, np.inf
    # Without a start that differs nothing differs, but for which nodes are used.
    same = weights[WEIGHTED_UTILISATION] == 0
    for i in range(k):
        same = same and tb.jobs[START, tr.slots[i]] == tr.undo.old[OLD_START, i]
    after = np.inf
    if same:
        how = NO_BETTER
        after = cost
    elif _passes_higher_rank(tb, sc, tr, k):
        how = NO_BETTER
    else:
        for i in range(k):
            for p in range(PARTS):
                tr.parts[p, i] = sc.part[p, tr.slots[i]]
        tr.sums[0] = sc.sums
        tr.sums[1] = sc.most
        tr.holder[:] = sc.holder
        tr.users[0] = sc.waited
        tr.users[1] = sc.used
        update_scores(tb, sc, tr.slots, k)
        write_values(sc, tr.values)
        after = weighted_cost(tr.values, weights, reference)
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
    revert(tb, tr.undo)
    return how, after
