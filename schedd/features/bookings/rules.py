"""Bookings: taken or refused with counter-offers, moved while they may, opened in time, and closed.

After Netto, *Adaptive co-allocation of distributed resources* (2009), chapter 3. A booking goes into a gap
that the plan leaves; bookings that may still move make way for it within their windows, jobs never do.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from schedd.dialect import request_family
from schedd.dialect.moldable import read_alternatives
from schedd.engine.component.hook_values import PricedUse, UseBegan
from schedd.engine.component.job_hooks import leave_components
from schedd.engine.component.registry import components
from schedd.engine.facts.job_requests import ParsedRequest, find_uncounted
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import HORIZON, EngineState
from schedd.engine.place.placement import displace_for, plan_job, replan
from schedd.engine.place.slot_requests import refresh_request
from schedd.features.bookings.coallocated import bounds, overdue
from schedd.features.bookings.placement import (
    find_booking,
    free_booking_slots,
    merge_takes,
    names_booking,
    update_booking_slots,
)
from schedd.features.bookings.settings import BookingSettings
from schedd.features.bookings.state import (
    LIVE,
    Booking,
    BookingPhase,
    BookingState,
    Option,
    QuietBookings,
    booking_table,
    new_booking_key,
)
from schedd.features.transfers.rules import withdraw_transfer
from schedd.model import FOREVER, Request, WaitingFor
from schedd.plan.columns import PLANNED
from schedd.plan.plan import WorkSpent
from schedd.policy.bookings import Window, nearest, sort_key, stretch
from schedd.wire import Book, BookingStep, JobDeleted, JobEnded, JobFacts, NodeChanged, TransferWithdrawal

_KEPT: Final = 86_400  # seconds until the outcome of a booking is forgotten
_REFUSED_KEPT: Final = 3_600
_OPTIONS: Final = 5
_TRIED: Final = 64  # starts before the window that are tried for a counter-offer, the nearest first
_MOVES: Final = 20  # moves of a booking that are remembered, the latest


# ---- what people ask for ------------------------------------------------------------------------


def book(state: EngineState, event: Book) -> None:
    """Book cores, or refuse with counter-offers. A user's name of a booking is unique."""
    key = new_booking_key(booking_table(state), event)
    known = booking_table(state).get(key)
    if known is not None and known.phase in LIVE:
        return
    _admit(state, event if key == event.name else replace(event, name=key))


def step(state: EngineState, event: BookingStep) -> None:
    """Accept a counter-offer, or freeze, confirm, arm, keep or cancel a booking."""
    booking = booking_table(state).get(event.name)
    if booking is None:
        return
    match event.act:
        case "accept" if booking.phase == "refused" and 0 < event.option <= len(booking.options):
            chosen, asked = booking.options[event.option - 1], booking.event
            _admit(
                state,
                replace(asked, id=event.id, time=event.time, ready=chosen.start, deadline=chosen.end),
            )
        case "freeze" if booking.phase == "flexible":
            _store_booking(state, replace(booking, phase="frozen"))
        case "confirm" if booking.phase in LIVE:
            _store_booking(state, replace(booking, confirmed=True))
            _wake(state, event.id, booking.name)
        case "arm" if booking.phase in LIVE:
            _store_booking(state, replace(booking, armed=True))
            _wake(state, event.id, booking.name)
        case "keep" if booking.phase in LIVE:
            _store_booking(state, replace(booking, kept=True))
        case "cancel" if booking.phase in LIVE:
            _close(state, booking, "cancelled", f"given back by {event.by or 'its owner'}", event.id)


def _store_booking(state: EngineState, booking: Booking) -> None:
    booking_table(state)[booking.name] = replace(booking, since=state.now)


# ---- admission ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One alternative of a request, or the only one: the booking, and its request in the plan."""

    booking: Booking
    understood: ParsedRequest
    request: Request


def _admit(state: EngineState, event: Book) -> None:
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
            moved = _find_room(state, one.booking, {event.name: one.request})
            if moved is not None:
                _accept_booking(state, event, moved)
                return
            leave_components(state, booking_key(event.name))
            options += _options(state, one.booking, one.request)
            problem = "there is no room for it in its window"
    except WorkSpent as error:
        leave_components(state, booking_key(event.name))
        problem = str(error)
    offers = {(one.start, one.end): one for one in options}.values()
    _store_booking(state, replace(refused, text=problem, options=nearest(offers, _OPTIONS)))


def _alternatives(event: Book) -> list[Book]:
    """Return one request for each size in it, with the length of that size; without sizes the request."""
    found = read_alternatives(event.resources)
    return [replace(event, resources=one, duration=int(one["walltime"])) for one in found] or [event]


def _candidate(state: EngineState, event: Book) -> _Candidate | str:
    """Return the booking to be placed, or why the cluster or the site refuses it."""
    facts = _facts(event)
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
    found = _planned(state, [one.booking], {one.booking.name: one.request})
    return found[0].end if found is not None else FOREVER


