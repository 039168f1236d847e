"""What bookings add to the engine."""

from typing import Final

from schedd.dialect.advres import RESERVATION_NAMES
from schedd.engine.component.declaration import Component
from schedd.engine.component.hook_values import AlertKind
from schedd.features.bookings.placement import (
    booked_jobs,
    booked_slots,
    booking_confinement,
    idle_hooks,
    owns_booking,
    reason_to_replan,
    slot_names,
    slots_named,
    wait_for_booking,
    wait_in_what_if,
)
from schedd.features.bookings.rules import (
    advance,
    book,
    follow_nodes,
    job_gone,
    next_edge,
    step,
    update_all_slots,
    yield_nodes,
)
from schedd.features.bookings.state import BookingState, is_live, publish_bookings, without_slots
from schedd.wire import Book, BookingStep

COMPONENT: Final = Component(
    name="bookings",
    state=BookingState,
    work_fields=("bookings",),
    hook_fields={
        "confinement": ("bookings",),
        "job_gone": ("bookings",),
        "slots": ("bookings",),
    },
    idle_hooks=idle_hooks,
    named_by=RESERVATION_NAMES,
    handlers={Book: book, BookingStep: step},
    nodes_taken=follow_nodes,
    nodes_withdrawn=yield_nodes,
    must_wait=wait_for_booking,
    must_wait_if_named=wait_in_what_if,
    confinement=booking_confinement,
    owns_reservation=owns_booking,
    reason_to_replan=reason_to_replan,
    unmovable_jobs=booked_jobs,
    job_gone=job_gone,
    time_passed=advance,
    next_wake=next_edge,
    slots=booked_slots,
    slot_names=slot_names,
    slots_named=slots_named,
    alerts={
        "co_allocation": AlertKind(
            "a component of a co-allocation was deleted: it was late, or not confirmed in time"
        )
    },
    alert_subjects={"reservation": is_live},
    published=publish_bookings,
    without_plan=without_slots,
    plan_rebuilt=update_all_slots,
)
