"""Whether empty nodes have room for units of several kinds together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Units", "could_hold"]


@dataclass(frozen=True, slots=True)
class Units:
    """``count`` equal units, at most ``per_node`` on a row, each with a ``need`` per resource column."""

    count: int
    per_node: int
    need: tuple[int, ...]
    rows: tuple[int, ...]


def could_hold(chunks: Sequence[Units], capacity: Mapping[int, Sequence[int]]) -> bool:
    """Whether rows of this ``capacity`` take all ``chunks``: each unit on a row of its own where that is
    asked (``per_node`` 1); else first fit in the order of chunks and rows, as placing does it.
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


def _matched(chunks: Sequence[Units]) -> bool:
    """A maximum matching of units and rows, by augmenting paths over chunks."""
    holder: dict[int, int] = {}
    for first, chunk in enumerate(chunks):
        for _ in range(chunk.count):
            # Breadth-first: a chunk takes the row of another, which takes that of a third, ... a free one.
            came: dict[int, tuple[int, int]] = {first: (-1, -1)}
            queue = [first]
            free = -1
            for one in queue:
                for row in chunks[one].rows:
                    if row not in holder:
                        free = row
                        break
                    if holder[row] not in came:
                        came[holder[row]] = (one, row)
                        queue.append(holder[row])
                if free >= 0:
                    while one >= 0:
                        holder[free] = one
                        one, free = came[one]
                    break
            else:
                return False
    return True
