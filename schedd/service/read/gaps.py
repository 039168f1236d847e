"""Gaps of a published plan: free capacity by node and time."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from schedd.engine import PlanSnapshot
from schedd.plan.columns import CPUS, GPUS, MEM, SHARE, Ints
from schedd.service.read.cursors import decode_cursor, encode_cursor
from schedd.wire import NodeFacts

_USED = 4  # cpus, shares, memory, gpus


@dataclass(frozen=True, slots=True)
class CapacityStep:
    """Free capacity of all usable nodes together over `[start, end)`."""

    start: int
    end: int
    cpus: int
    idle_nodes: int
    """Nodes without planned jobs."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Free capacity of one node over `[start, end)`. A memory of null is unknown."""

    node: str
    start: int
    end: int
    cpus: int
    mem: int | None
    gpus: int


@dataclass(frozen=True, slots=True)
class Gaps:
    """Totals over the window, and the gaps of some nodes; ``next`` is the cursor of the next page."""

    totals: tuple[CapacityStep, ...]
    gaps: tuple[Gap, ...]
    next: str | None


def find_gaps(
    published: PlanSnapshot,
    begin: int,
    end: int,
    *,
    cpus: int = 1,
    from_begin: bool = False,
    cursor: str | None = None,
    limit: int = 1_000,
) -> Gaps:
    """Return the gaps of at least ``cpus`` cpus in ``[begin, end)`` on nodes that are up.

    Nothing is free before the plan's present time. Nodes are in order of name, after ``cursor``; all gaps of
    a node are on one page, and a page ends with the node that reaches ``limit``. With ``from_begin`` there
    are no totals, and only contiguous gaps from ``begin`` on.
    """
    behind: str = decode_cursor(cursor, "gaps", str, int, int)[0] if cursor is not None else ""
    window = (begin, end)
    begin = max(begin, published.as_of)
    if begin >= end:
        return Gaps((), (), None)
    usable = [(name, facts) for name, facts in sorted(published.nodes.items()) if facts.state == "up"]
    if from_begin:  # most nodes are full then, and their later gaps do not matter
        taken = _cpus_in_use(published, begin)
        usable = [(name, facts) for name, facts in usable if facts.cpus - taken.get(name, 0) >= cpus]
    held = _changes_by_node(published, begin, end)
    found: list[Gap] = []
    following: str | None = None
    last = ""
    for name, facts in usable:
        if name <= behind:
            continue
        if len(found) >= limit:
            following = encode_cursor("gaps", last, *window)
            break
        last = name
        here = _node_gaps(name, facts, *_steps(begin, held.get(name)), end, cpus)
        found += _contiguous_gaps(here, begin) if from_begin else here
    totals = () if from_begin else capacity_steps(published, begin, end)
    return Gaps(totals, tuple(found), following)


def capacity_steps(published: PlanSnapshot, begin: int, end: int) -> tuple[CapacityStep, ...]:
    """Return the free capacity of all nodes that are up in ``[begin, end)``, not before the plan's time."""
    begin = max(begin, published.as_of)
    up = {name: facts.cpus for name, facts in published.nodes.items() if facts.state == "up"}
    if begin >= end or not up:
        return ()
    size = np.full(max(published.names, default=-1) + 1, -1, np.int64)  # cpus by row; -1: not up
    for row, name in published.names.items():
        size[row] = up.get(name, -1)
    rows, changes = _usage_changes(published, begin, end)
    here = size[rows] >= 0
    rows, changes = rows[here], changes[:, here]
    first = np.diff(rows, prepend=-1) != 0
    sums = np.cumsum(changes[1:3], axis=1)
    of_row = np.maximum.accumulate(np.where(first, np.arange(rows.shape[0]), 0))  # first change of its row
    used = sums - (sums - changes[1:3])[:, of_row]
    # Of several changes at one moment the last counts.
    final = np.append((np.diff(changes[0]) != 0) | first[1:], True)[: rows.shape[0]]
    rows, times, used = rows[final], changes[0, final], used[:, final]
    free = np.stack([np.maximum(size[rows] - used[0], 0), used[1] == 0])
    before = np.roll(free, 1, axis=1)
    first = np.diff(rows, prepend=-1) != 0
    before[0, first], before[1, first] = size[rows[first]], 1
    moments, at = np.unique(np.append(times, begin), return_inverse=True)
    totals = np.zeros((2, moments.shape[0]), np.int64)
    for k, all_free in enumerate((sum(up.values()), len(up))):
        np.add.at(totals[k], at[:-1], (free - before)[k])
        totals[k, 0] += all_free
    totals = np.cumsum(totals, axis=1)
    # Neighbours between which nothing changes are one step.
    apart = np.flatnonzero(np.append(True, (np.diff(totals, axis=1) != 0).any(axis=0)))
    edges = [*moments[apart].tolist(), end]
    steps = totals[:, apart].T.tolist()
    return tuple(CapacityStep(edges[i], edges[i + 1], cpus, idle) for i, (cpus, idle) in enumerate(steps))


