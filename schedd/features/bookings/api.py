"""Bookings: cores for a time, at some moment within a window, for users and federations."""

import secrets
from dataclasses import asdict
from typing import Annotated, Final, Literal

import structlog
from fastapi import Path, Request, Response
from pydantic import Field, model_validator

from schedd.api.access import Cluster, User
from schedd.api.audit import audit_act
from schedd.api.booking_requests import BookingKey, BookingName, BookingTerms, OptionalTime, OptionChoice
from schedd.api.planner_calls import submit_events
from schedd.api.problems import ACT_PROBLEMS, BODY_PROBLEMS, READ_PROBLEMS, ProblemError
from schedd.api.replies import api_answer, reply
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.api.views import SnapshotAnswer, snapshot_fields
from schedd.engine import PlanSnapshot
from schedd.features.bookings.state import (
    LIVE,
    Booking,
    BookingPhase,
    Option,
    lookup_key,
    new_booking_key,
    published_bookings,
)
from schedd.plan.columns import CPUS, GPUS, MEM
from schedd.service.access.request_costs import add_cpu_time
from schedd.service.access.roles import Bearer
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.wire import Act, Book, BookingStep, ShareFacts

router = RouteTable(prefix="/v1/clusters/{cluster}", tags=["bookings"], route_class=UnicodeRoute)
_log = structlog.get_logger(__name__)
_HINT: Final = "it is done as soon as the planner is free; GET the bookings shows the result"
_PUT_PROBLEMS: Final = (*ACT_PROBLEMS, "bad-request")
_ACT_PROBLEMS: Final = (
    "no-token",
    "not-allowed",
    "unknown-cluster",
    "unknown-booking",
    "not-ready",
    "invalid",
)


class BookingRequest(BookingTerms):
    """Resources, duration and window. With a `start` it must begin then; with a `deadline` alone it may begin
    at any time that lets it end by then; with `ready` and `deadline`, within that window.
    """

    until: Annotated[
        OptionalTime, Field(description="The booking expires at that second unless it is confirmed.")
    ] = None
    transfer: Annotated[
        str,
        Field(
            description="For a federation: the transfer whose job starts in the booking.",
            max_length=120,
            pattern=r"^[A-Za-z0-9._-]*$",
        ),
    ] = ""
    guard: Annotated[
        int,
        Field(
            description="With `transfer`: its job is deleted so many seconds after its start unless "
            "the booking is kept. 0: never.",
            ge=0,
            le=86_400,
        ),
    ] = 0
    late: Annotated[
        int,
        Field(
            description="With `transfer`: its job is deleted unless it starts within so many seconds "
            "of the start. 0: no limit.",
            ge=0,
            le=3_600,
        ),
    ] = 0
    arming: Annotated[
        bool,
        Field(
            description="With `transfer`: its job starts only once the booking was armed (`POST …/arm`): all "
            "parts of its group may start then."
        ),
    ] = False
    instead: Annotated[
        str,
        Field(
            description="Another booking of the same caller: its cores count as free for this one, "
            "until one of the two is cancelled.",
            max_length=63,
            pattern=r"^[A-Za-z0-9._-]*$",
        ),
    ] = ""

    @model_validator(mode="after")
    def _check_transfer_only(self) -> "BookingRequest":
        if (self.guard or self.late or self.arming) and not self.transfer:
            raise ValueError("guard, late and arming are for a transfer's job")
        return self

    def event(self, *, id: str, now: int, name: str, owner: str, by: str) -> Book:  # noqa: A002
        """As the planner takes it."""
        start = self.start
        return Book(
            id=id,
            time=now,
            name=name,
            owner=owner,
            resources=self.requested_resources,
            duration=self.longest,
            ready=start if start is not None else self.ready if self.ready is not None else now,
            deadline=start + self.longest if start is not None else self.deadline or 0,
            freeze=0 if start is not None else self.freeze,
            account=self.account,
            by=by,
            until=self.until,
            transfer=self.transfer,
            guard=self.guard,
            late=self.late,
            arming=self.arming,
            instead=self.instead,
        )


@api_answer
class BookingOptionView:
    """A counter-offer."""

    option: int
    """Its number."""
    start: int
    end: int
    stretch: float
    """How far it is outside the window, in lengths of the booking; below 0: before it."""


@api_answer
class BookingMoveView:
    """A move of the planned start; a start of null: there was none."""

    time: int
    before: int | None
    after: int


