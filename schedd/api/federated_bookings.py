"""Bookings over HTTP: cores for a time within a window, at whichever cluster of the federation has them."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI
from pydantic import Field, model_validator
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from schedd.api.asked import read_request
from schedd.api.booking_asked import Accepting, BookingAsked, BookingName
from schedd.api.booking_rows import booking_row, jobs_in, options_of
from schedd.api.problems import Fault, ProblemError, answers
from schedd.api.roof import Asker, TheRoof, claimed_by, owner_of
from schedd.dialect import RequestError
from schedd.federation.bookings.booking import Booking
from schedd.federation.roof.roof import Roof
from schedd.federation.routing.jobs import ImpossibleError
from schedd.service.access.roles import Bearer

__all__ = ["add", "found_booking"]

_READ: Final = ("no-token", "not-ready", "invalid")
_ACT: Final = (*_READ, "not-allowed", "unknown-booking", "not-now")
_BODY: Final = ("not-allowed", "bad-request", "too-large", "not-now", "no-room")
_LOOK_S: Final = 0.05
_MOMENT_S: Final = 3.0
"""So long it is waited for what a cluster does at once."""
_MORE_S: Final = 5.0
"""Beyond the federation's patience, so long it is waited for a place."""


class FederatedBooking(BookingAsked):
    """What is wanted of a federation, for how long, and when."""

    clusters: Annotated[
        tuple[str, ...], Field(description="It may be booked at these alone.", max_length=1_000)
    ] = ()

    @property
    def queues(self) -> dict[str, str]:
        """A booking is in none."""
        return {}

    @model_validator(mode="after")
    def _readable(self) -> "FederatedBooking":
        try:
            read_request(self.asked)
        except RequestError as error:
            raise ValueError(error.comment) from None
        return self


def add(app: FastAPI) -> None:
    """Serve bookings, too."""
    route = app.add_api_route
    route("/v1/federation/bookings", _bookings, methods=["GET"], responses=answers(*_READ))
    one = "/v1/federation/bookings/{name}"
    route(one, _booking, methods=["GET"], responses=answers(*_READ, "unknown-booking"))
    route(one, _book, methods=["PUT"], responses=answers(*_READ, *_BODY))
    route(one, _cancel, methods=["DELETE"], responses=answers(*_ACT))
    route(
        f"{one}/accept",
        _accept,
        methods=["POST"],
        responses=answers(*_ACT, "bad-request", "too-large", "no-room"),
    )
    route(f"{one}/freeze", _freeze, methods=["POST"], responses=answers(*_ACT))


def _bookings(roof: TheRoof, asker: Asker, state: Literal["all", "open"] = "all") -> dict[str, Any]:
    """Bookings of the asker; of all, for a reader or an admin. By their start."""
    found = [one for one in list(roof.bookings.by_id.values()) if _sees(asker, one)]
    chosen = [one for one in found if state == "all" or not one.over]
    jobs = jobs_in(roof, [one.id for one in chosen])
    rows = [booking_row(roof, one, jobs) for one in chosen]
    rows.sort(key=lambda row: (row["start"] is None, row["start"] or 0, int(row["id"])))
    return {"bookings": rows}


def _booking(roof: TheRoof, asker: Asker, name: BookingName) -> dict[str, Any]:
    """One booking: where it is, when it begins, how it moved, what was offered instead."""
    return booking_row(roof, found_booking(roof, asker, name))


async def _book(roof: TheRoof, asker: Asker, name: BookingName, body: FederatedBooking) -> Response:
    """Book cores at some cluster. The same name again, until that booking is over, is the same booking.

    The clusters' plans are asked; it is booked where it begins first, or as the policy of routing says. Each
    cluster bounds what its users may book. Where none has room in the window, the answer is 409 `no-room`
    with the counter-offers of all clusters, and nothing is booked; `POST …/accept` takes one. 202: it is not
    known yet; it goes on, and `GET` says how it stands.
    """
    owner = owner_of(roof, asker, body)
    now = roof.now
    start = body.start
    ready, deadline = (
        (start, start + body.duration) if start is not None else (body.ready, body.deadline or 0)
    )
    if deadline - max(now, ready or 0) < body.duration:
        where = "body.start" if start is not None else "body.deadline"
        what = f"from {max(now, ready or 0)} on there are not {body.duration} s until {deadline}"
        raise ProblemError("invalid", what, errors=[Fault(where=where, what=what)])
    asked = {
        "resources": body.asked,
        "duration": body.duration,
        "ready": ready,
        "deadline": deadline,
        "freeze": 0 if start is not None else body.freeze,
        "account": body.account,
        "clusters": tuple(body.clusters),
        "users": claimed_by(asker, owner).get("users"),
    }
    booking = await run_in_threadpool(roof.of_bookings.ask, owner, name, asked)
    return await _outcome(roof, booking.id)


