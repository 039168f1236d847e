"""Alternative plans.

Written by ``make docs`` from the API's description, which says what each field means.
"""

from typing import TypedDict

from schedd.client.answers.admin import ObjectiveChange

__all__ = ["AlternativeSet", "AlternativesView", "AppliedPlan", "OfferedMove", "OfferedPlan", "SearchStopped"]


class OfferedMove(TypedDict):
    """A job that an alternative plan moves."""

    job: str
    owner: str
    before: int
    after: int
    nodes: list[str]
    promised: int | None


class OfferedPlan(TypedDict):
    """An alternative to the live plan; ``values`` by objective.

    The plans of a set are numbered from 1, best weighted sum first.
    """

    number: int
    values: dict[str, float]
    moves: list[OfferedMove]


class AlternativeSet(TypedDict):
    """Result of one search; the latest is kept. ``weights`` and ``units`` by objective.

    ``live`` has the values of the live plan at ``as_of``.
    """

    number: int
    by: str
    as_of: int
    generation: int
    seed: int
    weights: dict[str, float]
    units: dict[str, str]
    live: dict[str, float]
    plans: list[OfferedPlan]
    jobs: int
    tried: int
    homeless: int
    worse: int
    stopped: bool
    seconds: float
    hypervolume: float


class AlternativesView(TypedDict):
    """Alternatives to the live plan."""

    set: AlternativeSet | None
    drift: float


class AppliedPlan(TypedDict):
    """What came of putting a plan in force."""

    moved: int
    objectives: list[ObjectiveChange]


class SearchStopped(TypedDict):
    """Whether anything was stopped."""

    stopped: bool
