"""Rebase: transfer of a search's result to a plan that has changed since the search began."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from schedd.plan.criteria import PATIENCE
from schedd.plan.evaluate import CriterionWeights, Evaluation, ScoringColumns
from schedd.plan.kernels.layout import DUR, PLANNED, POOLS, READY, START, STATE, Ints
from schedd.plan.kernels.moves import LEAST_GAIN
from schedd.plan.latest_starts import reference_values, scale_to_expected
from schedd.plan.placements import Allocation, PlanAttempt, current_allocation, free_at, is_misplaced
from schedd.plan.plan import Plan
from schedd.plan.records import Moves


@dataclass(frozen=True, slots=True)
class Rebased:
    """Result of a rebase: the moves; whether all places were taken together, or only single gains."""

    moves: Moves
    whole: bool


def rebase(
    live: Plan,
    places: Sequence[Allocation],
    columns: ScoringColumns,
    latest: Ints,
    now: int,
    weights: CriterionWeights,
    *,
    patience: int = PATIENCE,
    use: float = 1.0,
    threshold: int = 10,
    must_gain: bool = True,
) -> Rebased:
    """Move jobs of ``live`` to the ``places`` that a search found, as far as that is still better.

    Leave out places of jobs with a changed request and of reused slots. Running and starting jobs stay, and
    no job passes ``latest`` (by slot, see ``latest_starts``; ``patience`` as in ``reference_values``, ``use``
    as in ``scale_to_expected``). First all places are tried together. A job without its place, which another
    job has taken, goes to its earliest gap (see ``_Fallback``); if that is too late, back to its present
    place, and conflicting jobs there are displaced. If the plan is no better, each earlier place is tried
    individually. No job that lost its place is delayed for jobs of lower rank. Without ``must_gain``, all
    places are taken whatever they gain; if some job would then have none in time, nothing changes.
    """
    columns, patience = scale_to_expected(columns, now, patience, use)
    evaluation = Evaluation(live, columns, now, threshold=threshold)
    rebasing = _Rebasing(live, evaluation, latest, now, weights, patience, must_gain=must_gain)
    return rebasing.run(places)


class _Fallback(Enum):
    """Placement of a job after another job has taken its place."""

    LAST = auto()
    """Its earliest gap after all others are placed; before, it would take the place of another job, that one
    the place of a third, and so on.
    """
    IN_TURN = auto()  # its earliest gap at once: the jobs behind it on the same nodes move with it
    NONE = auto()  # none: then no job moves


class _Rebasing:
    def __init__(
        self,
        live: Plan,
        evaluation: Evaluation,
        latest: Ints,
        now: int,
        weights: CriterionWeights,
        patience: int,
        *,
        must_gain: bool,
    ) -> None:
        self._must_gain = must_gain
        self._live = live
        self._latest = latest
        self._now = now
        self._weights = weights
        self._evaluation = evaluation
        before = self._evaluation.values()
        self._reference = reference_values(before, patience)
        self._cost = self._weights.cost(before, self._reference)
        self._taken = False

    def run(self, places: Sequence[Allocation]) -> Rebased:
        wanted = [place for place in places if self._may_move(place)]
        old = {place.slot: current_allocation(self._live, place.slot) for place in wanted}
        wanted = sorted((p for p in wanted if p != old[p.slot]), key=lambda p: (p.start, p.slot))
        whole = bool(wanted) and (
            self._try_together(wanted, old, _Fallback.LAST)
            # if no place was taken, both are the same
            or (self._taken and self._try_together(wanted, old, _Fallback.IN_TURN))
        )
        if not whole and self._must_gain:
            for place in wanted:
                if place.start < old[place.slot].start:
                    self._try_together([place], old, _Fallback.NONE)
        moved = [slot for slot, was in old.items() if current_allocation(self._live, slot) != was]
        for slot in moved:
            if self._live.start(slot) > old[slot].start:  # formerly useless gaps may help now
                self._live.mark_for_search(slot)
        moves = Moves(
            np.array(moved, np.int64),
            np.array([old[slot].start for slot in moved], np.int64),
            np.array([self._live.start(slot) for slot in moved], np.int64),
        )
        return Rebased(moves, whole)

    def _may_move(self, place: Allocation) -> bool:
        jobs = self._live.tables.jobs
        slot = place.slot
        return bool(
            jobs[STATE, slot] == PLANNED
            and self._live.start(slot) > self._now
            and max(self._now, jobs[READY, slot]) <= place.start <= self._latest[slot]
        )

    def _try_together(
        self, wanted: Sequence[Allocation], old: Mapping[int, Allocation], how: _Fallback
    ) -> bool:
        """Move these jobs if that makes the plan better; else restore it. Return whether they moved."""
        slots = np.array([place.slot for place in wanted], np.int64)
        with PlanAttempt(self._live, self._now) as attempt:
            for place in wanted:
                attempt.remove(place.slot)
            placed = self._place_all(attempt, wanted, old, how) and not is_misplaced(self._live, slots)
            if placed and not (self._must_gain and self._delays_higher_rank(wanted, old)):
                self._evaluation.update(slots)
                cost = self._weights.cost(self._evaluation.values(), self._reference)
                if cost < self._cost - LEAST_GAIN or not self._must_gain:
                    self._cost = cost
                    attempt.commit()
                    return True
        self._evaluation.update(slots)
        return False

    def _delays_higher_rank(self, wanted: Sequence[Allocation], old: Mapping[int, Allocation]) -> bool:
        """Whether a job that lost its place starts later than now, and a job of lower rank earlier."""
        rank, live = self._evaluation.scores.rank, self._live
        starts = {place.slot: live.start(place.slot) for place in wanted}
        advanced = [int(rank[slot]) for slot, start in starts.items() if start < old[slot].start]
        lost = [
            place.slot for place in wanted if starts[place.slot] > max(place.start, old[place.slot].start)
        ]
        return bool(advanced) and any(rank[slot] > min(advanced) for slot in lost)

    def _place_all(
        self,
        attempt: PlanAttempt,
        wanted: Sequence[Allocation],
        old: Mapping[int, Allocation],
        how: _Fallback,
    ) -> bool:
        """Place these removed jobs where they are wanted, or by the fallback. Return whether all have a
        place; if not, some may be unplaced.
        """
        placed: list[int] = []
        displaced: deque[int] = deque()
        for place in wanted:
            if free_at(self._live, place):
                attempt.place_at(place)
                placed.append(place.slot)
                continue
            if how is _Fallback.NONE:
                return False
            displaced.append(place.slot)
            self._taken = True
            if how is _Fallback.IN_TURN and not self._place_displaced(attempt, displaced, placed, old):
                return False
        return self._place_displaced(attempt, displaced, placed, old)

    def _place_displaced(
        self, attempt: PlanAttempt, displaced: deque[int], placed: list[int], old: Mapping[int, Allocation]
    ) -> bool:
        """Place all displaced jobs in their earliest gaps, or at their old places."""
        live = self._live
        while displaced:
            slot = displaced.popleft()
            if live.place(slot, self._now, int(self._latest[slot]) + 1) >= 0:
                placed.append(slot)
                continue
            # Old places never conflict with each other: a restored job stays.
            away = self._conflicting(old[slot], placed)
            for one in away:
                attempt.remove(one)
                placed.remove(one)
            if not free_at(live, old[slot]):
                return False
            attempt.restore(slot)
            displaced.extend(away)
        return True

    def _conflicting(self, home: Allocation, placed: Sequence[int]) -> list[int]:
        """Return those of the planned jobs ``placed`` that may hold what ``home`` takes, by start."""
        tb = self._live.tables
        slots = np.array(placed, np.int64)
        start = tb.jobs[START, slots]
        end = home.start + int(tb.jobs[DUR, home.slot])
        slots = slots[(start < end) & (start + tb.jobs[DUR, slots] > home.start)]
        rows = {take.row for take in home.takes}
        pools = tb.jobs[POOLS, home.slot] > 0
        away = [
            slot
            for slot in slots.tolist()
            if (pools and tb.jobs[POOLS, slot] > 0)
            or not rows.isdisjoint(take.row for take in self._live.takes(slot))
        ]
        return sorted(away, key=lambda slot: (int(tb.jobs[START, slot]), slot))
