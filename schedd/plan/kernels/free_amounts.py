"""Free amounts of rows over an interval."""

import numpy as np

from schedd.plan.kernels.jit import kernel
from schedd.plan.kernels.layout import FAR, LEN, OFF, Ints, Table, Tables
from schedd.plan.kernels.rows import locate

__all__ = ["least_free"]


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
