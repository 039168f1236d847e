"""Pages of the portal feature: own jobs of all clusters for frames of portals, and the calendar file."""

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from schedd.api.access import get_daemon, job_visibility, visible_clusters
from schedd.api.routes import RouteTable
from schedd.dashboard.folded_jobs import fold_jobs
from schedd.dashboard.job_list import JobFilter, list_jobs
from schedd.dashboard.page_parts import PagePart
from schedd.dashboard.rendering import render_plain_page
from schedd.dashboard.security_headers import FRAME_ORIGINS_KEY
from schedd.dashboard.viewer import Reader, Viewer, identify_viewer
from schedd.features.portal.api import CALENDAR_MEDIA_TYPE, calendar_of, own_jobs
from schedd.plan.work_limits import WorkSpent
from schedd.service.access.callers import Callers
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.tighter_walltimes import find_tighter_walltimes

router = RouteTable()
_MAX_LISTED: Final = 2_000
_MAX_ROWS: Final = 20  # jobs and arrays of one cluster in a frame
_FORK_TIMEOUT_S: Final = 5.0


@router.get("/framed-jobs")
async def show_framed_jobs(request: Request) -> Response:
    """The viewer's jobs on all clusters, next starts first; pages of ``frame_origins`` may frame it."""
    get_daemon(request)
    callers: Callers = request.app.state.callers
    setattr(request.state, FRAME_ORIGINS_KEY, callers.auth.frame_origins)
    viewer = await identify_viewer(request)
    if viewer is None or not viewer.bearer.may("ask"):
        return render_plain_page(request, "framed-jobs", None, 401, groups=None)
    return await run_in_threadpool(_render_jobs, request, viewer)


def _render_jobs(request: Request, viewer: Viewer) -> Response:
    name = viewer.bearer.name.partition("@")[0]
    groups = []
    for loop in visible_clusters(request, viewer.bearer):
        here = viewer.bearer.on_cluster(loop.name)
        if here is None:
            continue
        visibility = job_visibility(request, here, loop)
        found = list_jobs(loop.published, visibility, JobFilter(user=name, most=_MAX_LISTED))
        parts = fold_jobs(found.rows, (), complete=len(found.rows) == found.total)
        rows = [row for part in parts for row in part]
        now = max(loop.now(), loop.published.as_of)
        groups.append((loop.name, rows[:_MAX_ROWS], len(rows) > _MAX_ROWS, now, loop.published.stale))
    return render_plain_page(request, "framed-jobs", viewer, groups=groups)


def _tighter_walltimes(request: Request, cluster: PlanLoop, viewer: Viewer) -> Mapping[str, Any] | None:
    """Return the gains of tighter walltimes, on request since they cost processor time; None: no forecast."""
    forecast = get_daemon(request).forecast(cluster.name)
    if forecast is None:
        return None
    if "walltimes" not in request.query_params:
        return {"asked": False}
    try:
        fork = cluster.fork().result(_FORK_TIMEOUT_S)
        jobs = own_jobs(fork.published, viewer.bearer)
        return {"asked": True, "gains": find_tighter_walltimes(fork, forecast, jobs, cluster.now())}
    except (TimeoutError, WorkSpent):
        return {"asked": True, "gains": None}  # the planner is busy


PARTS: Final = (PagePart("my-jobs", "my-walltimes.html", _tighter_walltimes),)


@router.get("/my-jobs.ics")
def download_calendar(request: Request, viewer: Reader) -> Response:
    """The viewer's calendar as a file."""
    get_daemon(request)
    headers = {"Content-Disposition": 'attachment; filename="my-jobs.ics"'}
    return Response(calendar_of(request, viewer.bearer), media_type=CALENDAR_MEDIA_TYPE, headers=headers)