async def _accept(roof: TheRoof, asker: Asker, name: BookingName, body: Accepting) -> Response:
    """Take a counter-offer of a booking that was refused; where it is gone by now there are new ones."""
    booking = _his(roof, asker, name)
    options = options_of(booking)
    if body.option > len(options):
        words = f"booking {name} is {booking.over or 'not refused'} and has {len(options)} counter-offers"
        raise ProblemError("not-now", words)
    option = options[body.option - 1]
    if option.start < roof.now:
        raise ProblemError("not-now", f"option {body.option} began at {option.start}: ask anew")
    await _step(partial(roof.of_bookings.accept, booking.id, asker.name, option.cluster, option.start))
    return await _outcome(roof, booking.id)


async def _freeze(roof: TheRoof, asker: Asker, name: BookingName) -> dict[str, Any]:
    """Let it stay where it is planned. Where its cluster does not answer, it is done once that does."""
    booking = _his(roof, asker, name)
    if booking.over or booking.cancelled or booking.phase != "flexible":
        raise ProblemError("not-now", f"booking {name} is {booking_row(roof, booking)['state']}")
    if not booking.to_freeze:
        await _step(partial(roof.of_bookings.freeze, booking.id, asker.name))
    await _until(lambda: roof.bookings[booking.id].phase != "flexible", _MOMENT_S)
    return booking_row(roof, roof.bookings[booking.id])


async def _cancel(roof: TheRoof, asker: Asker, name: BookingName) -> dict[str, Any]:
    """Give a booking back. Where its cluster does not answer, that is done once it does. Jobs that run in it
    go on; those that wait for it are planned like any other.
    """
    booking = _his(roof, asker, name)
    if not booking.over and not booking.cancelled:
        await _step(partial(roof.of_bookings.cancel, booking.id, asker.name))
    await _until(lambda: bool(roof.bookings[booking.id].over), _MOMENT_S)
    return booking_row(roof, roof.bookings[booking.id])


async def _step(act: Callable[[], Booking]) -> None:
    try:
        await run_in_threadpool(act)
    except ImpossibleError as error:
        raise ProblemError("not-now", str(error)) from None


async def _outcome(roof: Roof, number: str) -> Response:
    """What became of it, once that is known; 202: it is not yet."""

    def known() -> bool:
        one = roof.bookings[number]
        return one.booked or bool(one.over) or one.cancelled

    await _until(known, roof.of_bookings.rules.patience + _MORE_S)
    booking = roof.bookings[number]
    if booking.over == "refused":
        row = booking_row(roof, booking)
        hint = "POST …/accept takes one of the options; nothing is booked yet" if row["options"] else None
        raise ProblemError("no-room", booking.text, hint=hint, options=row["options"])
    return JSONResponse(booking_row(roof, booking), 200 if known() else 202)


async def _until(reached: Callable[[], bool], seconds: float) -> None:
    """Waits for it, and no longer than so."""
    end = time.monotonic() + seconds
    while not reached() and time.monotonic() < end:
        await asyncio.sleep(_LOOK_S)


def _sees(asker: Bearer, booking: Booking) -> bool:
    return asker.role != "user" or asker.name == booking.owner


def found_booking(roof: Roof, asker: Bearer, name: str) -> Booking:
    """The newest booking of that name that the asker may see. Raises ProblemError."""
    booking = roof.bookings.named(name, asker.name)
    if booking is None and asker.role != "user":
        booking = roof.bookings.of_anybody(name)
    if booking is None or not _sees(asker, booking):
        raise ProblemError("unknown-booking", f"the federation has no booking {name[:64]}")
    return booking


def _his(roof: Roof, asker: Bearer, name: str) -> Booking:
    """One with which the asker may do something. Raises ProblemError."""
    booking = found_booking(roof, asker, name)
    if asker.role == "reader":
        raise ProblemError("not-allowed", f"{asker.name} may only read")
    return booking
