"""Plan metrics: criteria of the plan, published against actual starts, broken promises."""

import asyncio
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from schedd.api.plan_metrics import deadline_accuracy_rows
from schedd.api.planner_calls import TIMEOUTS, database_errors, get_plan_fork
from schedd.api.result_views import search_view
from schedd.api.routes import RouteTable
from schedd.dashboard.plan_metrics import (
    MAX_BROKEN,
    MAX_STARTS,
    PERIOD_S,
    metric_columns,
    plan_criteria,
    read_accuracy_report,
)
from schedd.dashboard.rendering import render_page
from schedd.dashboard.viewer import Cluster, Reader, Visibility
from schedd.engine import PlanSnapshot
from schedd.plan.criteria import Criterion
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.questions.summaries import CriterionValue, evaluate_criteria
from schedd.service.read.job_visibility import ALL_JOBS

router = RouteTable()
_YEAR_S: Final = 366 * 86_400
_MAX_PERIOD_S: Final = 3660 * 86_400  # maximum retention of start estimates


@router.get("/{cluster}/worth.json")
def get_history(
    request: Request, cluster: Cluster, _: Reader, seconds: Annotated[int, Query(ge=60, le=_YEAR_S)] = 86_400
) -> Response:
    """What the plan was worth over time, as columns for its chart."""
    with database_errors():
        found = metric_columns(request.app.state.clusters, cluster, seconds)
    return JSONResponse(found, headers={"Cache-Control": "no-store"})


@router.get("/{cluster}/plan-metrics")
async def show_plan_metrics(
    request: Request,
    cluster: Cluster,
    viewer: Reader,
    visibility: Visibility,
    quick: bool = False,
    patient: bool = False,
    seconds: Annotated[int, Query(ge=60, le=_MAX_PERIOD_S)] = PERIOD_S,
    queue: Annotated[str, Query(max_length=512)] = "",
    user: Annotated[str, Query(max_length=512)] = "",
) -> Response:
    """Plan metrics and accuracy of start estimates in the last ``seconds``, of a queue, of a user.

    ``quick``: without the evaluation, which needs the planner; used for automatic updates. ``patient``:
    wait for the evaluation; otherwise, if it takes long, the page comes without it and requests it later.
    """
    clusters: Clusters = request.app.state.clusters
    all_seen = visibility == ALL_JOBS
    published = cluster.published
    criteria: tuple[CriterionValue, ...] = ()
    user, queue = user.strip(), queue.strip()
    of_others = bool(user) and not visibility.shows_owner(user)
    reading = run_in_threadpool(
        read_accuracy_report,
        clusters,
        cluster,
        singly=all_seen,
        seconds=seconds,
        queue=queue,
        user="" if of_others else user,
    )
    if quick:
        kept, evaluated = await reading, None
    else:  # the planner and the database answer at the same time
        evaluating = _evaluate_in_time(cluster, None if patient else TIMEOUTS.page)
        kept, evaluated = await asyncio.gather(reading, evaluating)
    if evaluated is not None:
        published, criteria = evaluated
    late = evaluated is None and not quick
    asked = {"seconds": seconds, "queue": queue, "user": user}
    return render_page(
        request,
        "plan-metrics",
        viewer,
        cluster,
        plan=plan_criteria(published),
        plan_at=published.as_of,
        kept=kept,
        deadlines=deadline_accuracy_rows(published),
        all_seen=all_seen,
        asked=asked,
        asked_again=urlencode({"quick": 1, **asked}),
        of_others=of_others,
        max_published=MAX_STARTS,
        most_broken=MAX_BROKEN,
        queues=sorted({*published.queues, *([queue] if queue else [])}),
        criteria=criteria,
        late=f"?{urlencode({'patient': 1, **asked})}" if late else "",
        searches=[search_view(run) for run in kept.searches],
        counted=[name for name, weight in cluster.published.settings.criteria.items() if weight],
        known=[one.value for one in Criterion],
    )


async def _evaluate_in_time(
    cluster: PlanLoop, seconds: float | None
) -> tuple[PlanSnapshot, tuple[CriterionValue, ...]] | None:
    """A copy of the plan, and the value of each criterion; None after ``seconds``. Raises ProblemError."""
    try:
        return await asyncio.wait_for(_evaluate_plan(cluster), seconds)
    except TimeoutError:
        return None


async def _evaluate_plan(cluster: PlanLoop) -> tuple[PlanSnapshot, tuple[CriterionValue, ...]]:
    copy = await get_plan_fork(cluster)
    return copy.published, await run_in_threadpool(evaluate_criteria, copy)
