"""Jobs: where each stands, when and where it starts, and why."""

from dataclasses import replace
from itertools import islice
from typing import Annotated, Final, Literal, cast

from fastapi import Path, Query, Request, Response

from schedd.api.access import Cluster, Daemon, Visibility
from schedd.api.background_rendering import rendered_in_background
from schedd.api.planner_calls import database_errors, get_plan_fork
from schedd.api.problems import READ_PROBLEMS, ProblemError
from schedd.api.question_runner import run_question
from schedd.api.replies import parse_field_selection, reply, reply_rows, to_columns
from schedd.api.routes import RouteTable
from schedd.api.views import EndedJobView, JobColumns, JobMoment, JobPage, StartHistory, snapshot_fields
from schedd.engine import (
    JobRecord,
    JobStatus,
    JobView,
    PlanSnapshot,
    job_history,
    published_record,
    render_job,
)
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.questions.explain import Explanation, explain
from schedd.service.read.job_columns import PLAIN, columns
from schedd.service.read.job_visibility import JobVisibility
from schedd.service.read.pacing import paced
from schedd.service.read.past_jobs import PastJob, past_job
from schedd.service.read.plan_lists import find_record, job_listing, matching_jobs
from schedd.start_sentence import NO_HISTORY
from schedd.wire.resources import submitted_resources

router = RouteTable(prefix="/v1/clusters/{cluster}/jobs", tags=["jobs"])
_MAX_SUGGESTIONS: Final = 3
_MOST_MOVES: Final = 20  # with the details of an explanation
FieldSelection = Annotated[
    str | None,
    Query(
        description="Only these fields of each row, with commas between them: `id,planned_start`.",
        max_length=2_000,
    ),
]
PageCursor = Annotated[
    str | None, Query(description="`next` of the page before; without it, the first page.", max_length=10_000)
]
_JobId = Annotated[
    str,
    Path(
        description="The server's id of the job; `123` is enough where no other job has this number.",
        examples=["123.server"],
    ),
]


