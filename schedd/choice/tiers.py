"""Tiers of nodes by thrift, on a copy of a plan: what alternatives are placed by instead of speed."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from schedd.choice.books import Books
from schedd.choice.objectives import Objective
from schedd.plan.plan import Plan

__all__ = ["by_thrift"]


def by_thrift(plan: Plan, books: Books, weights: Mapping[Objective, float], now: int) -> None:
    """Let the tiers of a copy's nodes be those of thrift: what a core's second draws and costs there, and how
    often they fail, each as a share of the most, by the weights of these objectives.
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
    speeds = {name: 1.0 / (1.0 + round(float(dear[row]), 6)) for row, name in plan.name_of.items()}
    plan.set_nodes([replace(node, speed=speeds[name]) for name, node in plan.nodes.items()], now)
