"""Jobs: all of them as a table, and one on a page of its own."""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from schedd.api.jobs import find_past_job
from schedd.api.planner_calls import get_plan_fork
from schedd.api.priorities import fetch_priority
from schedd.api.question_runner import run_question
from schedd.dashboard.listing import PAGE, Wanted, listed
from schedd.dashboard.moves import folded
from schedd.dashboard.queue_columns import COLUMNS, USUAL, csv_of, shown_columns
from schedd.dashboard.rendering import page
from schedd.dashboard.viewer import Cluster, Reader, Seen
from schedd.engine.facts.records import Phase
from schedd.engine.show.job_view import job_history, view_of
from schedd.service.questions.explain import explain
from schedd.service.read.reading import find

__all__ = ["router"]

router = APIRouter(prefix="/{cluster}")
MOST_CSV: Final = 200_000
"""Jobs in one CSV file; the page says so where there are more."""


@router.get("/queue")
def queue(
    request: Request, cluster: Cluster, viewer: Reader, seen: Seen, wanted: Annotated[Wanted, Query()]
) -> Response:
    """The jobs that fit the filter, in order."""
    found = listed(cluster.published, seen, wanted)
    columns = shown_columns(wanted.columns)
    return page(
        request,
        "queue",
        viewer,
        cluster,
        wanted=wanted,
        found=found,
        step=PAGE,
        columns=columns,
        names=[one.name for one in columns],
        all_columns=COLUMNS,
        usual=USUAL,
        most_csv=MOST_CSV,
    )


@router.get("/queue.csv")
def queue_csv(cluster: Cluster, _viewer: Reader, seen: Seen, wanted: Annotated[Wanted, Query()]) -> Response:
    """The jobs that fit the filter, in order, with all columns: the first MOST_CSV of them."""
    found = listed(cluster.published, seen, wanted, MOST_CSV)
    headers = {"Content-Disposition": 'attachment; filename="queue.csv"', "Cache-Control": "no-store"}
    return StreamingResponse(csv_of(found.rows), media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/jobs/{job}")
async def job(
    request: Request, cluster: Cluster, viewer: Reader, seen: Seen, job: str, quick: bool = False
) -> Response:
    """When and where one job starts, why, and how its planned start moved.

    ``quick``: without the search for what is in its way, which the page does not repeat by itself.
    """
    published = cluster.published
    record = find(published, job)
    if record is None or not seen.sees(record):
        past = await run_in_threadpool(find_past_job, request.app.state.clusters, cluster, job, seen)
        return page(request, "past", viewer, cluster, past=past, job=past.job)
    explained = priority = None
    if not quick and record.phase in (Phase.WAITING, Phase.BLOCKED):
        priority = await fetch_priority(cluster, record.id)
        copy = await get_plan_fork(cluster)
        found = await run_question(request, explain, copy, record.id, cluster.now())
        explained = seen.explanation(found, copy.published) if found is not None else None
    moves = await run_in_threadpool(job_history, published, record)
    history = [seen.change(one, published) for one in moves]
    return page(
        request,
        "job",
        viewer,
        cluster,
        job=seen.view(view_of(published, record), published),
        history=history,
        folds=folded(history),
        ended=record.ended,
        explained=explained,
        priority=priority,
    )
