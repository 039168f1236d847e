"""Kernels that move rows and allocations to new slabs, dropping what lies unused."""

from schedd.plan.kernels.jit import kernel
from schedd.plan.kernels.layout import (
    ALLOC,
    ALLOC_GARBAGE,
    ALLOC_TOP,
    ALLOCS,
    GARBAGE,
    LEN,
    OFF,
    ROOM,
    SLAB_TOP,
    Ints,
    Tables,
)

SPARE = 8
"""Segments of room that every row gets beyond a half of its length."""


@kernel
def repack_rows(tb: Tables, T: Ints, F: Ints) -> None:
    """Copy all rows into the new slabs ``T`` and ``F`` with room to grow."""
    top = 0
    for row in range(tb.rows.shape[0]):
        off = tb.rows[row, OFF]
        n = tb.rows[row, LEN]
        T[top : top + n] = tb.T[off : off + n]
        for r in range(F.shape[0]):
            F[r, top : top + n] = tb.F[r, off : off + n]
        tb.rows[row, OFF] = top
        tb.rows[row, ROOM] = n + n // 2 + SPARE
        top += tb.rows[row, ROOM]
    tb.ctl[SLAB_TOP] = top
    tb.ctl[GARBAGE] = 0


@kernel
def repack_alloc(tb: Tables, alloc: Ints) -> None:
    """Copy the entries in use into the new slab ``alloc``."""
    top = 0
    for slot in range(tb.jobs.shape[1]):
        n = tb.jobs[ALLOCS, slot]
        if n > 0:
            at = tb.jobs[ALLOC, slot]
            alloc[top : top + n] = tb.alloc[at : at + n]
            tb.jobs[ALLOC, slot] = top
            top += n
    tb.ctl[ALLOC_TOP] = top
    tb.ctl[ALLOC_GARBAGE] = 0
