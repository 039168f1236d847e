"""Comparing plans by several objectives: which is better by all, which is better by weights, which to show.

A vector is a row of numbers, all the better the less they are.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["Balance", "crowding", "front", "shown"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_ZERO: Final = 1e-9
"""What is less is taken as nothing; and so much a plan may cost more than another and be as good."""


def front(vectors: Floats) -> Ints:
    """The rows that no other row dominates, in order; of equal rows the first."""
    found = [
        i
        for i, one in enumerate(vectors)
        if not any(
            (other <= one).all() and ((other < one).any() or j < i)
            for j, other in enumerate(vectors)
            if j != i
        )
    ]
    return np.array(found, np.int64)


class Balance:
    """Weights of objectives: the cost of a vector is the weighted sum of its values, each divided by its
    value in a reference, that of the live plan. Raises ValueError when a weight is negative or not finite, or
    all are 0.
    """

    def __init__(self, weights: Mapping[str, float], reference: Mapping[str, float]) -> None:
        for name, weight in weights.items():
            if not 0 <= weight < float("inf"):
                raise ValueError(f"the weight of {name} is {weight}: must be finite, at least 0")
        if not any(weights.values()):
            raise ValueError("all weights are 0: no plan would be better than another")
        self._terms = [(weight, reference[name]) for name, weight in weights.items()]

    def cost(self, vector: Floats) -> float:
        """What a vector, in the order of the weights, costs; infinite where it has any of what the reference
        has nothing of.
        """
        cost = 0.0
        for (weight, reference), value in zip(self._terms, vector.tolist(), strict=True):
            if weight and reference > _ZERO:
                cost += weight * value / reference
            elif weight and value > _ZERO:
                return float("inf")
        return cost

    def as_good(self, vector: Floats, other: Floats) -> bool:
        """Whether the one costs no more than the other."""
        return self.cost(vector) <= self.cost(other) + _ZERO


def crowding(vectors: Floats) -> Floats:
    """How far each row of a front is from its neighbours (NSGA-II's crowding distance): the ends of each
    objective are infinitely far.
    """
    n, objectives = vectors.shape
    distance = np.zeros(n)
    for k in range(objectives):
        order = np.argsort(vectors[:, k], kind="stable")
        values = vectors[order, k]
        spread = values[-1] - values[0] if n else 0.0
        if spread <= 0:
            continue
        distance[order[0]] = distance[order[-1]] = np.inf
        distance[order[1:-1]] += (values[2:] - values[:-2]) / spread
    return distance


def shown(vectors: Floats, most: int) -> Ints:
    """Up to ``most`` rows of a front, spread over it: the most crowded goes first, one after another."""
    left = np.arange(vectors.shape[0])
    while left.shape[0] > most:
        distance = crowding(vectors[left])
        left = np.delete(left, int(np.argmin(distance)))
    return left
