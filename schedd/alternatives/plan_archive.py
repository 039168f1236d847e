"""Archive of the non-dominated plans visited by a search."""

from collections.abc import Callable, Mapping
from time import perf_counter

import numpy as np
import numpy.typing as npt

from schedd.alternatives.pareto_front import select_spread
from schedd.plan.columns import Ints
from schedd.plan.placements import Allocation, current_allocation
from schedd.plan.plan import Plan

Floats = npt.NDArray[np.float64]


class PlanArchive:
    """Archive to be called with a search's plan after each move; ``values`` returns the objectives of a plan.

    A plan that a search by weights leaves behind may still be better in single objectives. ``share`` limits
    the share of the search's time spent here, so some plans are skipped. Without it every plan is examined,
    and equal searches leave equal archives.
    """

    def __init__(
        self, slots: Ints, values: Callable[[Plan], Floats], most: int = 4, share: float | None = None
    ) -> None:
        """``slots``: jobs with stored places; ``most``: largest number of plans returned."""
        self._slots, self._values, self._most, self._share = slots, values, most, share
        self._kept: list[tuple[Floats, dict[int, Allocation]]] = []
        self._begin = perf_counter()
        self._spent = 0.0
        self.examined = 0  # number of examined plans

    def __call__(self, plan: Plan) -> None:
        called = perf_counter()
        if self._share is not None and self._spent > self._share * (called - self._begin):
            return
        value = self._values(plan)
        self.examined += 1
        if not any((other <= value).all() for other, _ in self._kept):
            places = {
                slot: current_allocation(plan, slot) for slot in self._slots.tolist() if plan.start(slot) >= 0
            }
            stays = [one for one in self._kept if not (value <= one[0]).all()]
            self._kept = [*stays, (value, places)]
            if len(self._kept) > 4 * self._most:
                self._thin(2 * self._most)
        self._spent += perf_counter() - called

    def _thin(self, most: int) -> None:
        best = select_spread(np.array([value for value, _ in self._kept]), most)
        self._kept = [self._kept[i] for i in best.tolist()]

    @property
    def plans(self) -> list[Mapping[int, Allocation]]:
        """Places by slot of the archived plans, spread over the front."""
        if self._kept:
            self._thin(self._most)
        return [places for _, places in self._kept]

    @property
    def values(self) -> list[Floats]:
        return [value for value, _ in self._kept]