@router.get("", *READ_PROBLEMS, "invalid", "not-modified", answer=JobPage | JobColumns)
@rendered_in_background
def list_jobs(
    request: Request,
    cluster: Cluster,
    visibility: Visibility,
    state: Annotated[JobStatus | None, Query(description="Only jobs in this state.")] = None,
    user: Annotated[
        str | None, Query(description="Only this owner's: `ann`, or `ann@host`.", max_length=512)
    ] = None,
    queue: Annotated[str | None, Query(description="Only those in this queue.", max_length=512)] = None,
    cursor: PageCursor = None,
    limit: Annotated[int, Query(description="Maximum number per page.", ge=1, le=10_000)] = 100,
    fields: FieldSelection = None,
    form: Annotated[
        Literal["rows", "columns"],
        Query(description="`columns`: `jobs` has, by field, the values of all jobs in order. Half as long."),
    ] = "rows",
) -> Response:
    """Jobs by (planned) start, page by page; jobs without a start come last.

    A page continues where the one before it ended, by start, while jobs come and go. A job whose start moves
    past that position in between may be missing or listed twice; `GET /v1/jobs` lists by submission.
    """
    only = parse_field_selection(fields, JobView)
    published = cluster.published
    page = job_listing(
        published,
        state=state,
        owner=user,
        queue=queue,
        sees=visibility.shows if visibility.viewer is not None else None,
        cursor=cursor,
        limit=limit,
    )
    if only is not None and only <= PLAIN:
        plain = columns(published, page, only)
        if form == "columns":
            return reply_rows(request, plain, "jobs", JobView, page.next, published)
        rows = [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
        return reply_rows(request, rows, "jobs", JobView, page.next, published)
    now = cluster.now()
    views = tuple(
        visibility.redact_view(render_job(published, record, only, now), published)
        for record in paced(page.records)
    )
    found = JobPage(jobs=views, next=page.next, **snapshot_fields(published))
    if form == "columns":
        return reply_rows(
            request, to_columns(found, "jobs", JobView, only), "jobs", JobView, page.next, published
        )
    return reply(request, found, published, "jobs", only)


@router.get("/{job}", *READ_PROBLEMS, "unknown-job", "invalid", "not-modified", answer=JobView)
async def get_job(request: Request, cluster: Cluster, visibility: Visibility, job: _JobId) -> Response:
    """One job: its request, its start and nodes, its promise, and the explanation.

    `planned_start` is the start in the current plan; it may move with every event. `displayed_start` is the
    same with hysteresis, so that small changes are not shown. `promised_start` is an upper bound that only
    the causes in the documentation may break. If no start is known, `answer` and `why` say what the job waits
    for, or that it can never run here.
    """
    return job_reply(request, cluster, visibility, job)


@router.get("/{job}/history", *READ_PROBLEMS, "unknown-job", "invalid", "not-modified", answer=StartHistory)
def get_history(
    request: Request,
    cluster: Cluster,
    daemon: Daemon,
    visibility: Visibility,
    job: _JobId,
    limit: Annotated[int, Query(description="Maximum number of changes.", ge=1, le=10_000)] = 100,
) -> Response:
    """The moves of a job's planned start: from when to when, the event, and the cause in words. For an ended
    or deleted job, the database has its outcome (`past`).
    """
    published = cluster.published
    record = find_record(published, job)
    if record is None or not visibility.shows(record):
        past = find_past_job(daemon, cluster, job, visibility)
        return reply(request, _past_job_history(past, published), published)
    view = render_job(published, record)
    found = StartHistory(
        job=record.id,
        changes=tuple(
            visibility.redact_change(one, published) for one in job_history(published, record, limit)
        ),
        promised_start=view.promised_start,
        at_risk=visibility.redact_risk(record.risk),
        breaches=visibility.redact_breaches(record.breaches),
        promise_ended=visibility.redact_ended_promise(record.ended, published),
        past=None,
        **snapshot_fields(published),
    )
    return reply(request, found, published)


@router.get("/{job}/explain", *READ_PROBLEMS, "unknown-job", "invalid", "not-modified", answer=Explanation)
async def get_explanation(
    request: Request,
    daemon: Daemon,
    cluster: Cluster,
    visibility: Visibility,
    job: _JobId,
    details: Annotated[
        bool, Query(description="Also the job itself and its latest moves, from the same plan.")
    ] = False,
) -> Response:
    """Why a job does not start sooner: its blockers, until when, and why its start last moved.

    Found on a fork of the plan, by removing blockers and searching for the start without them. `blockers` are
    sufficient (without all of them it starts at `earliest`) and minimal (with any one of them it does not);
    those marked `sooner` are so for any start before the planned one. Of several such sets one is shown.
    """
    known = find_job(cluster.name, cluster.published, visibility, job)
    copy = await get_plan_fork(cluster, known.id)
    found = await run_question(request, explain, copy, known.id, cluster.now())
    if found is None:  # it went meanwhile
        raise ProblemError("unknown-job", f"cluster {cluster.name} has no job {known.id}")
    published = copy.published
    shown = visibility.redact_explanation(found, published)
    record = published_record(published, found.job)
    if details and record is not None:
        view = visibility.redact_view(render_job(published, record, now=cluster.now()), published)
        moves = job_history(published, record, _MOST_MOVES)
        shown = replace(
            shown,
            view=view,
            moves=tuple(visibility.redact_change(one, published) for one in moves),
            promise_ended=visibility.redact_ended_promise(record.ended, published),
        )
    if shown.state == "planned" and shown.expected_start is None:
        shown = replace(shown, forecast_in=daemon.seconds_to_forecast(cluster.name))
    return reply(request, shown, published)


def find_past_job(daemon: Clusters, cluster: PlanLoop, job: str, visibility: JobVisibility) -> PastJob:
    """A job that is in the plan no more. Waits for the database. Raises ProblemError."""
    with database_errors():
        past = past_job(daemon, cluster, job, visibility)
    if past is not None:
        return past
    none = "not reported by its server yet, nor in the history" if daemon.durable is not None else NO_HISTORY
    raise _unknown_job(cluster.name, cluster.published, visibility, job, none)


def _past_job_history(past: PastJob, published: PlanSnapshot) -> StartHistory:
    job = past.job
    return StartHistory(
        job=job.id,
        changes=(),
        promised_start=None,
        at_risk=None,
        breaches=(),
        promise_ended=None,
        past=EndedJobView(
            name=job.name,
            owner=job.owner,
            queue=job.queue,
            resources=submitted_resources(job.resources),
            submitted=job.submitted,
            runs=job.runs,
            started=job.started,
            nodes=tuple(node for node, _cpus in job.held),
            ended=job.ended,
            exit_status=job.exit_status,
            how=cast("Literal['', 'ended', 'deleted', 'moved', 'gone']", job.how),
            moved_to=job.moved_to,
            displayed_start=past.published_start,
            expected_start=past.expected_start,
            promised_start=past.promised_start,
            moments=tuple(
                JobMoment(one.time, one.kind, one.text, one.start, one.decision) for one in past.moments
            ),
        ),
        **snapshot_fields(published),
    )


def job_reply(request: Request, cluster: PlanLoop, visibility: JobVisibility, job: str) -> Response:
    """One job, as ``get_job`` says. Raises ProblemError."""
    published = cluster.published
    record = find_job(cluster.name, published, visibility, job)
    view = visibility.redact_view(render_job(published, record, now=cluster.now()), published)
    return reply(request, view, published)


def find_job(cluster: str, published: PlanSnapshot, visibility: JobVisibility, job: str) -> JobRecord:
    """The job of this id, which may be abbreviated. Raises ProblemError."""
    record = find_record(published, job)
    if record is None or not visibility.shows(record):
        elsewhere = f"a new one is known within seconds, an ended one to `checkjob {job}`"
        raise _unknown_job(cluster, published, visibility, job, elsewhere)
    return record


def _unknown_job(
    cluster: str, published: PlanSnapshot, visibility: JobVisibility, job: str, otherwise: str
) -> ProblemError:
    alikes = filter(visibility.shows, matching_jobs(published, job.partition(".")[0]))
    near = [one.id for one in islice(alikes, _MAX_SUGGESTIONS)]
    hint = f"did you mean {' or '.join(near)}?" if near else otherwise
    return ProblemError("unknown-job", f"cluster {cluster} has no job {job[:80]}", hint=hint)
