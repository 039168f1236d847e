"""Placement on as few node sets as possible, for a job that no single set can hold.

The chunks of its shape are stored once for all nodes, then once for each set; see ``layout.SETS``.
"""

from schedd.plan.kernels.assign import assign
from schedd.plan.kernels.jit import inner
from schedd.plan.kernels.layout import CLOSED, FRESH, NEXT, SET, SET_LEN, UNITS, Tables


@inner
def restrict_to_fewest_sets(tb: Tables, chunk0: int, sets: int, count: int) -> None:
    """After ``find_spread``: keep fitting units only on as few sets as hold ``count``.

    Greedy: the set with the largest capacity first, or the smallest that holds all the rest; optimal for
    equal units. Rows without a set come last.
    """
    u = tb.scratch[UNITS]
    # Both by row, not by index in the row set: the search is complete and no longer needs them.
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
            return  # rows without a set are needed as well
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
    """Assign rows to the units of several chunks, which fit at ``t``, on an irreducible choice of sets.

    First the rows without a set are closed, then set after set; a set is opened again if units do not fit
    without it. Return the entries written to ``out``, or SPENT.
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
