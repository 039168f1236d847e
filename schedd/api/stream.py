"""Server-sent events: the plan as it changes, one user's jobs, or one job."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request
from pydantic import TypeAdapter
from sse_starlette import EventSourceResponse, ServerSentEvent

from schedd.api.access import Cluster, User, address_of, seen_by, still_counts
from schedd.api.alerts import alerts_for
from schedd.api.bodies import News, dated
from schedd.api.problems import ProblemError, answers
from schedd.engine.facts.alerts import OpenAlert
from schedd.engine.show.view import Published
from schedd.service.access.askers import Askers
from schedd.service.cluster.bell import rung_or_late
from schedd.service.cluster.feed import Wanted, line_of
from schedd.service.cluster.loop import PlanLoop
from schedd.service.read.reading import counts, of_owner

__all__ = ["router"]

router = APIRouter(prefix="/v1/clusters/{cluster}", tags=["plan"])
_NEWS: Final = TypeAdapter(News)
_PAUSE_S: Final = 0.25
"""Between two events: what changes in quick succession is told together."""
_MOST: Final = 2_000
"""Jobs in an event; whose list would be longer reads everything anew."""
_RETRY_MS: Final = 2_000


@router.get(
    "/stream",
    response_class=EventSourceResponse,
    responses={
        200: {
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
            "description": "Events `reset` and `changes`, whose data is a `News`",
        },
        **answers("no-token", "unknown-cluster", "not-ready", "invalid"),
    },
)
async def stream(
    request: Request,
    cluster: Cluster,
    asker: User,
    user: Annotated[
        str | None, Query(description="Only this owner's jobs: `ann`, or `ann@host`.", max_length=512)
    ] = None,
    job: Annotated[str | None, Query(description="Only this job, by its whole id.", max_length=512)] = None,
    last_event_id: Annotated[
        str | None, Header(description="The id of the last event that the asker has.", max_length=64)
    ] = None,
) -> EventSourceResponse:
    """Follow the plan by server-sent events, which browsers know as `EventSource`.

    The first event is `reset`: read what you want to show, then keep it up to date by the `changes` that
    follow; whatever is read after the `reset` is at least as new as it. Each event has an id. Who sends the
    last one as `Last-Event-ID`, as a browser does by itself when the connection was lost, gets the changes
    since; a `reset` again where these are too many, or not known any more. Changes in quick succession are
    told together. A comment is sent every 15 s while nothing changes. It ends within seconds when the token
    does not count any more.
    """
    life: str = request.app.state.life
    known, _dash, place = (last_event_id or "").rpartition("-")
    since = int(place) if known == life and place.isdecimal() and len(place) < 20 else None

    def wanted(its_id: str, owner: str) -> bool:
        asked = (job is None or its_id == job) and (user is None or of_owner(owner, user))
        return asked and seen.sees_owner(owner)

    seen, counts = seen_by(request, asker, cluster), still_counts(request)

    def goes_on() -> bool:
        nonlocal seen  # what others show may change meanwhile
        seen = seen_by(request, asker, cluster)
        return counts()

    def alerts_of() -> tuple[OpenAlert, ...]:
        return alerts_for(cluster, seen, everything=asker.may("see all"))

    askers: Askers = request.app.state.askers
    address = address_of(request)
    if not askers.may_stream(asker, address):
        raise ProblemError(
            "too-often", f"too many streams of {asker.name}", hint="end some", headers={"Retry-After": "5"}
        )

    async def events() -> AsyncIterator[ServerSentEvent]:
        with askers.streaming(asker, address):
            async for event in _events(cluster, life, since, wanted, alerts_of, goes_on):
                yield event

    return EventSourceResponse(events(), ping=15, sep="\n", headers={"Cache-Control": "no-store"})


async def _events(
    cluster: PlanLoop,
    life: str,
    since: int | None,
    wanted: Wanted,
    alerts_of: Callable[[], tuple[OpenAlert, ...]],
    goes_on: Callable[[], bool],
) -> AsyncIterator[ServerSentEvent]:
    state: object = None
    told: Published | None = None
    with cluster.feed.bell.heard() as rung:
        while not cluster.feed.bell.closed and goes_on():
            rung.clear()
            published = cluster.published
            alerts = alerts_of()
            now = (published.stale, published.paused, published.halted, alerts)
            if published is not told or now != state:
                # Thousands of jobs may have changed: others are not to wait while these are gone through.
                event = await asyncio.to_thread(
                    _event, cluster, published, since, wanted, alerts, state != now
                )
                if event is not None:
                    event.id = f"{life}-{published.generation}"
                    event.retry = _RETRY_MS if since is None else None
                    yield event
                since, state, told = published.generation, now, published
                await asyncio.sleep(_PAUSE_S)
            await rung_or_late(rung)


def _event(
    cluster: PlanLoop,
    published: Published,
    since: int | None,
    wanted: Wanted,
    alerts: tuple[OpenAlert, ...],
    always: bool,
) -> ServerSentEvent | None:
    found = cluster.feed.since(published, since, wanted) if since is not None else None
    reset = found is None or len(found[0]) > _MOST
    changed, gone = found if found is not None and not reset else ([], [])
    if not (reset or always or changed or gone):
        return None
    news = News(
        paused=published.paused,
        halted=published.halted,
        alerts=alerts,
        jobs=counts(published),
        changed=tuple(line_of(published, record) for record in changed),
        gone=tuple(gone),
        **dated(published),
    )
    return ServerSentEvent(_NEWS.dump_json(news).decode(), event="reset" if reset else "changes", sep="\n")
