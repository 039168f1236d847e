"""What moldable jobs add to the engine."""

from typing import Final

from schedd.dialect.moldable import MOLDABLE_NAMES
from schedd.engine.component.declaration import Component
from schedd.features.moldable.rules import (
    describe_choice,
    follow_time,
    forget,
    lengthen,
    next_examination,
    planned_facts,
    refuse_range,
    request_forms,
    variants_in_what_if,
    walltime_at_start,
    walltimes_in_what_if,
)
from schedd.features.moldable.state import MoldableState

COMPONENT: Final = Component(
    name="moldable",
    state=MoldableState,
    work_fields=("chosen",),
    hook_fields={
        "job_gone": ("chosen",),
    },
    idle_hooks=lambda _state: ("planned_facts", "request_forms", "before_start", "walltime_at_start"),
    named_by=MOLDABLE_NAMES,
    refusal=refuse_range,
    planned_facts=planned_facts,
    request_forms=request_forms,
    before_start=lengthen,
    walltime_at_start=walltime_at_start,
    notes=describe_choice,
    time_passed=follow_time,
    next_wake=next_examination,
    job_gone=forget,
    variants_in_what_if=variants_in_what_if,
    walltimes_in_what_if=walltimes_in_what_if,
)
