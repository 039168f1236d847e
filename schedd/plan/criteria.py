"""Criteria of a plan and their weights, by name: what settings need, without the kernels."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

PATIENCE: Final = 24 * 3600
"""After waiting this many seconds no search moves a job later, unless the site sets another value."""


class Criterion(StrEnum):
    """Criteria of a plan, in the order of the kernels' values."""

    MAKESPAN = "makespan"
    UTILISATION = "utilisation"
    WEIGHTED_UTILISATION = "weighted_utilisation"
    WAIT = "wait"
    WAIT_RMS = "wait_rms"
    WAIT_MAX = "wait_max"
    RESPONSE = "response"
    RESPONSE_MAX = "response_max"
    SLOWDOWN = "slowdown"
    SLOWDOWN_MAX = "slowdown_max"
    BOUNDED_SLOWDOWN = "bounded_slowdown"
    BOUNDED_SLOWDOWN_MAX = "bounded_slowdown_max"
    LATE_JOBS = "late_jobs"
    TARDINESS = "tardiness"
    TARDINESS_MAX = "tardiness_max"
    NUWT = "nuwt"
    NUWT_MAX = "nuwt_max"
    UNFAIRNESS = "unfairness"


CRITERIA: Final = tuple(Criterion)  # in the order of the kernels

MAXIMISED = frozenset({Criterion.UTILISATION, Criterion.WEIGHTED_UTILISATION})

NON_REGULAR = frozenset({Criterion.UTILISATION, Criterion.WEIGHTED_UTILISATION, Criterion.UNFAIRNESS})
"""Criteria that may become worse although no job starts later than before."""

LATENESS = frozenset({Criterion.LATE_JOBS, Criterion.TARDINESS, Criterion.TARDINESS_MAX})
"""Criteria that depend only on jobs with an end after their deadline."""

UNITS: Mapping[Criterion, str] = {
    criterion: "s"
    if criterion.value.partition("_")[0] in {"makespan", "wait", "response", "tardiness"}
    else "jobs"
    if criterion is Criterion.LATE_JOBS
    else "1"
    for criterion in Criterion
}
"""The unit of each criterion: seconds, jobs, or a plain number."""

DEFAULT_WEIGHTS: Final[Mapping[Criterion, float]] = MappingProxyType(
    {Criterion.WAIT: 1.0, Criterion.BOUNDED_SLOWDOWN: 1.0, Criterion.WAIT_RMS: 1.0, Criterion.WAIT_MAX: 1.0}
)
"""Means of wait and bounded slowdown and, against starvation, root mean square and maximum of the wait."""


def parse_criteria(weights: Mapping[str, float]) -> dict[Criterion, float]:
    """Return weights by criterion, from weights by name. Raises ValueError for an unknown name."""
    for name in weights:
        if name not in CRITERIA:
            raise ValueError(f"there is no criterion {name!r}; known are {', '.join(CRITERIA)}")
    return {Criterion(name): weight for name, weight in weights.items()}


def check_weights(weights: Mapping[Criterion, float]) -> None:
    """Raise ValueError if a weight is negative or not finite, or if all are 0."""
    for criterion, weight in weights.items():
        if not 0 <= weight < float("inf"):
            raise ValueError(f"the weight of {criterion} is {weight}: must be finite, at least 0")
    if not any(weights.values()):
        raise ValueError("all weights are 0: no plan would be better than another")
