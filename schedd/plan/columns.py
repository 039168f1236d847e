"""Read-only columns of a plan by slot, and the resources held by jobs, under names.

The arrays and the numbers of their columns are the plan's own: see ``kernels/layout.py``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from schedd.plan.kernels.evaluate import Floats
from schedd.plan.kernels.layout import (
    A_CHUNK,
    A_ROW,
    A_TAKE,
    A_UNITS,
    ALLOC,
    ALLOCS,
    CPUS,
    DUR,
    FIXED,
    GPUS,
    MEM,
    MOST_RESOURCES,
    PLANNED,
    POOLS,
    READY,
    SHAPE,
    SHARE,
    START,
    STATE,
    UNPLACED,
    VACANT,
    WHOLE,
    Ints,
)
from schedd.plan.records import Take

__all__ = [
    "CPUS",
    "FIXED",
    "GPUS",
    "MEM",
    "MOST_RESOURCES",
    "PLANNED",
    "SHARE",
    "UNPLACED",
    "VACANT",
    "WHOLE",
    "Floats",
    "HeldEntries",
    "HeldEntry",
    "Ints",
    "PlanReadView",
    "SlotColumns",
]
# VACANT, UNPLACED, PLANNED, FIXED: the states of a slot. CPUS, SHARE, MEM, GPUS: the columns of amounts.
# WHOLE: the amount of SHARE that all of a node is.


class HeldEntry(NamedTuple):
    """Resources that a job holds of one row: of a node, or of a pool."""

    row: int
    chunk: int  # chunk of its request that the `units` belong to; below 0 for a pool
    units: int
    amounts: list[int]  # one per resource column; of a pool the first

    @property
    def is_pool(self) -> bool:
        """Whether the row is a pool's."""
        return self.chunk < 0


@dataclass(frozen=True, slots=True, eq=False)
class HeldEntries:
    """Resources that several jobs hold: n entries, by job in the requested order. Read-only columns."""

    owner: Ints  # (n,) indices in the requested slots
    _table: Ints

    def __len__(self) -> int:
        return int(self.owner.shape[0])

    def __iter__(self) -> Iterator[tuple[int, HeldEntry]]:
        """Yield (owner, entry) of each."""
        for owner, (row, chunk, units, *amounts) in zip(
            self.owner.tolist(), self._table.tolist(), strict=True
        ):
            yield owner, HeldEntry(row, chunk, units, amounts)

    @property
    def rows(self) -> Ints:
        """(n,) rows of nodes and pools."""
        column: Ints = self._table[:, A_ROW]
        return column

    @property
    def are_pools(self) -> npt.NDArray[np.bool_]:
        """(n,) whether the row is a pool's."""
        return self._table[:, A_CHUNK] < 0

    @property
    def amounts(self) -> Ints:
        """(n, resources) held amounts; of pools in the first column."""
        columns: Ints = self._table[:, A_TAKE:]
        return columns

    def select(self, which: npt.NDArray[np.bool_]) -> Self:
        return type(self)(self.owner[which], self._table[which])


class SlotColumns:
    """Columns by slot, present state: views of the plan's own arrays, read-only."""

    __slots__ = ("_jobs",)

    def __init__(self, jobs: Ints) -> None:
        self._jobs = jobs

    @property
    def size(self) -> int:
        return int(self._jobs.shape[1])

    def _column(self, field: int) -> Ints:
        column: Ints = self._jobs[field]
        column.flags.writeable = False
        return column

    @property
    def starts(self) -> Ints:
        """(slots,) planned or actual starts; -1: none."""
        return self._column(START)

    @property
    def durations(self) -> Ints:
        """(slots,) seconds that each job holds its resources."""
        return self._column(DUR)

    @property
    def shapes(self) -> Ints:
        """(slots,) numbers of the requests; equal requests of nodes have the same."""
        return self._column(SHAPE)

    @property
    def pool_counts(self) -> Ints:
        """(slots,) how many pools each job takes from."""
        return self._column(POOLS)

    @property
    def ready(self) -> Ints:
        """(slots,) earliest starts allowed."""
        return self._column(READY)

    @property
    def states(self) -> Ints:
        """(slots,) VACANT, UNPLACED, PLANNED or FIXED."""
        return self._column(STATE)


_KEPT = [START, DUR, STATE, ALLOC, ALLOCS]
_START, _DUR, _STATE, _ALLOC, _ALLOCS = range(5)


class PlanReadView:
    """The plan at one time, readable by any thread.

    Held entries are not copied: the plan never changes an entry.
    """

    __slots__ = ("_alloc", "_jobs")

    def __init__(self, jobs: Ints, alloc: Ints) -> None:
        self._jobs: Ints = jobs[_KEPT]
        self._jobs.flags.writeable = False
        self._alloc = alloc

    @property
    def starts(self) -> Ints:
        """(slots,) planned or actual starts; -1: none."""
        column: Ints = self._jobs[_START]
        return column

    @property
    def durations(self) -> Ints:
        """(slots,) seconds that each job holds its resources."""
        column: Ints = self._jobs[_DUR]
        return column

    @property
    def states(self) -> Ints:
        """(slots,) VACANT, UNPLACED, PLANNED or FIXED."""
        column: Ints = self._jobs[_STATE]
        return column

    def held_by(self, slot: int) -> list[HeldEntry]:
        """Return the entries of one job, nodes before pools."""
        first = int(self._jobs[_ALLOC, slot])
        rows = self._alloc[first : first + int(self._jobs[_ALLOCS, slot])].tolist()
        return [HeldEntry(row, chunk, units, amounts) for row, chunk, units, *amounts in rows]

    def takes(self, slot: int) -> tuple[Take, ...]:
        """Return what one job holds of nodes; see ``Plan.takes``."""
        return tuple(
            Take(entry.row, entry.chunk, entry.units, tuple(entry.amounts))
            for entry in self.held_by(slot)
            if not entry.is_pool
        )

    def held(self, slots: Ints) -> HeldEntries:
        """Return the entries of all ``slots``."""
        return select_entries(self._alloc, self._jobs[_ALLOC, slots], self._jobs[_ALLOCS, slots])


def select_entries(alloc: Ints, first: Ints, counts: Ints) -> HeldEntries:
    """Return the entries of jobs that have ``counts`` of them each, from ``first`` on."""
    owner: Ints = np.repeat(np.arange(counts.shape[0]), counts)
    before = np.cumsum(counts) - counts
    table: Ints = alloc[first[owner] + np.arange(owner.shape[0]) - before[owner]]
    table.flags.writeable = False
    return HeldEntries(owner, table)


assert (A_ROW, A_CHUNK, A_UNITS, A_TAKE) == (0, 1, 2, 3), "an Entry is a row of the allocations"
