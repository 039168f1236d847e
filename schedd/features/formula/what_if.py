"""What a job that is only asked about would have to wait for, by the formula's threshold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.formula.rules import circumstances, threshold_wait
from schedd.features.formula.state import FormulaInForce, formula_in_force
from schedd.features.formula.terms import Circumstances, JobRow
from schedd.model import WaitingFor
from schedd.policy.fair_share import share_rows
from schedd.wire import JobFacts

__all__ = ["PublishedFormula", "published_formula", "value_in_what_if", "wait_in_what_if"]


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
    around = circumstances(state, formula)
    return PublishedFormula(formula, replace(around, queues=dict(around.queues)))


def value_in_what_if(published: PlanSnapshot, facts: JobFacts, understood: ParsedRequest) -> float | None:
    """Return the value of a job that arrives now; None: no formula is in force."""
    part = published.part(PublishedFormula)
    if part.formula is None or part.around is None:
        return None
    terms, around = part.formula.terms, part.around
    row = terms.row(facts, understood, around.types, around.shared, around.tree)
    columns = terms.columns([row], _with_place(around, [row]))
    return float(np.nan_to_num(terms.expression.values(columns))[0])


def wait_in_what_if(
    published: PlanSnapshot,
    facts: JobFacts,
    understood: ParsedRequest,
    instead_of: str,  # noqa: ARG001
) -> WaitingFor | None:
    """What the job must wait for."""
    formula = published.part(PublishedFormula).formula
    if formula is None or formula.threshold is None:
        return None
    value = value_in_what_if(published, facts, understood)
    return threshold_wait(formula, value) if value is not None else None


def _with_place(around: Circumstances, rows: Sequence[JobRow]) -> Circumstances:
    """With the places of owners who have no jobs in the fair-share tree: they have used nothing."""
    tree = around.tree
    missing = [row.path for row in rows if row.path not in around.shares]
    if tree is None or not missing:
        return around
    leaves = [row for row in around.shares.values() if len(row.path) == len(tree.levels)]
    used = {row.path: (row.used, 0.0) for row in leaves}
    rated = {*missing, *used}
    return replace(around, shares={row.path: row for row in share_rows(tree, used, rated)})
