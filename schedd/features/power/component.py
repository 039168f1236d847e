"""What power saving adds to the engine."""

from typing import Final

from schedd.engine.component.declaration import Component
from schedd.engine.component.hook_values import AlertKind
from schedd.features.power.metering import note_readings
from schedd.features.power.rules import (
    awaits_switch,
    block_slots,
    closed_because,
    closing_nodes,
    forget_kinds,
    has_failed,
    is_expected_down,
    move_blocks,
    note_reported_nodes,
    note_switched,
    planned_node,
    set_power_aim,
)
from schedd.features.power.state import (
    PowerState,
    measured_draws,
    node_details,
    published_power,
    shift_power,
    without_blocks,
)
from schedd.features.power.switching import follow_settings, next_examination, switch_nodes
from schedd.wire import PowerRequested, Switch, Switched, WattsRead

COMPONENT: Final = Component(
    name="power",
    state=PowerState,
    work_fields=("nodes", "saves"),
    hook_fields={
        "slots": ("nodes",),
    },
    handlers={PowerRequested: set_power_aim, Switched: note_switched, WattsRead: note_readings},
    begin=follow_settings,
    restored=follow_settings,
    site_changed=follow_settings,
    before_events=move_blocks,
    nodes_reported=note_reported_nodes,
    nodes_replaced=forget_kinds,
    planned_node=planned_node,
    is_expected_down=is_expected_down,
    closed_because=closed_because,
    closing=closing_nodes,
    settle=switch_nodes,
    next_wake=next_examination,
    slots=block_slots,
    alerts={"power": AlertKind("a node could not be switched on or off", has_failed)},
    published=published_power,
    measured_draws=measured_draws,
    node_details=node_details,
    open_decisions={Switch: awaits_switch},
    without_plan=without_blocks,
    clock_set_back=shift_power,
)
