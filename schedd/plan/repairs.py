"""The state of the repair: what was freed and not yet used, and how far the present pass has come."""

from dataclasses import dataclass

import numpy as np

from schedd.plan.job_order import ArrayEnds, by_age, by_completion, by_start
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.freed import drop_checked, forget_freed, note_freed, note_freed_entries
from schedd.plan.kernels.layout import Ints
from schedd.plan.kernels.projection import MOST_NOW, WHOLE_PASS
from schedd.plan.kernels.repair import PAUSED, repair
from schedd.plan.records import Moves, merge_moves, no_moves
from schedd.plan.schema import NUMBER, SLOTS, declared
from schedd.plan.slabs import Slabs

__all__ = ["WHOLE_PASS", "Repairs"]

_MOST_TAKEN = 1 << 16
"""A slice with a larger budget may run out of room for allocations."""

_LEAST_SHARE = 4
"""This part of a slice's budget is left for searching when a pass begins with putting the jobs in order."""


@dataclass(eq=False)
class Repairs:
    """Lets jobs start earlier where something was freed, in slices; its place is kept over events."""

    _slabs: Slabs
    _order: Ints = declared(SLOTS, make=lambda: np.zeros(0, np.int64))
    """Of the pass that is under way, which has come to the ``_cursor``."""
    _cursor: int = declared(NUMBER, default=0)
    _under_way: bool = declared(NUMBER, default=False)
    _began_at: int = declared(NUMBER, default=0)
    """The number that the next hole had when the pass began."""
    _next_untried: int = declared(NUMBER, default=0)
    """The number of the first hole for which nobody was tried for a start at once."""
    _untried: Ints = declared(SLOTS, make=lambda: np.zeros(0, np.int64))
    """Who is still to be tried for a start at once, by a pass that was left for the next call."""
    _untried_since: int = declared(NUMBER, default=0)
    """It looks at the holes from this number on,"""
    _untried_flags: int = declared(NUMBER, default=0)
    """and searches as a whole whom this says."""
    _next_by_start: bool = declared(NUMBER, default=False)
    """The pass that began last does not go by starts: with arrays, the one that follows it does."""

    def note_freed(self, row: int, start: int, end: int) -> None:
        """Something was freed on ``row`` over ``[start, end)``; call this when it is done."""
        if start < end:
            self._slabs.fit_log()
            note_freed(self._slabs.tb, self._slabs.freed, row, start, end)

    def note_freed_entries(self, first: int, n: int, start: int, end: int) -> None:
        """What ``n`` entries of the allocations, from ``first`` on, held was freed over ``[start, end)``."""
        if start < end:
            self._slabs.fit_log()
            note_freed_entries(self._slabs.tb, self._slabs.freed, first, n, start, end)

    def mark_for_search(self, slot: int) -> None:
        """``slot`` may gain though nothing was freed."""
        self._slabs.tb.jobs[at.SEEN, slot] = -1
        self._slabs.tb.ctl[at.SEARCH_FLAGS] |= at.TO_SEARCH | at.NAMED
        self.discard_partial_search(slot)

    def discard_partial_search(self, slot: int) -> None:
        """``slot`` asks for something else: what a search for it found so far is void."""
        if self._slabs.tb.ctl[at.PARTIAL] == slot + 1:
            self._slabs.tb.ctl[at.PARTIAL] = 0

    def discard_partial_searches(self) -> None:
        """Jobs may move elsewhere than before: what a search found so far is void."""
        self._slabs.tb.ctl[at.PARTIAL] = 0

    def discard_freed(self) -> None:
        """Drop what was freed: nobody repairs."""
        forget_freed(self._slabs.tb)
        self._slabs.tb.ctl[at.SEARCH_FLAGS] = 0
        self._under_way = False
        self._untried = np.zeros(0, np.int64)

    def mark_all_for_search(self) -> None:
        """Everybody may gain."""
        forget_freed(self._slabs.tb)
        self._next_untried = 0
        self._under_way = False
        self._untried = np.zeros(0, np.int64)

    @property
    def pending(self) -> bool:
        """Whether something was freed since the last repair came to its end."""
        ctl = self._slabs.tb.ctl
        return bool(self._under_way or ctl[at.FREED] or ctl[at.SEARCH_FLAGS] or self._untried.shape[0])

    @property
    def next_untried(self) -> int:
        """The number of the first hole for which nobody was tried for a start at once."""
        return self._next_untried

    @next_untried.setter
    def next_untried(self, number: int) -> None:
        self._next_untried = number

    def entries_needed(self, budget: int) -> int:
        """So many entries of the allocations are free when a slice begins that may do so much."""
        return min(budget, _MOST_TAKEN) // 4 + 2 * int(self._slabs.tb.out.shape[0])

    def resume_from(self, order: Ints, cursor: int, began_at: int) -> None:
        """Let the next slice go on with a pass over ``order`` that a kernel began, and came to ``cursor``,
        when the next hole had the number ``began_at``: it found a slab full.
        """
        self._order, self._cursor, self._began_at = order, cursor, began_at
        self._under_way = True

    def move_to_now(self, now: int, arrays: ArrayEnds | None = None) -> Moves:
        """Move to ``now`` planned jobs that can start there, who waits longest first; with ``arrays`` as in
        ``run``.

        Looks where something was freed since the last call or slice: what a slice leaves behind is looked at
        by the slices that follow, and a job need not be looked at twice for the same hole. Where that takes
        long, the next call goes on with it.
        """
        if not self.pending:
            return no_moves()
        moves: list[Ints] = []
        ctl = self._slabs.tb.ctl
        if self._untried.shape[0]:
            self._resume_now(now, arrays, moves)
        since = max(self._next_untried, int(ctl[at.FREED_BASE]))
        anew = bool(ctl[at.SEARCH_FLAGS] & (at.NAMED | at.LOST))
        if since == self._next_number and not anew:
            return merge_moves(moves)
        order = self._planned_in_order(arrays) if anew else self._select_startable(now, since, arrays)
        before, base, top = len(moves), int(ctl[at.FREED_BASE]), self._next_number
        if order.shape[0]:
            self._try_now(order, now, since, arrays, moves)
            self._clear_lost_and_named()
        if len(moves) > before:  # what they left others may reach
            lost = base != int(ctl[at.FREED_BASE])
            order = self._planned_in_order(arrays) if lost else self._select_startable(now, top, arrays)
            self._try_now(order, now, since, arrays, moves)
            self._clear_lost_and_named()
        self._next_untried = self._next_number
        return merge_moves(moves)

    def _resume_now(self, now: int, arrays: ArrayEnds | None, moves: list[Ints]) -> None:
        """Go on with the pass that was left."""
        ctl = self._slabs.tb.ctl
        order, self._untried = self._untried, np.zeros(0, np.int64)
        new = int(ctl[at.SEARCH_FLAGS])
        ctl[at.SEARCH_FLAGS] |= self._untried_flags
        self._try_now(order, now, max(self._untried_since, int(ctl[at.FREED_BASE])), arrays, moves)
        ctl[at.SEARCH_FLAGS] = (int(ctl[at.SEARCH_FLAGS]) & at.TO_SEARCH) | new

    def _try_now(
        self, order: Ints, now: int, since: int, arrays: ArrayEnds | None, moves: list[Ints]
    ) -> None:
        """Let those of ``order`` start now that can; who could not be tried is left for the next call."""
        look = int(self._slabs.tb.ctl[at.SEARCH_FLAGS])
        cursor, how = self._run_slice(order, 0, now, True, since, MOST_NOW, moves)
        if how != PAUSED:
            return
        if self._untried.shape[0]:
            since, look = min(since, self._untried_since), look | self._untried_flags
        self._untried = self._in_order(np.union1d(order[cursor:], self._untried), arrays)
        self._untried_since, self._untried_flags = since, look

    def _planned_in_order(self, arrays: ArrayEnds | None) -> Ints:
        """All planned jobs in their turn."""
        return self._in_order(np.flatnonzero(self._slabs.tb.jobs[at.STATE] == at.PLANNED), arrays)

    def _in_order(self, slots: Ints, arrays: ArrayEnds | None) -> Ints:
        """These planned jobs, whose slots ascend, in their turn."""
        jobs = self._slabs.tb.jobs
        return by_age(jobs, slots) if arrays is None else by_completion(jobs, slots, arrays)

    def _clear_lost_and_named(self) -> None:
        """Whoever is still to be searched as a whole is left to the slices that follow: for all of them, at
        each call, that would take as long as hundreds of slices.
        """
        self._slabs.tb.ctl[at.SEARCH_FLAGS] &= at.TO_SEARCH

    def _select_startable(self, now: int, since: int, arrays: ArrayEnds | None) -> Ints:
        """The planned jobs that room which was freed from ``since`` on may let start at ``now``."""
        tb, freed = self._slabs.tb, self._slabs.freed
        first, end = since - int(tb.ctl[at.FREED_BASE]), int(tb.ctl[at.FREED])
        pools = tb.rows[freed.entries[at.T_ROW, first:end], at.KIND] != at.NODE
        # Runs are measured from the present moment on: who starts now lasts no longer than one that begins
        # now, or has the row already and begins before its end.
        lengths = np.where(freed.since[:, first:end] <= now, freed.length[:, first:end], 0)[:, ~pools]
        longest = lengths.max(axis=1, initial=0)
        if not longest.shape[0]:  # no node: the log knows no level of need, and nobody is planned
            return np.zeros(0, np.int64)
        if not longest.any() and not pools.any():
            return np.zeros(0, np.int64)
        slots = np.flatnonzero(tb.jobs[at.STATE] == at.PLANNED)
        reach = self._longest_by_shape(longest)[tb.jobs[at.SHAPE, slots]]
        may = (tb.jobs[at.DUR, slots] <= reach) | ((tb.jobs[at.START, slots] <= now + reach) & (reach > 0))
        if pools.any():
            # Of pools no runs are measured: who starts now must last until room was freed in one of his own.
            until = int(freed.entries[at.T_LO, first:end][pools].min())
            may |= tb.jobs[at.DUR, slots] > until - now
        return self._in_order(slots[may], arrays)

    def _longest_by_shape(self, longest: Ints) -> Ints:
        """By shape, the longest of what ``longest`` says of the levels of need of its units; (shapes,)."""
        tb, n = self._slabs.tb, self._slabs.n_shapes
        # Who asks for more than any node has is of a level that the log does not know, and is not planned.
        of = longest[np.minimum(tb.chunks[: self._slabs.n_chunks, at.LEVEL], longest.shape[0] - 1)]
        first, last = tb.shapes[:n, at.CHUNK], tb.shapes[:n, at.CHUNKS] - 1
        found: Ints = of[first]
        for k in range(1, int(last.max(initial=0)) + 1):
            found = np.maximum(found, of[first + np.minimum(k, last)])
        return found

    @property
    def _next_number(self) -> int:
        """The number that the next hole will have."""
        ctl = self._slabs.tb.ctl
        return int(ctl[at.FREED_BASE] + ctl[at.FREED])

    def run(self, now: int, budget: int, arrays: ArrayEnds | None = None) -> tuple[Moves, bool]:
        """Go on for ``budget`` visited segments; returns who moved and whether the repair came to its end.

        Who waits longest comes first. With ``arrays``, (slots,) the number of each job's array and 0 for one
        of none, it is who ends first, where a job of an array ends with the last one of that array: small
        jobs get the holes that would not let the array end any earlier. The pass after such a one goes by
        starts (Netto 2009, algorithm 7).
        """
        moves: list[Ints] = []
        ctl = self._slabs.tb.ctl
        while True:
            if not self._under_way:
                if not self.pending:
                    self._next_by_start = False
                    return merge_moves(moves), True
                by_starts = arrays is not None and self._next_by_start
                self._order = by_start(self._slabs.tb.jobs) if by_starts else self._planned_in_order(arrays)
                self._next_by_start = not by_starts
                self._cursor = 0
                self._began_at = self._next_number
                ctl[at.SEARCH_FLAGS] = 0
                self._under_way = True
                # Putting a job in its order takes as long as visiting a segment.
                budget = max(budget - self._order.shape[0], budget // _LEAST_SHARE)
            before = int(ctl[at.WORK])
            self._cursor, how = self._run_slice(self._order, self._cursor, now, False, 0, budget, moves)
            self._next_untried = self._next_number
            self._clear_lost_and_named()
            if how == PAUSED:
                return merge_moves(moves), False
            self._under_way = False
            drop_checked(self._slabs.tb, self._slabs.freed, self._began_at)
            if not (ctl[at.FREED] or ctl[at.SEARCH_FLAGS]):
                self._untried = np.zeros(0, np.int64)  # all have seen all: nobody is left to be tried
            budget -= int(ctl[at.WORK]) - before
            if budget < self._order.shape[0] and self.pending:
                return merge_moves(moves), False

    def _run_slice(
        self, order: Ints, cursor: int, now: int, only_now: bool, since: int, budget: int, moves: list[Ints]
    ) -> tuple[int, int]:
        out = np.empty((order.shape[0] - cursor, 3), np.int64)
        ctl = self._slabs.tb.ctl
        self._slabs.fit_log()
        # So much that a slice does not run out of it: how far it comes depends on nothing but the plan.
        self._slabs.tidy(self.entries_needed(budget))
        while True:
            if ctl[at.NO_ROOM]:
                ctl[at.NO_ROOM] = 0
                if (
                    self._slabs.needs_growth
                ):  # else an event after that slice found a slab full, too, and made room
                    self._slabs.grow()
                    if budget < WHOLE_PASS:  # work enough for a slice
                        return cursor, PAUSED
            cursor, n, how = repair(
                self._slabs.tb, self._slabs.freed, order, cursor, now, only_now, since, budget, out
            )
            if n:
                moves.append(out[:n].copy())
            if how != at.FULL:
                return cursor, how
            ctl[at.NO_ROOM] = 1
            if budget < WHOLE_PASS:  # the next slice makes some
                return cursor, PAUSED
