"""Acts of operators and admins on the plan as a whole: nodes and queues held, weights set."""

from datetime import UTC, datetime
from itertools import chain, count
from typing import Any, Final, cast

from fastapi import Request
from pydantic import ValidationError
from starlette.responses import Response

from schedd.api.holds import HoldKind, hold_planning, preview_holds, release_planning
from schedd.api.node_selection import select_nodes
from schedd.api.policy import change_policy, refuse_risked_promises, run_policy_preview
from schedd.api.problems import PROBLEM_KINDS, ProblemError
from schedd.api.request_bodies import HoldRequest, ReservationRequest
from schedd.api.reservations import reserve, run_reservation_preview
from schedd.api.routes import RouteTable
from schedd.dashboard.admin_page import redirect_to_admin, render_admin_page
from schedd.dashboard.pages.admin import parse_form_time
from schedd.dashboard.viewer import Administrator, Cluster, Form, Operator
from schedd.dashboard.weight_form import changed_policy
from schedd.engine import EngineSettings
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.settings.site import SiteSettings
from schedd.wire.section import problem_place, problem_text

router = RouteTable(prefix="/{cluster}/admin")
_HOLD_KINDS: Final = ("node", "queue")


@router.post("/hold")
async def set_hold(request: Request, cluster: Cluster, viewer: Operator, form: Form) -> Response:
    """Plan nothing new on a node, or of a queue; or show what would follow."""
    kind, who, foresee = _parse_kind(form), viewer.bearer.name, bool(form.get("preview"))
    try:
        given = form.get("hold_reason", "").strip()
        # What would follow can be seen before there is a reason.
        reason = HoldRequest(reason=given or ("preview" if foresee else "")).reason
        names, window = _parse_targets(cluster, kind, form), _parse_window(kind, form)
        if window is not None:
            body = ReservationRequest(nodes=tuple(names), start=window[0], end=window[1], reason=reason)
            name = _unused_name(cluster, window[0] if window[0] is not None else cluster.now())
            if not foresee:
                await reserve(cluster, name, body, who)
                return redirect_to_admin(request, cluster.name, "drained")
            found = await run_reservation_preview(request, cluster, name, body)
        elif not foresee:
            await hold_planning(cluster, kind, names, reason, who)
            return redirect_to_admin(request, cluster.name, "held" if kind == "node" else "queue")
        else:
            found = await preview_holds(request, cluster, kind, names, reason, who)
    except ValidationError:
        words = "Give a reason, in 1 to 200 characters on one line: users whose jobs wait see it."
        refused = ProblemError("invalid", words)
        return await render_admin_page(
            request, cluster, viewer, 422, hold_error=words, form=form, refused=refused
        )
    except ProblemError as error:
        if error.kind != "invalid":
            raise
        words = error.detail.removeprefix("body.")
        return await render_admin_page(
            request, cluster, viewer, 422, hold_error=words, form=form, refused=error
        )
    return await render_admin_page(request, cluster, viewer, hold_preview=found, hold_names=names, form=form)


@router.post("/release")
async def remove_hold(request: Request, cluster: Cluster, viewer: Operator, form: Form) -> Response:
    """Release it; for nodes, all matching nodes that are drained."""
    kind, name = _parse_kind(form), form.get("hold_name", "").strip()
    held = {one.name for one in cluster.published.holds if one.kind == kind}
    try:
        names = [name]
        if kind == "node" and name not in held:
            names = [one for one in _parse_targets(cluster, kind, form) if one in held]
            if not names:
                raise ProblemError("invalid", f"none of the nodes {name[:80]} is drained here")
        await release_planning(cluster, kind, names, viewer.bearer.name)
    except ProblemError as error:
        if error.kind != "invalid":
            raise
        return await render_admin_page(
            request, cluster, viewer, 422, release_error=error.detail, refused=error
        )
    return redirect_to_admin(request, cluster.name, "released")


