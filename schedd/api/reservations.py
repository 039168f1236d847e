"""Reservations: nodes that are kept free of planned jobs, or kept for some of them."""

import asyncio
import re
import secrets
from datetime import UTC, datetime
from typing import Annotated, Final

import structlog
from fastapi import APIRouter, Path, Request, Response

from schedd.api.access import Cluster, Operator, Seen
from schedd.api.audited import audited
from schedd.api.bodies import ReservationView, dated
from schedd.api.messages import Reservation
from schedd.api.outcomes import ReservationDone, ReservationsView
from schedd.api.policy import PreviewView, previewed
from schedd.api.problems import Fault, ProblemError, answers
from schedd.api.replies import reply
from schedd.api.waiting import answer_of
from schedd.engine.show.view import Published
from schedd.service.cluster.loop import PlanLoop
from schedd.wire import Reserve, Unreserve

__all__ = ["RESERVATION", "note", "preview", "reservation_view", "reserve", "router", "unreserve"]

from schedd.api.text import TextRoute

router = APIRouter(prefix="/v1/clusters/{cluster}/reservations", tags=["reservations"], route_class=TextRoute)
_log = structlog.get_logger(__name__)
_PATIENCE: Final = 10.0
_HINT: Final = "it is done as soon as the planner is free; GET the reservations to see whether it was"
_NAMED: Final = 5
RESERVATION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""Names of reservations."""
_ACT: Final = ("no-token", "not-allowed", "unknown-cluster", "not-ready", "invalid", "too-much")
_Name = Annotated[
    str,
    Path(
        description="The reservation's name: letters, digits, '.', '_' and '-'.",
        pattern=f"^{RESERVATION.pattern}$",
        examples=["repair"],
    ),
]


def reservation_view(event: Reserve) -> ReservationView:
    """A reservation as readers see it."""
    return ReservationView(
        **{name: getattr(event, name) for name in ReservationView.__dataclass_fields__},
    )


@router.get(
    "",
    response_model=ReservationsView,
    responses={
        **answers("no-token", "unknown-cluster", "not-ready"),
        304: {"description": "Nothing changed since the `ETag` in `If-None-Match`"},
    },
)
def list_reservations(request: Request, cluster: Cluster, _: Seen) -> Response:
    """All reservations that are in force or to come, those of the site's settings among them."""
    published = cluster.published
    rows = sorted(map(reservation_view, published.reservations), key=lambda one: (one.start, one.name))
    return reply(request, ReservationsView(reservations=tuple(rows), **dated(published)), published)


@router.put("/{name}", response_model=ReservationDone, responses=answers(*_ACT, "bad-request", "too-large"))
async def put_reservation(
    request: Request, cluster: Cluster, name: _Name, body: Reservation, asker: Operator
) -> Response:
    """Make a reservation, or put another in its place. Needs the role `operator` or `admin`.

    What runs on its nodes stays. Planned jobs in its way are planned anew, and may be later than promised:
    `at_risk` counts the promises that this puts at risk. Nodes that come later and have its features are
    taken in.
    """
    before = cluster.published.at_risk
    await reserve(cluster, name, body, asker.name)
    return _done(request, cluster, name, before)


@router.post(
    "/{name}/preview",
    response_model=PreviewView,
    responses=answers(*_ACT, "too-hard", "bad-request", "too-large"),
)
async def preview_reservation(
    request: Request, cluster: Cluster, name: _Name, body: Reservation, _: Operator
) -> Response:
    """What would follow if this reservation was made? Nothing is done. Needs the role `operator` or `admin`.

    Tells the running jobs that hold its nodes beyond its start, and the waiting jobs that would move, those
    first whose promise would be put at risk.
    """
    return reply(request, await preview(request, cluster, name, body))


async def preview(request: Request, cluster: PlanLoop, name: str, body: Reservation) -> PreviewView:
    """What would follow if this reservation was made. Raises ProblemError."""
    return await previewed(request, cluster, [_event(cluster, name, body)])


async def reserve(cluster: PlanLoop, name: str, body: Reservation, who: str) -> None:
    """Make the reservation, and note who did. Raises ProblemError."""
    async with audited(cluster, who, "reserve", name) as act:
        event = _event(cluster, name, body)
        act.detail = _in_words(event)
        await answer_of(cluster.submit([event]), _PATIENCE, _HINT)
        if not is_made(cluster, event):
            raise ProblemError("not-now", f"reservation {name} was not made: see the alerts of the cluster")
    _log.warning("a reservation was made", cluster=cluster.name, by=who, reservation=name)


