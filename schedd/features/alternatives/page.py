"""Alternatives to the live plan, as a picture and one by one; seek them, put one in force."""

import asyncio
from typing import Annotated, Final

from fastapi import Query, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from schedd.api.problems import ProblemError, note_refusal
from schedd.api.routes import RouteTable
from schedd.dashboard.menu import MenuPage
from schedd.dashboard.paths import dashboard_path
from schedd.dashboard.rendering import render_page
from schedd.dashboard.viewer import Cluster, Form, Operator, Viewer
from schedd.features.alternatives.api import (
    AlternativesRequest,
    apply_alternative,
    plan_alternatives,
    search_alternatives,
)
from schedd.features.alternatives.plan_alternatives import PlanAlternatives
from schedd.features.alternatives.plot import build_plot, choose_axes
from schedd.features.alternatives.settings import ChooseSettings
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.questions.objectives import known_objectives
from schedd.wire.section import problem_text

router = RouteTable(prefix="/{cluster}/alternatives")
PAGE: Final = MenuPage("alternatives", "Alternatives", lambda viewer, _: viewer.may_act)
_SEARCH_S: Final = 5.0
_MAX_MOVES_SHOWN: Final = 500
_DONE_MESSAGES: Final = {
    "sought": "Search finished. The live plan stays until you apply one of these.",
    "stopped": "Search stopped.",
    "applied": "The plan is in force. The history of each moved job shows the change.",
    "partly": "The moves that still hold are made, the others were dropped: the audit has their number.",
}
_Name = Annotated[str, Query(max_length=40)]


@router.get("")
async def show_alternatives(
    request: Request,
    cluster: Cluster,
    viewer: Operator,
    x: _Name = "",
    y: _Name = "",
    size: _Name = "",
    plan: Annotated[int, Query(ge=0, le=1_000)] = 0,
    done: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """The latest set; ``plan``: which jobs this one moves."""
    axes = {"x": x, "y": y, "size": size}
    return await _render(request, cluster, viewer, axes=axes, plan=plan, done=_DONE_MESSAGES.get(done, ""))


@router.post("/search")
async def start_search(request: Request, cluster: Cluster, viewer: Operator, form: Form) -> Response:
    """Look for alternatives; the page waits as long as that takes."""
    try:
        weights = {name[2:]: text for name, text in form.items() if name.startswith("w_") and text.strip()}
        body = AlternativesRequest.model_validate(
            {"seconds": form.get("seconds", ""), "weights": weights or None}
        )
    except ValidationError as error:
        first = error.errors()[0]
        words = f"{' '.join(str(one) for one in first['loc'])}: {problem_text(first)}"
        await note_refusal(request, ProblemError("invalid", words))
        return await _render(request, cluster, viewer, 422, wrong=words, form=form)
    try:
        await search_alternatives(cluster, request.app.state.clusters, body, viewer.bearer.name)
    except ProblemError as error:
        return await _render(request, cluster, viewer, 422, wrong=error.detail, form=form)
    return _redirect(request, cluster, "sought")


@router.post("/stop")
async def stop_search(request: Request, cluster: Cluster, viewer: Operator, _: Form) -> Response:
    """Stop the running search; what it found is kept."""
    chosen = _alternative_search(request, cluster)
    if await asyncio.to_thread(chosen.stop):
        await asyncio.to_thread(cluster.audit, viewer.bearer.name, "alternatives", "the search was ended")
    return _redirect(request, cluster, "stopped")


@router.post("/apply")
async def apply_plan(request: Request, cluster: Cluster, viewer: Operator, form: Form) -> Response:
    """Put a plan in force."""
    try:
        number, plan = int(form.get("set", "")), int(form.get("plan", ""))
    except ValueError:
        raise ProblemError("invalid", "set and plan are numbers") from None
    clusters: Clusters = request.app.state.clusters
    try:
        done = await apply_alternative(cluster, clusters, number, plan, None, viewer.bearer.name)
    except ProblemError as error:
        if error.kind not in {"moved-on", "unknown-plan"}:
            raise
        return await _render(request, cluster, viewer, 409, wrong=error.detail)
    return _redirect(request, cluster, "partly" if done.dropped else "applied")


def _alternative_search(request: Request, cluster: PlanLoop) -> PlanAlternatives:
    clusters: Clusters = request.app.state.clusters
    return plan_alternatives(clusters, cluster.name)


def _redirect(request: Request, cluster: PlanLoop, done: str) -> Response:
    return RedirectResponse(f"{dashboard_path(request)}/{cluster.name}/alternatives?done={done}", 303)


async def _render(
    request: Request,
    cluster: PlanLoop,
    viewer: Viewer,
    status: int = 200,
    *,
    axes: dict[str, str] | None = None,
    plan: int = 0,
    done: str = "",
    wrong: str = "",
    form: Form | None = None,
) -> Response:
    chosen = _alternative_search(request, cluster)
    found = chosen.latest
    wanted = axes or {"x": "", "y": "", "size": ""}
    known = await asyncio.to_thread(known_objectives, cluster.published)
    site = cluster.published.settings.site
    shown = choose_axes(found, **wanted) if found is not None else None
    opened = next((one for one in found.plans if one.number == plan), None) if found is not None else None
    return render_page(
        request,
        "alternatives",
        viewer,
        cluster,
        status,
        found=found,
        drift=chosen.drift(found.number) if found is not None else 0.0,
        axes=shown,
        picture=build_plot(found, shown) if found is not None and shown is not None else None,
        opened=opened,
        moves=sorted(opened.moves, key=lambda one: -abs(one.after - one.before))[:_MAX_MOVES_SHOWN]
        if opened
        else (),
        known=known,
        weights=found.weights if found is not None else site.objectives or {},
        choosing=site.part(ChooseSettings),
        seconds=_SEARCH_S,
        done=done,
        wrong=wrong,
        form=form or {},
    )
