"""Who stands in the way of a job that is to go before others: planned jobs of lower rank, by row.

One pass over the jobs by slot; nothing is sorted but what was found.
"""

import numpy as np
import numpy.typing as npt

from schedd.plan.kernels.jit import inlined, lean
from schedd.plan.kernels.layout import (
    A_ROW,
    ALLOC,
    ALLOCS,
    CHUNK,
    CHUNKS,
    DUR,
    FAR,
    PLANNED,
    POOL,
    POOL_NEED,
    POOLS,
    SET,
    SET_LEN,
    SHAPE,
    SLACK,
    START,
    STATE,
    Ints,
    Tables,
)
from schedd.plan.kernels.rows import fit


@inlined
def _makes_way(
    tb: Tables, s: int, rank: Ints, promise: Ints, breaks: bool, lead: int, earliest: int, end: int
) -> bool:
    start = tb.jobs[START, s]
    return bool(
        tb.jobs[STATE, s] == PLANNED
        and rank[s] < lead
        and start < end
        and start + tb.jobs[DUR, s] > earliest
        and (breaks or promise[s] > start)
    )


@lean
def reach(tb: Tables, slot: int, earliest: int, useful: npt.NDArray[np.bool_]) -> bool:
    """Flag the rows on which room for a planned ``slot`` would help: its nodes; and those of its pools that
    leave it no room from ``earliest`` up to its start. Returns whether there are such pools.
    """
    shape = tb.jobs[SHAPE, slot]
    first = tb.shapes[shape, CHUNK]
    for c in range(first, first + tb.shapes[shape, CHUNKS]):
        for i in range(tb.chunks[c, SET], tb.chunks[c, SET] + tb.chunks[c, SET_LEN]):
            useful[tb.sets[i]] = True
    binding = False
    need = tb.scratch[POOL_NEED, :1]
    pool = tb.jobs[POOL, slot]
    for i in range(pool, pool + tb.jobs[POOLS, slot]):
        row = tb.pools[i, 0]
        if tb.rows[row, SLACK]:
            continue
        need[0] = tb.pools[i, 1]
        s, _ = fit(tb, row, need, 1, earliest, tb.jobs[DUR, slot], tb.jobs[START, slot] - 1)
        if s < 0:
            useful[row] = True
            binding = True
    return binding


@lean
def first_on_rows(
    tb: Tables,
    slot: int,
    rank: Ints,
    promise: Ints,
    breaks: bool,
    earliest: int,
    useful: npt.NDArray[np.bool_],
    first: Ints,
    who: Ints,
) -> None:
    """By useful row, the start (FAR: none) and the slot of the first that would make way for ``slot``."""
    first[:] = FAR
    end = tb.jobs[START, slot] + tb.jobs[DUR, slot]
    for s in range(tb.jobs.shape[1]):
        if _makes_way(tb, s, rank, promise, breaks, rank[slot], earliest, end):
            start = tb.jobs[START, s]
            for i in range(tb.jobs[ALLOC, s], tb.jobs[ALLOC, s] + tb.jobs[ALLOCS, s]):
                row = tb.alloc[i, A_ROW]
                if useful[row] and start < first[row]:
                    first[row] = start
                    who[row] = s