def _accept_booking(state: EngineState, event: Book, moved: Iterable[Booking]) -> None:
    """Store a new booking and the bookings that moved for it; plan jobs again whose owner now has it."""
    for one in moved:
        known = booking_table(state).get(one.name)
        before = known.start if known is not None and known.phase in LIVE else -1
        moves = one.moves if before == one.start else (*one.moves, (state.now, before, one.start))
        booking_table(state)[one.name] = replace(one, since=state.now, moves=moves[-_MOVES:])
        update_booking_slots(state, one.name)
    for record in _planned_elsewhere(state, event.name) if not event.transfer else ():
        refresh_request(state, record)
        state.refit(record)
        replan(state, record, event.id, Cause.RESERVATION, "its owner booked what it names")
    _wake(state, event.id, event.name)


def _planned_elsewhere(state: EngineState, name: str) -> list[JobRecord]:
    """Waiting jobs of a new booking that have a place, in an administrator's reservation of the same name."""
    return [
        one
        for one in state.records.values()
        if one.phase is Phase.WAITING
        and state.plan.state(one.slot) == PLANNED
        and (its := find_booking(state, one)) is not None
        and its.name == name
    ]


def _facts(event: Book) -> JobFacts:
    """Return the requested resources in the form of a job."""
    return JobFacts(
        id=f"booking {event.name}",
        owner=event.owner,
        queue="",
        submitted=event.time,
        family=request_family(event.resources),
        resources=dict(event.resources),
        group=event.group,
        account=event.account,
    )


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


def booking_key(name: str) -> str:
    """Return the key of a booking in components: no job has such an id."""
    return f"booking {name}"


def _component_problem(state: EngineState, wanted: _Candidate) -> str:
    """Return why a component refuses a booking that has a price; empty if all components accept it."""
    event = wanted.booking.event
    if not state.site.part(BookingSettings).cost or event.transfer:
        return ""
    priced = replace(wanted.understood, walltime=event.duration)
    use = PricedUse(booking_key(event.name), _facts(event), priced, state.site.part(BookingSettings).cost)
    for one in components():
        if one.use_requested is not None:
            problem = one.use_requested(state, use)
            if problem:
                return problem
    return ""


def _begin_in_components(state: EngineState, booking: Booking) -> None:
    began = UseBegan(booking_key(booking.name), booking.event.owner, booking.start, booking.end)
    for one in components():
        if one.use_began is not None:
            one.use_began(state, began)


# ---- room -----------------------------------------------------------------------------------------


def _find_room(state: EngineState, new: Booking, asked: dict[str, Request]) -> list[Booking] | None:
    """Find places for the new booking and the bookings that must move for it; None: there are none.

    Algorithm 1 of the thesis: bookings before the new one in the site's order keep their places. If a booking
    after it has no place, the new one is tried in that position, and the bookings between keep their places.
    """
    before = booking_table(state).get(new.event.instead)
    if before is not None and before.phase in LIVE and before.event.by == new.event.by:
        free_booking_slots(state, before)
        booking_table(state)[before.name] = replace(before, slots=(), pieces=())
        alone = _planned(state, [new], asked)
        update_booking_slots(state, before.name)
        return alone
    alone = _planned(state, [new], asked)
    if alone is not None:
        return alone
    order, now = state.site.part(BookingSettings).order, state.now
    others = [one for one in booking_table(state).values() if one.phase == "flexible"]
    for one in others:
        asked[one.name] = _booking_request(state, one)
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


def _planned(state: EngineState, ones: Sequence[Booking], asked: dict[str, Request]) -> list[Booking] | None:
    found, failed = _place_all(state, ones, asked)
    return found if failed is None else None


