"""Acts of operators and admins, the health of the parts, and who did what."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Final

import structlog
from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from schedd.api.messages import Pause, Reservation
from schedd.api.policy import PreviewView
from schedd.api.problems import ProblemError
from schedd.api.reservations import RESERVATION, preview, reserve, unreserve
from schedd.api.searches import search
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
_SEARCH_S: Final = 5.0
"""For how long a page waits for a search; it goes on anyway."""
_DONE: Final = {
    "paused": "No more jobs are started. The plan goes on.",
    "resumed": "Jobs are started again.",
    "searching": "The search goes on. The page of quality shows what comes of it.",
    "idle": "There was nothing to search: fewer than two jobs could be moved.",
    "searched": "The search found nothing better.",
    "improved": "The search found a better plan. The page of quality shows what it gained.",
    "reserved": "The reservation is made. Planned jobs in its way were planned anew.",
    "lifted": "The reservation is lifted. Its nodes are planned for again.",
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


@router.post("/search")
async def search_now(request: Request, cluster: Cluster, viewer: Operator, _: Form) -> Response:
    """Look for a better plan now."""
    under_way = asyncio.wrap_future(await search(cluster, request.app.state.clusters, viewer.bearer.name))
    done, _pending = await asyncio.wait((under_way,), timeout=_SEARCH_S)
    if not done:
        under_way.add_done_callback(lambda late: late.cancelled() or late.exception())
        return _back(request, cluster.name, "searching")
    run = under_way.result()
    return _back(request, cluster.name, "idle" if run is None else "improved" if run.taken else "searched")


@router.post("/reserve")
async def make_reservation(request: Request, cluster: Cluster, viewer: Operator, form: Form) -> Response:
    """Keep nodes free of planned jobs; or show what would follow."""
    name = form.get("name", "").strip()
    try:
        if not RESERVATION.fullmatch(name):
            raise ProblemError("invalid", "name: letters, digits, '.', '_' and '-'")
        wanted = _reservation(form)
        if form.get("preview"):
            return await _page(
                request, cluster, viewer, foreseen=await preview(cluster, name, wanted), form=form
            )
        await reserve(cluster, name, wanted, viewer.bearer.name)
    except ValidationError as error:
        first = error.errors()[0]
        where = f"{first['loc'][-1]}: " if first["loc"] else ""
        return await _page(
            request,
            cluster,
            viewer,
            422,
            unmade=where + first["msg"].removeprefix("Value error, "),
            form=form,
        )
    except ProblemError as error:
        if error.kind != "invalid":
            raise
        return await _page(
            request, cluster, viewer, 422, unmade=error.detail.removeprefix("body."), form=form
        )
    return _back(request, cluster.name, "reserved")


@router.post("/unreserve")
async def lift_reservation(request: Request, cluster: Cluster, viewer: Operator, form: Form) -> Response:
    """Plan for its nodes again."""
    await unreserve(cluster, form.get("name", ""), viewer.bearer.name)
    return _back(request, cluster.name, "lifted")


def _reservation(form: Mapping[str, str]) -> Reservation:
    """What the form says. Raises ValidationError and ProblemError."""
    words = form.get("where", "").replace(",", " ").split()
    kind = form.get("kind", "nodes")
    return Reservation(
        nodes=tuple(words) if kind == "nodes" else (),
        features=tuple(words) if kind == "features" else (),
        everywhere=kind == "everywhere",
        start=_moment(form, "start"),
        end=_moment(form, "end"),
        reason=form.get("reason", "").strip(),
        users=tuple(form.get("users", "").replace(",", " ").split()),
    )


def _moment(form: Mapping[str, str], name: str) -> int | None:
    """A moment of the form: a script gives seconds since the epoch; without one it is read as UTC."""
    seconds, text = form.get(f"{name}_seconds", ""), form.get(name, "")
    if not text:
        return None
    try:
        if seconds:
            return int(seconds)
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except (ValueError, OverflowError):
        raise ProblemError("invalid", f"{name}: not a date and a time") from None


def _back(request: Request, cluster: str, done: str) -> Response:
    return RedirectResponse(f"{base_of(request)}/{cluster}/admin?done={done}", 303)


async def _page(
    request: Request,
    cluster: PlanLoop,
    viewer: Viewer,
    status: int = 200,
    *,
    done: str = "",
    wrong: str = "",
    unmade: str = "",
    foreseen: PreviewView | None = None,
    form: Mapping[str, str] | None = None,
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
        reservations=sorted(cluster.published.reservations, key=lambda one: (one.start, one.name)),
        unmade=unmade,
        foreseen=foreseen,
        form=form or {},
    )
