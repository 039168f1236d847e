"""Comparison of objective vectors: dominance, weighted cost, crowding. Smaller values are better."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_ZERO: Final = 1e-9  # values below it count as 0; also the tolerance of cost comparisons


def pareto_front(vectors: Floats) -> Ints:
    """Return the indices of the non-dominated rows in order; of equal rows the first."""
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


class ObjectiveWeights:
    """Weights of objectives: ``cost(v) = sum(weight[i] * v[i] / reference[i])``; the reference is the live
    plan.

    Raises ValueError if a weight is negative or not finite, or if all are 0.
    """

    def __init__(self, weights: Mapping[str, float], reference: Mapping[str, float]) -> None:
        for name, weight in weights.items():
            if not 0 <= weight < float("inf"):
                raise ValueError(f"the weight of {name} is {weight}: must be finite, at least 0")
        if not any(weights.values()):
            raise ValueError("all weights are 0: no plan would be better than another")
        self._terms = [(weight, reference[name]) for name, weight in weights.items()]

    def cost(self, vector: Floats) -> float:
        """Return the weighted cost of a vector; infinite if a value is positive where the reference is 0."""
        cost = 0.0
        for (weight, reference), value in zip(self._terms, vector.tolist(), strict=True):
            if weight and reference > _ZERO:
                cost += weight * value / reference
            elif weight and value > _ZERO:
                return float("inf")
        return cost

    def is_as_good(self, vector: Floats, other: Floats) -> bool:
        """Return whether ``vector`` costs no more than ``other``."""
        return self.cost(vector) <= self.cost(other) + _ZERO


def crowding_distance(vectors: Floats) -> Floats:
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


def select_spread(vectors: Floats, most: int) -> Ints:
    """Return up to ``most`` rows spread over the front: the most crowded row is removed repeatedly."""
    left = np.arange(vectors.shape[0])
    while left.shape[0] > most:
        distance = crowding_distance(vectors[left])
        left = np.delete(left, int(np.argmin(distance)))
    return left
