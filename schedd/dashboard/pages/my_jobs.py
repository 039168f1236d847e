"""My jobs: where a user lands."""

from typing import Annotated, Final

from fastapi import Query, Request
from starlette.responses import Response

from schedd.api.routes import RouteTable
from schedd.dashboard.ended_jobs import recently_ended
from schedd.dashboard.folded_jobs import fold_ended, fold_jobs
from schedd.dashboard.job_list import JobFilter, list_jobs
from schedd.dashboard.page_parts import page_parts
from schedd.dashboard.rendering import render_page
from schedd.dashboard.viewer import Cluster, Reader, Visibility

router = RouteTable()
_MAX_JOBS: Final = 2_000
_MAX_ENDED_ROWS: Final = 50
_PAGE_SIZE: Final = 100  # rows of each table


@router.get("/{cluster}/my-jobs")
def show_my_jobs(
    request: Request,
    cluster: Cluster,
    viewer: Reader,
    visibility: Visibility,
    user: Annotated[str, Query(max_length=200)] = "",
    most: Annotated[int, Query(ge=1, le=_MAX_JOBS)] = _PAGE_SIZE,
) -> Response:
    """The jobs of the viewer, or the visible jobs of a ``user``; and recently ended ones.

    The tables have ``most`` rows each, and up to as many later jobs with promises at risk.
    """
    own = viewer.bearer.name.partition("@")[0] if viewer.bearer.role == "user" else ""
    whose = user or own
    found = list_jobs(
        cluster.published, visibility, JobFilter(user=whose, sort="start", most=_MAX_JOBS if whose else 1)
    )
    ended = [
        one
        for one in recently_ended(request, cluster)
        if whose and one.owner.partition("@")[0] == whose and visibility.shows_owner(one.owner)
    ]
    rows = found.rows if whose else ()
    waiting, running = fold_jobs(rows, ended, complete=len(rows) == found.total)
    return render_page(
        request,
        "my-jobs",
        viewer,
        cluster,
        whose=whose,
        own=own,
        found=found,
        rows=rows,
        waiting=[*waiting[:most], *[row for row in waiting[most:] if row.job.at_risk][:most]],
        running=list(running[:most]),
        more=len(waiting) > most or len(running) > most,
        most=most,
        most_jobs=_MAX_JOBS,
        ended=fold_ended(ended, _MAX_ENDED_ROWS),
        parts=page_parts(request, "my-jobs", cluster, viewer) if own and whose == own else (),
    )
