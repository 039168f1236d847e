"""Node tiers by thrift (energy, price, failure rate), which replace tiers by speed for alternative plans."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from schedd.alternatives.node_economics import NodeEconomics
from schedd.alternatives.objective_weights import Objective
from schedd.plan.plan import Plan


def set_thrift_tiers(plan: Plan, books: NodeEconomics, weights: Mapping[Objective, float], now: int) -> None:
    """Set the node tiers of a forked plan by thrift.

    Thrift is the weighted sum of watts per core, price per core-second and failure rate, each divided by its
    maximum.
    """
    rates = [float(rate.core[np.searchsorted(rate.edges, now, side="right") - 1]) for rate in books.rates]
    price = np.array(rates)[books.tariff]
    dear = np.zeros(price.shape[0])
    if books.metered:
        dear += (
            weights.get(Objective.ENERGY, 0) * books.core / max(float(books.core[books.nodes].max()), 1e-9)
        )
    dear += weights.get(Objective.COST, 0) * price / max(float(price.max(initial=0)), 1e-9)
    if not np.isnan(books.failing).any():
        worst = max(float(books.failing.max(initial=0)), 1e-30)
        dear += weights.get(Objective.LOSS, 0) * books.failing / worst
    speeds = {name: 1.0 / (1.0 + round(float(dear[row]), 6)) for row, name in plan.node_names.items()}
    plan.set_nodes([replace(node, speed=speeds[name]) for name, node in plan.nodes.items()], now)
