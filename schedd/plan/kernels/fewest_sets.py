"""On as few sets of nodes as possible: which rows a job gets that no one set can take.

The chunks of its shape come once for all nodes, then once for each set; see ``layout.SETS``.
"""

from schedd.plan.kernels.assign import assign
from schedd.plan.kernels.jit import inner
from schedd.plan.kernels.layout import CLOSED, FRESH, NEXT, SET, SET_LEN, UNITS, Tables


@inner
def restrict_to_fewest_sets(tb: Tables, chunk0: int, sets: int, count: int) -> None:
    """After ``find_spread``: of the units that fit, keep only those on as few sets as hold ``count``.

    The set that can take most goes first, and is left out when one that is smaller can take all the rest;
    for units of one kind there are no fewer. Rows of no set come last.
    """
    u = tb.scratch[UNITS]
    # Both by row, not by place in the set of rows: the search is over and needs them no more.
    units = tb.scratch[FRESH]
    kept = tb.scratch[NEXT]
    at = tb.chunks[chunk0, SET]
    n = tb.chunks[chunk0, SET_LEN]
    for i in range(at, at + n):
        units[tb.sets[i]] = u[i - at]
        kept[tb.sets[i]] = 0
    left = count
    while left > 0:
        best = 0
        most = 0
        for g in range(chunk0 + 1, chunk0 + sets + 1):
            fit = 0
            for i in range(tb.chunks[g, SET], tb.chunks[g, SET] + tb.chunks[g, SET_LEN]):
                if kept[tb.sets[i]] == 0:
                    fit += units[tb.sets[i]]
            if fit > 0 and (
                most == 0 or (most < left and fit > most) or (most > left and left <= fit < most)
            ):
                best = g
                most = fit
        if most == 0:
            return  # rows of no set are needed, too
        for i in range(tb.chunks[best, SET], tb.chunks[best, SET] + tb.chunks[best, SET_LEN]):
            kept[tb.sets[i]] = 1
        left -= most
    for i in range(at, at + n):
        if kept[tb.sets[i]] == 0:
            u[i - at] = 0


@inner
def _set_closed(tb: Tables, chunk0: int, chunks: int, closed: int) -> None:
    for c in range(chunk0, chunk0 + chunks):
        for i in range(tb.chunks[c, SET], tb.chunks[c, SET] + tb.chunks[c, SET_LEN]):
            tb.scratch[CLOSED, tb.sets[i]] = closed


@inner
def assign_fewest_sets(
    tb: Tables, chunk0: int, chunks: int, sets: int, exclusive: int, t: int, dur: int
) -> int:
    """Give the units of several chunks, which fit at ``t``, rows of so few sets that none can be left out.

    First the rows of no set are closed, then set after set, each opened again where units find no room
    without it. Returns the entries written to ``out``, or SPENT.
    """
    _set_closed(tb, chunk0, chunks, 1)
    for g in range(1, sets + 1):
        _set_closed(tb, chunk0 + g * chunks, chunks, 0)
    if assign(tb, chunk0, chunks, exclusive, t, dur) < 0:
        _set_closed(tb, chunk0, chunks, 0)
    for g in range(1, sets + 1):
        _set_closed(tb, chunk0 + g * chunks, chunks, 1)
        if assign(tb, chunk0, chunks, exclusive, t, dur) < 0:
            _set_closed(tb, chunk0 + g * chunks, chunks, 0)
    found = assign(tb, chunk0, chunks, exclusive, t, dur)
    _set_closed(tb, chunk0, chunks, 0)
    return found
