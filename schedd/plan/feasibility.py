"""Check whether empty nodes can hold several groups of units together."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class UnitGroup:
    """``count`` equal units, at most ``per_node`` on a row, each with a ``need`` per resource column."""

    count: int
    per_node: int
    need: tuple[int, ...]
    rows: tuple[int, ...]


def could_hold(chunks: Sequence[UnitGroup], capacity: Mapping[int, Sequence[int]]) -> bool:
    """Whether rows of this ``capacity`` take all ``chunks``: each unit on a row of its own where requested
    (``per_node`` 1); else first fit in the order of chunks and rows, as placing does it.
    """
    if chunks[0].per_node == 1:
        return _matched(chunks)
    left = {row: list(capacity[row]) for chunk in chunks for row in chunk.rows}
    for chunk in chunks:
        units = chunk.count
        needs = [(column, need) for column, need in enumerate(chunk.need) if need]
        for row in chunk.rows:
            fit = min((left[row][column] // need for column, need in needs), default=units)
            fit = max(0, min(fit, units))
            for column, need in needs:
                left[row][column] -= fit * need
            units -= fit
        if units:
            return False
    return True


def _matched(chunks: Sequence[UnitGroup]) -> bool:
    """Whether each unit gets a row of its own: a maximum flow from chunks to rows, by shortest augmenting
    paths.

    Rows that serve the same chunks are one vertex with their number as its capacity, so that the time is
    linear in rows, whatever the number of units.
    """
    serves: dict[int, int] = {}
    for i, chunk in enumerate(chunks):
        for row in chunk.rows:
            serves[row] = serves.get(row, 0) | 1 << i
    free = Counter(serves.values())
    groups = [[group for group in free if group >> i & 1] for i in range(len(chunks))]
    held: list[Counter[int]] = [Counter() for _ in chunks]
    for first, chunk in enumerate(chunks):
        left = chunk.count
        while left:
            path = _augmenting_path(first, groups, free, held)
            if not path:
                return False
            given = min(left, free[path[-1][1]], *(held[one][group] for one, group in _released_groups(path)))
            for one, group in _released_groups(path):
                held[one][group] -= given
            for one, group in path:
                held[one][group] += given
            free[path[-1][1]] -= given
            left -= given
    return True


def _released_groups(path: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Return (chunk, group) pairs: rows that each chunk of the path gives up for the previous chunk."""
    return ((following, group) for (_, group), (following, _) in pairwise(path))


def _augmenting_path(
    first: int, groups: Sequence[Sequence[int]], free: Mapping[int, int], held: Sequence[Mapping[int, int]]
) -> list[tuple[int, int]]:
    """The shortest path from a chunk to a group with free rows, by breadth-first search: each chunk, and the
    group from which it takes rows; the chunk after it gives them up. Empty where there is none.
    """
    came: dict[int, tuple[int, int]] = {first: (-1, -1)}
    queue = [first]
    for one in queue:
        for group in groups[one]:
            if free[group]:
                path = [(one, group)]
                while came[path[0][0]][0] >= 0:
                    path.insert(0, came[path[0][0]])
                return path
            for other in range(len(held)):
                if other not in came and held[other].get(group):
                    came[other] = (one, group)
                    queue.append(other)
    return []
