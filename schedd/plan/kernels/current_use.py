"""Capacity that running jobs leave at present, independent of the timelines."""

import numpy as np

from schedd.plan.kernels.jit import kernel
from schedd.plan.kernels.layout import (
    A_CHUNK,
    A_ROW,
    A_TAKE,
    ALLOC,
    ALLOCS,
    DUR,
    EXTRA,
    FIXED,
    LEN,
    OFF,
    PLANNED,
    START,
    STATE,
    Ints,
    Table,
    Tables,
)
from schedd.plan.kernels.rows import locate


@kernel
def _contains(slots: Ints, slot: int) -> bool:
    """Return whether a slot is among others. With NumPy's ``any`` each start would load SciPy."""
    for one in slots:
        if one == slot:
            return True
    return False


@kernel
def overcommitted_row(tb: Tables, slot: int, now: int, timed: Ints, rows: Ints, amounts: Table) -> int:
    """Return the first row on which a placed job does not fit now next to the fixed jobs; -1: it fits.

    A fixed job counts until its removal, even past its planned end. Only the slots ``timed``, which are
    reservations, count from their start to their end. ``amounts`` (n, resources) are held on the nodes'
    ``rows`` (n,) without a slot.
    """
    first, last = tb.jobs[ALLOC, slot], tb.jobs[ALLOC, slot] + tb.jobs[ALLOCS, slot]
    resources = tb.F.shape[0]
    left = np.zeros((last - first, resources), np.int64)
    number = tb.scratch[EXTRA]  # by row: 1 + the index in ``left``
    number[:] = 0
    own = tb.jobs[START, slot] <= now < tb.jobs[START, slot] + tb.jobs[DUR, slot]
    for i in range(first, last):
        row = tb.alloc[i, A_ROW]
        if number[row] == 0:
            number[row] = i - first + 1
            if tb.alloc[i, A_CHUNK] >= 0:
                left[i - first] = tb.cap[row]
            else:  # the capacity of a pool varies over time: derive it from the amount free now
                off = tb.rows[row, OFF]
                left[i - first, 0] = tb.F[0, locate(tb.T, off, off + tb.rows[row, LEN], now)]
        if tb.alloc[i, A_CHUNK] >= 0 or not own:
            left[number[row] - 1] -= tb.alloc[i, A_TAKE:]
    for i in range(rows.shape[0]):
        if number[rows[i]] > 0:
            left[number[rows[i]] - 1] -= amounts[i]
    for other in range(tb.jobs.shape[1]):
        state = tb.jobs[STATE, other]
        if other == slot or state not in (FIXED, PLANNED):
            continue
        active = tb.jobs[START, other] <= now < tb.jobs[START, other] + tb.jobs[DUR, other]
        if not active and (state == PLANNED or _contains(timed, other)):
            continue
        for i in range(tb.jobs[ALLOC, other], tb.jobs[ALLOC, other] + tb.jobs[ALLOCS, other]):
            k = number[tb.alloc[i, A_ROW]] - 1
            if k < 0:
                continue
            if tb.alloc[i, A_CHUNK] >= 0:
                if state == FIXED:
                    left[k] -= tb.alloc[i, A_TAKE:]
            elif state == PLANNED:
                left[k, 0] += tb.alloc[i, A_TAKE]
            elif not active:
                left[k, 0] -= tb.alloc[i, A_TAKE]
    for i in range(first, last):
        row = tb.alloc[i, A_ROW]
        for r in range(resources if tb.alloc[i, A_CHUNK] >= 0 else 1):
            if tb.alloc[i, A_TAKE + r] > 0 and left[number[row] - 1, r] < 0:
                return int(row)
    return -1
