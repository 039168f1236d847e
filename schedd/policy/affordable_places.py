"""Places that a job can pay for: of those that the plan finds, the first that costs no more than a limit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from schedd.model import WaitingFor
from schedd.plan.columns import CPUS, GPUS
from schedd.plan.plan import Plan
from schedd.policy.accounts import Portion
from schedd.policy.economy import AHEAD, Economy, Rates

__all__ = ["Tariff", "held_portions", "move_to_affordable_place", "too_expensive"]

_ROUNDS: Final = 60
"""So many places are tried at most."""
_ROUNDING: Final = 1e-9


class Tariff:
    """The prices of a cluster's nodes from a day's begin on, each worked out once."""

    def __init__(self, economy: Economy, nodes: Mapping[str, Sequence[str]], day: int) -> None:
        """``nodes``: names with their properties; ``day`` in seconds since the epoch."""
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
        """What it costs to hold ``portions`` over ``[start, end)``."""
        total, span = 0.0, np.array([start, end], np.int64)
        for one in portions:
            rates = self._node_rates(self._kinds.get(one.node, ()))
            core, gpu = (float(np.diff(rates.paid(rate, span))[0]) for rate in (rates.core, rates.gpu))
            total += one.cpus * core + one.gpus * gpu
        return total

    def later(self, cpus: int, gpus: int, after: int, seconds: int, most: float) -> int | None:
        """The first moment after ``after`` from which so much could cost no more than ``most``, on the
        cheapest nodes; None: there is none.
        """
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

        # Between the moments at which its begin or its end passes a change of prices, costs are linear.
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
    """What a placed job holds of nodes."""
    found: dict[str, Portion] = {}
    for take in plan.takes(slot):
        name = plan.node_names[take.row]
        known = found.get(name, Portion(name, (), 0, 0))
        cpus, gpus = known.cpus + take.amounts[CPUS], known.gpus + take.amounts[GPUS]
        found[name] = known._replace(cpus=cpus, gpus=gpus)
    return list(found.values())


def too_expensive(most: float, cost: float, currency: str) -> WaitingFor:
    """What a job waits for that has no place at which it costs no more than ``most``."""
    words = f"a time at which it costs at most {most:,.2f} {currency}; it would cost {cost:,.2f} {currency}"
    return WaitingFor("cost", words)


def move_to_affordable_place(
    plan: Plan, slot: int, tariff: Tariff, most: float, now: int, place: Callable[[], int]
) -> tuple[int, float]:
    """Move a job that was just placed to the first place that costs no more than ``most``: its start, or -1
    with the job unplaced, and what its first place costs. ``place`` puts it into its earliest gap.

    Nodes are those that the plan takes at a time: that others would be cheaper then is not tried. Raises
    WorkSpent.
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
