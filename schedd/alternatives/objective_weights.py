"""Objectives of plans and their weights, by name: what settings need, without the measures."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator


class Objective(StrEnum):
    """Objectives of plans. Names shared with ``Criterion`` have the same meaning."""

    MAKESPAN = "makespan"
    NON_UTILISATION = "non_utilisation"
    LATENESS = "lateness"
    COST_OVERRUN = "cost_overrun"
    COST = "cost"
    ENERGY = "energy"
    LOSS = "expected_loss"
    WAIT = "wait"
    WAIT_MAX = "wait_max"
    SLOWDOWN = "bounded_slowdown"
    UNFAIRNESS = "unfairness"


def parse_weights(plain: Mapping[str, float]) -> dict[Objective, float]:
    """Return weights by objective from weights by name, without zeros.

    Raises ValueError for an unknown name, for a weight that is negative or not finite, and if all are 0.
    """
    known = [one.value for one in Objective]
    for name, weight in plain.items():
        if name not in known:
            raise ValueError(f"there is no objective {name!r}; known are {', '.join(known)}")
        if not 0 <= weight < float("inf"):
            raise ValueError(f"the weight of {name} is {weight}: must be finite, at least 0")
    if not any(plain.values()):
        raise ValueError("all weights are 0: no plan would be better than another")
    return {Objective(name): weight for name, weight in plain.items() if weight}


def _check_weights(weights: dict[str, float]) -> dict[str, float]:
    parse_weights(weights)
    return weights


ObjectiveWeights = Annotated[dict[str, float], AfterValidator(_check_weights)]  # a setting: weights by name
