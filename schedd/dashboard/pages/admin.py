"""Acts of operators and admins, the health of the parts, and who did what."""

import asyncio
from typing import Annotated, Final

import structlog
from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from schedd.api.messages import Pause
from schedd.api.waiting import answer_of
from schedd.dashboard.health import audit_of, health_of
from schedd.dashboard.rendering import base_of, page
from schedd.dashboard.viewer import Cluster, Form, Operator, Viewer
from schedd.service.clusters import Clusters
from schedd.service.loop import PlanLoop

__all__ = ["router"]

router = APIRouter(prefix="/{cluster}/admin")
_log = structlog.get_logger(__name__)
_PATIENCE: Final = 10.0
_HINT: Final = "it is done as soon as the planner is free; this page shows it then"
_ACTS: Final = 100
_DONE: Final = {
    "paused": "No more jobs are started. The plan goes on.",
    "resumed": "Jobs are started again.",
}


@router.get("")
async def admin(
    request: Request, cluster: Cluster, viewer: Operator, done: Annotated[str, Query(max_length=20)] = ""
) -> Response:
    """What can be done, how the parts are, and what was done."""
    return await _page(request, cluster, viewer, done=done)


@router.post("/pause")
async def pause(request: Request, cluster: Cluster, viewer: Operator, form: Form) -> Response:
    """Start no jobs until told to."""
    try:
        reason = Pause(reason=form.get("reason", "").strip()).reason
    except ValidationError:
        return await _page(
            request,
            cluster,
            viewer,
            422,
            wrong="Say why, in 1 to 200 characters on one line: all users see it.",
        )
    await answer_of(cluster.pause(reason), _PATIENCE, _HINT)
    await asyncio.to_thread(cluster.audit, viewer.bearer.name, "pause", reason)
    _log.warning("starting jobs was paused", cluster=cluster.name, by=viewer.bearer.name, reason=reason)
    return _back(request, cluster.name, "paused")


@router.post("/resume")
async def resume(request: Request, cluster: Cluster, viewer: Operator, _: Form) -> Response:
    """Start jobs again."""
    await answer_of(cluster.resume(), _PATIENCE, _HINT)
    await asyncio.to_thread(cluster.audit, viewer.bearer.name, "resume", "")
    _log.warning("starting jobs was resumed", cluster=cluster.name, by=viewer.bearer.name)
    return _back(request, cluster.name, "resumed")


def _back(request: Request, cluster: str, done: str) -> Response:
    return RedirectResponse(f"{base_of(request)}/{cluster}/admin?done={done}", 303)


async def _page(
    request: Request, cluster: PlanLoop, viewer: Viewer, status: int = 200, *, done: str = "", wrong: str = ""
) -> Response:
    clusters: Clusters = request.app.state.clusters
    acts, why_none = await asyncio.to_thread(audit_of, clusters, cluster.name, _ACTS)
    return page(
        request,
        "admin",
        viewer,
        cluster,
        status,
        parts=health_of(clusters, cluster),
        acts=acts,
        why_none=why_none,
        done=_DONE.get(done, ""),
        wrong=wrong,
    )
