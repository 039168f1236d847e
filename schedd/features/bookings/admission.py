"""Admission of bookings: checked against the cluster, the site's rules and other features, then placed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from schedd.dialect.moldable import read_alternatives
from schedd.engine.component.hook_values import PricedUse
from schedd.engine.component.job_hooks import leave_components
from schedd.engine.component.registry import components
from schedd.engine.facts.job_requests import ParsedRequest, find_uncounted
from schedd.engine.facts.records import Cause
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import replan
from schedd.engine.place.slot_requests import refresh_request
from schedd.features.bookings.booked_jobs import jobs_planned_elsewhere, plan_waiting_jobs
from schedd.features.bookings.placement import update_booking_slots
from schedd.features.bookings.room import (
    MAX_OPTIONS,
    booking_facts,
    find_options,
    find_room,
    place_bookings,
)
from schedd.features.bookings.settings import BookingSettings
from schedd.features.bookings.state import (
    LIVE,
    MAX_MOVES,
    Booking,
    Option,
    booking_key,
    booking_table,
    store_booking,
)
from schedd.model import FOREVER, Request
from schedd.plan.views import find_unmet_requirement
from schedd.plan.work_limits import WorkSpent
from schedd.policy.bookings import nearest
from schedd.wire import Book

NO_ROOM: Final = "there is no room for it in its window"


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One alternative of a request, or the only one: the booking, and its request in the plan."""

    booking: Booking
    understood: ParsedRequest
    request: Request


def admit(state: EngineState, event: Book) -> None:
    """Book the alternative that ends first, of those with room in the window; or refuse all."""
    candidates: list[_Candidate] = []
    problem = ""
    for alternative in _alternatives(event):
        found = _candidate(state, alternative)
        if isinstance(found, _Candidate):
            candidates.append(found)
        else:
            problem = problem or found
    most = max((one.booking.cpus for one in candidates), default=0)
    refused = Booking(event=event, phase="refused", since=state.now, cpus=most)
    options: list[Option] = []
    try:
        if len(candidates) > 1:
            candidates.sort(key=lambda one: _end_without_moves(state, one))
        for one in candidates:
            fault = _component_problem(state, one)
            if fault:
                problem = problem or fault
                continue
            moved = find_room(state, one.booking, {event.name: one.request})
            if moved is not None:
                _accept_booking(state, event, moved)
                return
            leave_components(state, booking_key(event.name))
            options += find_options(state, one.booking, one.request)
            problem = NO_ROOM
        if problem == NO_ROOM:
            problem = _impossible(state, candidates) or problem
    except WorkSpent as error:
        leave_components(state, booking_key(event.name))
        problem = str(error)
    offers = {(one.start, one.end): one for one in options}.values()
    store_booking(state, replace(refused, text=problem, options=nearest(offers, MAX_OPTIONS)))


def _impossible(state: EngineState, candidates: Sequence[_Candidate]) -> str:
    """Return the requirement that the empty cluster cannot meet; empty if it can hold an alternative."""
    empty, units = state.empty_plan(), state.limits.types.units
    nevers = [find_unmet_requirement(empty, one.request, units) for one in candidates]
    return nevers[0].requirement if nevers[0] is not None and None not in nevers else ""


def _alternatives(event: Book) -> list[Book]:
    """Return one request for each size in it, with the length of that size; without sizes the request."""
    found = read_alternatives(event.resources)
    return [replace(event, resources=one, duration=int(one["walltime"])) for one in found] or [event]


def _candidate(state: EngineState, event: Book) -> _Candidate | str:
    """Return the booking to be placed, or why the cluster or the site refuses it."""
    facts = booking_facts(event)
    understood = state.requests.read(facts, None, {})
    problem = _problem(state, understood)
    request = understood.request
    if problem or request is None:
        return problem or understood.problem
    cpus = sum(chunk.count * chunk.cpus for chunk in request.chunks)
    problem = _against_rules(state, event, cpus) if not event.transfer else ""
    if problem:
        return problem
    booking = Booking(event=event, phase="refused", since=state.now, cpus=cpus)
    return _Candidate(booking, understood, state.planned_request(facts, request))


def _end_without_moves(state: EngineState, one: _Candidate) -> int:
    """When the booking would end if no other moved; FOREVER: there is no room."""
    found = place_bookings(state, [one.booking], {one.booking.name: one.request})
    return found[0].end if found is not None else FOREVER


def _accept_booking(state: EngineState, event: Book, moved: Iterable[Booking]) -> None:
    """Store a new booking and the ones that moved for it, and plan its owner's jobs that name it again."""
    for one in moved:
        known = booking_table(state).get(one.name)
        before = known.start if known is not None and known.phase in LIVE else -1
        moves = one.moves if before == one.start else (*one.moves, (state.now, before, one.start))
        booking_table(state)[one.name] = replace(one, since=state.now, moves=moves[-MAX_MOVES:])
        update_booking_slots(state, one.name)
    for record in jobs_planned_elsewhere(state, event.name) if not event.transfer else ():
        refresh_request(state, record)
        state.refit(record)
        replan(state, record, event.id, Cause.RESERVATION, "its owner booked what it names")
    plan_waiting_jobs(state, event.id, event.name)


def _problem(state: EngineState, understood: ParsedRequest) -> str:
    if state.policy is not None:
        return "this cluster plans no starts: nothing can be booked on it"
    if understood.request is None:
        return understood.problem
    never = find_uncounted(understood.request, state.uncounted) or state.find_unmet_requirement(
        understood.request
    )
    return never.requirement if never is not None else ""


def _against_rules(state: EngineState, event: Book, cpus: int) -> str:
    """What the site does not allow of it; empty: it allows all."""
    rules, now = state.site.part(BookingSettings), state.now
    if not rules.most:
        return "users may book nothing here: the site has no table site.bookings"
    live = [one for one in booking_table(state).values() if one.phase in LIVE and not one.event.transfer]
    if sum(one.event.owner == event.owner for one in live) >= rules.most:
        return f"{event.owner} has {rules.most} bookings already, as many as a user may have"
    if rules.cpus and cpus > rules.cpus:
        return f"it asks for {cpus} cores; at most {rules.cpus} may be booked at once"
    if event.duration > rules.longest:
        return f"it is for {event.duration} s; at most {rules.longest} s may be booked"
    if event.deadline > now + rules.ahead:
        return (
            f"its window ends {event.deadline - now} s from now; at most {rules.ahead} s ahead may be booked"
        )
    if event.deadline - max(event.ready, now) < event.duration:
        return "its window is shorter than it is"
    return ""


def _component_problem(state: EngineState, wanted: _Candidate) -> str:
    """Return why a component refuses a booking that has a price; empty if all components accept it."""
    event = wanted.booking.event
    if not state.site.part(BookingSettings).cost or event.transfer:
        return ""
    priced = replace(wanted.understood, walltime=event.duration)
    use = PricedUse(
        booking_key(event.name), booking_facts(event), priced, state.site.part(BookingSettings).cost
    )
    for one in components():
        if one.use_requested is not None:
            problem = one.use_requested(state, use)
            if problem:
                return problem
    return ""
