"""A plain checker of placements, slower than the plan and sharing no code with its kernels.

It does not read free capacity from the plan: it computes each node's free amounts from the list of held
resources, and then, for every node, the times when a given number of units may begin there. A job's earliest
start is the first time that enough nodes share. It supports requests with one kind of chunk and without
pools; the benchmarks have no others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schedd.model import Node, NodeState, Place, Request, matches

Ints = NDArray[np.int64]

_FAR = 1 << 61
_UNLIMITED = 1 << 50


@dataclass(frozen=True, slots=True)
class Holding:
    """What one job holds of one node over ``[start, end)``; an exclusive job holds it whole."""

    node: str
    start: int
    end: int
    cpus: int
    mem: int
    gpus: int
    exclusive: bool = False


class Plain:
    """Nodes and holdings, looked at as a whole."""

    def __init__(self, nodes: Sequence[Node], holdings: Sequence[Holding]) -> None:
        self._nodes = list(nodes)
        index = {node.name: i for i, node in enumerate(nodes)}
        # Changes of free amounts: cpus, mem, gpus; jobs on the node, jobs with the whole node.
        n = len(holdings)
        at = np.array([index[h.node] for h in holdings], np.int64)
        amounts = np.array(
            [(h.cpus, h.mem, h.gpus, 1, int(h.exclusive)) for h in holdings], np.int64
        ).reshape(n, 5)
        starts = np.array([h.start for h in holdings], np.int64)
        ends = np.array([h.end for h in holdings], np.int64)
        begin = np.full(len(nodes), -_FAR)
        rows = np.concatenate([np.arange(len(nodes)), at, at])
        times = np.concatenate([begin, starts, ends])
        changes = np.concatenate([np.zeros((len(nodes), 5), np.int64), amounts, -amounts])
        order = np.lexsort((times, rows))
        rows, times, changes = rows[order], times[order], changes[order]
        # Every node's changes sum to nothing, so one running sum serves for all.
        used = np.cumsum(changes, axis=0)
        last = np.append((rows[1:] != rows[:-1]) | (times[1:] != times[:-1]), True)
        self._row, self._from, self._used = rows[last], times[last], used[last]
        self._until = np.append(self._from[1:], _FAR)
        self._until[np.append(self._row[1:] != self._row[:-1], True)] = _FAR
        capacity = [(node.cpus, node.mem or _UNLIMITED, node.gpus) for node in nodes]
        self._capacity = np.array(capacity, np.int64).reshape(len(nodes), 3)

    def over_committed(self) -> list[tuple[str, int]]:
        """Each (node, time) where more is held than exists, or two jobs share an exclusive node."""
        used = self._used
        bad = (used[:, :3] > self._capacity[self._row]).any(axis=1)
        bad |= (used[:, 4] > 0) & (used[:, 3] > 1)
        return [(self._nodes[self._row[i]].name, int(self._from[i])) for i in np.flatnonzero(bad)]

    def earliest(self, request: Request, duration: int, ready: int) -> int:
        """The earliest start from ``ready`` on of a request of one kind of chunk; -1: there is none.

        Raises ValueError for requests of several kinds, vmem or generic resources.
        """
        if len(request.chunks) != 1 or request.chunks[0].vmem or request.chunks[0].resources:
            raise ValueError(f"{request}: the plain checker knows one kind of chunk of cpus, mem and gpus")
        chunk = request.chunks[0]
        packed = request.place is Place.PACK
        count, size = (1, chunk.count) if packed else (chunk.count, 1)
        need = np.array([chunk.cpus, chunk.mem, chunk.gpus], np.int64) * size
        may = np.array(
            [
                node.state is NodeState.UP and matches(chunk.features, node.all_features)
                for node in self._nodes
            ]
        ) & (need <= self._capacity).all(axis=1)
        here = may[self._row]
        row, begin, end, used = self._row[here], self._from[here], self._until[here], self._used[here]
        capacity = self._capacity[row]
        free = capacity if request.exclusive else capacity - used[:, :3]
        open_to_us = (used[:, 3] == 0) if request.exclusive else (used[:, 4] == 0)
        fits = np.full(row.shape[0], count)
        for r in range(3):
            if need[r]:
                fits = np.minimum(fits, free[:, r] // need[r])
        fits = np.where(open_to_us, fits, 0)
        most = 1 if request.place is Place.SCATTER else count
        edges: list[Ints] = []
        gains: list[Ints] = []
        for units in range(1, int(min(most, fits.max(initial=0))) + 1):
            first, last = _windows(row, begin, end, fits >= units, duration, ready)
            edges += [first, last + 1]
            gains += [np.ones_like(first), -np.ones_like(last)]
        if not edges:
            return -1
        moments, place = np.unique(np.concatenate(edges), return_inverse=True)
        total = np.zeros(moments.shape[0], np.int64)
        np.add.at(total, place, np.concatenate(gains))
        enough = np.flatnonzero(np.cumsum(total) >= count)
        return int(moments[enough[0]]) if enough.shape[0] else -1


def _windows(
    row: Ints, begin: Ints, end: Ints, ok: NDArray[np.bool_], duration: int, ready: int
) -> tuple[Ints, Ints]:
    """First and last possible start in every run of pieces that are ``ok``, from ``ready`` on."""
    joined = ok[1:] & ok[:-1] & (row[1:] == row[:-1])
    firsts = np.flatnonzero(ok & ~np.concatenate([[False], joined]))
    lasts = np.flatnonzero(ok & ~np.concatenate([joined, [False]]))
    first, last = np.maximum(begin[firsts], ready), end[lasts] - duration
    good = first <= last
    return first[good], last[good]
