"""Jobs: all of them as a table, and one on a page of its own."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from schedd.api.problems import ProblemError
from schedd.dashboard.listing import PAGE, Wanted, listed
from schedd.dashboard.rendering import page
from schedd.dashboard.viewer import Cluster, Reader, Seen
from schedd.engine.job_view import job_history, view_of
from schedd.service.reading import find

__all__ = ["router"]

router = APIRouter(prefix="/{cluster}")


@router.get("/queue")
def queue(
    request: Request, cluster: Cluster, viewer: Reader, seen: Seen, wanted: Annotated[Wanted, Query()]
) -> Response:
    """The jobs that fit the filter, in order."""
    found = listed(cluster.published, seen, wanted)
    return page(request, "queue", viewer, cluster, wanted=wanted, found=found, step=PAGE)


@router.get("/jobs/{job}")
def job(request: Request, cluster: Cluster, viewer: Reader, seen: Seen, job: str) -> Response:
    """When and where one job starts, why, and how its planned start moved."""
    published = cluster.published
    record = find(published, job)
    if record is None or not seen.sees(record):
        raise ProblemError(
            "unknown-job",
            f"cluster {cluster.name} has no job {job[:80]} that you may see",
            hint="jobs that ended are not kept in the plan",
        )
    view = seen.view(view_of(published, record), published)
    return page(
        request,
        "job",
        viewer,
        cluster,
        job=view,
        history=[seen.change(one, published) for one in job_history(published, record)],
        ended=record.ended,
    )
