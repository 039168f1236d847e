"""What normalised walltimes add to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.features.normalised_walltimes.rules import (
    describe_scale,
    follow_time,
    forget_job,
    idle_hooks,
    next_examination,
    node_features,
    note_ordered_walltime,
    planned_facts,
    request_forms,
    restriction,
    shorten,
    variants_in_what_if,
    walltime_at_start,
)
from schedd.features.normalised_walltimes.state import WalltimeState, publish_walltimes

COMPONENT: Final = Component(
    name="normalised_walltimes",
    state=WalltimeState,
    work_fields=("chosen",),
    hook_fields={"record_changed": ("given",), "job_gone": ("chosen", "given")},
    idle_hooks=idle_hooks,
    node_features=node_features,
    planned_facts=planned_facts,
    restriction=restriction,
    request_forms=request_forms,
    before_start=shorten,
    walltime_at_start=walltime_at_start,
    record_changed=note_ordered_walltime,
    notes=describe_scale,
    time_passed=follow_time,
    next_wake=next_examination,
    job_gone=forget_job,
    variants_in_what_if=variants_in_what_if,
    published=publish_walltimes,
)
