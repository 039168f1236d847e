"""What was freed and may let jobs start earlier: per row the hull of the intervals.

``dirty[:, row]``: the hull of what was freed since the last pass of the repair began, and of what was freed
during the present one.
"""

from schedd.plan.kernels.jit import kernel
from schedd.plan.kernels.layout import A_ROW, ALLOC, ALLOCS, FAR, Ints, Tables

LO, HI, NEXT_LO, NEXT_HI = 0, 1, 2, 3
DIRTY_FIELDS = 4


@kernel
def mark(dirty: Ints, row: int, lo: int, hi: int) -> None:
    """Note that something was freed on ``row`` over ``[lo, hi)``, for this pass and the next."""
    dirty[0, row] = min(dirty[0, row], lo)
    dirty[1, row] = max(dirty[1, row], hi)
    dirty[2, row] = min(dirty[2, row], lo)
    dirty[3, row] = max(dirty[3, row], hi)


@kernel
def mark_job(tb: Tables, dirty: Ints, slot: int, lo: int, hi: int) -> None:
    """Note that ``slot`` frees over ``[lo, hi)`` what it holds."""
    at = tb.jobs[ALLOC, slot]
    for i in range(at, at + tb.jobs[ALLOCS, slot]):
        mark(dirty, tb.alloc[i, A_ROW], lo, hi)


@kernel
def member(sets: Ints, at: int, n: int, row: int) -> bool:
    """Whether ``row`` is in the sorted row set ``sets[at:at + n]``."""
    lo = at
    hi = at + n
    while lo < hi:
        mid = (lo + hi) >> 1
        if sets[mid] < row:
            lo = mid + 1
        else:
            hi = mid
    return lo < at + n and sets[lo] == row


@kernel
def gather(dirty: Ints, rows: Ints) -> int:
    """Write the freed rows to ``rows`` and return their number."""
    n = 0
    for row in range(dirty.shape[1]):
        if dirty[0, row] < FAR:
            rows[n] = row
            n += 1
    return n


@kernel
def next_pass(dirty: Ints) -> bool:
    """Begin another pass over what the last one freed; False when it freed nothing."""
    any_left = False
    for row in range(dirty.shape[1]):
        dirty[0, row] = dirty[2, row]
        dirty[1, row] = dirty[3, row]
        dirty[2, row] = FAR
        dirty[3, row] = 0
        any_left = any_left or dirty[0, row] < FAR
    return any_left
