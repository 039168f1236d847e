"""What the priority formula adds to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.engine.component.hook_values import AlertKind
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
    note_formula,
    ranks,
    wait_for_threshold,
)
from schedd.features.formula.state import FormulaState, formula_in_force
from schedd.features.formula.what_if import (
    check_what_if_threshold,
    compute_what_if_rank,
    formula_name,
    published_formula,
)

COMPONENT: Final = Component(
    name="formula",
    state=FormulaState,
    work_fields=("in_force", "left", "had_threshold"),
    hook_fields={
        "now_and_then": ("rows",),
    },
    idle_hooks=lambda state: (
        ()
        if formula_in_force(state) is not None
        else (
            "must_wait",
            "form_must_wait",
            "ranks",
        )
    ),
    begin=note_formula,
    restored=note_formula,
    nodes_reported=forget_nodes,
    site_changed=follow_site,
    server_changed=follow_server,
    must_wait=wait_for_threshold,
    form_must_wait=lambda state, record: wait_for_threshold(state, record) is not None,
    ends_promise=frozenset({WAIT_KIND}),
    must_wait_in_what_if=check_what_if_threshold,
    ranks=ranks,
    priority_breakdown=breakdown,
    rank_in_what_if=compute_what_if_rank,
    ranked_by=formula_name,
    before_dispatch=follow_time,
    next_wake=next_examination,
    now_and_then=forget_job,
    alerts={WAIT_KIND: AlertKind("the priority formula cannot be used, or a term counts as 0", is_faulty)},
    published=published_formula,
)
