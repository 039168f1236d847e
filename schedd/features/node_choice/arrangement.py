"""Arrangement of the units of a job on nodes with room at its start. Pure."""

from collections.abc import Sequence
from heapq import heapify, heapreplace

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def spread_units(units: Ints, free: Ints, need: int, ranks: Ints, count: int) -> Ints:
    """Return how many of ``count`` units go to each node: each unit to the node that has the most cpus free
    then, of the lowest rank that has room.

    ``units``: how many fit on each node, ``free``: its free cpus, ``need``: cpus of a unit. All are (n,).
    """
    found = np.zeros_like(units)
    left = count
    for rank in np.unique(ranks[units > 0]).tolist():
        heap = [(-int(free[i]), i) for i in np.flatnonzero((ranks == rank) & (units > 0)).tolist()]
        heapify(heap)
        while heap and left:
            most, i = heap[0]
            found[i] += 1
            left -= 1
            # A full node sinks below all others.
            heapreplace(heap, (most + max(need, 1) if found[i] < units[i] else 1 << 60, i))
            if heap[0][0] == 1 << 60:
                break
        if not left:
            break
    return found


def first_nodes(units: Ints, order: Sequence[int], count: int) -> list[int]:
    """Return the first nodes of an order that have room for ``count`` units together."""
    found, left = [], count
    for i in order:
        if left <= 0:
            break
        if units[i] > 0:
            found.append(i)
            left -= int(units[i])
    return found


def contiguous_nodes(units: Ints, ranks: Ints, count: int) -> list[int]:
    """Return nodes with room for ``count`` units; empty: there is too little room.

    Nodes are in the order of their position. All nodes of the lowest ranks are used. The last rank that is
    needed contributes its closest nodes, the first such group if several are equally close.
    """
    if int(units.sum()) < count:
        return []
    by_rank = np.argsort(ranks, kind="stable")
    last_rank = ranks[by_rank[np.searchsorted(np.cumsum(units[by_rank]), count)]]
    lower = ranks < last_rank
    left = count - int(units[lower].sum())
    at = np.flatnonzero((units > 0) & (ranks == last_rank))
    room = np.cumsum(units[at])
    # By first node: the last node that is needed for enough room.
    last = np.searchsorted(room, room - units[at] + left)
    last = last[last < at.shape[0]]
    first = int(np.argmin(at[last] - at[: last.shape[0]]))
    found: list[int] = at[first : last[first] + 1].tolist()
    return sorted([*np.flatnonzero((units > 0) & lower).tolist(), *found])
