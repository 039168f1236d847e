"""Kernels that move rows and allocations to new slabs, without unused parts."""

from schedd.plan.kernels.jit import inner, lean
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
    Table,
    Tables,
)

SPARE = 8  # spare segments of every row beyond a half of its length


@lean
def repack_rows(tb: Tables, T: Ints, F: Table) -> None:
    """Copy all rows into the new slabs ``T`` and ``F`` with room to grow."""
    top = 0
    for row in range(tb.rows.shape[0]):
        off = tb.rows[row, OFF]
        n = tb.rows[row, LEN]
        for i in range(n):
            T[top + i] = tb.T[off + i]
        for r in range(F.shape[0]):
            for i in range(n):
                F[r, top + i] = tb.F[r, off + i]
        tb.rows[row, OFF] = top
        tb.rows[row, ROOM] = n + n // 2 + SPARE
        top += tb.rows[row, ROOM]
    tb.ctl[SLAB_TOP] = top
    tb.ctl[GARBAGE] = 0


@inner
def _copy(tb: Tables, slot: int, alloc: Table, top: int) -> None:
    at = tb.jobs[ALLOC, slot]
    for i in range(tb.jobs[ALLOCS, slot]):
        for f in range(alloc.shape[1]):
            alloc[top + i, f] = tb.alloc[at + i, f]


@lean
def copy_entries(
    tb: Tables, alloc: Table, old_first: Ints, new_first: Ints, slot: int, n: int, top: int
) -> int:
    """Copy the entries of ``n`` jobs, from ``slot`` on, to ``alloc`` from ``top`` on, changing nothing else.

    ``old_first`` (-1: no entries) and ``new_first`` get the first entries of each job before and after.
    Return the new top, or -1 if ``alloc`` is too small.
    """
    for s in range(slot, slot + n):
        m = tb.jobs[ALLOCS, s]
        old_first[s] = -1
        if m > 0:
            if top + m > alloc.shape[0]:
                return -1
            _copy(tb, s, alloc, top)
            old_first[s] = tb.jobs[ALLOC, s]
            new_first[s] = top
            top += m
    return top


@lean
def move_alloc(tb: Tables, alloc: Table, old_first: Ints, new_first: Ints, copied: int, top: int) -> bool:
    """Switch all jobs to ``alloc``, which is used up to ``top`` and belongs into ``tb`` afterwards.

    The entries of the first ``copied`` jobs were copied by ``copy_entries``. Return False if ``alloc`` is too
    small: ``tb`` is then unchanged.
    """
    more = 0
    live = 0
    for s in range(tb.jobs.shape[1]):
        m = tb.jobs[ALLOCS, s]
        live += m
        if m > 0 and (s >= copied or old_first[s] != tb.jobs[ALLOC, s]):
            more += m
    if top + more > alloc.shape[0]:
        return False
    for s in range(tb.jobs.shape[1]):
        m = tb.jobs[ALLOCS, s]
        if m > 0:
            if s < copied and old_first[s] == tb.jobs[ALLOC, s]:
                tb.jobs[ALLOC, s] = new_first[s]
            else:
                _copy(tb, s, alloc, top)
                tb.jobs[ALLOC, s] = top
                top += m
    tb.ctl[ALLOC_TOP] = top
    tb.ctl[ALLOC_GARBAGE] = top - live
    return True
