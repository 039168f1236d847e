"""Candidate rows of a request: nodes that could hold a unit, and its pools."""

from schedd.plan.kernels import layout as at
from schedd.plan.plan import Plan


def usable_rows(plan: Plan, slot: int) -> set[int]:
    """Return the candidate rows of the job of ``slot``, usable or not, and the rows of its pools."""
    tb = plan.tables
    shape = int(tb.jobs[at.SHAPE, slot])
    first, n = int(tb.shapes[shape, at.CHUNK]), int(tb.shapes[shape, at.CHUNKS])
    rows = {
        row
        for chunk in range(first, first + n)
        for row in tb.sets[
            int(tb.chunks[chunk, at.SET]) : int(tb.chunks[chunk, at.SET] + tb.chunks[chunk, at.SET_LEN])
        ].tolist()
    }
    pool, pools = int(tb.jobs[at.POOL, slot]), int(tb.jobs[at.POOLS, slot])
    return rows | set(tb.pools[pool : pool + pools, 0].tolist())
