"""What partitions add to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.features.partitions.rules import (
    charge_factor,
    follow_time,
    forget_choice,
    idle_hooks,
    labels,
    next_examination,
    node_features,
    note_freed_nodes,
    refusal,
    refuse_large_job,
    request_forms,
    restriction,
    variants_in_what_if,
)
from schedd.features.partitions.state import PartitionState, publish_partitions

COMPONENT: Final = Component(
    name="partitions",
    state=PartitionState,
    work_fields=("chosen",),
    idle_hooks=idle_hooks,
    node_features=node_features,
    nodes_taken=note_freed_nodes,
    request_forms=request_forms,
    labels=labels,
    refusal=refusal,
    charge_factor=charge_factor,
    must_wait=refuse_large_job,
    restriction=restriction,
    time_passed=follow_time,
    next_wake=next_examination,
    job_gone=forget_choice,
    variants_in_what_if=variants_in_what_if,
    published=publish_partitions,
)
