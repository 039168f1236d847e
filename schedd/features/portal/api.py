"""Endpoints for portals: the caller, jobs of all clusters, and a calendar feed."""

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Annotated, Final, Literal

from fastapi import Depends, Query, Request, Response

from schedd.api.access import (
    Daemon,
    User,
    authenticate,
    job_visibility,
    visible_clusters,
)
from schedd.api.jobs import PageCursor
from schedd.api.planner_calls import get_plan_fork
from schedd.api.problems import ProblemError, invalid_problem, problem_responses
from schedd.api.question_runner import run_question
from schedd.api.replies import api_answer, reply
from schedd.api.routes import RouteTable
from schedd.engine import (
    Change,
    JobRecord,
    JobStatus,
    PlanSnapshot,
    job_displayed_start,
    job_histories,
    job_status,
)
from schedd.features.portal.calendar_feed import ClusterEvents, calendar_text
from schedd.features.portal.job_list import (
    ListedJob,
    PortalJobView,
    list_records,
    parse_cursor,
    portal_job,
)
from schedd.service.access.roles import Bearer
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.published_start import PublishedStart
from schedd.service.questions.tighter_walltimes import TighterWalltime, find_tighter_walltimes
from schedd.service.read.job_visibility import JobVisibility
from schedd.service.read.pacing import paced
from schedd.service.read.plan_lists import matches_owner
from schedd.store import Role

router = RouteTable(prefix="/v1", tags=["portals"])
CALENDAR_MEDIA_TYPE: Final = "text/calendar; charset=utf-8"
_MAX_CALENDAR_JOBS: Final = 500
"""Maximum number of jobs of a cluster in the calendar; the first to start are listed."""
Shown = Literal["all", "jobs", "reservations"]
_HORIZON_S: Final = 60 * 86_400  # reservations within this time are in the calendar


@api_answer
class MyCluster:
    """A cluster that the caller may see, with the caller's own jobs there."""

    name: str
    role: Role
    """The caller's role on this cluster."""
    sees_all_jobs: bool
    """Whether jobs of other users are visible."""
    running: int
    """The caller's own jobs, counted."""
    planned: int
    waiting: int
    """Own jobs without a planned start."""
    next_start: int | None
    """The earliest likely start of the caller's waiting jobs, else the planned one; never in the past."""
    next_job: str
    """The job with that start; empty: none."""
    stale: str
    """Why the data may be out of date; empty: they are current."""


@api_answer
class MeView:
    """The caller."""

    name: str
    """A `user` owns the jobs of this name on the server."""
    role: Role
    """Its role; each of `clusters` has the role there."""
    anonymous: bool
    """Whether the request had no credentials, and the site lets everybody read."""
    now: int
    """The daemon's time."""
    clusters: tuple[MyCluster, ...]


@api_answer
class TighterWalltimeView:
    """A waiting job of the caller that would start sooner with a tighter walltime."""

    cluster: str
    gain: TighterWalltime


@api_answer
class TighterWalltimesView:
    """The caller's latest waiting jobs that would gain by a tighter walltime."""

    walltimes: tuple[TighterWalltimeView, ...]


@api_answer
class PortalJobs:
    """Jobs of all clusters, by cluster and submission."""

    jobs: tuple[PortalJobView, ...]
    next: str | None
    """The cursor of the next page; null on the last one. It stays valid: a job that moves, starts or ends in
    between neither appears twice nor hides another one.
    """
    now: int


@router.get("/me", "no-token", "not-ready", "invalid", answer=MeView, iso=True)
def get_me(request: Request, _: Daemon, caller: User) -> Response:
    """The caller, with its clusters and its numbers of jobs, and when the next one starts."""
    return reply(request, _describe_caller(request, caller))


def _likely_start(published: PlanSnapshot, record: JobRecord, start: int, now: int) -> int:
    """Return the likely start of a planned job, by a fresh forecast, else its displayed one."""
    own = PublishedStart.from_job(published, record, now)
    likely = own.forecast.start if own is not None else -1
    return max(now, likely if likely >= 0 else job_displayed_start(published, record, start))