def _parse_targets(cluster: PlanLoop, kind: HoldKind, form: Form) -> list[str]:
    """What the form names: a queue, or nodes by name, range, pattern, property. Raises ProblemError."""
    text = form.get("hold_name", "").strip()
    if kind == "queue":
        return [text]
    nodes = cluster.published.nodes
    if text in nodes:
        return [text]
    try:
        return select_nodes(nodes, text)
    except ValueError as error:
        raise ProblemError("invalid", str(error)) from None


def _parse_window(kind: HoldKind, form: Form) -> tuple[int | None, int | None] | None:
    """From when until when nodes are to be drained; None: from now on until they are released."""
    start, end = parse_form_time(form, "start"), parse_form_time(form, "end")
    if start is None and end is None:
        return None
    if kind == "queue":
        raise ProblemError("invalid", "a queue is held from now on until it is released: leave out the times")
    return start, end


def _unused_name(cluster: PlanLoop, start: int) -> str:
    """A name for the reservation that drains nodes from ``start`` on, which no other has."""
    known = {one.name for one in cluster.published.node_blocks}
    base = f"drain-{datetime.fromtimestamp(start, UTC):%Y%m%d-%H%M}"
    return next(name for name in chain((base,), (f"{base}-{i}" for i in count(2))) if name not in known)


def _parse_kind(form: Form) -> HoldKind:
    kind = form.get("hold_kind", "")
    if kind not in _HOLD_KINDS:
        raise ProblemError("invalid", "hold_kind: node or queue")
    return cast("HoldKind", kind)


@router.post("/weights/preview")
async def preview_weights(request: Request, cluster: Cluster, viewer: Operator, form: Form) -> Response:
    """What would follow if these weights were in force."""
    try:
        site = _parse_policy(cluster.published.settings, form)
    except ProblemError as error:
        return await render_admin_page(request, cluster, viewer, 422, weights_error=error.detail, form=form)
    found = await run_policy_preview(request, cluster, site, viewer.bearer.name)
    return await render_admin_page(request, cluster, viewer, weights_preview=found, form=form)


@router.post("/weights")
async def set_weights(request: Request, cluster: Cluster, viewer: Administrator, form: Form) -> Response:
    """Set these weights in the policy as it was when the form was loaded."""
    published = cluster.published
    version, who = published.policy_version + 1, viewer.bearer.name
    site: dict[str, Any] = {}
    try:
        site = _parse_policy(published.settings, form)
        if form.get("version") != str(published.policy_version):
            raise ProblemError(
                "invalid", "The policy was changed meanwhile: look at it again, then repeat this."
            )
        if not form.get("break_promises"):
            await refuse_risked_promises(request, cluster, version, site, who)
    except ProblemError as error:
        status, found = PROBLEM_KINDS[error.kind][0], None
        if error.kind == "breaks-promises":
            found = await run_policy_preview(request, cluster, site, who)
        return await render_admin_page(
            request,
            cluster,
            viewer,
            status,
            weights_error=error.detail,
            weights_preview=found,
            form=form,
            refused=error,
        )
    await change_policy(cluster, version, site, who)
    return redirect_to_admin(request, cluster.name, "weighed")


@router.post("/weights/withdraw")
async def withdraw_policy(request: Request, cluster: Cluster, viewer: Administrator, form: Form) -> Response:
    """Let the policy of the settings be in force again."""
    who = viewer.bearer.name
    try:
        if not form.get("break_promises"):
            await refuse_risked_promises(request, cluster, 0, {}, who)
    except ProblemError as error:
        if error.kind != "breaks-promises":
            raise
        return await render_admin_page(
            request, cluster, viewer, 409, withdrawal_error=error.detail, refused=error
        )
    await change_policy(cluster, 0, {}, who)
    return redirect_to_admin(request, cluster.name, "withdrawn")


def _parse_policy(settings: EngineSettings, form: Form) -> dict[str, Any]:
    """The policy that the form wants. Raises ProblemError."""
    try:
        return SiteSettings(**changed_policy(settings, form)).plain
    except ValidationError as error:
        first = error.errors()[0]
        where = " ".join(str(one).replace("_", " ") for one in problem_place(first))
        words = problem_text(first)
        raise ProblemError("invalid", f"{where}: {words}" if where else words) from None