def _place_all(
    state: EngineState, ones: Sequence[Booking], asked: dict[str, Request]
) -> tuple[list[Booking], int | None]:
    """Place each in turn at its earliest start within its window; returns the index of the first failure, or
    None. The plan is unchanged, except for slots that the caller freed.
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


def _booking_request(state: EngineState, booking: Booking) -> Request:
    facts = _facts(booking.event)
    request = state.requests.read(facts, None, {}).request
    assert request is not None, "a booking that was taken is understood"
    return state.planned_request(facts, request)


def _options(state: EngineState, new: Booking, request: Request) -> tuple[Option, ...]:
    """Return places before and after the window, the nearest first."""
    plan, now, window = state.plan, state.now, new.window
    slot = state.new_slot(request, window.duration)
    found: dict[int, Option] = {}
    try:
        after = max(now, window.ready, window.deadline - window.duration + 1)
        for _ in range(_OPTIONS):
            plan.set_ready(slot, after)
            start = plan.probe(slot, now, now + HORIZON)
            if start < 0:
                break
            found[start] = _option(window, start)
            after = start + window.duration
        found |= _before(state, slot, window)
    except WorkSpent:
        pass  # earlier offers are kept
    finally:
        state.drop_slot(slot)
    return nearest(found.values(), _OPTIONS)


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
            if len(found) == _OPTIONS:
                return found
    plan.set_ready(slot, now)
    first = plan.probe(slot, now, max(now, window.ready))
    if first >= 0:
        found[first] = _option(window, first)
    return found


def _option(window: Window, start: int) -> Option:
    return Option(start, start + window.duration, round(stretch(window, start), 4))


def job_gone(state: EngineState, event: JobDeleted | JobEnded) -> None:
    """Return a finished job's cores to its booking."""
    for name, booking in list(booking_table(state).items()):
        if booking.phase == "open" and event.job_id in booking.jobs:
            update_booking_slots(state, name)
            _wake(state, event.id, name)


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
            if booking.since + _time_kept(booking) > now:
                pass
            elif booking.phase != "refused" and names_booking(state, name):
                _store_booking(state, booking)  # while the booking is known, its jobs run like any other
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
            _store_booking(state, replace(booking, phase="frozen"))
        if booking_table(state)[name].phase != "open" and booking.start <= now:
            _store_booking(state, replace(booking_table(state)[name], phase="open"))
            _begin_in_components(state, booking)
            _wake(state, event, name)
        if update_booking_slots(state, name):
            slots = booking_table(state)[name].slots
            displace_for(state, slots, event, Cause.RESERVATION, f"reservation {name} has its cores again")
            _wake(state, event, name)
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
    """Return the bookings with the next moment at which there is work; None: what jobs and nodes do counts,
    too.
    """
    bookings = tuple(part.bookings.values())
    live = [one for one in bookings if one.phase in LIVE]
    if any(one.jobs or one.event.transfer or one.event.instead or not one.slots for one in live):
        return None
    forgotten = (one.since + _time_kept(one) for one in bookings if one.phase not in LIVE)
    edge = _next_edge(live, now)
    return QuietBookings(bookings, edge, min(edge, *forgotten, FOREVER))


def _time_kept(booking: Booking) -> int:
    """Return for how many seconds the outcome of a booking is kept."""
    return _REFUSED_KEPT if booking.phase == "refused" else _KEPT


def _close(state: EngineState, booking: Booking, phase: BookingPhase, text: str, event: str) -> None:
    free_booking_slots(state, booking)
    leave_components(state, booking_key(booking.name))
    bound = _bound(state, booking.name)
    closed = replace(booking, phase=phase, slots=(), pieces=(), text=text, since=state.now)
    booking_table(state)[booking.name] = closed
    for one in list(booking_table(state).values()):
        if one.event.instead == booking.name and one.phase in LIVE:
            update_booking_slots(state, one.name)
    for record in bound:
        if record.phase in (Phase.BLOCKED, Phase.WAITING):
            plan_job(state, record, event, Cause.RELEASED, f"reservation {booking.shown} is {phase}")


def _bound(state: EngineState, name: str) -> list[JobRecord]:
    """Jobs that wait for the booking, or for other jobs before they start in it."""
    waiting = [
        one
        for one in state.records.values()
        if isinstance(one.answer, WaitingFor) and one.answer.kind in ("reservation", "dependency")
    ]
    return [one for one in waiting if (its := find_booking(state, one)) is not None and its.name == name]


def _wake(state: EngineState, event: str, name: str) -> None:
    """Start the possible jobs of the booking, by time of submission."""
    words = f"there is room in reservation {booking_table(state)[name].shown}"
    for record in sorted(_bound(state, name), key=lambda one: (one.facts.submitted, one.id)):
        refresh_request(state, record)
        state.refit(record)
        plan_job(state, record, event, Cause.RELEASED, words)


def yield_nodes(state: EngineState, nodes: Iterable[str], event: str, words: str) -> None:
    """Move future bookings off these nodes if possible: within their window or, if frozen, to other nodes at
    the same time. Otherwise they stay, and an alert is raised.
    """
    names = frozenset(nodes)
    for name, booking in list(booking_table(state).items()):
        if booking.phase not in ("flexible", "frozen") or not any(node in names for node, _ in booking.held):
            continue
        request = _booking_request(state, booking)
        free_booking_slots(state, booking)
        fixed = booking
        if booking.phase == "frozen":
            asked = replace(booking.event, ready=booking.start, deadline=booking.end)
            fixed = replace(booking, event=asked)
        rows = [state.plan.node_rows[node] for node in names if node in state.plan.node_rows]
        with state.plan.excluding(rows):
            found = _planned(state, [fixed], {name: request})
        bare = replace(booking, slots=(), pieces=())
        if found is None:
            booking_table(state)[name] = bare
            state.alert(
                event, "reservation", f"no other nodes are free for reservation {name}: {words}", name
            )
        else:
            moves = (*booking.moves, (state.now, booking.start, found[0].start))[-_MOVES:]
            booking_table(state)[name] = replace(bare, start=found[0].start, held=found[0].held, moves=moves)
        update_booking_slots(state, name)
