"""Acts on reservations, which endpoints, forms and the drain of nodes share."""

import asyncio
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import structlog
from fastapi import Request

from schedd.api.audit import audit_act
from schedd.api.node_selection import select_nodes
from schedd.api.planner_calls import submit_events
from schedd.api.policy import PreviewView, preview_events
from schedd.api.problems import Fault, ProblemError
from schedd.api.request_bodies import ReservationRequest
from schedd.api.views import ReservationView
from schedd.engine import PlanSnapshot
from schedd.name_list import shorten_list
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.start_sentence import format_utc
from schedd.wire import Reserve, Unreserve

_log = structlog.get_logger(__name__)
_MAX_NODES_NAMED: Final = 5
_MAX_WORDS: Final = 200  # ranges, patterns and properties of one reservation


def reservation_view(event: Reserve) -> ReservationView:
    """A reservation as readers see it."""
    return ReservationView(
        **{name: getattr(event, name) for name in ReservationView.__dataclass_fields__},
    )


async def run_reservation_preview(
    request: Request, cluster: PlanLoop, name: str, body: ReservationRequest
) -> PreviewView:
    """What would follow if this reservation was made. Raises ProblemError."""
    return await preview_events(request, cluster, [_reservation_event(cluster, name, body)])


async def reserve(cluster: PlanLoop, name: str, body: ReservationRequest, who: str) -> None:
    """Create the reservation, with an audit entry. Raises ProblemError."""
    async with audit_act(cluster, who, "reserve", name) as act:
        event = _reservation_event(cluster, name, body)
        act.detail = _describe_reservation(event)
        await submit_events(cluster, [event], "the reservations")
        if not is_made(cluster, event):
            what = f"reservation {name} was not made or changed: see the alerts of the cluster"
            raise ProblemError("not-now", what)
    _log.warning("a reservation was made", cluster=cluster.name, by=who, reservation=name)


def is_made(cluster: PlanLoop, event: Reserve) -> bool:
    """Whether the reservation is in force or to come, as this event makes it."""
    return any(one.id == event.id or _is_same(one, event) for one in cluster.published.node_blocks)


def _is_same(known: Reserve, event: Reserve) -> bool:
    """Whether a known reservation, which has all its nodes by name, is as this event makes it."""
    alike = replace(known, id=event.id, time=event.time, nodes=event.nodes) == event
    return alike and set(event.nodes) <= set(known.nodes)


async def audit_reservation(cluster: PlanLoop, event: Reserve | Unreserve, who: str) -> None:
    """Write the audit entry of a reservation. Raises PlannerStopped if the database fails."""
    act, done, detail = "unreserve", "lifted", event.name
    if isinstance(event, Reserve):
        act, done, detail = "reserve", "made", _describe_reservation(event)
        if not is_made(cluster, event):
            done, detail = "not made", f"refused: {detail}"
    await asyncio.to_thread(cluster.audit, who, act, detail)
    _log.warning(f"a reservation was {done}", cluster=cluster.name, by=who, reservation=event.name)


def _reservation_event(cluster: PlanLoop, name: str, body: ReservationRequest) -> Reserve:
    """The event that makes the reservation. Raises ProblemError."""
    nodes = _expand_nodes(cluster.published, body)
    start = body.start if body.start is not None else cluster.now()
    if body.end is not None and body.end <= max(start, cluster.now()):
        least = f"later than {format_utc(max(start, cluster.now()))}"
        raise _invalid("body.end", "the reservation would be over already", least)
    terms = body.model_dump(exclude={"start", "nodes"})
    return Reserve(
        id=f"api:{secrets.token_hex(8)}", time=cluster.now(), name=name, start=start, nodes=nodes, **terms
    )


async def unreserve(cluster: PlanLoop, name: str, who: str) -> None:
    """Delete the reservation, with an audit entry. Raises ProblemError."""
    async with audit_act(cluster, who, "unreserve", name):
        known = [one.name for one in cluster.published.node_blocks]
        if name not in known:
            hint = f"there is {', '.join(sorted(known))}" if known else "there are no reservations"
            raise ProblemError(
                "unknown-reservation", f"cluster {cluster.name} has no reservation {name}", hint=hint
            )
        event = Unreserve(id=f"api:{secrets.token_hex(8)}", time=cluster.now(), name=name)
        await submit_events(cluster, [event], "the reservations")
    _log.warning("a reservation was lifted", cluster=cluster.name, by=who, reservation=name)


def _expand_nodes(published: PlanSnapshot, body: ReservationRequest) -> tuple[str, ...]:
    """Return the nodes that are reserved by name, after a check of the features. Raises ProblemError."""
    nodes = dict.fromkeys(name for name in body.nodes if name in published.nodes)
    words = [word for word in body.nodes if word not in nodes]
    missing = words[_MAX_WORDS:]
    for word in words[:_MAX_WORDS]:
        try:
            nodes.update(dict.fromkeys(select_nodes(published.nodes, word)))
        except ValueError:
            missing.append(word)
    if missing:
        raise _invalid("body.nodes", f"no node {shorten_list(missing, _MAX_NODES_NAMED)}")
    has = {one for facts in published.nodes.values() for one in facts.properties}
    unknown = [one for one in body.features if one not in has and one not in published.nodes]
    if unknown:
        raise _invalid("body.features", f"no node has {unknown[0]}")
    return tuple(nodes)


def _invalid(where: str, what: str, allowed: str | None = None) -> ProblemError:
    return ProblemError(
        "invalid", f"{where}: {what}", errors=[Fault(where=where, what=what, allowed=allowed)]
    )


def _describe_reservation(event: Reserve) -> str:
    where = "all nodes" if event.everywhere else ", ".join((*event.nodes, *event.features))
    until = _format_time(event.end) if event.end is not None else "lifted"
    amounts = f"{event.amounts}, " if event.amounts else ""
    words = f"{event.name}: {amounts}{where} from {_format_time(event.start)} until {until}"
    return f"{words}; {event.reason}"[:2_000] if event.reason else words[:2_000]


def _format_time(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
