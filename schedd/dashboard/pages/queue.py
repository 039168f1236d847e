"""Jobs: all of them as a table, and one on a page of its own."""

import asyncio
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response, StreamingResponse

from schedd.api.jobs import find_past_job
from schedd.api.planner_calls import TIMEOUTS, get_plan_fork
from schedd.api.priorities import PriorityView, fetch_priority
from schedd.api.problems import ProblemError
from schedd.api.question_runner import run_question
from schedd.api.routes import RouteTable
from schedd.dashboard.ended_jobs import recently_ended
from schedd.dashboard.folded_jobs import JobRow, QueueRow, fold_queue, split_running
from schedd.dashboard.job_list import PAGE_SIZE, JobFilter, find_jobs
from schedd.dashboard.job_places import group_places
from schedd.dashboard.paths import dashboard_path
from schedd.dashboard.queue_columns import COLUMNS, DEFAULT_COLUMNS, shown_columns, to_csv
from schedd.dashboard.rendering import render_page
from schedd.dashboard.start_changes import group_changes
from schedd.dashboard.viewer import Cluster, Reader, Visibility
from schedd.engine import Phase, job_history, render_job
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.questions.explain import Explanation, explain
from schedd.service.read.job_visibility import JobVisibility
from schedd.service.read.plan_lists import find_record

router = RouteTable(prefix="/{cluster}")
_MAX_SEARCH: Final = 200  # characters of a text to search for
MAX_CSV_ROWS: Final = 200_000  # jobs in one CSV file; the page says so where there are more


@router.get("/queue")
def show_queue(
    request: Request,
    cluster: Cluster,
    viewer: Reader,
    visibility: Visibility,
    wanted: Annotated[JobFilter, Query()],
) -> Response:
    """The jobs that fit the filter, in order, each array in one row unless subjobs are wanted.

    By the start, the next starts come first, and then the running jobs: on a small screen the page began with
    a hundred jobs that run for hours.
    """
    published = cluster.published
    found = find_jobs(published, visibility, wanted)
    apart = wanted.sort == "expected" and not (wanted.down or wanted.state)
    waiting, running = split_running(published, found.jobs) if apart else (found.jobs, [])
    if wanted.subjobs or "[" in wanted.q:
        rows = [QueueRow(record) for record, _ in waiting]
        runs = [QueueRow(record) for record, _ in running]
    else:
        ended = recently_ended(request, cluster)
        rows, runs = fold_queue(waiting, running, ended, wanted.most, complete=not (wanted.q or wanted.state))
    shown, shown_runs = (
        [
            JobRow(visibility.redact_view(render_job(published, row.record), published), row.array)
            for row in part[: wanted.most]
        ]
        for part in (rows, runs)
    )
    columns = shown_columns(wanted.columns)
    return render_page(
        request,
        "queue",
        viewer,
        cluster,
        wanted=wanted,
        found=found,
        total=len(found.jobs),
        apart=apart,
        waiting=len(waiting),
        running=len(running),
        rows=shown,
        runs=shown_runs,
        more=len(rows) > len(shown),
        own=viewer.bearer.name.partition("@")[0] if viewer.bearer.role == "user" else "",
        step=PAGE_SIZE,
        columns=columns,
        names=[one.name for one in columns],
        all_columns=COLUMNS,
        usual=DEFAULT_COLUMNS,
        most_csv=MAX_CSV_ROWS,
    )


@router.get("/queue.csv")
def download_queue(
    cluster: Cluster, _viewer: Reader, visibility: Visibility, wanted: Annotated[JobFilter, Query()]
) -> Response:
    """The jobs that fit the filter, in order, with all columns: the first MOST_CSV of them."""
    published = cluster.published
    found = find_jobs(published, visibility, wanted)
    views = (
        visibility.redact_view(render_job(published, record), published)
        for record, _ in found.jobs[:MAX_CSV_ROWS]
    )
    headers = {"Content-Disposition": 'attachment; filename="queue.csv"', "Cache-Control": "no-store"}
    return StreamingResponse(to_csv(views), media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/jobs/{job}")
async def show_job(
    request: Request,
    cluster: Cluster,
    viewer: Reader,
    visibility: Visibility,
    job: str,
    quick: bool = False,
    patient: bool = False,
) -> Response:
    """When and where one job starts, why, and how its planned start moved.

    ``quick``: without the search for blockers; used for automatic updates. ``patient``: the page waits for
    that search; without it, one that takes long is requested by the page.
    """
    published = cluster.published
    record = find_record(published, job)
    if record is None or not visibility.shows(record):
        search = job.partition("]")[0]
        if "[]" in job[:_MAX_SEARCH] and find_jobs(published, visibility, JobFilter(q=search)).jobs:
            subjobs = JobFilter().address(q=search)
            return RedirectResponse(f"{dashboard_path(request)}/{quote(cluster.name)}/queue{subjobs}", 303)
        past = await run_in_threadpool(find_past_job, request.app.state.clusters, cluster, job, visibility)
        return render_page(request, "ended-job", viewer, cluster, past=past, job=past.job)
    explained = priority = None
    busy = late = False
    if not quick and record.phase in (Phase.WAITING, Phase.BLOCKED):
        explaining = _explain_job(request, cluster, visibility, record.id)
        try:
            priority, explained = await asyncio.wait_for(explaining, None if patient else TIMEOUTS.page)
        except TimeoutError:
            late = True
        except ProblemError as error:
            if error.kind != "not-ready":
                raise
            busy = True
    moves = await run_in_threadpool(job_history, published, record)
    history = [visibility.redact_change(one, published) for one in moves]
    view = visibility.redact_view(render_job(published, record), published)
    clusters: Clusters = request.app.state.clusters
    return render_page(
        request,
        "job",
        viewer,
        cluster,
        job=view,
        forecast_in=clusters.seconds_to_forecast(cluster.name) if view.expected_start is None else None,
        places=group_places(view.planned_nodes),
        history=history,
        folds=group_changes(history),
        ended=visibility.redact_ended_promise(record.ended, published),
        explained=explained,
        priority=priority,
        busy=busy,
        late=late,
        quick=quick,
    )


async def _explain_job(
    request: Request, cluster: PlanLoop, visibility: JobVisibility, job: str
) -> tuple[PriorityView | None, Explanation | None]:
    """The job's priority, and why it does not start sooner. Raises ProblemError."""
    priority = await fetch_priority(cluster, job)
    copy = await get_plan_fork(cluster, job)
    found = await run_question(request, explain, copy, job, cluster.now())
    return priority, visibility.redact_explanation(found, copy.published) if found is not None else None