def _describe_caller(request: Request, caller: Bearer) -> MeView:
    clusters = []
    now = 0
    for loop in visible_clusters(request, caller):
        here = caller.on_cluster(loop.name)
        if here is None:
            continue
        published = loop.published
        now = max(now, loop.now())
        visibility = job_visibility(request, here, loop)
        counts: Counter[JobStatus] = Counter()
        starts: list[tuple[int, str]] = []
        for row in list_records(loop.name, published, visibility, owns=caller.owns):
            status = job_status(row.record, row.start)
            counts[status] += 1
            if status == "planned":
                starts.append((_likely_start(published, row.record, row.start, loop.now()), row.record.id))
        next_start, next_job = min(starts, default=(None, ""))
        clusters.append(
            MyCluster(
                name=loop.name,
                role=here.role,
                sees_all_jobs=visibility.viewer is None,
                running=counts["running"] + counts["starting"],
                planned=counts["planned"],
                waiting=counts["waiting"] + counts["never"],
                next_start=next_start,
                next_job=next_job,
                stale=published.stale,
            )
        )
    return MeView(
        name=caller.name,
        role=caller.role,
        anonymous=caller is request.app.state.callers.tokens.anonymous,
        now=now,
        clusters=tuple(clusters),
    )


@router.get("/me/walltimes", "no-token", "not-ready", "invalid", "too-hard", answer=TighterWalltimesView)
async def get_tighter_walltimes(request: Request, daemon: Daemon, caller: User) -> Response:
    """How much sooner the caller's latest waiting jobs would start with a walltime that 90 % of such jobs do
    not exceed, and the risk that they are killed; at most five jobs of each cluster. Needs predicted run
    times.
    """
    found = []
    for loop in visible_clusters(request, caller):
        forecast = daemon.forecast(loop.name)
        if caller.on_cluster(loop.name) is None or forecast is None:
            continue
        fork = await get_plan_fork(loop)
        jobs = own_jobs(fork.published, caller)
        gains = await run_question(request, find_tighter_walltimes, fork, forecast, jobs, loop.now())
        found += [TighterWalltimeView(cluster=loop.name, gain=gain) for gain in gains]
    return reply(request, TighterWalltimesView(walltimes=tuple(found)))


def own_jobs(published: PlanSnapshot, caller: Bearer) -> list[JobRecord]:
    """Return the caller's jobs that have a place in the plan."""
    return [one for one in published.records if one is not None and caller.owns(one.facts.owner)]


@router.get("/jobs", "no-token", "not-ready", "invalid", answer=PortalJobs, iso=True)
def list_all_jobs(
    request: Request,
    _: Daemon,
    caller: User,
    user: Annotated[
        str | None,
        Query(
            description="Only this owner's: `ann`, `ann@host`, or `me` for the caller's own.", max_length=512
        ),
    ] = None,
    cluster: Annotated[str | None, Query(description="Only of this cluster.", max_length=200)] = None,
    state: Annotated[JobStatus | None, Query(description="Only jobs in this state.")] = None,
    moves: Annotated[int, Query(description="Maximum number of moves of each job's start.", ge=0, le=50)] = 1,
    cursor: PageCursor = None,
    limit: Annotated[int, Query(description="Maximum number per page.", ge=1, le=1_000)] = 100,
) -> Response:
    """Jobs of all clusters that the caller may see: where each stands, its likely, planned and promised
    start, and how its start moved. `user=me` has the caller's own jobs.
    """
    after = parse_cursor(cursor) if cursor is not None else None
    loops = visible_clusters(request, caller)
    if cluster is not None:
        loops = [loop for loop in loops if loop.name == cluster]
        if not loops:
            what = f"no cluster {cluster!r}"
            raise invalid_problem("query.cluster", what)
    owns = _owner_test(user, caller)

    found: list[tuple[PlanLoop, JobVisibility, ListedJob]] = []
    for loop in sorted(loops, key=lambda one: one.name):
        here = caller.on_cluster(loop.name)
        if here is None or len(found) > limit or (after is not None and loop.name < after.cluster):
            continue
        visibility = job_visibility(request, here, loop)
        rows = list_records(loop.name, loop.published, visibility, owns=owns, state=state, after=after)
        found += [(loop, visibility, row) for row in rows]
    now = max((loop.now() for loop in loops), default=0)
    latest = _latest_moves([row for _, _, row in found[:limit]], moves)
    jobs = tuple(
        portal_job(
            loop.name,
            row.published,
            visibility,
            row.record,
            loop.now(),
            latest.get((loop.name, row.record.slot), ()) if moves != 1 else None,
        )
        for loop, visibility, row in paced(found[:limit])
    )
    more = found[limit - 1][2].position.encode() if len(found) > limit else None
    return reply(request, PortalJobs(jobs=jobs, next=more, now=now))


