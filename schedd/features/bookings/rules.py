"""The life of a booking: requested, moved, opened in time, and closed."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from schedd.engine.component.hook_values import UseBegan
from schedd.engine.component.job_hooks import leave_components
from schedd.engine.component.registry import components
from schedd.engine.facts.records import Cause, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import displace_for, plan_job
from schedd.features.bookings.admission import admit
from schedd.features.bookings.booked_jobs import jobs_that_wait, plan_waiting_jobs
from schedd.features.bookings.coallocated import bounds, overdue
from schedd.features.bookings.placement import free_booking_slots, names_booking, update_booking_slots
from schedd.features.bookings.room import place_bookings, read_booking_request
from schedd.features.bookings.state import (
    LIVE,
    MAX_MOVES,
    Booking,
    BookingPhase,
    BookingState,
    QuietBookings,
    booking_key,
    booking_table,
    new_booking_key,
    store_booking,
)
from schedd.features.transfers.rules import withdraw_transfer
from schedd.model import FOREVER
from schedd.wire import Book, BookingStep, JobDeleted, JobEnded, NodeChanged, TransferWithdrawal

_KEPT: Final = 86_400  # seconds until the outcome of a booking is forgotten
_REFUSED_KEPT: Final = 3_600


# ---- what people ask for ------------------------------------------------------------------------


def book(state: EngineState, event: Book) -> None:
    """Book cores, or refuse with counter-offers. A user's name of a booking is unique."""
    key = new_booking_key(booking_table(state), event)
    known = booking_table(state).get(key)
    if known is not None and known.phase in LIVE:
        return
    admit(state, event if key == event.name else replace(event, name=key))


def step(state: EngineState, event: BookingStep) -> None:
    """Accept a counter-offer, or freeze, confirm, arm, keep or cancel a booking."""
    booking = booking_table(state).get(event.name)
    if booking is None:
        return
    match event.act:
        case "accept" if booking.phase == "refused" and 0 < event.option <= len(booking.options):
            chosen, asked = booking.options[event.option - 1], booking.event
            admit(
                state,
                replace(asked, id=event.id, time=event.time, ready=chosen.start, deadline=chosen.end),
            )
        case "freeze" if booking.phase == "flexible":
            store_booking(state, replace(booking, phase="frozen"))
        case "confirm" if booking.phase in LIVE:
            store_booking(state, replace(booking, confirmed=True))
            plan_waiting_jobs(state, event.id, booking.name)
        case "arm" if booking.phase in LIVE:
            store_booking(state, replace(booking, armed=True))
            plan_waiting_jobs(state, event.id, booking.name)
        case "keep" if booking.phase in LIVE:
            store_booking(state, replace(booking, kept=True))
        case "cancel" if booking.phase in LIVE:
            _close(state, booking, "cancelled", f"given back by {event.by or 'its owner'}", event.id)


def _begin_in_components(state: EngineState, booking: Booking) -> None:
    began = UseBegan(booking_key(booking.name), booking.event.owner, booking.start, booking.end)
    for one in components():
        if one.use_began is not None:
            one.use_began(state, began)


def job_gone(state: EngineState, event: JobDeleted | JobEnded) -> None:
    """Return a finished job's cores to its booking."""
    for name, booking in list(booking_table(state).items()):
        if booking.phase == "open" and event.job_id in booking.jobs:
            update_booking_slots(state, name)
            plan_waiting_jobs(state, event.id, name)


# ---- time -----------------------------------------------------------------------------------------


def follow_nodes(state: EngineState, events: Sequence[NodeChanged], _: frozenset[str]) -> None:
    """Let bookings to come leave nodes that were set offline."""
    closed = [event.node.name for event in events if event.node.state == "drain"]
    if closed:
        yield_nodes(state, closed, events[-1].id, "a node takes no new jobs")


def update_all_slots(state: EngineState) -> None:
    """Put all bookings into a plan that was rebuilt."""
    for name, booking in list(booking_table(state).items()):
        if booking.phase in LIVE:
            update_booking_slots(state, name)


def advance(state: EngineState, event: str) -> None:
    """Follow the time, ends of jobs, and lost nodes."""
    part, now = state.part(BookingState), state.now
    if part.quiet is not None and part.quiet.holds(part.bookings, now):
        return
    _examine(state, event)
    part.quiet = _find_quiet(part, now)


