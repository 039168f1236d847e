"""Comparison of the orders of replanning for the present bookings, on copies of the state.

Criteria as in Netto, *Adaptive co-allocation of distributed resources* (2009), 3.6.
"""

from dataclasses import dataclass, replace

import numpy as np

from schedd.engine.component.job_hooks import leave_components
from schedd.engine.facts.state import EngineState
from schedd.features.bookings.placement import free_booking_slots
from schedd.features.bookings.rules import book, booking_key
from schedd.features.bookings.settings import BookingSettings
from schedd.features.bookings.state import LIVE, Booking, booking_table
from schedd.plan.columns import CPUS
from schedd.policy.bookings import Order


@dataclass(frozen=True, slots=True)
class OrderFigures:
    """Flexible bookings and recent refusals, booked again under one order.

    ``asked`` is their number; ``taken`` find a place. ``lost`` have a place now, but not then; ``won`` were
    refused, but have one then; ``moved`` would start at another time. ``core_hours`` is the sum over the
    placed bookings; ``used`` is the share of all core time until ``until``, the latest deadline, that jobs
    and bookings hold.
    """

    order: Order
    asked: int
    taken: int
    lost: int
    won: int
    moved: int
    core_hours: float
    used: float
    until: int


def ordered(state: EngineState, order: Order) -> OrderFigures:
    """Book them again by time of request, as if ``order`` were the site's; ``state`` is a disposable copy.
    Jobs and frozen bookings stay in place. Raises WorkSpent.
    """
    now = state.now
    known = [one for one in booking_table(state).values() if one.phase == "flexible" or _may_still(one, now)]
    known.sort(key=lambda one: (one.event.time, one.name))
    rules = state.site.part(BookingSettings).model_copy(update={"order": order})
    state.site = replace(state.site, features={**state.site.features, BookingSettings: rules})
    for one in known:
        if one.phase == "flexible":
            free_booking_slots(state, one)
            leave_components(state, booking_key(one.name))
        del booking_table(state)[one.name]
    for one in known:
        book(state, one.event)
    after = {one.name: booking_table(state)[one.name] for one in known}
    had = {one.name for one in known if one.phase == "flexible"}
    taken = [one for one in after.values() if one.phase in LIVE]
    until = max((one.event.deadline for one in known), default=now)
    moved = sum(one.phase == "flexible" and after[one.name].start not in (one.start, -1) for one in known)
    return OrderFigures(
        order=order,
        asked=len(known),
        taken=len(taken),
        lost=len(had - {one.name for one in taken}),
        won=sum(one.name not in had for one in taken),
        moved=moved,
        core_hours=sum(one.cpus * one.event.duration for one in taken) / 3_600,
        used=_used(state, until),
        until=until,
    )


def _may_still(one: Booking, now: int) -> bool:
    """Whether it was refused and could still be taken."""
    event = one.event
    return one.phase == "refused" and max(now, event.ready) + event.duration <= event.deadline


def _used(state: EngineState, until: int) -> float:
    """Return the used share of all core time until then."""
    plan, now = state.plan, state.now
    starts, durations = plan.jobs.starts, plan.jobs.durations
    held = sum(
        entry.amounts[CPUS]
        * max(0, min(until, int(starts[slot] + durations[slot])) - max(now, int(starts[slot])))
        for slot, entry in plan.held(np.flatnonzero(starts >= 0))
    )
    there = sum(node.cpus for node in plan.nodes.values()) * (until - now)
    return held / there if there > 0 else 0.0
