"""Values that the plan returns: what a job holds of a row, free capacity over time, and moves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from schedd.model import Request
from schedd.plan.kernels.layout import Ints
from schedd.wire.quick_init import quick_init


@quick_init
@dataclass(frozen=True, slots=True)
class RequestVariant:
    """One of several requests that a job may be planned with: its duration in seconds, and its amounts by
    pool.
    """

    request: Request
    duration: int
    pools: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Take:
    """Part of a row that a job holds: ``units`` of chunk ``chunk``, with ``amounts`` per resource column."""

    row: int
    chunk: int
    units: int
    amounts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChunkNeeds:
    """Equal units of a request: ``count`` of them, at most ``per_node`` on a row, each with a ``need`` per
    resource column, on these ``rows``.
    """

    count: int
    per_node: int
    need: list[int]
    rows: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """A row's free capacity: from each of (n,) ``times`` on, (resources, n) ``free`` of ``capacity``."""

    times: Ints
    free: Ints
    capacity: Ints

    def at(self, moment: int) -> Ints:
        """Return the free capacity at a time, (resources,)."""
        k = max(0, int(np.searchsorted(self.times, moment, side="right")) - 1)
        free: Ints = self.free[:, k]
        return free


NO_SLOTS: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Moves:
    """Jobs with a changed start: slots, old starts (-1: none), new starts (-1: none); equal lengths.

    ``elsewhere``: slots of jobs that were placed again with the same start, perhaps on other nodes.
    """

    slots: Ints
    old: Ints
    new: Ints
    elsewhere: Ints = field(default_factory=lambda: NO_SLOTS)

    def __len__(self) -> int:
        return int(self.slots.shape[0])


@dataclass(frozen=True, slots=True)
class DelayedJobs:
    """Jobs that were delayed, and removed for it, each by start; with their previous starts."""

    delayed: Ints
    starts: Ints
    removed: Ints
    removed_starts: Ints
    rows: Ints
    """Nodes and pools that removed jobs held."""


NO_MOVES: Final = Moves(*np.zeros((3, 0), np.int64))


def merge_moves(parts: list[Ints]) -> Moves:
    """Merge ``parts``, each (n, 3) slot, old start, new start, in the order in which they were made."""
    if not parts:
        return NO_MOVES
    whole = np.concatenate(parts)
    # A job may move more than once: its first old start and its last new one count.
    slots, first = np.unique(whole[:, 0], return_index=True)
    _, last = np.unique(whole[::-1, 0], return_index=True)
    return Moves(slots, whole[first, 1], whole[::-1][last, 2])
