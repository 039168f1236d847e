"""Job arrays as wholes."""

from dataclasses import asdict, dataclass
from typing import Annotated, Final

from fastapi import Path, Request, Response
from starlette.concurrency import run_in_threadpool

from schedd.api.access import Cluster, Visibility
from schedd.api.planner_calls import database_errors
from schedd.api.problems import READ_PROBLEMS, ProblemError
from schedd.api.replies import documented, reply
from schedd.api.routes import RouteTable
from schedd.api.views import SnapshotAnswer, snapshot_fields
from schedd.service.clusters import Clusters
from schedd.service.read.arrays import ArraySummary, compute_spread, full_array_id, summarise_array
from schedd.service.read.past_jobs import ended_array_jobs

router = RouteTable(prefix="/v1/clusters/{cluster}", tags=["jobs"])
_MOST: Final = 100_000


@documented
@dataclass(frozen=True, kw_only=True)
class ArrayView(ArraySummary, SnapshotAnswer):
    """Number of tasks of a job array by state.

    Ended tasks are counted from the database, which has them some minutes later; without a database they are
    unknown.
    """

    stretch_s: int | None
    """The stretch factor: seconds between the two;"""
    stretch: float | None
    """as a share of the time from submission to the last end."""


@router.get("/arrays/{array}", *READ_PROBLEMS, "unknown-job", "invalid", answer=ArrayView)
async def get_array(
    request: Request,
    cluster: Cluster,
    visibility: Visibility,
    array: Annotated[str, Path(description="Its id, `123[].server`; `123` will do.", examples=["123[]"])],
) -> Response:
    """A job array as a whole: how its jobs stand, when the first and the last of them end."""
    clusters: Clusters = request.app.state.clusters
    published = cluster.published
    name = full_array_id(published, array)
    with database_errors():
        past = await run_in_threadpool(ended_array_jobs, clusters, cluster, name, _MOST)
    found = summarise_array(published, name, past)
    if found is None or not visibility.shows_owner(found.owner):
        raise ProblemError("unknown-job", f"cluster {cluster.name} knows no job array {array}")
    spread = compute_spread(found.submitted, found.first_end, found.last_end)
    view = ArrayView(
        **asdict(found),
        stretch_s=spread.seconds if spread is not None else None,
        stretch=spread.share if spread is not None else None,
        **snapshot_fields(published),
    )
    return reply(request, view, published)
