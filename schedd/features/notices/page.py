"""Notices on the page My jobs: mail, or a command of the site, for all own jobs in one click."""

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from schedd.api.problems import ProblemError
from schedd.api.routes import RouteTable
from schedd.dashboard.page_parts import PagePart
from schedd.dashboard.paths import dashboard_path
from schedd.dashboard.viewer import Cluster, Form, Reader, Viewer, Visibility
from schedd.features.notices.api import NoticeRequest, own_address, subscribe, unsubscribe
from schedd.features.notices.notifier import Notifier
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.daemon_services import find_service
from schedd.store import StoreError
from schedd.wire.section import problem_text

router = RouteTable(prefix="/{cluster}/my-jobs/notices")
MOVED_S: Final = 1_800
AHEAD_S: Final = 900
"""Defaults of a notice made in one click: minimum move of a start, and time before a start, in seconds."""


@router.post("")
async def make_notice(
    request: Request, cluster: Cluster, viewer: Reader, visibility: Visibility, form: Form
) -> Response:
    """Notify the viewer of all own jobs."""
    try:
        body = NoticeRequest.model_validate(
            {
                "way": form.get("way"),
                "to": form.get("to", ""),
                "moved": MOVED_S,
                "ahead": AHEAD_S,
                "lost": True,
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise ProblemError("invalid", f"{first['loc'][0]}: {problem_text(first)}") from None
    await subscribe(request, cluster, body, viewer.bearer, visibility)
    return _to_my_jobs(request, cluster)


@router.post("/stop")
async def stop_notice(request: Request, cluster: Cluster, viewer: Reader, form: Form) -> Response:
    """End a notice of the viewer."""
    number = form.get("number", "")
    if not (number.isascii() and number.isdigit() and len(number) < 16):
        raise ProblemError("invalid", "number: the number of a notice")
    await unsubscribe(request, cluster, int(number), viewer.bearer)
    return _to_my_jobs(request, cluster)


def _to_my_jobs(request: Request, cluster: PlanLoop) -> Response:
    return RedirectResponse(f"{dashboard_path(request)}/{cluster.name}/my-jobs#notices", 303)


def _notices(request: Request, cluster: PlanLoop, viewer: Viewer) -> Mapping[str, Any] | None:
    """Return the viewer's notices, and the channels without a notice for all jobs."""
    notifier = find_service(request.app.state.services, Notifier, cluster.name)
    who = viewer.bearer
    if notifier is None or who is request.app.state.callers.tokens.anonymous:
        return None
    try:
        found = notifier.subscriptions(who.name)
    except StoreError:
        return None  # every page says that the database cannot be reached
    ways = [("command", name) for name in notifier.settings.commands]
    if notifier.settings.relay:
        ways.insert(0, ("mail", own_address(notifier, who.name)))
    known = {(one.channel, one.address) for one in found if not one.job}
    return {
        "notices": found,
        "ways": [way for way in ways if way not in known],
        "moved": MOVED_S,
        "ahead": AHEAD_S,
    }


PARTS: Final = (PagePart("my-jobs", "my-notices.html", _notices),)
