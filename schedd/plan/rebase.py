"""Taking over what a search found into a plan that has moved on since the search began."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schedd.plan.evaluate import Evaluation, JobColumns, Weights
from schedd.plan.kernels.evaluate import Floats
from schedd.plan.kernels.layout import PLANNED, READY, SEEN, STATE, Ints
from schedd.plan.kernels.moves import LEAST_GAIN
from schedd.plan.latest import PATIENCE, as_expected, reference
from schedd.plan.places import Place, free_at, is_misplaced, place_of, put_back
from schedd.plan.plan import Plan
from schedd.plan.records import Moves

__all__ = ["Rebased", "rebase"]


@dataclass(frozen=True, slots=True)
class Rebased:
    """What was taken over: who moved; whether all places together or only single ones that gain."""

    moves: Moves
    whole: bool


def rebase(
    live: Plan,
    places: Sequence[Place],
    columns: JobColumns,
    latest: Ints,
    now: int,
    weights: Weights,
    *,
    patience: int = PATIENCE,
    use: float = 1.0,
    threshold: int = 10,
    waited: Floats | None = None,
    used: Floats | None = None,
) -> Rebased:
    """Move jobs of ``live`` to the ``places`` that a search found, as far as that is still better.

    Leave out places of jobs whose request was changed since, and of slots that hold another job now. Jobs
    that run or start now are left where they are, and nobody is put past ``latest`` (by slot, see
    ``latest_starts``; ``patience`` as in ``reference``, ``use`` as in ``as_expected``). First all places are
    tried together, a job whose place was taken in the meantime going to its earliest gap; if the plan is no
    better for it, each place that is earlier is tried alone.
    """
    columns, patience = as_expected(columns, now, patience, use)
    evaluation = Evaluation(live, columns, now, threshold=threshold, waited=waited, used=used)
    rebasing = _Rebasing(live, evaluation, latest, now, weights, patience)
    return rebasing.run(places)


class _Rebasing:
    def __init__(
        self,
        live: Plan,
        evaluation: Evaluation,
        latest: Ints,
        now: int,
        weights: Weights,
        patience: int,
    ) -> None:
        self._live = live
        self._latest = latest
        self._now = now
        self._weights = weights
        self._evaluation = evaluation
        before = self._evaluation.values()
        self._reference = reference(before, patience)
        self._cost = self._weights.cost(before, self._reference)
        self._seen: dict[int, int] = {}

    def run(self, places: Sequence[Place]) -> Rebased:
        wanted = [place for place in places if self._may_move(place)]
        old = {place.slot: place_of(self._live, place.slot) for place in wanted}
        wanted = sorted((p for p in wanted if p != old[p.slot]), key=lambda p: (p.start, p.slot))
        self._seen = {p.slot: int(self._live.tables.jobs[SEEN, p.slot]) for p in wanted}
        whole = bool(wanted) and self._all_together(wanted, old)
        if not whole:
            for place in wanted:
                if place.start < old[place.slot].start:
                    self._all_together([place], old, exactly=True)
        moved = [slot for slot, was in old.items() if place_of(self._live, slot) != was]
        moves = Moves(
            np.array(moved, np.int64),
            np.array([old[slot].start for slot in moved], np.int64),
            np.array([self._live.start(slot) for slot in moved], np.int64),
        )
        return Rebased(moves, whole)

    def _may_move(self, place: Place) -> bool:
        jobs = self._live.tables.jobs
        slot = place.slot
        return bool(
            jobs[STATE, slot] == PLANNED
            and self._live.start(slot) > self._now
            and max(self._now, jobs[READY, slot]) <= place.start <= self._latest[slot]
        )

    def _all_together(self, wanted: Sequence[Place], old: dict[int, Place], exactly: bool = False) -> bool:
        """Move these jobs if the plan is better for it; else leave all as it was. Says which."""
        live = self._live
        slots = np.array([place.slot for place in wanted], np.int64)
        for place in wanted:
            live.lift(place.slot, self._now)
        better = all(self._put(place, exactly) for place in wanted) and not is_misplaced(live, slots)
        if better:
            self._evaluation.update(slots)
            cost = self._weights.cost(self._evaluation.values(), self._reference)
            if cost < self._cost - LEAST_GAIN:
                self._cost = cost
                return True
        for place in wanted:
            live.lift(place.slot, self._now)
        for place in wanted:
            put_back(live, old[place.slot])
            live.tables.jobs[SEEN, place.slot] = self._seen[place.slot]
        self._evaluation.update(slots)
        return False

    def _put(self, place: Place, exactly: bool) -> bool:
        if free_at(self._live, place):
            put_back(self._live, place)
            return True
        if exactly:
            return False
        return self._live.place(place.slot, self._now, int(self._latest[place.slot]) + 1) >= 0
