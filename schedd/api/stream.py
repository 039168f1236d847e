"""Server-sent events: the plan as it changes, one user's jobs, or one job."""

import asyncio
from typing import Annotated, Final

from fastapi import Header, Query, Request
from sse_starlette import EventSourceResponse, ServerSentEvent

from schedd.api.access import Cluster, User, credential_check, job_visibility
from schedd.api.alerts import alerts_for
from schedd.api.event_stream import follow_plan, stream_events
from schedd.api.problems import problem_responses
from schedd.api.replies import dump_answer
from schedd.api.routes import RouteTable
from schedd.api.views import PlanUpdate, snapshot_fields
from schedd.engine import OpenAlert, PlanSnapshot
from schedd.service.cluster.plan_feed import JobFilter, summarise_job
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.current_faults import alert_view
from schedd.service.read.plan_lists import count_jobs, matches_owner

router = RouteTable(prefix="/v1/clusters/{cluster}", tags=["plan"])
_MAX_JOBS_PER_EVENT: Final = 2_000
"""Maximum number of jobs in an event; with more, the client reads everything again."""


@router.get(
    "/stream",
    response_class=EventSourceResponse,
    responses={
        200: {
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
            "description": "Events `reset` and `changes` with a `PlanUpdate` as their data",
        },
        **problem_responses("no-token", "unknown-cluster", "not-ready", "invalid"),
    },
)
async def stream_plan(
    request: Request,
    cluster: Cluster,
    caller: User,
    user: Annotated[
        str | None, Query(description="Only this owner's jobs: `ann`, or `ann@host`.", max_length=512)
    ] = None,
    job: Annotated[str | None, Query(description="Only this job, by its whole id.", max_length=512)] = None,
    iso: Annotated[bool, Query(description="Also the times in ISO 8601 (UTC), as `iso`.")] = False,
    last_event_id: Annotated[
        str | None, Header(description="The id of the last event that the caller has.", max_length=64)
    ] = None,
) -> EventSourceResponse:
    """Follow the plan by server-sent events (`EventSource` in browsers).

    The first event is `reset`: read what you show, then keep it up to date by the `changes` that follow;
    data read after the `reset` are at least as new as it. Each event has an id. A client that sends the
    last one as `Last-Event-ID`, as browsers do after a lost connection, gets the changes since then, or a
    `reset` if these are too many or not known any more. Changes in quick succession are sent together. A
    comment is sent every 15 s while nothing changes. The stream ends within seconds when the token expires
    or becomes invalid, or when the caller gets another role.
    """
    life: str = request.app.state.instance_id
    known, _dash, place = (last_event_id or "").rpartition("-")
    since = int(place) if known == life and place.isdecimal() and len(place) < 20 else None

    def is_selected(its_id: str, owner: str) -> bool:
        selected = (job is None or its_id == job) and (user is None or matches_owner(owner, user))
        return selected and visibility.shows_owner(owner)

    visibility, is_valid = job_visibility(request, caller, cluster), credential_check(request, caller)
    state: object = None
    last_sent: PlanSnapshot | None = None

    def has_access() -> bool:
        nonlocal visibility  # what users may see of others can change meanwhile
        visibility = job_visibility(request, caller, cluster)
        return is_valid()

    async def next_event() -> ServerSentEvent | None:
        nonlocal since, state, last_sent
        published = cluster.published
        alerts = alerts_for(cluster, visibility, everything=caller.may("see all"))
        now = (published.stale, published.paused, published.halted, alerts)
        if published is last_sent and now == state:
            return None
        # Thousands of jobs may have changed: others are not to wait while these are gone through.
        event = await asyncio.to_thread(
            _make_event, cluster, published, since, is_selected, alerts, state != now, iso
        )
        since, state, last_sent = published.generation, now, published
        if event is not None:
            event.id = f"{life}-{published.generation}"
        return event

    return stream_events(request, caller, follow_plan(cluster, next_event, has_access))


def _make_event(
    cluster: PlanLoop,
    published: PlanSnapshot,
    since: int | None,
    is_selected: JobFilter,
    alerts: tuple[OpenAlert, ...],
    always: bool,
    iso: bool,
) -> ServerSentEvent | None:
    found = cluster.feed.changes_since(published, since, is_selected) if since is not None else None
    reset = found is None or len(found[0]) > _MAX_JOBS_PER_EVENT
    changed, gone = found if found is not None and not reset else ([], [])
    if not (reset or always or changed or gone):
        return None
    news = PlanUpdate(
        paused=published.paused,
        halted=published.halted,
        alerts=tuple(alert_view(one, cluster.name) for one in alerts),
        jobs=count_jobs(published),
        changed=tuple(summarise_job(published, record) for record in changed),
        gone=tuple(gone),
        **snapshot_fields(published),
    )
    return ServerSentEvent(
        dump_answer(news, iso=iso).decode(), event="reset" if reset else "changes", sep="\n"
    )
