"""A job's predicted run time, and its source."""

from typing import Annotated, Final

from fastapi import Path, Request, Response
from starlette.concurrency import run_in_threadpool

from schedd.api.access import Cluster, Daemon, Visibility
from schedd.api.jobs import find_job
from schedd.api.planner_calls import database_errors, get_plan_fork
from schedd.api.problems import READ_PROBLEMS
from schedd.api.question_runner import run_question
from schedd.api.replies import api_answer, documented, reply
from schedd.api.routes import RouteTable
from schedd.api.views import SnapshotAnswer, snapshot_fields
from schedd.features.prediction.background import ExpectedStartWorker
from schedd.features.prediction.run_times import (
    PastError,
    RateOn,
    expected_end,
    past_error,
    predicted_run_time,
)
from schedd.service.clusters import Clusters
from schedd.service.questions.tighter_walltimes import TighterWalltime, find_tighter_walltimes
from schedd.service.read.past_jobs import ended_jobs

router = RouteTable(prefix="/v1/clusters/{cluster}", tags=["jobs"])
documented(RateOn)
documented(PastError)
_MAX_PAST_JOBS: Final = 2_000  # latest ended jobs among which similar ones are searched


@api_answer
class RunTimeView(SnapshotAnswer):
    """Predicted run time of a job. The plan still holds its nodes for the full walltime."""

    job: str
    walltime: int
    source: str
    """`throughput`: from the units of work and rates that the job or the site names, on the nodes where it is
    planned; `templates`: from how long jobs like it ran; empty: nothing is predicted, or not yet."""
    p50: int | None
    """Run time that 50 % of such jobs do not exceed, in seconds."""
    p90: int | None
    """Run time that 90 % of such jobs do not exceed, in seconds."""
    expected_end: int | None
    """P50 of its end, in seconds since the epoch; of a waiting job, if it starts at its expected start. The
    risk of being preempted is part of it."""
    expected_end_by: int | None
    """P90 of its end."""
    units: float | None
    """Units of work of each of its processes; null if the job names none."""
    on: tuple[RateOn, ...]
    """Its run time on each group of this cluster's nodes, fastest first; empty without a throughput."""
    too_short: bool
    """Whether it would be killed at its walltime, by this prediction."""
    past: PastError | None
    """Errors of past predictions; null without a throughput, or without a database."""


@api_answer
class TighterWalltimeAnswer(SnapshotAnswer):
    """The gain of a waiting job by a tighter walltime."""

    gain: TighterWalltime | None
    """Null if the job would not start at least five minutes sooner, or has no predicted run time."""


@router.get("/jobs/{job}/run-time", *READ_PROBLEMS, "unknown-job", "invalid", answer=RunTimeView)
async def get_run_time(
    request: Request,
    cluster: Cluster,
    visibility: Visibility,
    job: Annotated[str, Path(description="The server's id of the job.", examples=["123.server"])],
) -> Response:
    """A job's predicted run time, its source, and the accuracy of such predictions. For a job planned on
    nodes of another type the prediction is updated within a minute or so.
    """
    clusters: Clusters = request.app.state.clusters
    published = cluster.published
    record = find_job(cluster.name, published, visibility, job)
    latest = clusters.service(cluster.name, ExpectedStartWorker).latest_forecast
    found = predicted_run_time(published, record, latest.found if latest is not None else None)
    end = expected_end(published, record, latest.found if latest is not None else None)
    past = None
    if found.units is not None and clusters.durable is not None:
        with database_errors():
            ended = await run_in_threadpool(ended_jobs, clusters, cluster, 0, _MAX_PAST_JOBS)
        past = past_error(published, record.facts.owner, ended)
    view = RunTimeView(
        job=record.id,
        walltime=record.understood.walltime,
        source=found.source,
        p50=found.p50,
        p90=found.p90,
        expected_end=end[0] if end is not None else None,
        expected_end_by=end[1] if end is not None else None,
        units=found.units,
        on=found.on,
        too_short=found.longest is not None and found.longest > record.understood.walltime,
        past=past,
        **snapshot_fields(published),
    )
    return reply(request, view, published)


@router.get(
    "/jobs/{job}/tighter-walltime",
    *READ_PROBLEMS,
    "unknown-job",
    "invalid",
    "too-hard",
    answer=TighterWalltimeAnswer,
)
async def get_tighter_walltime(
    request: Request,
    daemon: Daemon,
    cluster: Cluster,
    visibility: Visibility,
    job: Annotated[str, Path(description="The server's id of the job.", examples=["123.server"])],
) -> Response:
    """How much sooner a waiting job would start with a walltime that 90 % of such jobs do not exceed, and the
    risk that it is killed.
    """
    forecast = daemon.forecast(cluster.name)
    published = cluster.published
    record = find_job(cluster.name, published, visibility, job)
    gains: tuple[TighterWalltime, ...] = ()
    if forecast is not None:
        fork = await get_plan_fork(cluster, record.id)
        published = fork.published
        record = find_job(cluster.name, published, visibility, record.id)
        gains = await run_question(request, find_tighter_walltimes, fork, forecast, [record], cluster.now())
    view = TighterWalltimeAnswer(gain=gains[0] if gains else None, **snapshot_fields(published))
    return reply(request, view)
