"""Jobs: where each stands, when and where it starts, and why."""

from itertools import islice
from typing import Annotated, Any, Final, Literal, cast

from fastapi import APIRouter, Path, Query, Request, Response

from schedd.api.access import Cluster, Daemon, Seen
from schedd.api.aside import aside
from schedd.api.asking import worked_out
from schedd.api.bodies import History, JobColumns, JobPage, Past, PastMoment, dated
from schedd.api.problems import ProblemError, answers
from schedd.api.replies import chosen, in_columns, reply, reply_rows
from schedd.api.waiting import a_copy, the_database
from schedd.engine.facts.records import JobRecord
from schedd.engine.show.job_view import JobView, Standing, job_history, view_of
from schedd.engine.show.view import Published
from schedd.service.cluster.loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.questions.explain import Explanation, explain
from schedd.service.read.job_columns import PLAIN, columns
from schedd.service.read.pacing import paced
from schedd.service.read.past_jobs import PastJob, past_job
from schedd.service.read.reading import alike, find, jobs
from schedd.service.read.sight import Sight

__all__ = ["a_past_job", "found_job", "router", "the_job"]

router = APIRouter(prefix="/v1/clusters/{cluster}/jobs", tags=["jobs"])
_READ: Final = answers("no-token", "unknown-cluster", "not-ready", "invalid")
_NOT_MODIFIED: Final[dict[int | str, dict[str, Any]]] = {
    304: {"description": "Nothing changed since the `ETag` in `If-None-Match`"}
}
_ONE: Final = {
    **answers("no-token", "unknown-cluster", "unknown-job", "not-ready", "invalid"),
    **_NOT_MODIFIED,
}
_HINTS: Final = 3
_NOTHING: Final = "without a database nothing is kept of jobs that ended"
Fields = Annotated[
    str | None,
    Query(
        description="Only these fields of each row, with commas between them: `id,planned_start`.",
        max_length=2_000,
    ),
]
_Job = Annotated[
    str,
    Path(
        description="The server's id of the job; `123` is enough where no other job has this number.",
        examples=["123.server"],
    ),
]


