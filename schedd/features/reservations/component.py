"""What reservations add to the engine."""

from typing import Final

from schedd.dialect.advres import RESERVATION_NAMES
from schedd.engine.component.declaration import Component
from schedd.engine.component.hook_values import AlertKind
from schedd.engine.facts.records import Cause
from schedd.features.reservations.naming import (
    check_what_if_reservation,
    forget_gone,
    knows_reservation,
    reason_to_replan,
    restriction,
    wait_for_reservation,
)
from schedd.features.reservations.rules import (
    block_slots,
    endless_reservations,
    is_reserved,
    published_blocks,
    reservation_claim,
    reserve,
    reserve_again,
    slot_names,
    snapshot_changes,
    unreserve,
    will_return,
)
from schedd.features.reservations.standing import (
    follow_reported_nodes,
    follow_settings,
    follow_time,
    next_change,
    schedule_standing_renewal,
)
from schedd.features.reservations.state import ReservationState, publish_reservations, without_slots
from schedd.wire import Reserve, Unreserve

COMPONENT: Final = Component(
    name="reservations",
    state=ReservationState,
    work_fields=("records", "stands"),
    hook_fields={
        "slots": ("records", "named"),
        "now_and_then": ("gone",),
    },
    idle_hooks=lambda _state: ("must_wait", "restriction", "reason_to_replan"),
    named_by=RESERVATION_NAMES,
    begin=follow_settings,
    restored=follow_settings,
    handlers={Reserve: reserve, Unreserve: unreserve},
    snapshot_changes=snapshot_changes,
    nodes_taken=follow_reported_nodes,
    will_return=will_return,
    site_changed=schedule_standing_renewal,
    must_wait=wait_for_reservation,
    wait_causes={"reservation": Cause.RESERVATION},
    must_wait_if_named=check_what_if_reservation,
    restriction=restriction,
    knows_reservation=knows_reservation,
    reason_to_replan=reason_to_replan,
    now_and_then=forget_gone,
    time_passed=follow_time,
    next_wake=next_change,
    slots=block_slots,
    slot_names=slot_names,
    node_blocks=published_blocks,
    node_claims={Reserve: reservation_claim},
    endless=endless_reservations,
    alerts={"reservation": AlertKind("a reservation was not made, or not as requested")},
    alert_subjects={"reservation": is_reserved},
    published=publish_reservations,
    without_plan=without_slots,
    plan_rebuilt=reserve_again,
)
