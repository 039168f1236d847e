"""Room for bookings: places in the gaps of the plan, and counter-offers outside a booking's window.

After Netto, *Adaptive co-allocation of distributed resources* (2009), chapter 3. Bookings that may still move
make way for another one within their windows; jobs never do.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from schedd.dialect import request_family
from schedd.engine.facts.state import HORIZON, EngineState
from schedd.features.bookings.placement import free_booking_slots, merge_takes, update_booking_slots
from schedd.features.bookings.settings import BookingSettings
from schedd.features.bookings.state import LIVE, Booking, BookingPhase, Option, booking_key, booking_table
from schedd.model import Request
from schedd.plan.work_limits import WorkSpent
from schedd.policy.bookings import Window, nearest, sort_key, stretch
from schedd.wire import Book, JobFacts

MAX_OPTIONS: Final = 5
_TRIED: Final = 64  # starts before the window that are tried for a counter-offer, the nearest first


def booking_facts(event: Book) -> JobFacts:
    """Return the requested resources in the form of a job."""
    return JobFacts(
        id=booking_key(event.name),
        owner=event.owner,
        queue="",
        submitted=event.time,
        family=request_family(event.resources),
        resources=dict(event.resources),
        group=event.group,
        account=event.account,
    )


def find_room(state: EngineState, new: Booking, asked: dict[str, Request]) -> list[Booking] | None:
    """Find places for the new booking and the bookings that must move for it; None: there are none.

    Algorithm 1 of the thesis: bookings before the new one in the site's order keep their places. If a booking
    after it has no place, the new one is tried in that position, and the bookings between keep their places.
    """
    before = booking_table(state).get(new.event.instead)
    if before is not None and before.phase in LIVE and before.event.by == new.event.by:
        free_booking_slots(state, before)
        booking_table(state)[before.name] = replace(before, slots=(), pieces=())
        alone = place_bookings(state, [new], asked)
        update_booking_slots(state, before.name)
        return alone
    alone = place_bookings(state, [new], asked)
    if alone is not None:
        return alone
    order, now = state.site.part(BookingSettings).order, state.now
    others = [one for one in booking_table(state).values() if one.phase == "flexible"]
    for one in others:
        asked[one.name] = read_booking_request(state, one)
    queue = sorted([*others, new], key=lambda one: sort_key(order, one.window, now))
    place = next(i for i, one in enumerate(queue) if one.name == new.name)
    queue.pop(place)
    while place < len(queue):
        behind = queue[place:]
        for one in behind:
            free_booking_slots(state, one)
            booking_table(state)[one.name] = replace(one, slots=(), pieces=())
        found, failed = _place_all(state, [new, *behind], asked)
        if failed is None:
            return found
        for one in behind:
            booking_table(state)[one.name] = one = replace(one, slots=(), pieces=())
            update_booking_slots(state, one.name)
        queue[place:] = [booking_table(state)[one.name] for one in behind]
        if failed == 0:
            return None
        place += failed
    return None


def place_bookings(
    state: EngineState, ones: Sequence[Booking], asked: dict[str, Request]
) -> list[Booking] | None:
    """Place each in turn at its earliest start within its window. Return None if one has no place."""
    found, failed = _place_all(state, ones, asked)
    return found if failed is None else None


def _place_all(
    state: EngineState, ones: Sequence[Booking], asked: dict[str, Request]
) -> tuple[list[Booking], int | None]:
    """As ``place_bookings``; also return the index of the first without a place. The plan is
    unchanged, except for slots that the caller freed.
    """
    plan, now = state.plan, state.now
    slots: list[int] = []
    found: list[Booking] = []
    failed: int | None = None
    try:
        for i, one in enumerate(ones):
            event = one.event
            slot = state.new_slot(asked[one.name], event.duration)
            slots.append(slot)
            plan.set_ready(slot, max(now, event.ready))
            latest = event.deadline - event.duration
            start = plan.place(slot, now, latest + 1) if latest >= max(now, event.ready) else -1
            if start < 0:
                failed = i
                break
            held = merge_takes(state, plan.takes(slot))
            phase: BookingPhase = "frozen" if event.freeze == 0 else "flexible"
            found.append(replace(one, phase=phase, start=start, held=held, slots=(), pieces=(), text=""))
    finally:
        for slot in slots:
            state.drop_slot(slot)
    return found, failed


def read_booking_request(state: EngineState, booking: Booking) -> Request:
    """Return the plan's request of a booking that was taken."""
    facts = booking_facts(booking.event)
    request = state.requests.read(facts, None, {}).request
    assert request is not None, "a booking that was taken is understood"
    return state.planned_request(facts, request)


def find_options(state: EngineState, new: Booking, request: Request) -> tuple[Option, ...]:
    """Return places before and after the window that the site permits, the nearest first."""
    plan, now, window = state.plan, state.now, new.window
    last = now + (HORIZON if new.event.transfer else state.site.part(BookingSettings).ahead - window.duration)
    slot = state.new_slot(request, window.duration)
    found: dict[int, Option] = {}
    try:
        after = max(now, window.ready, window.deadline - window.duration + 1)
        for _ in range(MAX_OPTIONS):
            plan.set_ready(slot, after)
            start = plan.probe(slot, now, last + 1)
            if start < 0:
                break
            found[start] = _option(window, start)
            after = start + window.duration
        found |= _before(state, slot, window)
    except WorkSpent:
        pass  # earlier offers are kept
    finally:
        state.drop_slot(slot)
    return nearest(found.values(), MAX_OPTIONS)


def _before(state: EngineState, slot: int, window: Window) -> dict[int, Option]:
    """Return starts before the window: at the ends of gaps, and the earliest of all."""
    plan, now = state.plan, state.now
    jobs = plan.jobs
    begins = np.unique(jobs.starts[jobs.starts >= 0]) - window.duration
    begins = begins[(begins >= now) & (begins < window.ready)][::-1][:_TRIED].tolist()
    found: dict[int, Option] = {}
    for moment in begins:
        plan.set_ready(slot, moment)
        if plan.probe(slot, now, moment + 1) >= 0:
            found[moment] = _option(window, moment)
            if len(found) == MAX_OPTIONS:
                return found
    plan.set_ready(slot, now)
    first = plan.probe(slot, now, max(now, window.ready))
    if first >= 0:
        found[first] = _option(window, first)
    return found


def _option(window: Window, start: int) -> Option:
    return Option(start, start + window.duration, round(stretch(window, start), 4))
