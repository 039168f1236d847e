"""What the priority formula adds to the engine."""

from typing import Final

from schedd.engine.component import AlertKind, Component
from schedd.features.formula.rules import (
    WAIT_KIND,
    breakdown,
    follow_server,
    follow_site,
    follow_time,
    forget_job,
    forget_nodes,
    is_faulty,
    next_examination,
    ranks,
    wait_for_threshold,
)
from schedd.features.formula.state import FormulaState
from schedd.features.formula.what_if import (
    formula_name,
    published_formula,
    rank_in_what_if,
    wait_in_what_if,
)

__all__ = ["COMPONENT"]

COMPONENT: Final = Component(
    name="formula",
    state=FormulaState,
    nodes_reported=forget_nodes,
    nodes_replaced=forget_nodes,
    site_changed=follow_site,
    server_changed=follow_server,
    must_wait=wait_for_threshold,
    ends_promise=frozenset({WAIT_KIND}),
    must_wait_in_what_if=wait_in_what_if,
    ranks=ranks,
    priority_breakdown=breakdown,
    rank_in_what_if=rank_in_what_if,
    ranked_by=formula_name,
    before_dispatch=follow_time,
    next_wake=next_examination,
    now_and_then=forget_job,
    alerts={WAIT_KIND: AlertKind("the priority formula cannot be used, or a term counts as 0", is_faulty)},
    published=published_formula,
)
