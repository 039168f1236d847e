"""What adapter and daemon say to each other: events in, decisions out."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Annotated, Final

from fastapi import Header, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from schedd.api.access import Adapter, Cluster
from schedd.api.event_bounds import find_range_faults
from schedd.api.large_bodies import LARGE_BODY_BYTES, EventsRoute
from schedd.api.planner_calls import TIMEOUTS, await_planner, await_planner_or_storage
from schedd.api.problems import ACT_PROBLEMS, BODY_PROBLEMS, ProblemError, invalid_problem
from schedd.api.replies import reply
from schedd.api.request_bodies import DeliveryBody
from schedd.api.reservations import audit_reservation
from schedd.api.routes import RouteTable
from schedd.api.views import DecisionBatch, EventsAccepted
from schedd.service.access.roles import Bearer
from schedd.service.cluster.deliveries import DeliveryResult
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.wire import Event, Reserve, Snapshot, Unreserve
from schedd.wire.adapter_troubles import MAX_TROUBLES_CHARS, decode_troubles

router = RouteTable(
    prefix="/v1/clusters/{cluster}", tags=["exchange with the adapter"], route_class=EventsRoute
)
_RESEND_HINT: Final = "send the same events again: accepted ones are known by their ids"
_COMMON_PROBLEMS: Final = ACT_PROBLEMS
PREFER_ASYNC: Final = "respond-async"
_MAX_STORED_BYTES: Final = 1_000_000  # a larger delivery is acknowledged when it is handled


AdapterId = Annotated[
    str,
    Header(
        alias="Schedd-Adapter",
        description="The adapter's id, which it keeps over restarts: a cluster has one adapter at a time.",
        max_length=64,
        pattern=r"^[\w-]*$",
    ),
]
AdapterHost = Annotated[
    str, Header(alias="Schedd-Host", description="The adapter's host, for messages.", max_length=255)
]
DecisionPosition = Annotated[
    str,
    Header(
        alias="Schedd-After",
        description="The id of the last decision that the adapter has. With it the reply contains the "
        "decisions after it, which a waiting `GET decisions` of the same adapter then leaves out.",
        max_length=64,
    ),
]
Preference = Annotated[
    str,
    Header(
        description="With `respond-async`, and if the planner is busy, the reply comes as soon as the events "
        "are stored, with `pending`.",
        max_length=64,
    ),
]
MAX_DECISIONS_IN_REPLY: Final = 250  # maximum number of decisions in the reply to events


@router.post(
    "/events",
    *_COMMON_PROBLEMS,
    "another-adapter",
    *BODY_PROBLEMS,
    "too-much",
    answer=EventsAccepted,
    iso=None,
)
async def post_events(
    request: Request,
    cluster: Cluster,
    delivery: DeliveryBody,
    caller: Adapter,
    adapter: AdapterId = "",
    host: AdapterHost = "",
    after: DecisionPosition = "",
    prefer: Preference = "",
) -> Response:
    """Deliver events of the server. Needs the role `adapter`.

    The response comes when all events are stored and handled. Delivery may be repeated: events with ids that
    were handled before are listed as duplicates and change nothing. A `snapshot` is an event too; if it is
    plausible, the engine's state is corrected to it. A body with any error is rejected as a whole. A body
    without events has no effect: it checks whether the caller may send events. Decisions in the reply are
    stored, as in `GET decisions`.
    """
    body = await request.body() if prefer == PREFER_ASYNC else b""
    if len(body) > _MAX_STORED_BYTES:
        body = b""
    return await accept_events(request, cluster, delivery.events, caller, adapter, host, after, body)


async def accept_events(
    request: Request,
    cluster: PlanLoop,
    events: Sequence[Event],
    caller: Bearer,
    adapter: str,
    host: str,
    after: str,
    body: bytes = b"",
) -> Response:
    """Let the planner handle events; reply when stored. Raises ProblemError, and what `submit` raises.

    ``body``: the JSON of the events, which is stored if the planner is busy; empty: wait for the planner.
    """
    clock = _clock_header(cluster)
    if not events:
        return _with_headers(reply(request, EventsAccepted(0, (), cluster.published.generation)), clock)
    _check_adapter(cluster, adapter, host)
    cluster.record_adapter_request()
    if int(request.headers.get("content-length", LARGE_BODY_BYTES)) < LARGE_BODY_BYTES:
        faults = find_range_faults(events)
    else:  # others are not to wait for a look at a whole cluster
        faults = await run_in_threadpool(find_range_faults, events)
    if faults:
        raise ProblemError("invalid", f"{faults[0].where}: {faults[0].what}", errors=faults)
    known = {one.name: _about(one) for one in cluster.published.node_blocks}
    decisions = cluster.decisions
    with decisions.reply_pending(adapter if after else "") as number:
        handled: DeliveryResult | None
        if body and not any(isinstance(event, Snapshot | Reserve | Unreserve) for event in events):
            handled = await await_planner_or_storage(cluster, events, body, TIMEOUTS.events, _RESEND_HINT)
        else:
            handled = await await_planner(cluster, cluster.submit(events), TIMEOUTS.events, _RESEND_HINT)
        page = decisions.page_for_reply(adapter, number, after, MAX_DECISIONS_IN_REPLY) if after else None
    if handled is None:
        accepted = EventsAccepted(len(events), (), cluster.published.generation, pending=True)
    else:
        for event in _reservation_events(events, handled.duplicates):
            about = _about(event) if isinstance(event, Reserve) else None
            if about != known.get(event.name):  # an adapter lists all of them with each snapshot
                await audit_reservation(cluster, event, caller.name)
        accepted = EventsAccepted(handled.accepted, handled.duplicates, handled.generation)
    if page is not None:
        accepted = replace(accepted, decisions=page.decisions, last=page.last)
    return _with_headers(reply(request, accepted), clock)


CLOCK_HEADER: Final = "Schedd-Clock"
"""The cluster's time when the adapter's request arrived; the adapter lets decisions expire by it."""


def _clock_header(cluster: PlanLoop) -> dict[str, str]:
    return {CLOCK_HEADER: f"{max(cluster.now(), cluster.published.as_of):.3f}"}


def _with_headers(response: Response, headers: Mapping[str, str]) -> Response:
    response.headers.update(headers)
    return response


def _reservation_events(
    events: Sequence[Event], duplicates: Collection[str]
) -> Iterator[Reserve | Unreserve]:
    """Yield the reservations that events make or lift, including those listed in snapshots."""
    for event in events:
        if event.id in duplicates:
            continue
        if isinstance(event, Snapshot):
            yield from event.reservations or ()
        elif isinstance(event, Reserve | Unreserve):
            yield event


def _about(event: Reserve) -> tuple[object, ...]:
    """Return a reservation's time and nodes, or their parts; its queues are left out, since they include the
    queues of other reservations, which come and go.
    """
    return event.start, event.end, frozenset(event.nodes), event.shares


def _check_adapter(cluster: PlanLoop, adapter: str, host: str) -> None:
    """Raise ProblemError when another adapter serves the cluster, with the rest of the time that it has."""
    why = cluster.refuse_adapter(adapter, host)
    if why:
        raise ProblemError(
            "another-adapter",
            f"cluster {cluster.name} has one adapter at a time: {why}",
            hint="stop one of the two; `pbs-adapter --once` checks a site while another adapter runs",
            headers={"Retry-After": f"{ceil(cluster.seconds_until_adapter_silent)}"},
        )


@router.get("/decisions", *_COMMON_PROBLEMS, "another-adapter", answer=DecisionBatch, iso=None)
async def get_decisions(
    request: Request,
    cluster: Cluster,
    _: Adapter,
    after: Annotated[
        str,
        Query(
            description="The id of the last decision that the caller has; empty: from the beginning.",
            max_length=64,
            examples=["d000000000017"],
        ),
    ] = "",
    wait: Annotated[float, Query(description="Maximum wait in seconds for a decision.", ge=0, le=60)] = 0,
    limit: Annotated[int, Query(description="Maximum number of decisions.", ge=1, le=10_000)] = 1_000,
    schedd_read_age: Annotated[
        float | None, Header(description="Seconds since the caller last read the server.", ge=0, le=1e9)
    ] = None,
    schedd_clock: Annotated[
        float | None,
        Header(description="The time by the caller's clock, in seconds since the epoch.", ge=0, le=1e11),
    ] = None,
    schedd_version: Annotated[
        str, Header(description="The caller's version.", max_length=64, pattern=r"^[\w.+~-]*$")
    ] = "",
    schedd_uncalled: Annotated[
        str,
        Header(
            description="That the server does not call its scheduler, in words; empty while it does.",
            max_length=500,
        ),
    ] = "",
    schedd_server_clock_lead: Annotated[
        int,
        Header(
            description="Measured lead of the server's clock over the caller's in seconds.",
            ge=-(10**11),
            le=10**11,
        ),
    ] = 0,
    schedd_troubles: Annotated[
        str,
        Header(
            description="Lasting troubles of the caller: a JSON object of texts, by kind. Empty: none.",
            max_length=MAX_TROUBLES_CHARS,
        ),
    ] = "",
    adapter: AdapterId = "",
    host: AdapterHost = "",
) -> Response:
    """Decisions for the server, in order. Needs the role `adapter`.

    Reading removes nothing: several readers may read the same position again. A decision stays in the list
    until an event shows its outcome (a run that was accepted, rejected, or seen to start), or a newer one
    replaces it.
    """
    try:
        troubles = decode_troubles(schedd_troubles)
    except ValueError as error:
        raise invalid_problem("header.schedd-troubles", str(error)) from None
    report = AdapterReport(
        schedd_read_age, schedd_clock, schedd_version, schedd_uncalled, troubles, schedd_server_clock_lead
    )
    return await wait_for_decisions(request, cluster, after, wait, limit, report, adapter, host)


@dataclass(frozen=True, slots=True)
class AdapterReport:
    """What an adapter reports about itself with each request for decisions."""

    read_age: float | None = None
    clock: float | None = None
    version: str = ""
    uncalled: str = ""
    troubles: Mapping[str, str] = field(default_factory=dict)
    server_clock_lead: int = 0


async def wait_for_decisions(
    request: Request,
    cluster: PlanLoop,
    after: str,
    wait: float,
    limit: int,
    report: AdapterReport,
    adapter: str,
    host: str,
) -> Response:
    """Reply with the decisions after a position in ``wait`` seconds. Raises ProblemError, StandingBy."""
    clock = _clock_header(cluster)
    _check_adapter(cluster, adapter, host)
    cluster.record_adapter_request(report.read_age)
    cluster.record_adapter_report(
        report.version, report.clock, report.uncalled, report.troubles, report.server_clock_lead
    )
    cluster.check_leads()
    cluster.record_read_position(after)
    # A waiting adapter must count as alive.
    wait = min(wait, cluster.published.settings.adapter_silence / 2)
    page = await cluster.decisions.wait_for_page(after, wait, limit, adapter)
    return _with_headers(reply(request, DecisionBatch(page.decisions, page.last, page.missed)), clock)