def is_made(cluster: PlanLoop, event: Reserve) -> bool:
    """Whether the reservation is in force or to come."""
    return any(one.name == event.name for one in cluster.published.reservations)


async def note(cluster: PlanLoop, event: Reserve | Unreserve, who: str) -> None:
    """Note who made or lifted a reservation. Raises PlannerStopped when the database fails."""
    act, done, detail = "unreserve", "lifted", event.name
    if isinstance(event, Reserve):
        act, done, detail = "reserve", "made", _in_words(event)
        if not is_made(cluster, event):
            done, detail = "not made", f"refused: {detail}"
    await asyncio.to_thread(cluster.audit, who, act, detail)
    _log.warning(f"a reservation was {done}", cluster=cluster.name, by=who, reservation=event.name)


def _event(cluster: PlanLoop, name: str, body: Reservation) -> Reserve:
    """The event that makes the reservation. Raises ProblemError."""
    _check_nodes(cluster.published, body)
    start = body.start if body.start is not None else cluster.now()
    if body.end is not None and body.end <= max(start, cluster.now()):
        raise _invalid(
            "body.end", "the reservation would be over already", f"above {max(start, cluster.now())}"
        )
    return Reserve(
        id=f"api:{secrets.token_hex(8)}",
        time=cluster.now(),
        name=name,
        nodes=body.nodes,
        start=start,
        end=body.end,
        reason=body.reason,
        features=body.features,
        everywhere=body.everywhere,
        users=body.users,
        groups=body.groups,
        accounts=body.accounts,
        queues=body.queues,
        shorter=body.shorter,
    )


@router.delete("/{name}", response_model=ReservationDone, responses=answers(*_ACT, "unknown-reservation"))
async def delete_reservation(request: Request, cluster: Cluster, name: _Name, asker: Operator) -> Response:
    """Lift a reservation; its nodes are planned for at once. Needs the role `operator` or `admin`."""
    before = cluster.published.at_risk
    await unreserve(cluster, name, asker.name)
    return _done(request, cluster, name, before)


async def unreserve(cluster: PlanLoop, name: str, who: str) -> None:
    """Lift the reservation, and note who did. Raises ProblemError."""
    async with audited(cluster, who, "unreserve", name):
        known = [one.name for one in cluster.published.reservations]
        if name not in known:
            hint = f"there is {', '.join(sorted(known))}" if known else "there are no reservations"
            raise ProblemError(
                "unknown-reservation", f"cluster {cluster.name} has no reservation {name}", hint=hint
            )
        event = Unreserve(id=f"api:{secrets.token_hex(8)}", time=cluster.now(), name=name)
        await answer_of(cluster.submit([event]), _PATIENCE, _HINT)
    _log.warning("a reservation was lifted", cluster=cluster.name, by=who, reservation=name)


def _done(request: Request, cluster: PlanLoop, name: str, before: int) -> Response:
    published = cluster.published
    made = next((reservation_view(one) for one in published.reservations if one.name == name), None)
    return reply(
        request,
        ReservationDone(reservation=made, at_risk=max(0, published.at_risk - before), **dated(published)),
    )


def _check_nodes(published: Published, body: Reservation) -> None:
    missing = [name for name in body.nodes if name not in published.nodes]
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise _invalid("body.nodes", f"no node {', '.join(missing[:_NAMED])}{more}")
    has = {one for facts in published.nodes.values() for one in facts.properties}
    unknown = [one for one in body.features if one not in has and one not in published.nodes]
    if unknown:
        raise _invalid("body.features", f"no node has {unknown[0]}")


def _invalid(where: str, what: str, allowed: str | None = None) -> ProblemError:
    return ProblemError(
        "invalid", f"{where}: {what}", errors=[Fault(where=where, what=what, allowed=allowed)]
    )


def _in_words(event: Reserve) -> str:
    where = "all nodes" if event.everywhere else ", ".join((*event.nodes, *event.features))
    until = _moment(event.end) if event.end is not None else "lifted"
    words = f"{event.name}: {where} from {_moment(event.start)} until {until}"
    return f"{words}; {event.reason}"[:2_000] if event.reason else words[:2_000]


def _moment(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
