"""Start windows: all intervals of starts where a request fits into the plan, not only the first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from schedd.model import Request
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.layout import Ints
from schedd.plan.plan import Plan
from schedd.plan.views.usable_rows import usable_rows


@dataclass(frozen=True, slots=True)
class StartWindow:
    """The request may start at any second of ``[first, last]``; the nodes may differ between starts."""

    first: int
    last: int


def join_windows(lists: Sequence[Sequence[StartWindow]], limit: int) -> tuple[StartWindow, ...]:
    """Return the first ``limit`` windows in which any of several requests may start.

    Each list has the first ``limit`` windows of one request. What comes after the end of a full list is left
    out, because that request may have further windows.
    """
    known = min((one[-1].last for one in lists if len(one) >= limit), default=None)
    found: list[StartWindow] = []
    for one in sorted((one for some in lists for one in some), key=lambda one: one.first):
        if known is not None and one.first > known:
            break
        if found and one.first <= found[-1].last + 1:
            found[-1] = StartWindow(found[-1].first, max(found[-1].last, one.last))
        else:
            found.append(one)
    return tuple(found[:limit])


def find_windows(
    fork: Plan,
    request: Request,
    duration: int,
    begin: int,
    end: int,
    *,
    pools: Mapping[str, int] | None = None,
    limit: int = 100,
) -> tuple[StartWindow, ...]:
    """Return the first ``limit`` windows of starts in ``[begin, end)`` for ``duration`` seconds, in order.

    Pass a fork of the plan: a slot is used during the search. The request does not wait for a node set.
    Raises KeyError for an unknown pool.
    """
    if request.together is not None and request.together.wait is not None:
        request = replace(request, together=replace(request.together, wait=0))
    slot = fork.add_job(request, duration, begin, pools)
    try:
        # a request that fits stops fitting only when its end passes a change on a row
        edges = _edges(fork, slot) - duration + 1
        found: list[StartWindow] = []
        t = begin
        while len(found) < limit and t < end:
            fork.set_ready(slot, t)
            first = fork.probe(slot, begin, end)
            if first < 0:
                break
            t = _end(fork, slot, begin, end, edges[np.searchsorted(edges, first, "right") :])
            found.append(StartWindow(first, t - 1))
            t += 1
        return tuple(found)
    finally:
        fork.drop_job(slot, begin)


def _end(fork: Plan, slot: int, begin: int, end: int, edges: Ints) -> int:
    """Return the first of these times when the request does not fit, or ``end``."""
    for t in edges.tolist():
        if t >= end:
            break
        fork.set_ready(slot, t)
        if fork.probe(slot, begin, t + 1) < 0:
            return int(t)
    return end


def _edges(plan: Plan, slot: int) -> Ints:
    """Return all times when anything changes on a candidate row of the job, sorted."""
    tb = plan.tables
    times = [
        tb.T[int(tb.rows[row, at.OFF]) :][: int(tb.rows[row, at.LEN])]
        for row in sorted(usable_rows(plan, slot))
    ]
    edges: Ints = np.unique(np.concatenate(times)) if times else np.zeros(0, np.int64)
    return edges
