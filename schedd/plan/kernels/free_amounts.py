"""Free amounts of rows over an interval."""

import numpy as np

from schedd.plan.kernels.bounds import duration_step
from schedd.plan.kernels.jit import inner, kernel, lean
from schedd.plan.kernels.layout import (
    A_ROW,
    ALLOC,
    CHUNK,
    CHUNKS,
    COUNT,
    DUR,
    DURATIONS,
    FAR,
    LEN,
    LEVEL,
    NEED,
    OFF,
    SET,
    SET_LEN,
    SHAPE,
    START,
    USABLE,
    Ints,
    Table,
    Tables,
)
from schedd.plan.kernels.rows import floor, locate


@inner
def _has_room(tb: Tables, row: int, need: Ints, start: int, end: int) -> bool:
    """Return whether ``need`` is free on ``row`` over ``[start, end)``."""
    for r in range(tb.F.shape[0]):
        if need[r] > 0 and floor(tb, row, r, start, end) < need[r]:
            return False
    return True


@lean
def is_on_first_row(tb: Tables, slot: int, ranks: Ints) -> bool:
    """Return whether a placed ``slot`` has one unit and no candidate before its row has room for it.

    Candidates are ordered by ``ranks`` (by row; empty: all are equal), then by row.
    """
    shape = tb.jobs[SHAPE, slot]
    chunk = tb.shapes[shape, CHUNK]
    if tb.shapes[shape, CHUNKS] != 1 or tb.chunks[chunk, COUNT] != 1:
        return False
    own = tb.alloc[tb.jobs[ALLOC, slot], A_ROW]
    own_rank = ranks[own] if ranks.shape[0] else 0
    start = tb.jobs[START, slot]
    end = start + tb.jobs[DUR, slot]
    bounds = tb.bounds[tb.chunks[chunk, LEVEL] * DURATIONS + duration_step(tb.jobs[DUR, slot])]
    need = tb.chunks[chunk, NEED:]
    for i in range(tb.chunks[chunk, SET], tb.chunks[chunk, SET] + tb.chunks[chunk, SET_LEN]):
        row = tb.sets[i]
        rank = ranks[row] if ranks.shape[0] else 0
        if rank > own_rank or (rank == own_rank and row >= own):
            continue
        if tb.rows[row, USABLE] > 0 and bounds[row] <= start and _has_room(tb, row, need, start, end):
            return False
    return True


@kernel
def least_free(tb: Tables, rows: Ints, start: int, end: int) -> Table:
    """Return the least free amounts of (n,) ``rows`` over ``[start, end)``, (resources, n). Only the segments
    of the interval are visited.
    """
    resources = tb.F.shape[0]
    found = np.full((resources, rows.shape[0]), FAR, np.int64)
    for i in range(rows.shape[0]):
        first = tb.rows[rows[i], OFF]
        last = first + tb.rows[rows[i], LEN]
        for k in range(locate(tb.T, first, last, start), last):
            if tb.T[k] >= end and k > first:  # the first segment extends backward
                break
            for r in range(resources):
                found[r, i] = min(found[r, i], tb.F[r, k])
    return found