@api_answer
class BookingView:
    """Cores reserved for a time. Times are seconds since the epoch (UTC)."""

    name: str
    owner: str
    phase: BookingPhase
    """`flexible`: it may still be moved; `frozen`; `open`: it has begun; `over`; `cancelled`; `refused`."""
    since: int
    """When that last changed."""
    resources: dict[str, str]
    cpus: int
    duration: int
    ready: int
    deadline: int
    start: int | None
    """When it begins as planned now, or began."""
    end: int | None
    spare: int | None
    """By how many seconds it may still be moved."""
    freezes: int | None
    """From when on it is not moved any more."""
    confirmed: bool
    """False: it expires at `until`, if that is set."""
    until: int | None
    transfer: str
    nodes: tuple[ShareFacts, ...]
    jobs: tuple[str, ...]
    """Jobs that have cores of it."""
    moves: tuple[BookingMoveView, ...]
    """The latest moves."""
    options: tuple[BookingOptionView, ...]
    """Of a refused one: what could be had instead, the nearest first."""
    text: str
    """Why it was refused or closed."""


@api_answer
class BookingsView(SnapshotAnswer):
    """Bookings by start."""

    bookings: tuple[BookingView, ...]


@api_answer
class BookingResult(SnapshotAnswer):
    """One booking after the request."""

    booking: BookingView


def booking_view(published: PlanSnapshot, one: Booking) -> BookingView:
    """A booking as its owner sees it."""
    event, live = one.event, one.phase in LIVE
    placed = one.start >= 0
    return BookingView(
        name=one.shown,
        owner=event.owner,
        phase=one.phase,
        since=one.since,
        resources=dict(event.resources),
        cpus=one.cpus,
        duration=event.duration,
        ready=event.ready,
        deadline=event.deadline,
        start=one.start if placed else None,
        end=one.end if placed else None,
        spare=(max(0, one.window.spare(published.as_of)) if one.phase == "flexible" else 0) if live else None,
        freezes=one.frozen_at if live and placed else None,
        confirmed=one.confirmed,
        until=event.until,
        transfer=event.transfer,
        nodes=tuple(
            ShareFacts(node, amounts[CPUS], amounts[MEM], amounts[GPUS]) for node, amounts in one.held
        )
        if live
        else (),
        jobs=one.jobs,
        moves=tuple(BookingMoveView(time=t, before=b if b >= 0 else None, after=a) for t, b, a in one.moves),
        options=tuple(_option_view(i, option) for i, option in enumerate(one.options, 1)),
        text=one.text,
    )


def _option_view(number: int, one: Option) -> BookingOptionView:
    return BookingOptionView(option=number, **asdict(one))


@router.get("/bookings", *READ_PROBLEMS, answer=BookingsView)
def list_bookings(request: Request, cluster: Cluster, caller: User) -> Response:
    """The caller's bookings, refused and ended ones for a while; all for callers that see all jobs."""
    published = cluster.published
    found = [
        booking_view(published, one)
        for one in published_bookings(published).values()
        if _is_visible(caller, one)
    ]
    found.sort(key=lambda one: (one.start is None, one.start or 0, one.name))
    return reply(request, BookingsView(bookings=tuple(found), **snapshot_fields(published)), published)


@router.get("/bookings/{name}", *_ACT_PROBLEMS, answer=BookingResult)
def get_booking(request: Request, cluster: Cluster, name: BookingKey, caller: User) -> Response:
    """One booking: its start, how far it may still move, counter-offers."""
    return _booking_reply(request, cluster, _find_booking(cluster, name, caller).name)


@router.put(
    "/bookings/{name}", *_PUT_PROBLEMS, "too-much", "no-room", "too-large", "not-now", answer=BookingResult
)
async def book_cores(
    request: Request, cluster: Cluster, name: BookingName, body: BookingRequest, caller: User
) -> Response:
    """Book cores. The same name again, while it holds cores, is the same booking.

    It goes into a gap that the plan leaves: no job is moved. Where there is none in its window, the answer is
    409 `no-room` with counter-offers, and nothing is changed; `POST …/accept` takes one. The site says how
    much users may book; without that, nothing.
    """
    async with audit_act(cluster, caller.name, "book", f"{name}: {body.longest} s") as act:
        owner = _booking_owner(caller, body)
        act.detail = f"{name}: {body.longest} s for {owner}"
        now = cluster.now()
        event = body.event(id=f"api:{secrets.token_hex(8)}", now=now, name=name, owner=owner, by=caller.name)
        add_cpu_time((await submit_events(cluster, [event], "the bookings", order=True)).spent)
        return _booking_outcome(
            request, cluster, new_booking_key(published_bookings(cluster.published), event)
        )


def _booking_owner(caller: Bearer, body: BookingRequest) -> str:
    """The owner of the booking. Raises ProblemError."""
    if body.transfer and not caller.may("transfer jobs"):
        raise ProblemError("not-allowed", f"{caller.name} may not book for a transfer: only a federation may")
    own = caller.name.partition("@")[0]
    owner = body.owner.partition("@")[0] or own
    if owner != own and not (caller.may("steer") or caller.may("transfer jobs")):
        raise ProblemError("not-allowed", f"{caller.name} may book only under this name")
    return owner


@router.delete("/bookings/{name}", *_ACT_PROBLEMS, "too-much", answer=BookingResult)
async def delete_booking(request: Request, cluster: Cluster, name: BookingKey, caller: User) -> Response:
    """Cancel a booking. Running jobs in it go on; waiting ones are planned like any other."""
    return await _act_on_booking(request, cluster, name, caller, "cancel")


