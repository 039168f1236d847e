"""Search for the first place of a job within its cost limit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from schedd.model import WaitingFor
from schedd.plan.columns import CPUS, GPUS
from schedd.plan.plan import Plan
from schedd.policy.accounts import Portion
from schedd.policy.economy import AHEAD, Economy, Rates

_ROUNDS: Final = 60  # maximum number of places tried
_ROUNDING: Final = 1e-9


class Tariff:
    """Prices of a cluster's nodes from a given day on, computed once for each set of prices."""

    def __init__(self, economy: Economy, nodes: Mapping[str, Sequence[str]], day: int) -> None:
        """Store the prices; ``nodes`` maps names to properties, ``day`` is in seconds since the epoch."""
        self.day = day
        self._economy = economy
        self._kinds = {name: economy.node_prices(name, properties) for name, properties in nodes.items()}
        self._rates: dict[tuple[int, ...], Rates] = {}

    def _node_rates(self, kind: tuple[int, ...]) -> Rates:
        found = self._rates.get(kind)
        if found is None:
            found = self._rates[kind] = self._economy.rates(kind, self.day, self.day + AHEAD)
        return found

    def cost(self, portions: Iterable[Portion], start: int, end: int) -> float:
        """Return the cost of holding ``portions`` over ``[start, end)``."""
        total, span = 0.0, np.array([start, end], np.int64)
        for one in portions:
            rates = self._node_rates(self._kinds.get(one.node, ()))
            core, gpu = (float(np.diff(rates.paid(rate, span))[0]) for rate in (rates.core, rates.gpu))
            total += one.cpus * core + one.gpus * gpu
        return total

    def later(self, cpus: int, gpus: int, after: int, seconds: int, most: float) -> int | None:
        """Return the first time after ``after`` when this size may cost at most ``most``, or None."""
        if not self._kinds:
            return None
        kinds = [self._node_rates(kind) for kind in sorted(set(self._kinds.values()))]

        def least(moments: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
            costs = []
            for rates in kinds:
                core, gpu = (
                    rates.paid(rate, moments + seconds) - rates.paid(rate, moments)
                    for rate in (rates.core, rates.gpu)
                )
                costs.append(cpus * core + gpus * gpu)
            return np.min(np.array(costs), axis=0)  # type: ignore[no-any-return]

        # Costs are linear between the times at which start or end crosses a price change.
        edges = np.unique(np.concatenate([rates.edges for rates in kinds]))
        moments = np.unique(np.concatenate([[after + 1], edges, edges - seconds]))
        moments = moments[moments > after]
        good = np.flatnonzero(least(moments) <= most + _ROUNDING)
        if not good.shape[0]:
            return None
        found = int(moments[good[0]])
        dear = int(moments[good[0] - 1]) if good[0] else found - 1
        while found - dear > 1:
            middle = (found + dear) // 2
            if least(np.array([middle], np.int64))[0] <= most + _ROUNDING:
                found = middle
            else:
                dear = middle
        return found


def held_portions(plan: Plan, slot: int) -> list[Portion]:
    """Return the node resources held by a placed job."""
    found: dict[str, Portion] = {}
    for take in plan.takes(slot):
        name = plan.node_names[take.row]
        known = found.get(name, Portion(name, (), 0, 0))
        cpus, gpus = known.cpus + take.amounts[CPUS], known.gpus + take.amounts[GPUS]
        found[name] = known._replace(cpus=cpus, gpus=gpus)
    return list(found.values())


def too_expensive(most: float, cost: float, currency: str) -> WaitingFor:
    """Return the wait for a job without a place within its cost limit."""
    words = f"a time at which it costs at most {most:,.2f} {currency}; it would cost {cost:,.2f} {currency}"
    return WaitingFor("cost", words)


def move_to_affordable_place(
    plan: Plan, slot: int, tariff: Tariff, most: float, now: int, place: Callable[[], int]
) -> tuple[int, float]:
    """Move a placed job to the first place that costs at most ``most``. Return its start (-1: unplaced) and
    the cost of the first place.

    ``place`` places the job into its earliest gap. The plan chooses the nodes at each time; cheaper other
    nodes at the same time are not tried. Raises WorkSpent.
    """
    seconds = int(plan.jobs.durations[slot])
    start, first = plan.start(slot), -1.0
    for _ in range(_ROUNDS):
        portions = held_portions(plan, slot)
        cost = tariff.cost(portions, start, start + seconds)
        first = cost if first < 0 else first
        if cost <= most + _ROUNDING:
            return start, first
        cpus, gpus = sum(one.cpus for one in portions), sum(one.gpus for one in portions)
        later = tariff.later(cpus, gpus, start, seconds, most)
        plan.remove(slot, now)
        if later is None:
            return -1, first
        plan.set_ready(slot, later)
        start = place()
        if start < 0:
            return -1, first
    plan.remove(slot, now)
    return -1, first
