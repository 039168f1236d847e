"""What moldable jobs add to the engine."""

from typing import Final

from schedd.dialect.moldable import MOLDABLE_NAMES
from schedd.engine.component.declaration import Component
from schedd.features.moldable.rules import (
    choose,
    describe_choice,
    follow_time,
    forget,
    lengthen,
    next_examination,
    planned_facts,
    variants_in_what_if,
    walltime_at_start,
)
from schedd.features.moldable.state import MoldableState

COMPONENT: Final = Component(
    name="moldable",
    state=MoldableState,
    work_fields=("chosen",),
    hook_fields={
        "job_gone": ("chosen",),
    },
    idle_hooks=lambda _state: ("planned_facts", "before_placement", "before_start", "walltime_at_start"),
    named_by=MOLDABLE_NAMES,
    planned_facts=planned_facts,
    before_placement=choose,
    before_start=lengthen,
    walltime_at_start=walltime_at_start,
    notes=describe_choice,
    time_passed=follow_time,
    next_wake=next_examination,
    job_gone=forget,
    variants_in_what_if=variants_in_what_if,
)
