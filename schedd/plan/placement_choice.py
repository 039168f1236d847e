"""Placement of a new job by the value of the plan: best gap, and before jobs with later deadlines.

After D. Klusáček, Event-based Optimization of Schedules for Grid Jobs (2011), algorithms 4.7 and 4.8;
differences are in docs/developers/decisions/008-groups-of-nodes-and-deadlines.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from schedd.model import FOREVER
from schedd.plan.evaluate import CriterionWeights, Evaluation, ScoringColumns
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.layout import Ints
from schedd.plan.plan import Plan
from schedd.plan.records import NO_MOVES, Moves
from schedd.plan.trials import LEAST_GAIN, TrialOutcome, Trials

TRIES: Final = 8  # maximum number of attempts per tier to place a job before jobs with later deadlines
MOST_DISPLACED: Final = 20  # maximum number of jobs removed per attempt, including the new one


@dataclass(frozen=True, slots=True)
class DisplaceableJobs:
    """Planned jobs that may be displaced, by slot.

    ``latest``: the last start allowed; see ``latest_starts``. ``rank``: a job of higher rank than the new one
    is not displaced.
    """

    latest: Ints
    rank: Ints


@dataclass(frozen=True, slots=True)
class ChosenPlacement:
    """Placement of a job: at ``start``, on nodes of at least a ``tier``. ``first`` is its earliest start
    without displacing others; ``moves`` are the moves of displaced jobs.
    """

    start: int
    first: int
    tier: int
    moves: Moves


def choose_placement(
    plan: Plan,
    slot: int,
    columns: ScoringColumns,
    now: int,
    bound: int,
    weights: CriterionWeights,
    others: DisplaceableJobs | None = None,
) -> ChosenPlacement | None:
    """Place an unplaced job where the plan has the least cost by ``weights``; None: no gap before ``bound``.

    The candidates are the earliest gap on nodes of each tier or higher. Ties go to the earliest start, then
    to the fastest nodes. With ``others``, a job with a deadline is also tried before planned jobs with later
    ones; if only lateness has a weight, only a job that would be late.
    """
    placed = _earliest(plan, slot, now, bound)
    if placed is None:
        return None
    search = _PlacementSearch(plan, slot, columns, now, weights, *placed)
    if not weights.regular:
        search.wait_for_faster(bound)
    due = int(columns.due[slot])
    late = due < search.start + int(plan.tables.jobs[at.DUR, slot])
    if others is not None and due < FOREVER and (late or not weights.only_lateness):
        search.displace_later_deadlines(others)
    return ChosenPlacement(search.start, placed[0], search.tier, search.moves)


def _earliest(plan: Plan, slot: int, now: int, bound: int) -> tuple[int, int] | None:
    """Place a job in its earliest gap, on the fastest nodes that offer it. Return (start, tier) or None."""
    if plan.tiers == 1:
        start = plan.place(slot, now, bound)
        return (start, 0) if start >= 0 else None
    start = plan.probe(slot, now, bound)
    if start < 0:
        return None
    tiers = range(plan.tiers - 1, 0, -1)
    tier = next((tier for tier in tiers if plan.probe(slot, now, start + 1, tier) == start), 0)
    plan.place(slot, now, start + 1, tier)
    return start, tier


class _PlacementSearch:
    """A job in its earliest gap, and the search for a better placement."""

    def __init__(
        self,
        plan: Plan,
        slot: int,
        columns: ScoringColumns,
        now: int,
        weights: CriterionWeights,
        start: int,
        tier: int,
    ) -> None:
        self.start, self.tier, self.moves = start, tier, NO_MOVES
        self._plan, self._slot, self._columns, self._now, self._weights = plan, slot, columns, now, weights
        self._evaluation: Evaluation | None = None
        self._trials: Trials | None = None

    def _evaluate(self) -> Evaluation:
        """Evaluate the plan with the earliest gap, to which all candidates are compared."""
        if self._evaluation is None:
            self._evaluation = Evaluation(self._plan, self._columns, self._now)
            self._reference = self._evaluation.values()
            self._cost = self._weights.cost(self._reference, self._reference)
        return self._evaluation

    def _try(self, slots: Ints, latest: Ints, tier: int) -> float:
        """Return the plan's cost with these jobs placed in this order; infinite if it is no better."""
        evaluation = self._evaluate()
        if self._trials is None:
            weights, reference = self._weights, self._reference
            self._trials = Trials(
                self._plan, evaluation, weights, reference, latest, self._now, MOST_DISPLACED
            )
        with self._plan.on_tier(tier):
            how, cost = self._trials.attempt(slots, self._cost, latest)
        return cost if how is TrialOutcome.BETTER else np.inf

    # ---- nodes that are worth waiting for -------------------------------------------------------

    def wait_for_faster(self, bound: int) -> None:
        """Move the job to a later gap on faster nodes if that is better."""
        alone = np.array([self._slot], np.int64)
        latest = np.full(self._plan.tables.jobs.shape[1], bound - 1, np.int64)
        best, chosen = np.inf, self.tier
        for tier in range(self.tier + 1, self._plan.tiers):
            cost = self._try(alone, latest, tier)
            if cost < best - LEAST_GAIN:
                best, chosen = cost, tier
        if chosen != self.tier:
            self._plan.undo_place(self._slot)
            self.start = self._plan.place(self._slot, self._now, bound, chosen)
            self.tier = chosen
            self._evaluate().update(alone)
            self._cost = best

    # ---- jobs with later deadlines --------------------------------------------------------------

    def displace_later_deadlines(self, others: DisplaceableJobs) -> None:
        """Place the job before planned jobs with later deadlines if that is better."""
        ready = max(self._now, int(self._plan.tables.jobs[at.READY, self._slot]))
        if self.start <= ready:
            return
        latest = others.latest.copy()
        latest[self._slot] = self.start - 1
        best, chosen, on = np.inf, None, 0
        for tier in range(self._plan.tiers) if not self._weights.regular else (0,):
            for slots in self._in_front(others, ready, tier):
                cost = self._try(slots, latest, tier)
                if cost < best - LEAST_GAIN:
                    best, chosen, on = cost, slots, tier
        if chosen is not None:
            self._displace(chosen, latest, on)

    def _in_front(self, others: DisplaceableJobs, ready: int, tier: int) -> Iterator[Ints]:
        """Yield candidate orders: the job, the first planned job with a later deadline on usable nodes, and
        the jobs planned after that on the same nodes; then the same on other nodes. Every second time with
        the last such job that still lets the new one end in time, which has fewer jobs behind it.
        """
        tb, slot = self._plan.tables, self._slot
        jobs, due = tb.jobs, self._columns.due
        slots = self._plan.planned()
        starts = jobs[at.START, slots]
        may = (starts > self._now) & (starts < self.start + jobs[at.DUR, slot]) & (slots != slot)
        may &= (others.latest[slots] > starts) & (others.rank[slots] <= others.rank[slot])
        slots, starts = slots[may], starts[may]
        counts = jobs[at.ALLOCS, slots]
        owner = np.repeat(np.arange(slots.shape[0]), counts)
        entries = np.repeat(jobs[at.ALLOC, slots] - np.cumsum(counts) + counts, counts)
        entries += np.arange(entries.shape[0])
        nodes = tb.alloc[entries, at.A_CHUNK] >= 0
        owner, rows = owner[nodes], tb.alloc[entries[nodes], at.A_ROW]
        useful = _usable_rows(self._plan, slot, tier)
        later = (due[slots] > due[slot]) & (starts < self.start) & (starts + jobs[at.DUR, slots] > ready)
        in_time = starts + jobs[at.DUR, slot] <= due[slot]
        for attempt in range(TRIES):
            fronts = owner[later[owner] & useful[rows]]  # by start
            if not fronts.shape[0]:
                return
            front = int(fronts[0])
            if attempt % 2:
                front = int(fronts[max(0, np.count_nonzero(in_time[fronts]) - 1)])
            here = np.zeros(tb.rows.shape[0], np.bool_)
            here[rows[owner == front]] = True
            useful &= ~here
            after = np.unique(owner[here[rows] & (owner > front)])[: MOST_DISPLACED - 2]
            yield np.concatenate([[slot], slots[[front]], slots[after]])

    def _displace(self, slots: Ints, latest: Ints, tier: int) -> None:
        """Make the move that was found better."""
        plan = self._plan
        moves = plan.displace(slots, latest[slots], self._now, tier)
        if moves is None:
            raise AssertionError(f"slots {slots.tolist()} found places when they were tried, and none now")
        self.start, self.tier = plan.start(self._slot), tier
        theirs = moves.slots != self._slot
        self.moves = Moves(moves.slots[theirs], moves.old[theirs], moves.new[theirs], moves.elsewhere)


def _usable_rows(plan: Plan, slot: int, tier: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return by row whether it could hold a unit of the job, (N,)."""
    tb = plan.tables
    found = np.zeros(tb.rows.shape[0], np.bool_)
    shape = int(tb.jobs[at.SHAPE, slot])
    first = int(tb.shapes[shape, at.CHUNK])
    for chunk in tb.chunks[first : first + int(tb.shapes[shape, at.CHUNKS])]:
        found[tb.sets[chunk[at.SET] : chunk[at.SET] + chunk[at.SET_LEN]]] = True
    usable: np.ndarray[tuple[int], np.dtype[np.bool_]] = found & (tb.rows[:, at.USABLE] > tier)
    return usable
