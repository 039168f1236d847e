"""Plans that a search by weights went through, as far as none of them is better by all objectives."""

from collections.abc import Callable, Mapping
from time import perf_counter

import numpy as np
import numpy.typing as npt

from schedd.choice.front import shown
from schedd.plan.columns import Ints
from schedd.plan.places import Allocation, allocation_of
from schedd.plan.plan import Plan

__all__ = ["Archive"]

Floats = npt.NDArray[np.float64]


class Archive:
    """To be called with a search's plan after every move that it made; ``values`` are the plan's objectives.

    A search moves on to what is better by its weights: what it had before may be better by single objectives.
    With ``share`` so much of the search's time is spent on this at most, so that not every plan is looked at;
    without it all are, and the same search leaves the same archive.
    """

    def __init__(
        self, slots: Ints, values: Callable[[Plan], Floats], most: int = 4, share: float | None = None
    ) -> None:
        """``slots``: the jobs whose places are kept; ``most`` plans are given in the end."""
        self._slots, self._values, self._most, self._share = slots, values, most, share
        self._kept: list[tuple[Floats, dict[int, Allocation]]] = []
        self._begin = perf_counter()
        self._spent = 0.0
        self.seen = 0
        """How many plans were looked at."""

    def __call__(self, plan: Plan) -> None:
        """Look at a plan."""
        called = perf_counter()
        if self._share is not None and self._spent > self._share * (called - self._begin):
            return
        value = self._values(plan)
        self.seen += 1
        if not any((other <= value).all() for other, _ in self._kept):
            places = {
                slot: allocation_of(plan, slot) for slot in self._slots.tolist() if plan.start(slot) >= 0
            }
            stays = [one for one in self._kept if not (value <= one[0]).all()]
            self._kept = [*stays, (value, places)]
            if len(self._kept) > 4 * self._most:
                self._thin(2 * self._most)
        self._spent += perf_counter() - called

    def _thin(self, most: int) -> None:
        best = shown(np.array([value for value, _ in self._kept]), most)
        self._kept = [self._kept[i] for i in best.tolist()]

    @property
    def plans(self) -> list[Mapping[int, Allocation]]:
        """Places by slot, of plans spread over the front."""
        if self._kept:
            self._thin(self._most)
        return [places for _, places in self._kept]

    @property
    def values(self) -> list[Floats]:
        """The objectives of these plans."""
        return [value for value, _ in self._kept]