@router.post(
    "/bookings/{name}/accept",
    *_ACT_PROBLEMS,
    *BODY_PROBLEMS,
    "too-much",
    "no-room",
    "not-now",
    answer=BookingResult,
)
async def accept_counter_offer(
    request: Request, cluster: Cluster, name: BookingKey, body: OptionChoice, caller: User
) -> Response:
    """Take a counter-offer of a booking that was refused; where it is gone by now there are new ones."""
    return await _act_on_booking(request, cluster, name, caller, "accept", body.option)


@router.post("/bookings/{name}/{act}", *_ACT_PROBLEMS, "not-now", "too-much", answer=BookingResult)
async def act_on_booking(
    request: Request,
    cluster: Cluster,
    name: BookingKey,
    act: Annotated[Literal["freeze", "confirm", "arm", "keep"], Path(description="The action.")],
    caller: User,
) -> Response:
    """Act on a booking of a job over several clusters.

    `freeze`: let it stay where it is planned. `confirm`: it is not given up at its `until`. `arm`: its job
    may start at its begin, where it was made with `arming`. `keep`: the job that began in it stays, though
    it has a `guard`.
    """
    return await _act_on_booking(request, cluster, name, caller, act)


async def _act_on_booking(
    request: Request, cluster: PlanLoop, name: str, caller: Bearer, act: Act, option: int = 0
) -> Response:
    async with audit_act(cluster, caller.name, f"booking {act}", name):
        booking = _find_booking(cluster, name, caller)
        if not _may_change(caller, booking):
            raise ProblemError("not-allowed", f"booking {name} is {booking.event.owner}'s")
        if act == "accept" and (booking.phase != "refused" or option > len(booking.options)):
            words = f"booking {name} is {booking.phase} and has {len(booking.options)} counter-offers"
            raise ProblemError("not-now", words)
        if act in ("freeze", "confirm", "keep") and booking.phase not in LIVE:
            raise ProblemError("not-now", f"booking {name} is {booking.phase}")
        event = BookingStep(
            id=f"api:{secrets.token_hex(8)}",
            time=cluster.now(),
            name=booking.name,
            act=act,
            option=option,
            by=caller.name,
        )
        add_cpu_time((await submit_events(cluster, [event], "the bookings", order=True)).spent)
        answer = _booking_outcome if act == "accept" else _booking_reply
        return answer(request, cluster, booking.name)


def _booking_outcome(request: Request, cluster: PlanLoop, name: str) -> Response:
    booking = published_bookings(cluster.published).get(name)
    if booking is None:
        raise ProblemError("not-ready", f"the outcome of booking {name} is not known yet", hint=_HINT)
    if booking.phase == "refused":
        offers = [asdict(_option_view(i, one)) for i, one in enumerate(booking.options, 1)]
        hint = "POST …/accept accepts one of the options; nothing is booked yet" if offers else None
        raise ProblemError("no-room", booking.text, hint=hint, options=offers)
    return _booking_reply(request, cluster, name)


def _booking_reply(request: Request, cluster: PlanLoop, name: str) -> Response:
    published = cluster.published
    booking = published_bookings(published).get(name)
    if booking is None:
        raise ProblemError("unknown-booking", f"cluster {cluster.name} has no booking of this name")
    return reply(
        request, BookingResult(booking=booking_view(published, booking), **snapshot_fields(published))
    )


def visible_bookings(published: PlanSnapshot, caller: Bearer) -> tuple[list[BookingView], int]:
    """The bookings that are not over and that the caller may see, by start; and the number of the others."""
    live = [one for one in published_bookings(published).values() if one.phase in LIVE]
    live.sort(key=lambda one: (one.start, one.name))
    shown = [booking_view(published, one) for one in live if _is_visible(caller, one)]
    return shown, len(live) - len(shown)


def _is_visible(caller: Bearer, booking: Booking) -> bool:
    """Return whether the caller sees the booking: its own, or all if it sees all jobs."""
    return caller.may("see all") or caller.owns(booking.event.owner) or _may_change(caller, booking)


def _may_change(caller: Bearer, booking: Booking) -> bool:
    """Whether the caller may change the booking: its owner, its creator, or an operator."""
    event = booking.event
    if event.transfer:
        return caller.may("administer") or (caller.may("transfer jobs") and caller.name == event.by)
    return caller.may("steer") or caller.name.partition("@")[0] == event.owner or caller.name == event.by


def _find_booking(cluster: PlanLoop, name: str, caller: Bearer) -> Booking:
    bookings = published_bookings(cluster.published)
    booking = bookings.get(lookup_key(bookings, name, caller.name.partition("@")[0]))
    if booking is None or not _is_visible(caller, booking):
        raise ProblemError("unknown-booking", f"cluster {cluster.name} has no booking {name}")
    return booking