@router.get("", response_model=JobPage | JobColumns, responses={**_READ, **_NOT_MODIFIED})
@aside
def list_jobs(
    request: Request,
    cluster: Cluster,
    seen: Seen,
    state: Annotated[Standing | None, Query(description="Only those that stand here.")] = None,
    user: Annotated[
        str | None, Query(description="Only this owner's: `ann`, or `ann@host`.", max_length=512)
    ] = None,
    queue: Annotated[str | None, Query(description="Only those in this queue.", max_length=512)] = None,
    cursor: Annotated[
        str | None, Query(description="`next` of the page before; without it, the first page.", max_length=64)
    ] = None,
    limit: Annotated[int, Query(description="At most so many on a page.", ge=1, le=10_000)] = 100,
    fields: Fields = None,
    form: Annotated[
        Literal["rows", "columns"],
        Query(description="`columns`: `jobs` has, by field, the values of all jobs in order. Half as long."),
    ] = "rows",
) -> Response:
    """Jobs by (planned) start, page by page; those without a start come last.

    A page goes on where the one before it ended, by start. A job whose start moves past that place in
    between may be missed or listed twice.
    """
    only = chosen(fields, JobView)
    published = cluster.published
    page = jobs(
        published,
        state=state,
        owner=user,
        queue=queue,
        sees=seen.sees if seen.whose is not None else None,
        cursor=cursor,
        limit=limit,
    )
    if only is not None and only <= PLAIN:
        plain = columns(published, page, only)
        if form == "columns":
            return reply_rows(request, plain, "jobs", page.next, published)
        rows = [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
        return reply_rows(request, rows, "jobs", page.next, published)
    views = tuple(seen.view(view_of(published, record, only), published) for record in paced(page.records))
    found = JobPage(jobs=views, next=page.next, **dated(published))
    if form == "columns":
        return reply_rows(request, in_columns(found, "jobs", JobView, only), "jobs", page.next, published)
    return reply(request, found, published, "jobs", only)


@router.get("/{job}", response_model=JobView, responses=_ONE)
async def get_job(request: Request, cluster: Cluster, seen: Seen, job: _Job) -> Response:
    """One job: what it asked for, when and where it starts or runs, what was promised, and why.

    `planned_start` is where the plan has it now; it may move with every event. `told_start` is the same as
    people are shown it: it moves when that is worth it, and not all the time. `promised_start` is an upper
    bound that only the causes in the documentation may break. Where no start is known, `answer` and `why` say
    what the job waits for, or that it can never run here.
    """
    return the_job(request, cluster, seen, job)


@router.get("/{job}/history", response_model=History, responses=_ONE)
def get_history(
    request: Request,
    cluster: Cluster,
    daemon: Daemon,
    seen: Seen,
    job: _Job,
    limit: Annotated[int, Query(description="At most so many changes.", ge=1, le=10_000)] = 100,
) -> Response:
    """How a job's planned start moved: from when to when, by which event, and why in words.

    Of a job that has ended or was deleted, the database tells what became of it (`past`).
    """
    published = cluster.published
    record = find(published, job)
    if record is None or not seen.sees(record):
        past = a_past_job(daemon, cluster, job, seen)
        return reply(request, _past(past, published), published)
    view = view_of(published, record)
    found = History(
        job=record.id,
        changes=tuple(seen.change(one, published) for one in job_history(published, record, limit)),
        promised_start=view.promised_start,
        at_risk=record.risk,
        breaches=record.breaches,
        promise_ended=record.ended,
        past=None,
        **dated(published),
    )
    return reply(request, found, published)


@router.get("/{job}/explain", response_model=Explanation, responses=_ONE)
async def get_explanation(request: Request, cluster: Cluster, seen: Seen, job: _Job) -> Response:
    """Why a job does not start sooner: exactly what is in its way, until when, and why its start last moved.

    It is found on a copy of the plan, by taking away what is in the way and looking where the job would start
    then. `blockers` are sufficient (without all of them it starts at `earliest`) and minimal (with any one of
    them it does not); those that are `sooner` are so for any start before the planned one. Of several such
    sets one is named.
    """
    record = found_job(cluster.name, cluster.published, seen, job)
    copy = await a_copy(cluster)
    found = await worked_out(request, explain, copy, record.id, cluster.now())
    if found is None:  # it went meanwhile
        raise ProblemError("unknown-job", f"cluster {cluster.name} has no job {record.id}")
    shown = seen.explanation(found, copy.published)
    return reply(request, shown, copy.published)


def a_past_job(daemon: Clusters, cluster: PlanLoop, job: str, seen: Sight) -> PastJob:
    """A job that is in the plan no more. Waits for the database. Raises ProblemError."""
    with the_database():
        past = past_job(daemon, cluster, job, seen)
    if past is not None:
        return past
    none = "neither queued nor in the history" if daemon.durable is not None else _NOTHING
    raise _unknown(cluster.name, cluster.published, seen, job, none)


def _past(past: PastJob, published: Published) -> History:
    job = past.job
    return History(
        job=job.id,
        changes=(),
        promised_start=None,
        at_risk=None,
        breaches=(),
        promise_ended=None,
        past=Past(
            name=job.name,
            owner=job.owner,
            queue=job.queue,
            resources=job.resources,
            submitted=job.submitted,
            runs=job.runs,
            started=job.started,
            nodes=tuple(node for node, _cpus in job.held),
            ended=job.ended,
            exit_status=job.exit_status,
            how=cast("Literal['', 'ended', 'deleted', 'gone']", job.how),
            told_start=past.told,
            promised_start=past.promised,
            moments=tuple(
                PastMoment(one.time, one.kind, one.words, one.start, one.decision) for one in past.moments
            ),
        ),
        **dated(published),
    )


def the_job(request: Request, cluster: PlanLoop, seen: Sight, job: str) -> Response:
    """One job, as ``get_job`` says. Raises ProblemError."""
    published = cluster.published
    view = seen.view(view_of(published, found_job(cluster.name, published, seen, job)), published)
    return reply(request, view, published)


def found_job(cluster: str, published: Published, seen: Sight, job: str) -> JobRecord:
    """The job of this id, which may be abbreviated. Raises ProblemError."""
    record = find(published, job)
    if record is None or not seen.sees(record):
        raise _unknown(cluster, published, seen, job, "if it ended, its history tells")
    return record


def _unknown(cluster: str, published: Published, seen: Sight, job: str, otherwise: str) -> ProblemError:
    alikes = filter(seen.sees, alike(published, job.partition(".")[0]))
    near = [one.id for one in islice(alikes, _HINTS)]
    hint = f"did you mean {' or '.join(near)}?" if near else otherwise
    return ProblemError("unknown-job", f"cluster {cluster} has no job {job[:80]}", hint=hint)
