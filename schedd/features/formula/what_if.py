"""Hypothetical jobs under a formula: their rank, and whether they wait because of its threshold."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import isnan
from typing import Any, Final

from schedd.engine.component.job_hooks import job_labels
from schedd.engine.component.ranking_hooks import label_points
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.formula.rules import circumstances, threshold_wait
from schedd.features.formula.state import FormulaInForce, formula_in_force
from schedd.features.formula.terms import Circumstances
from schedd.model import WaitingFor
from schedd.policy.ranks import encode_rank
from schedd.wire import JobFacts

_UNLABELLED: Final[Mapping[str, Any]] = {"labels": lambda _: {}, "points": lambda _: 0.0}
"""Without the functions that read the engine's state."""


@dataclass(frozen=True, slots=True)
class PublishedFormula:
    """What other threads may read of the component."""

    formula: FormulaInForce | None
    around: Circumstances | None


def published_formula(state: EngineState) -> PublishedFormula:
    """A copy for other threads."""
    formula = formula_in_force(state)
    if formula is None:
        return PublishedFormula(None, None)
    around = circumstances(state)
    return PublishedFormula(formula, replace(around, queues=dict(around.queues), **_UNLABELLED))


def formula_name(published: PlanSnapshot) -> str:
    """Return the setting that holds the formula in force; empty: there is none."""
    formula = published.part(PublishedFormula).formula
    return formula.name if formula is not None else ""


def compute_what_if_value(
    published: PlanSnapshot, facts: JobFacts, understood: ParsedRequest
) -> float | None:
    """Return the value of a job that arrives now; None: no formula is in force."""
    part = published.part(PublishedFormula)
    if part.formula is None or part.around is None:
        return None
    terms = part.formula.terms
    labels, points = partial(job_labels, published), partial(label_points, published)
    around = replace(part.around, labels=labels, points=points)
    row = terms.row(facts, understood, around.types, around.shared, around.shares)
    value = terms.expression.single_value(terms.single_columns(row, around))
    return 0.0 if isnan(value) else value


def compute_what_if_rank(published: PlanSnapshot, facts: JobFacts, understood: ParsedRequest) -> int | None:
    """Return the rank of a job that arrives now; None: no formula is in force."""
    value = compute_what_if_value(published, facts, understood)
    return None if value is None else encode_rank(value)


def check_what_if_threshold(
    published: PlanSnapshot,
    facts: JobFacts,
    understood: ParsedRequest,
    instead_of: str,  # noqa: ARG001
) -> WaitingFor | None:
    """Return the reason why the job would wait; None: it would not."""
    formula = published.part(PublishedFormula).formula
    if formula is None or formula.threshold is None:
        return None
    value = compute_what_if_value(published, facts, understood)
    return threshold_wait(formula, value) if value is not None else None
