"""What refused cores add to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.engine.component.hook_values import AlertKind
from schedd.features.refused_cores.rules import (
    follow_nodes,
    follow_pauses,
    follow_server_start,
    hold_slots,
    is_held,
    next_pause_end,
    note_busy_node,
    note_start,
    slot_names,
)
from schedd.features.refused_cores.state import NodesWithRefusedCores, shift_pauses, without_slots

COMPONENT: Final = Component(
    name="refused_cores",
    state=NodesWithRefusedCores,
    work_fields=("nodes",),
    hook_fields={
        "record_changed": ("nodes",),
        "slots": ("nodes",),
    },
    refused_as_busy=note_busy_node,
    record_changed=note_start,
    nodes_taken=follow_nodes,
    snapshot_changes=follow_server_start,
    time_passed=follow_pauses,
    next_wake=next_pause_end,
    slots=hold_slots,
    slot_names=slot_names,
    without_plan=without_slots,
    clock_set_back=shift_pauses,
    alerts={
        "refused_cores": AlertKind(
            "a server refuses starts on a node as busy, although it lists free cores there", is_held
        )
    },
)