def _examine(state: EngineState, event: str) -> None:
    now = state.now
    for name in list(booking_table(state)):
        booking = booking_table(state)[name]
        if booking.phase not in LIVE:
            if booking.since + _retention_s(booking) > now:
                pass
            elif booking.phase != "refused" and names_booking(state, booking):
                store_booking(state, booking)  # while the booking is known, its jobs run like any other
            else:
                del booking_table(state)[name]
            continue
        until = booking.event.until
        if until is not None and not booking.confirmed and until <= now:
            _close(state, booking, "cancelled", "it was not confirmed in time", event)
            continue
        if booking.end <= now:
            _close(state, booking, "over", "", event)
            continue
        if booking.phase == "flexible" and booking.frozen_at <= now:
            store_booking(state, replace(booking, phase="frozen"))
        if booking_table(state)[name].phase != "open" and booking.start <= now:
            store_booking(state, replace(booking_table(state)[name], phase="open"))
            _begin_in_components(state, booking)
            plan_waiting_jobs(state, event, name)
        if update_booking_slots(state, name):
            slots = booking_table(state)[name].slots
            displace_for(state, slots, event, Cause.RESERVATION, f"reservation {name} has its cores again")
            plan_waiting_jobs(state, event, name)
        _guard(state, booking_table(state)[name], event)


def _guard(state: EngineState, booking: Booking, event: str) -> None:
    """Delete a component that is late or was not confirmed: the others may not have started."""
    words = overdue(state, booking)
    if not words:
        return
    transfer = booking.event.transfer
    state.alert(event, "co_allocation", f"transfer {transfer} was deleted: {words}", transfer)
    withdraw_transfer(
        state,
        TransferWithdrawal(
            id=event, time=state.now, transfer=booking.event.transfer, by=booking.event.by, forced=True
        ),
        words,
    )
    _close(state, booking, "cancelled", words, event)


def next_edge(state: EngineState) -> int:
    """When something is to be done about a booking, later than now; FOREVER: never."""
    part = state.part(BookingState)
    if part.quiet is not None and part.quiet.holds(part.bookings, state.now):
        return part.quiet.edge
    return _next_edge(part.bookings.values(), state.now)


def _next_edge(bookings: Iterable[Booking], now: int) -> int:
    return min((moment for one in bookings for moment in _edges(one) if moment > now), default=FOREVER)


def _edges(booking: Booking) -> Iterable[int]:
    if booking.phase not in LIVE:
        return
    yield from (booking.frozen_at, booking.start, booking.end, *bounds(booking))
    if booking.event.until is not None and not booking.confirmed:
        yield booking.event.until


def _find_quiet(part: BookingState, now: int) -> QuietBookings | None:
    """Return the bookings and the time of their next change; None: jobs and nodes may also change them."""
    bookings = tuple(part.bookings.values())
    live = [one for one in bookings if one.phase in LIVE]
    if any(one.jobs or one.event.transfer or one.event.instead or not one.slots for one in live):
        return None
    forgotten = (one.since + _retention_s(one) for one in bookings if one.phase not in LIVE)
    edge = _next_edge(live, now)
    return QuietBookings(bookings, edge, min(edge, *forgotten, FOREVER))


def _retention_s(booking: Booking) -> int:
    """Return for how many seconds the outcome of a booking is kept."""
    return _REFUSED_KEPT if booking.phase == "refused" else _KEPT


def _close(state: EngineState, booking: Booking, phase: BookingPhase, text: str, event: str) -> None:
    free_booking_slots(state, booking)
    leave_components(state, booking_key(booking.name))
    bound = jobs_that_wait(state, booking.name)
    closed = replace(booking, phase=phase, slots=(), pieces=(), text=text, since=state.now)
    booking_table(state)[booking.name] = closed
    for one in list(booking_table(state).values()):
        if one.event.instead == booking.name and one.phase in LIVE:
            update_booking_slots(state, one.name)
    for record in bound:
        if record.phase in (Phase.BLOCKED, Phase.WAITING):
            plan_job(state, record, event, Cause.RELEASED, f"reservation {booking.shown} is {phase}")


def yield_nodes(state: EngineState, nodes: Iterable[str], event: str, words: str) -> None:
    """Move future bookings off these nodes if possible: within their window or, if frozen, to other nodes at
    the same time. Otherwise they stay, and an alert is raised.
    """
    names = frozenset(nodes)
    for name, booking in list(booking_table(state).items()):
        if booking.phase not in ("flexible", "frozen") or not any(node in names for node, _ in booking.held):
            continue
        request = read_booking_request(state, booking)
        free_booking_slots(state, booking)
        fixed = booking
        if booking.phase == "frozen":
            asked = replace(booking.event, ready=booking.start, deadline=booking.end)
            fixed = replace(booking, event=asked)
        rows = [state.plan.node_rows[node] for node in names if node in state.plan.node_rows]
        with state.plan.excluding(rows):
            found = place_bookings(state, [fixed], {name: request})
        bare = replace(booking, slots=(), pieces=())
        if found is None:
            booking_table(state)[name] = bare
            state.alert(
                event, "reservation", f"no other nodes are free for reservation {name}: {words}", name
            )
        else:
            moves = booking.moves
            if found[0].start != booking.start:
                moves = (*moves, (state.now, booking.start, found[0].start))[-MAX_MOVES:]
            booking_table(state)[name] = replace(bare, start=found[0].start, held=found[0].held, moves=moves)
        update_booking_slots(state, name)
