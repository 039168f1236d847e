"""Acts of operators and admins on the plan as a whole: nodes and queues held, weights set."""

from typing import Any, Final, cast

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.responses import Response

from schedd.api.holds import Kind, hold, preview, release
from schedd.api.messages import Hold
from schedd.api.policy import change_policy, foreseen
from schedd.api.problems import ProblemError
from schedd.dashboard.admin import admin_page, back
from schedd.dashboard.viewer import Administrator, Cluster, Form, Operator
from schedd.dashboard.weights import changed
from schedd.engine import EngineSettings
from schedd.service.site_settings import SiteSettings

__all__ = ["router"]

router = APIRouter(prefix="/{cluster}/admin")
_KINDS: Final = ("node", "queue")


@router.post("/hold")
async def make_hold(request: Request, cluster: Cluster, viewer: Operator, form: Form) -> Response:
    """Plan nothing new on a node, or of a queue; or show what would follow."""
    kind, name = _kind(form), form.get("hold_name", "").strip()
    try:
        given = form.get("hold_reason", "").strip()
        if form.get("preview"):  # what would follow can be seen before there is a reason
            reason = Hold(reason=given or "preview").reason
            found = await preview(request, cluster, kind, name, reason, viewer.bearer.name)
            return await admin_page(request, cluster, viewer, held=found, form=form)
        reason = Hold(reason=given).reason
        await hold(cluster, kind, name, reason, viewer.bearer.name)
    except ValidationError:
        words = "Say why, in 1 to 200 characters on one line: users whose jobs wait see it."
        return await admin_page(request, cluster, viewer, 422, unheld=words, form=form)
    except ProblemError as error:
        if error.kind != "invalid":
            raise
        return await admin_page(request, cluster, viewer, 422, unheld=error.detail, form=form)
    return back(request, cluster.name, "held")


@router.post("/release")
async def lift_hold(request: Request, cluster: Cluster, viewer: Operator, form: Form) -> Response:
    """Plan for it again."""
    await release(cluster, _kind(form), form.get("hold_name", ""), viewer.bearer.name)
    return back(request, cluster.name, "released")


def _kind(form: Form) -> Kind:
    kind = form.get("hold_kind", "")
    if kind not in _KINDS:
        raise ProblemError("invalid", "hold_kind: node or queue")
    return cast("Kind", kind)


@router.post("/weights/preview")
async def try_weights(request: Request, cluster: Cluster, viewer: Operator, form: Form) -> Response:
    """What would follow if these weights were in force."""
    try:
        site = _site(cluster.published.settings, form)
    except ProblemError as error:
        return await admin_page(request, cluster, viewer, 422, unweighed=error.detail, form=form)
    found = await foreseen(request, cluster, site, viewer.bearer.name)
    return await admin_page(request, cluster, viewer, weighed=found, form=form)


@router.post("/weights")
async def set_weights(request: Request, cluster: Cluster, viewer: Administrator, form: Form) -> Response:
    """Put these weights in force, in the policy as it was when the form was loaded."""
    published = cluster.published
    try:
        site = _site(published.settings, form)
        if form.get("version") != str(published.policy_version):
            raise ProblemError(
                "invalid", "The policy was changed meanwhile: look at it again, then repeat this."
            )
    except ProblemError as error:
        return await admin_page(request, cluster, viewer, 422, unweighed=error.detail, form=form)
    await change_policy(cluster, published.policy_version + 1, site, viewer.bearer.name)
    return back(request, cluster.name, "weighed")


@router.post("/weights/withdraw")
async def withdraw(request: Request, cluster: Cluster, viewer: Administrator, _: Form) -> Response:
    """Let the policy of the settings be in force again."""
    await change_policy(cluster, 0, {}, viewer.bearer.name)
    return back(request, cluster.name, "withdrawn")


def _site(settings: EngineSettings, form: Form) -> dict[str, Any]:
    """The policy that the form wants. Raises ProblemError."""
    try:
        return SiteSettings(**changed(settings, form)).plain
    except ValidationError as error:
        first = error.errors()[0]
        where = " ".join(str(one).replace("_", " ") for one in first["loc"])
        words = first["msg"].removeprefix("Value error, ")
        raise ProblemError("invalid", f"{where}: {words}" if where else words) from None
