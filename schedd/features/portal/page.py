"""Pages of the portal feature: own jobs of all clusters for frames of portals, and the calendar file."""

from typing import Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from schedd.api.access import get_daemon, job_visibility, visible_clusters
from schedd.api.routes import RouteTable
from schedd.dashboard.folded_jobs import fold_jobs
from schedd.dashboard.job_list import JobFilter, list_jobs
from schedd.dashboard.rendering import render_plain_page
from schedd.dashboard.security_headers import FRAME_ORIGINS_KEY
from schedd.dashboard.viewer import Reader, Viewer, identify_viewer
from schedd.features.portal.api import CALENDAR_MEDIA_TYPE, calendar_of
from schedd.service.access.callers import Callers

router = RouteTable()
_MAX_LISTED: Final = 2_000
_MAX_ROWS: Final = 20  # jobs and arrays of one cluster in a frame


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


@router.get("/my-jobs.ics")
def download_calendar(request: Request, viewer: Reader) -> Response:
    """The viewer's calendar as a file."""
    get_daemon(request)
    headers = {"Content-Disposition": 'attachment; filename="my-jobs.ics"'}
    return Response(calendar_of(request, viewer.bearer), media_type=CALENDAR_MEDIA_TYPE, headers=headers)
