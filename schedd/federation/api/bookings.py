"""Bookings over HTTP: cores for a time within a window, at any cluster of the federation."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import Response
from pydantic import Field, model_validator
from starlette.concurrency import run_in_threadpool

from schedd.api.booking_requests import BookingName, BookingTerms, OptionChoice
from schedd.api.problems import ProblemError, invalid_problem
from schedd.api.routes import RouteTable
from schedd.dialect import RequestError, format_walltime
from schedd.dialect.walltime_scale import scale_seconds
from schedd.federation.api.app import Caller, LeadingFederation, claimed_users, resolve_owner
from schedd.federation.api.audited_route import FederationRoute
from schedd.federation.api.booking_rows import booking_row, counter_offers, jobs_by_booking
from schedd.federation.api.item_access import is_item_visible, require_write_role, visible_items
from schedd.federation.api.item_answers import FederatedBookingsView, FederatedBookingView
from schedd.federation.api.requests import parse_request
from schedd.federation.api.waiting import wait_until
from schedd.federation.bookings.bookings import FederationBooking
from schedd.federation.items import ImpossibleError
from schedd.federation.state.federation_state import FederationState
from schedd.service.access.roles import Bearer
from schedd.start_sentence import format_utc

router = RouteTable(route_class=FederationRoute)
_READ_PROBLEMS: Final = ("no-token", "not-ready", "invalid")
_ACT_PROBLEMS: Final = (*_READ_PROBLEMS, "not-allowed", "unknown-booking", "not-now")
_BODY_PROBLEMS: Final = ("not-allowed", "bad-request", "too-large", "not-now", "no-room")
_PENDING: Final[dict[int | str, dict[str, Any]]] = {202: {"model": FederatedBookingView}}
_CLUSTER_REPLY_S: Final = 3.0  # maximum wait for an action that a cluster performs at once
_OUTCOME_MARGIN_S: Final = 5.0  # wait for a placement beyond the federation's own timeout


class FederatedBooking(BookingTerms):
    """Terms of a federated booking: resources, duration and window."""

    clusters: Annotated[
        tuple[str, ...], Field(description="Only these clusters may be used.", max_length=1_000)
    ] = ()
    by_speed: Annotated[
        bool,
        Field(
            description="The durations are those at a cluster of speed 1; each cluster books the duration "
            "divided by its speed. It needs a window instead of an exact start."
        ),
    ] = False

    @property
    def queues(self) -> dict[str, str]:
        return {}

    @model_validator(mode="after")
    def _check_request(self) -> "FederatedBooking":
        try:
            parse_request(self.requested_resources)
        except RequestError as error:
            raise ValueError(error.comment) from None
        if self.by_speed and self.start is not None:
            raise ValueError("by_speed needs a window (ready and deadline) instead of an exact start")
        return self


@router.get("/v1/federation/bookings", *_READ_PROBLEMS)
def _list_bookings(
    federation: LeadingFederation, caller: Caller, state: Literal["all", "open"] = "all"
) -> FederatedBookingsView:
    """Bookings of the caller by their start; for a reader or an admin, all bookings."""
    found = visible_items(federation.bookings, caller)
    chosen = [one for one in found if state == "all" or not one.over]
    jobs = jobs_by_booking(federation, [one.id for one in chosen])
    rows = [booking_row(federation, one, jobs) for one in chosen]
    rows.sort(key=lambda row: (row.start is None, row.start or 0, int(row.id)))
    return FederatedBookingsView(bookings=rows)


@router.get("/v1/federation/bookings/{name}", *_READ_PROBLEMS, "unknown-booking")
def _get_booking(federation: LeadingFederation, caller: Caller, name: BookingName) -> FederatedBookingView:
    """One booking: its cluster and start, its moves, and counter-offers."""
    return booking_row(federation, find_visible_booking(federation, caller, name))


@router.put("/v1/federation/bookings/{name}", *_READ_PROBLEMS, *_BODY_PROBLEMS, responses=_PENDING)
async def _book_cores(
    federation: LeadingFederation, caller: Caller, name: BookingName, body: FederatedBooking, reply: Response
) -> FederatedBookingView:
    """Book cores at one of the clusters. A request with the name of an open booking is that booking.

    It is booked at the cluster whose plan starts it first, or as the routing policy says. Each cluster limits
    what its users may book. If no cluster has free capacity in the window, the answer is 409 `no-room` with
    the counter-offers of all clusters, and nothing is booked; `POST …/accept` accepts one of them. 202: the
    outcome is not known yet, and `GET` shows it later.
    """
    owner = resolve_owner(federation, caller, body)
    now = federation.now
    start = body.start
    ready, deadline = (start, start + body.longest) if start is not None else (body.ready, body.deadline or 0)
    shortest = _shortest_length(federation, body)
    if deadline - max(now, ready or 0) < shortest:
        where = "body.start" if start is not None else "body.deadline"
        begin, end = (format_utc(time) for time in (max(now, ready or 0), deadline))
        what = f"it needs {format_walltime(shortest)}, more than the window from {begin} to {end}"
        raise invalid_problem(where, what)
    terms = {
        "resources": body.requested_resources,
        "duration": body.longest,
        "ready": ready,
        "deadline": deadline,
        "freeze": 0 if start is not None else body.freeze,
        "account": body.account,
        "by_speed": body.by_speed,
        "clusters": tuple(body.clusters),
        "users": claimed_users(caller, owner).get("users"),
    }
    booking = await run_in_threadpool(federation.booking_operations.request, owner, name, terms)
    return await _booking_outcome(federation, booking.id, reply)


def _shortest_length(federation: FederationState, body: FederatedBooking) -> int:
    """Return the duration at the fastest permitted cluster."""
    known = federation.settings.clusters
    speeds = [known[name].speed for name in body.clusters or known if name in known]
    return scale_seconds(body.shortest, max(speeds, default=1.0)) if body.by_speed else body.shortest


@router.post(
    "/v1/federation/bookings/{name}/accept",
    *_ACT_PROBLEMS,
    "bad-request",
    "too-large",
    "no-room",
    responses=_PENDING,
)
async def _accept_counter_offer(
    federation: LeadingFederation, caller: Caller, name: BookingName, body: OptionChoice, reply: Response
) -> FederatedBookingView:
    """Accept a counter-offer of a refused booking. If it is no longer available, the answer has new ones."""
    booking = _find_own_booking(federation, caller, name)
    options = counter_offers(booking)
    if body.option > len(options):
        words = f"booking {name} is {booking.over or 'not refused'} and has {len(options)} counter-offers"
        raise ProblemError("not-now", words)
    option = options[body.option - 1]
    if option.start < federation.now:
        raise ProblemError(
            "not-now", f"option {body.option} began at {option.start}: book again for new options"
        )
    await _run_step(
        partial(federation.booking_operations.accept, booking.id, caller.name, option.cluster, option.start)
    )
    return await _booking_outcome(federation, booking.id, reply)


@router.post("/v1/federation/bookings/{name}/freeze", *_ACT_PROBLEMS)
async def _freeze_booking(
    federation: LeadingFederation, caller: Caller, name: BookingName
) -> FederatedBookingView:
    """Fix the planned start of a booking. If its cluster does not answer, this is done as soon as it does."""
    booking = _find_own_booking(federation, caller, name)
    if booking.over or booking.cancelled or booking.phase != "flexible":
        raise ProblemError("not-now", f"booking {name} is {booking_row(federation, booking).state}")
    if not booking.freeze_requested:
        await _run_step(partial(federation.booking_operations.freeze, booking.id, caller.name))
    await wait_until(lambda: federation.bookings[booking.id].phase != "flexible", _CLUSTER_REPLY_S)
    return booking_row(federation, federation.bookings[booking.id])


@router.delete("/v1/federation/bookings/{name}", *_ACT_PROBLEMS)
async def _cancel_booking(
    federation: LeadingFederation, caller: Caller, name: BookingName
) -> FederatedBookingView:
    """Cancel a booking; if its cluster does not answer, as soon as it does. Running jobs in it go on; waiting
    ones are planned like any other.
    """
    booking = _find_own_booking(federation, caller, name)
    if not booking.over and not booking.cancelled:
        await _run_step(partial(federation.booking_operations.cancel, booking.id, caller.name))
    await wait_until(lambda: bool(federation.bookings[booking.id].over), _CLUSTER_REPLY_S)
    return booking_row(federation, federation.bookings[booking.id])


async def _run_step(act: Callable[[], FederationBooking]) -> None:
    try:
        await run_in_threadpool(act)
    except ImpossibleError as error:
        raise ProblemError("not-now", str(error)) from None


async def _booking_outcome(federation: FederationState, number: str, reply: Response) -> FederatedBookingView:
    """Return the outcome once it is known; the status of ``reply`` is 202 until then."""

    def known() -> bool:
        one = federation.bookings[number]
        return one.booked or bool(one.over) or one.cancelled

    await wait_until(known, federation.booking_operations.rules.patience + _OUTCOME_MARGIN_S)
    booking = federation.bookings[number]
    if booking.over == "refused":
        row = booking_row(federation, booking)
        options = [asdict(one) for one in row.options]
        hint = "nothing is booked yet: POST …/accept accepts one of the options" if options else None
        raise ProblemError("no-room", booking.text, hint=hint, options=options)
    if not known():
        reply.status_code = 202
    return booking_row(federation, booking)


def find_visible_booking(federation: FederationState, caller: Bearer, name: str) -> FederationBooking:
    """Return the newest booking of that name that the caller may see. Raises ProblemError."""
    booking = federation.bookings.by_owner_key(caller.name, name)
    if booking is None and caller.may("see all"):
        booking = federation.bookings.newest_named(name)
    if booking is None or not is_item_visible(caller, booking):
        raise ProblemError("unknown-booking", f"the federation has no booking {name[:64]}")
    return booking


def _find_own_booking(federation: FederationState, caller: Bearer, name: str) -> FederationBooking:
    """Return a booking that the caller may change. Raises ProblemError."""
    booking = find_visible_booking(federation, caller, name)
    require_write_role(caller)
    return booking
