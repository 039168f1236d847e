"""The state of the repair: what was freed and not yet used, and how far the present pass has come."""

import numpy as np

from schedd.plan.kernels import layout as at
from schedd.plan.kernels.freed import DIRTY_FIELDS, mark, mark_job, next_pass
from schedd.plan.kernels.layout import FAR, Ints
from schedd.plan.kernels.repair import FULL, PAUSED, repair
from schedd.plan.records import Moves, moves_of, no_moves
from schedd.plan.slabs import Slabs

__all__ = ["WHOLE_PASS", "Repairs", "planned"]

WHOLE_PASS = 1 << 60
"""A budget that no repair spends."""


def planned(jobs: Ints) -> Ints:
    """The slots of planned jobs by start, ties by slot."""
    slots: Ints = np.flatnonzero(jobs[at.STATE] == at.PLANNED)
    if not slots.shape[0]:
        return slots
    # One number for start and slot: sorting numbers is several times as quick as sorting by two keys.
    starts = jobs[at.START, slots]
    bits = int(slots[-1]).bit_length()
    first = int(starts.min())
    if (int(starts.max()) - first).bit_length() + bits > 62:
        by_start: Ints = slots[np.argsort(starts, kind="stable")]
        return by_start
    keys: Ints = ((starts - first) << bits) | slots
    keys.sort()
    keys &= (1 << bits) - 1
    return keys


class Repairs:
    """Lets jobs start earlier where something was freed, in slices; its place is kept over events."""

    def __init__(self, slabs: Slabs) -> None:
        self._slabs = slabs
        self.dirty = np.zeros((DIRTY_FIELDS, 0), np.int64)
        self._order = np.zeros(0, np.int64)
        self._cursor = 0
        self._under_way = False

    def fork(self, slabs: Slabs) -> "Repairs":
        """The same freed intervals, for a copy of the plan."""
        new = Repairs(slabs)
        new.dirty = self.dirty.copy()
        return new

    def fit_rows(self) -> None:
        """Know the rows that were added."""
        n = self._slabs.tb.rows.shape[0]
        kept = self.dirty.shape[1]
        dirty = np.zeros((DIRTY_FIELDS, n), np.int64)
        dirty[0] = dirty[2] = FAR
        dirty[:, :kept] = self.dirty
        self.dirty = dirty

    def freed(self, row: int, start: int, end: int) -> None:
        """Something was freed on ``row`` over ``[start, end)``."""
        if start < end:
            mark(self.dirty, row, start, end)

    def freed_by(self, slot: int, start: int, end: int) -> None:
        """``slot`` frees what it holds over ``[start, end)``."""
        if start < end:
            mark_job(self._slabs.tb, self.dirty, slot, start, end)

    @property
    def pending(self) -> bool:
        """Whether something was freed since the last repair came to its end."""
        return bool((self.dirty[0] < FAR).any())

    def now(self, now: int) -> Moves:
        """Move to ``now`` every planned job that can start there, earliest planned first."""
        if not self.pending:
            return no_moves()
        moves: list[Ints] = []
        self._slice(planned(self._slabs.tb.jobs), 0, now, True, WHOLE_PASS, moves)
        return moves_of(moves)

    def run(self, now: int, budget: int) -> tuple[Moves, bool]:
        """Go on for ``budget`` visited segments; returns who moved and whether the repair came to its end."""
        moves: list[Ints] = []
        while True:
            if not self._under_way:
                if not self.pending:
                    return moves_of(moves), True
                self._order = planned(self._slabs.tb.jobs)
                self._cursor = 0
                self.dirty[2] = FAR
                self.dirty[3] = 0
                self._under_way = True
            before = int(self._slabs.tb.ctl[at.WORK])
            self._cursor, how = self._slice(self._order, self._cursor, now, False, budget, moves)
            if how == PAUSED:
                return moves_of(moves), False
            budget -= int(self._slabs.tb.ctl[at.WORK]) - before
            self._under_way = False
            next_pass(self.dirty)

    def _slice(
        self, order: Ints, cursor: int, now: int, only_now: bool, budget: int, moves: list[Ints]
    ) -> tuple[int, int]:
        freed = np.empty(self.dirty.shape[1], np.int64)
        out = np.empty((order.shape[0] - cursor, 3), np.int64)
        while True:
            cursor, n, how = repair(
                self._slabs.tb, self.dirty, freed, order, cursor, now, only_now, budget, out
            )
            if n:
                moves.append(out[:n].copy())
            if how != FULL:
                return cursor, how
            self._slabs.grow()