def _latest_moves(rows: Sequence[ListedJob], moves: int) -> dict[tuple[str, int], tuple[Change, ...]]:
    """The latest moves of these jobs, by cluster and slot; empty if the last one of each is enough."""
    found: dict[tuple[str, int], tuple[Change, ...]] = {}
    for cluster, group in groupby(rows if moves > 1 else (), key=lambda row: row.position.cluster):
        listed = list(group)
        histories = job_histories(listed[0].published, [row.record for row in listed], moves)
        found |= {(cluster, slot): changes for slot, changes in histories.items()}
    return found


def _owner_test(user: str | None, caller: Bearer) -> Callable[[str], bool]:
    if user is None:
        return lambda _: True
    if user == "me":
        return caller.owns
    return lambda owner: matches_owner(owner, user)


# ---- calendar -----------------------------------------------------------------------------------


async def _calendar_caller(request: Request) -> Bearer:
    """The caller of the calendar. Calendar programs send a token as the password of HTTP Basic
    authentication; the user name is ignored.
    """
    scheme, _, credential = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            _, _, token = base64.b64decode(credential.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            token = ""
        headers = [(name, value) for name, value in request.scope["headers"] if name != b"authorization"]
        headers.append((b"authorization", f"Bearer {token}".encode("latin-1", "replace")))
        request = Request({**request.scope, "headers": headers}, request.receive)
    try:
        caller = await authenticate(request)
    except ProblemError as error:
        if error.kind != "no-token":
            raise
        headers_ = {**(error.headers or {}), "WWW-Authenticate": 'Basic realm="schedd calendar"'}
        hint = "give a token as the password"
        raise ProblemError("no-token", error.detail, hint=hint, headers=headers_) from None
    if not caller.may("ask"):
        raise ProblemError("not-allowed", f"{caller.name} has no jobs to list")
    return caller


@router.get(
    "/me/calendar.ics",
    response_class=Response,
    responses={
        **problem_responses("no-token", "not-allowed", "not-ready"),
        200: {"content": {"text/calendar": {"schema": {"type": "string"}}}, "description": "iCalendar"},
    },
)
def get_calendar(
    request: Request,
    _: Daemon,
    caller: Annotated[Bearer, Depends(_calendar_caller)],
    show: Annotated[Shown, Query(description="What the calendar has.")] = "all",
) -> Response:
    """A calendar (iCalendar) of the caller's running and planned jobs, bookings, and reservations of nodes.

    A planned job has its likely start; arrays are one event. Calendar programs give the token as the
    password of HTTP Basic authentication.
    """
    return Response(calendar_of(request, caller, show), media_type=CALENDAR_MEDIA_TYPE)


def calendar_of(
    request: Request, caller: Bearer, show: Literal["all", "jobs", "reservations"] = "all"
) -> bytes:
    found = []
    for loop in visible_clusters(request, caller):
        here = caller.on_cluster(loop.name)
        if here is None:
            continue
        published, now = loop.published, loop.now()
        visibility = job_visibility(request, here, loop)
        events = ClusterEvents(loop.name, now)
        if show != "reservations":
            rows = list_records(loop.name, published, visibility, owns=caller.owns)
            first = sorted((row for row in rows if row.start >= 0), key=lambda row: row.start)
            for row in paced(first[:_MAX_CALENDAR_JOBS]):
                events.add_job(portal_job(loop.name, published, visibility, row.record, now, ()))
            events.later_subjobs.update(row.record.facts.array for row in first[_MAX_CALENDAR_JOBS:])
        if show != "jobs":
            events.add_reservations(published.node_blocks, now + _HORIZON_S)
            events.add_bookings(published, here)
        found.append(events)
    return calendar_text(caller.name, found)
