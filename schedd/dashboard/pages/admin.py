"""Actions of operators and administrators, health of the components, audit."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from schedd.api.clusters import set_dispatch
from schedd.api.problems import ProblemError
from schedd.api.request_bodies import PauseRequest
from schedd.api.routes import RouteTable
from schedd.api.searches import start_search
from schedd.dashboard.admin_page import redirect_to_admin, render_admin_page
from schedd.dashboard.viewer import Cluster, Form, Operator
from schedd.wire.bounds import TIME_END

router = RouteTable(prefix="/{cluster}/admin")
_SEARCH_S: Final = 5.0  # for how long a page waits for a search; it goes on anyway


@router.get("")
async def show_admin(
    request: Request,
    cluster: Cluster,
    viewer: Operator,
    done: Annotated[str, Query(max_length=20)] = "",
    node: Annotated[str, Query(max_length=512)] = "",
) -> Response:
    """Possible actions, state of the components, and the audit. ``node``: a node that may be drained."""
    form = {"hold_kind": "node", "hold_name": node} if node else None
    return await render_admin_page(request, cluster, viewer, done=done, form=form)


@router.post("/pause")
async def pause_dispatch(request: Request, cluster: Cluster, viewer: Operator, form: Form) -> Response:
    """Start no jobs until ``resume``."""
    try:
        reason = PauseRequest(reason=form.get("reason", "").strip()).reason
    except ValidationError:
        words = "Say why, in 1 to 200 characters on one line: all users see it."
        refused = ProblemError("invalid", words)
        return await render_admin_page(request, cluster, viewer, 422, pause_error=words, refused=refused)
    await set_dispatch(cluster, reason, viewer.bearer.name)
    return redirect_to_admin(request, cluster.name, "paused")


@router.post("/resume")
async def resume_dispatch(request: Request, cluster: Cluster, viewer: Operator, _: Form) -> Response:
    """Start jobs again."""
    await set_dispatch(cluster, "", viewer.bearer.name)
    return redirect_to_admin(request, cluster.name, "resumed")


@router.post("/search")
async def run_search(request: Request, cluster: Cluster, viewer: Operator, _: Form) -> Response:
    """Look for a better plan now."""
    under_way = asyncio.wrap_future(
        await start_search(cluster, request.app.state.clusters, viewer.bearer.name)
    )
    done, _pending = await asyncio.wait((under_way,), timeout=_SEARCH_S)
    if not done:
        under_way.add_done_callback(lambda late: late.cancelled() or late.exception())
        return redirect_to_admin(request, cluster.name, "searching")
    run = under_way.result()
    return redirect_to_admin(
        request, cluster.name, "idle" if run is None else "improved" if run.taken else "searched"
    )


def parse_form_time(form: Mapping[str, str], name: str) -> int | None:
    """A moment of the form: a script gives seconds since the epoch; without one it is read as UTC."""
    seconds, text = form.get(f"{name}_seconds", ""), form.get(name, "")
    if not text:
        return None
    try:
        moment = int(seconds or datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except (ValueError, OverflowError):
        moment = -1
    if not 0 <= moment < TIME_END:
        raise ProblemError("invalid", f"{name}: not a date and a time")
    return moment
