"""Power, prices and failure rates of nodes as arrays; energy, costs and losses of jobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from schedd.plan.columns import CPUS, GPUS, HeldEntries, Ints
from schedd.policy.economy import Economy, Rates
from schedd.policy.reliability import expected_loss
from schedd.wire import NodeFacts

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NodeEconomics:
    """Columns by row of the plan.

    ``on``: not down; ``usable``: up; ``nodes``: the row is a node. Watts: ``idle``, per ``core``, per
    ``gpu``, ``off``; NaN if the site sets none. ``tariff``: index into ``rates``. Rows of pools have no cpus
    and are never on.
    """

    cpus: Ints
    on: npt.NDArray[np.bool_]
    usable: npt.NDArray[np.bool_]
    nodes: npt.NDArray[np.bool_]
    idle: Floats
    core: Floats
    gpu: Floats
    off: Floats
    tariff: Ints
    rates: tuple[Rates, ...]
    currency: str
    failing: Floats  # failures per second; NaN without a history of nodes
    priced: bool  # the site has prices

    @classmethod
    def from_economy(
        cls,
        economy: Economy,
        names: Mapping[int, str],
        nodes: Mapping[str, NodeFacts],
        begin: int,
        end: int,
        failing: Mapping[str, float] | None = None,
    ) -> Self:
        """Build the columns.

        ``names``: node names by row; prices hold over ``[begin, end)``, seconds since the epoch; ``failing``:
        failures per second by node name, None without a history.
        """
        rows = max(names, default=-1) + 1
        watts = np.full((4, rows), np.nan)
        cpus = np.zeros(rows, np.int64)
        fails = np.full(rows, np.nan if failing is None else 0.0)
        on, usable, known = (np.zeros(rows, np.bool_) for _ in range(3))
        tariff = np.zeros(rows, np.int64)
        kinds: dict[tuple[int, ...], int] = {(): 0}
        for row, name in names.items():
            facts = nodes.get(name)
            if facts is None:
                continue
            known[row], cpus[row] = True, facts.cpus
            on[row], usable[row] = facts.state != "down", facts.state == "up"
            if failing is not None:
                fails[row] = failing.get(name, 0.0)
            draw = economy.draw(name, facts.properties)
            if draw is not None:
                watts[:, row] = draw.idle, draw.core, draw.gpu, draw.off
            tariff[row] = kinds.setdefault(economy.node_prices(name, facts.properties), len(kinds))
        rates = tuple(economy.rates(which, begin, end) for which in kinds)
        priced = bool(economy.prices)
        idle, core, gpu, off = watts
        return cls(
            cpus, on, usable, known, idle, core, gpu, off, tariff, rates, economy.currency, fails, priced
        )

    @property
    def metered(self) -> bool:
        """The watts of all nodes are known."""
        return bool(self.nodes.any()) and not bool(np.isnan(self.idle[self.nodes]).any())

    def entry_costs(self, held: HeldEntries, starts: Ints, ends: Ints) -> Floats:
        """Return the cost of each entry over ``[start, end)`` of its job, (n,); both arrays by entry."""
        found = np.zeros(len(held))
        rows, amounts = held.rows, held.amounts
        for kind, rates in enumerate(self.rates):
            here = self.tariff[rows] == kind
            if not here.any():
                continue
            for rate, column in ((rates.core, CPUS), (rates.gpu, GPUS)):
                paid = rates.paid(rate, ends[here]) - rates.paid(rate, starts[here])
                found[here] += amounts[here, column] * paid
        return found

    def entry_joules(self, held: HeldEntries, seconds: Ints) -> Floats:
        """Return the energy of each entry over ``seconds`` above the nodes' idle draw, in joules, (n,)."""
        amounts, rows = held.amounts, held.rows
        watts = amounts[:, CPUS] * self.core[rows] + amounts[:, GPUS] * self.gpu[rows]
        found: Floats = watts * seconds
        return found

    def expected_losses(self, held: HeldEntries, starts: Ints, ends: Ints, now: int) -> Floats:
        """Return the core-seconds that each job is expected to lose by node failures, (n,); NaN: unknown.

        ``starts`` and ``ends`` are indexed by ``held.owner``. For a running job the work done so far counts,
        too.
        """
        n, rows, owner = starts.shape[0], held.rows, held.owner
        first = np.unique(owner * max(self.cpus.shape[0], 1) + rows, return_index=True)[1]
        rates = np.bincount(owner[first], self.failing[rows[first]], minlength=n).astype(np.float64)
        cores = np.bincount(owner, held.amounts[:, CPUS], minlength=n)
        begun = np.maximum(now - starts, 0).astype(np.float64)
        left = np.maximum(ends - np.maximum(starts, now), 0).astype(np.float64)
        found: Floats = cores * expected_loss(rates, begun, left)
        return found