def gaps_on(published: PlanSnapshot, begin: int, end: int, names: AbstractSet[str]) -> Iterator[Gap]:
    """Yield the gaps in ``[begin, end)`` of these nodes if they are up, by name, in order of time."""
    begin = max(begin, published.as_of)
    if begin >= end:
        return
    held = _changes_by_node(published, begin, end, names)
    for name in sorted(names & published.nodes.keys()):
        facts = published.nodes[name]
        if facts.state == "up":
            yield from _node_gaps(name, facts, *_steps(begin, held.get(name)), end, 1)


def _contiguous_gaps(found: list[Gap], begin: int) -> Iterator[Gap]:
    """Yield the first gaps of a node, up to the first interruption."""
    for gap in found:
        if gap.start != begin:
            return
        yield gap
        begin = gap.end


def _cpus_in_use(published: PlanSnapshot, moment: int) -> dict[str, int]:
    """Return the cpus in use at a moment, by node."""
    starts, durations = published.starts, published.durations
    held = published.on_nodes(
        np.flatnonzero((starts <= moment) & (starts >= 0) & (starts + durations > moment))
    )
    nodes, which = np.unique(held.rows, return_inverse=True)
    sums = np.bincount(which, held.amounts[:, CPUS], nodes.shape[0]).astype(np.int64)
    names = published.names
    return {names[row]: n for row, n in zip(nodes.tolist(), sums.tolist(), strict=True) if row in names}


def _usage_changes(
    published: PlanSnapshot, begin: int, end: int, names: AbstractSet[str] | None = None
) -> tuple[Ints, Ints]:
    """Return changes of the used amounts by row, then time: rows (n,), and (5, n) of times and changes.

    For the named nodes, or for all.
    """
    starts, durations = published.starts, published.durations
    slots = np.flatnonzero((starts >= 0) & (starts < end) & (starts + durations > begin))
    held = published.on_nodes(slots)
    takes = held.amounts[:, [CPUS, SHARE, MEM, GPUS]].T
    first = np.maximum(starts[slots], begin)[held.owner]
    after = (starts[slots] + durations[slots])[held.owner]
    at = np.concatenate([first, after])
    row = np.concatenate([held.rows] * 2)
    wanted = at < end
    if names is not None:
        rows = [row for row, name in published.names.items() if name in names]
        wanted &= np.isin(row, np.array(rows, row.dtype))
    changes = np.vstack([at, np.concatenate([takes, -takes], axis=1)])[:, wanted]
    row = row[wanted]
    order = np.lexsort((changes[0], row))
    return row[order], changes[:, order]


def _changes_by_node(
    published: PlanSnapshot, begin: int, end: int, names: AbstractSet[str] | None = None
) -> dict[str, Ints]:
    """Return the changes of the used amounts by node: (5, n), times in order and changes."""
    row, changes = _usage_changes(published, begin, end, names)
    edges = np.flatnonzero(np.diff(row)) + 1
    pieces = np.split(changes, edges, axis=1)
    return {
        published.names[int(row[edge])]: piece
        for edge, piece in zip([0, *edges.tolist()], pieces, strict=True)
        if piece.shape[1] and int(row[edge]) in published.names
    }


def _steps(begin: int, held: Ints | None) -> tuple[Ints, Ints]:
    """Return times (n,) from ``begin`` on, and the amounts in use (4, n) from each of them."""
    if held is None:
        return np.array([begin], np.int64), np.zeros((_USED, 1), np.int64)
    used = np.cumsum(held[1:], axis=1)
    # Of several changes at one moment the last counts.
    final = np.flatnonzero(np.append(np.diff(held[0]) > 0, True))
    times, used = held[0, final], used[:, final]
    if times[0] > begin:
        times = np.append(np.int64(begin), times)
        used = np.concatenate([np.zeros((_USED, 1), np.int64), used], axis=1)
    return times, used


def _node_gaps(name: str, facts: NodeFacts, starts: Ints, used: Ints, end: int, cpus: int) -> list[Gap]:
    free = np.maximum(np.array([[facts.cpus], [facts.mem], [facts.gpus]]) - used[[0, 2, 3]], 0)
    ends = np.append(starts[1:], end)
    # Neighbours between which nothing changes are one gap.
    same = (np.diff(free, axis=1) == 0).all(axis=0)
    first = np.flatnonzero(np.append(True, ~same))
    last = np.append(first[1:] - 1, starts.shape[0] - 1)
    return [
        Gap(
            name,
            int(starts[i]),
            int(ends[j]),
            int(free[0, i]),
            int(free[1, i]) if facts.mem else None,
            int(free[2, i]),
        )
        for i, j in zip(first.tolist(), last.tolist(), strict=True)
        if free[0, i] >= max(cpus, 1)
    ]
