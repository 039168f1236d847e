"""State of the repair: freed intervals that are still unused, and the progress of the present pass."""

from dataclasses import dataclass

import numpy as np

from schedd.plan.job_order import NO_ORDER, NO_RANKS, ArrayEnds, by_age, by_completion, by_start
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.freed import drop_checked, forget_freed, note_freed, note_freed_entries
from schedd.plan.kernels.layout import Ints
from schedd.plan.kernels.projection import MOST_NOW, WHOLE_PASS
from schedd.plan.kernels.repair import PAUSED, repair
from schedd.plan.records import NO_MOVES, Moves, merge_moves
from schedd.plan.schema import NUMBER, SLOTS, FieldRule, declared
from schedd.plan.slabs import Slabs

__all__ = ["WHOLE_PASS", "Repairs"]

_MOST_TAKEN = 1 << 16  # a slice with a larger budget may run out of space for allocations

_LEAST_SHARE = 4
"""When a pass begins with sorting the jobs, at least the budget divided by this remains for searching."""


@dataclass(eq=False)
class Repairs:
    """Moves jobs to earlier starts where capacity was freed, in slices; its progress is kept over events."""

    _slabs: Slabs
    _order: Ints = declared(SLOTS, make=lambda: np.zeros(0, np.int64))
    """Jobs of the present pass, in order; done up to ``_cursor``."""
    _cursor: int = declared(NUMBER, default=0)
    _under_way: bool = declared(NUMBER, default=False)
    _began_at: int = declared(NUMBER, default=0)  # number of the next freed interval when the pass began
    _next_untried: int = declared(NUMBER, default=0)
    """Number of the first freed interval for which no immediate start was tried."""
    _untried: Ints = declared(SLOTS, make=lambda: np.zeros(0, np.int64))
    """Jobs for which the pass left for the next call still tries an immediate start."""
    _untried_since: int = declared(NUMBER, default=0)
    """Number of the first freed interval that this pass examines."""
    _untried_flags: int = declared(NUMBER, default=0)  # search flags of this pass
    _next_by_start: bool = declared(NUMBER, default=False)
    """The last pass was not in the order of starts; with arrays, the next one is."""
    ranks: Ints = declared(FieldRule(np.copy, saved=False), make=lambda: NO_RANKS)
    """Ranks by slot; jobs of the highest rank are moved first."""

    def note_freed(self, row: int, start: int, end: int) -> None:
        """Log that capacity was freed on ``row`` over ``[start, end)``; call it after the change."""
        if start < end:
            self._slabs.fit_log()
            note_freed(self._slabs.tb, self._slabs.freed, row, start, end)

    def note_freed_entries(self, first: int, n: int, start: int, end: int) -> None:
        """Log that ``n`` entries of the allocations, from ``first`` on, were freed over ``[start, end)``."""
        if start < end:
            self._slabs.fit_log()
            note_freed_entries(self._slabs.tb, self._slabs.freed, first, n, start, end)

    def mark_for_search(self, slot: int) -> None:
        """Let the next pass search ``slot`` as a whole, although nothing was freed."""
        self._slabs.tb.jobs[at.SEEN, slot] = -1
        self._slabs.tb.ctl[at.SEARCH_FLAGS] |= at.TO_SEARCH | at.NAMED
        self.discard_partial_search(slot)

    def mark_several_for_search(self, slots: Ints) -> None:
        """The same for several jobs."""
        if slots.shape[0]:
            self._slabs.tb.jobs[at.SEEN, slots] = -1
            self._slabs.tb.ctl[at.SEARCH_FLAGS] |= at.TO_SEARCH | at.NAMED
            if (slots == self._slabs.tb.ctl.item(at.PARTIAL) - 1).any():
                self._slabs.tb.ctl[at.PARTIAL] = 0

    def discard_partial_search(self, slot: int) -> None:
        """Discard a paused search for ``slot`` after a change of its request."""
        if self._slabs.tb.ctl[at.PARTIAL] == slot + 1:
            self._slabs.tb.ctl[at.PARTIAL] = 0

    def discard_partial_searches(self) -> None:
        """Discard a paused search, since jobs may now move elsewhere."""
        self._slabs.tb.ctl[at.PARTIAL] = 0

    def discard_freed(self) -> None:
        """Drop the log of freed intervals: no repair follows."""
        forget_freed(self._slabs.tb)
        self._slabs.tb.ctl[at.SEARCH_FLAGS] = 0
        self._under_way = False
        self._untried = np.zeros(0, np.int64)

    def mark_all_for_search(self) -> None:
        """Let the next pass search all jobs as a whole."""
        forget_freed(self._slabs.tb)
        self._next_untried = 0
        self._under_way = False
        self._untried = np.zeros(0, np.int64)

    @property
    def pending(self) -> bool:
        """Whether something was freed since the last complete repair."""
        item = self._slabs.tb.ctl.item
        return bool(self._under_way or item(at.FREED) or item(at.SEARCH_FLAGS) or self._untried.shape[0])

    @property
    def next_untried(self) -> int:
        """Number of the first freed interval not yet used for immediate starts."""
        return self._next_untried

    @next_untried.setter
    def next_untried(self, number: int) -> None:
        self._next_untried = number

    def entries_needed(self, budget: int) -> int:
        """Return the free entries of the allocations needed at the start of a slice with this budget."""
        return min(budget, _MOST_TAKEN) // 4 + 2 * int(self._slabs.tb.out.shape[0])

    def resume_from(self, order: Ints, cursor: int, began_at: int) -> None:
        """Let the next slice continue a pass over ``order`` that a kernel began and left at ``cursor``, since
        a slab was full; the next freed interval then had the number ``began_at``.
        """
        self._order, self._cursor, self._began_at = order, cursor, began_at
        self._under_way = True

    def move_to_now(self, now: int, arrays: ArrayEnds | None = None) -> Moves:
        """Move planned jobs to ``now`` that can start there; order and ``arrays`` as in ``run``.

        Examines intervals freed since the last call or slice: the following slices do the rest, and no job is
        examined twice for the same interval. If it takes long, the next call continues.
        """
        if not self.pending:
            return NO_MOVES
        moves: list[Ints] = []
        ctl = self._slabs.tb.ctl
        if self._untried.shape[0]:
            self._resume_now(now, arrays, moves)
        since = max(self._next_untried, ctl.item(at.FREED_BASE))
        anew = bool(ctl[at.SEARCH_FLAGS] & (at.NAMED | at.LOST))
        if since == self._next_number and not anew:
            return merge_moves(moves)
        order = self._planned_in_order(arrays) if anew else self._select_startable(now, since, arrays)
        before, base, top = len(moves), ctl.item(at.FREED_BASE), self._next_number
        if order.shape[0]:
            self._try_now(order, now, since, arrays, moves)
            self._clear_lost_and_named()
        if len(moves) > before:  # others may use the places they left
            lost = base != ctl.item(at.FREED_BASE)
            order = self._planned_in_order(arrays) if lost else self._select_startable(now, top, arrays)
            self._try_now(order, now, since, arrays, moves)
            self._clear_lost_and_named()
        self._next_untried = self._next_number
        return merge_moves(moves)

    def _resume_now(self, now: int, arrays: ArrayEnds | None, moves: list[Ints]) -> None:
        """Continue the pass that was left."""
        ctl = self._slabs.tb.ctl
        order, self._untried = self._untried, np.zeros(0, np.int64)
        new = ctl.item(at.SEARCH_FLAGS)
        ctl[at.SEARCH_FLAGS] |= self._untried_flags
        self._try_now(order, now, max(self._untried_since, ctl.item(at.FREED_BASE)), arrays, moves)
        ctl[at.SEARCH_FLAGS] = (ctl.item(at.SEARCH_FLAGS) & at.TO_SEARCH) | new

    def _try_now(
        self, order: Ints, now: int, since: int, arrays: ArrayEnds | None, moves: list[Ints]
    ) -> None:
        """Try to start the jobs of ``order`` now; untried jobs are left for the next call."""
        look = self._slabs.tb.ctl.item(at.SEARCH_FLAGS)
        cursor, how = self._run_slice(order, 0, now, True, since, MOST_NOW, moves)
        if how != PAUSED:
            return
        if self._untried.shape[0]:
            since, look = min(since, self._untried_since), look | self._untried_flags
        self._untried = self._in_order(np.union1d(order[cursor:], self._untried), arrays)
        self._untried_since, self._untried_flags = since, look

    def _planned_in_order(self, arrays: ArrayEnds | None) -> Ints:
        planned = np.flatnonzero(self._slabs.tb.jobs[at.STATE] == at.PLANNED)
        return self._in_order(planned, arrays, self._order)

    def _in_order(self, slots: Ints, arrays: ArrayEnds | None, former: Ints = NO_ORDER) -> Ints:
        """Return these planned jobs, given by ascending slot, in order; ``former``: see `by_age`."""
        jobs = self._slabs.tb.jobs
        if arrays is None:
            return by_age(jobs, slots, self.ranks, former)
        return by_completion(jobs, slots, arrays, self.ranks)

    def _clear_lost_and_named(self) -> None:
        """Leave jobs that must be searched as a whole to the following slices: at each call, all of them
        would take as long as hundreds of slices.
        """
        self._slabs.tb.ctl[at.SEARCH_FLAGS] &= at.TO_SEARCH

    def _select_startable(self, now: int, since: int, arrays: ArrayEnds | None) -> Ints:
        """Return the planned jobs that intervals freed from number ``since`` on may let start at ``now``."""
        tb, freed = self._slabs.tb, self._slabs.freed
        first, end = since - tb.ctl.item(at.FREED_BASE), tb.ctl.item(at.FREED)
        pools = tb.rows[freed.entries[at.T_ROW, first:end], at.KIND] != at.NODE
        # Runs are measured from now on: a job that starts now fits into a run that begins
        # now, or holds the row already and starts before the end of the run.
        lengths = np.where(freed.since[:, first:end] <= now, freed.length[:, first:end], 0)[:, ~pools]
        longest = lengths.max(axis=1, initial=0)
        if not longest.shape[0]:  # no node: the log has no level of need, and no job is planned
            return np.zeros(0, np.int64)
        if not longest.any() and not pools.any():
            return np.zeros(0, np.int64)
        slots = np.flatnonzero(tb.jobs[at.STATE] == at.PLANNED)
        reach = self._longest_by_shape(longest)[tb.jobs[at.SHAPE, slots]]
        may = (tb.jobs[at.DUR, slots] <= reach) | ((tb.jobs[at.START, slots] <= now + reach) & (reach > 0))
        if pools.any():
            # Runs in pools are not measured: a job must last until the first freed interval of its pools.
            until = int(freed.entries[at.T_LO, first:end][pools].min())
            may |= tb.jobs[at.DUR, slots] > until - now
        return self._in_order(slots[may], arrays)

    def _longest_by_shape(self, longest: Ints) -> Ints:
        """Return by shape the maximum of ``longest`` over the need levels of its chunks; (shapes,)."""
        tb, n = self._slabs.tb, self._slabs.n_shapes
        # A job that needs more than any node has is not planned; the log does not know its level.
        of = longest[np.minimum(tb.chunks[: self._slabs.n_chunks, at.LEVEL], longest.shape[0] - 1)]
        first, last = tb.shapes[:n, at.CHUNK], tb.shapes[:n, at.CHUNKS] - 1
        found: Ints = of[first]
        for k in range(1, int(last.max(initial=0)) + 1):
            found = np.maximum(found, of[first + np.minimum(k, last)])
        return found

    @property
    def _next_number(self) -> int:
        """Number of the next freed interval."""
        ctl = self._slabs.tb.ctl
        return int(ctl[at.FREED_BASE] + ctl[at.FREED])

    def run(self, now: int, budget: int, arrays: ArrayEnds | None = None) -> tuple[Moves, bool]:
        """Continue for ``budget`` visited segments. Return the moves and whether the repair is complete.

        Highest rank first, of equal ranks the oldest job. With ``arrays``, of equal ranks the first to end,
        where a job ends with the last job of its array: so small jobs use the holes that would not let an
        array end earlier. The pass after such a pass is, of equal ranks, in the order of starts (Netto 2009,
        algorithm 7).
        """
        moves: list[Ints] = []
        ctl = self._slabs.tb.ctl
        while True:
            if not self._under_way:
                if not self.pending:
                    self._next_by_start = False
                    return merge_moves(moves), True
                by_starts = arrays is not None and self._next_by_start
                self._order = (
                    by_start(self._slabs.tb.jobs, self.ranks) if by_starts else self._planned_in_order(arrays)
                )
                self._next_by_start = not by_starts
                self._cursor = 0
                self._began_at = self._next_number
                ctl[at.SEARCH_FLAGS] = 0
                self._under_way = True
                # Sorting a job takes as long as visiting a segment.
                budget = max(budget - self._order.shape[0], budget // _LEAST_SHARE)
            before = ctl.item(at.WORK)
            self._cursor, how = self._run_slice(self._order, self._cursor, now, False, 0, budget, moves)
            self._next_untried = self._next_number
            self._clear_lost_and_named()
            if how == PAUSED:
                return merge_moves(moves), False
            self._under_way = False
            drop_checked(self._slabs.tb, self._slabs.freed, self._began_at)
            if not (ctl[at.FREED] or ctl[at.SEARCH_FLAGS]):
                self._untried = np.zeros(0, np.int64)  # every job was tried for every interval
            budget -= ctl.item(at.WORK) - before
            if budget < self._order.shape[0] and self.pending:
                return merge_moves(moves), False

    def _run_slice(
        self, order: Ints, cursor: int, now: int, only_now: bool, since: int, budget: int, moves: list[Ints]
    ) -> tuple[int, int]:
        out = np.empty((order.shape[0] - cursor, 3), np.int64)
        ctl = self._slabs.tb.ctl
        self._slabs.fit_log()
        # Enough for a whole slice, so that its progress depends only on the plan.
        self._slabs.tidy(self.entries_needed(budget))
        while True:
            if ctl[at.NO_ROOM]:
                ctl[at.NO_ROOM] = 0
                if self._slabs.needs_growth:  # else a later event found the slab full and made room
                    self._slabs.grow()
                    if budget < WHOLE_PASS:  # enough work for one slice
                        return cursor, PAUSED
            cursor, n, how = repair(
                self._slabs.tb, self._slabs.freed, order, cursor, now, only_now, since, budget, out
            )
            if n:
                moves.append(out[:n].copy())
            if how != at.FULL:
                return cursor, how
            ctl[at.NO_ROOM] = 1
            if budget < WHOLE_PASS:  # the next slice makes room
                return cursor, PAUSED
