"""The dashboard as a separate application, mounted next to the API, with the same clusters and tokens."""

import urllib.parse
from http import HTTPStatus
from typing import Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response

from schedd.api.access import get_daemon, visible_clusters
from schedd.api.problems import PROBLEM_KINDS, ProblemError, ReadError, convert_read_error, note_refusal
from schedd.dashboard import assets, live_updates, login, single_sign_on
from schedd.dashboard.cluster_cards import summarise_cluster
from schedd.dashboard.menu import further_page_modules
from schedd.dashboard.pages import (
    admin,
    calendar,
    holds_and_weights,
    my_jobs,
    nodes,
    plan,
    plan_metrics,
    queue,
    what_if,
)
from schedd.dashboard.paths import dashboard_path
from schedd.dashboard.rendering import add_template_folders, render_plain_page
from schedd.dashboard.security_headers import SecurityHeadersMiddleware
from schedd.dashboard.viewer import NotLoggedIn, Reader, Viewer, find_session
from schedd.feature_list import feature_modules
from schedd.plan.work_limits import WorkSpent
from schedd.service.cluster.errors import Overloaded, PlannerStopped, UnknownCluster
from schedd.service.read.cursors import CursorError
from schedd.store import StoreError
from schedd.wire.section import problem_text

_NOT_READY: Final = HTTPStatus.SERVICE_UNAVAILABLE
_LANDING_PAGE_REFRESH_MS: Final = 10_000
_log = structlog.get_logger(__name__)


def make_pages(app: FastAPI) -> FastAPI:
    """Return the dashboard over the clusters, the tokens and the sessions of ``app``."""
    pages = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    pages.state = app.state
    app.state.journeys = single_sign_on.PendingLogins()
    app.state.ended = {}
    pages.get("/")(_landing_page)
    for module in (
        assets,
        login,
        single_sign_on,
        live_updates,
        my_jobs,
        plan,
        queue,
        nodes,
        calendar,
        what_if,
        plan_metrics,
        admin,
        holds_and_weights,
        *feature_modules("page"),
        *further_page_modules(app),
    ):
        module.router.add_to(pages)
    add_template_folders(further_page_modules(app))
    _add_error_pages(pages)
    pages.add_middleware(SecurityHeadersMiddleware)
    return pages


async def _landing_page(request: Request, viewer: Reader) -> Response:
    """Redirect to the only cluster's plan, for users to their jobs; or show a card for each cluster."""
    get_daemon(request)
    loops = visible_clusters(request, viewer.bearer)
    first = "my-jobs" if viewer.bearer.role == "user" else "plan"
    if len(loops) == 1:
        return RedirectResponse(f"{dashboard_path(request)}/{urllib.parse.quote(loops[0].name)}/{first}", 303)
    cards = await run_in_threadpool(lambda: [summarise_cluster(request, loop, viewer) for loop in loops])
    return render_plain_page(
        request,
        "clusters",
        viewer,
        cards=sorted(cards, key=lambda card: not card.severe),
        troubled=sum(card.severe for card in cards),
        first=first,
        live_every=_LANDING_PAGE_REFRESH_MS,
    )


def _add_error_pages(pages: FastAPI) -> None:
    def answer(request: Request, error: ProblemError) -> Response:
        status, title = PROBLEM_KINDS[error.kind]
        if "text/html" not in request.headers.get("accept", ""):
            about = {"title": title, "detail": error.detail, "hint": error.hint}
            return JSONResponse(about, status, error.headers)
        if error.kind == "unknown-path":
            title = "Page not found"
        known = find_session(request)
        viewer = Viewer(known[1], known[0]) if known is not None else None
        message = {"title": title, "detail": error.detail, "hint": error.hint, "waits": status == _NOT_READY}
        found = render_plain_page(request, "error", viewer, status, **message)
        found.headers.update(error.headers or {})
        return found

    @pages.exception_handler(NotLoggedIn)
    async def _(request: Request, _error: NotLoggedIn) -> Response:
        if "text/html" not in request.headers.get("accept", ""):
            return JSONResponse({"title": "Not logged in"}, 401)
        wanted = ""
        if request.method == "GET" and request.url.path != f"{dashboard_path(request)}/":
            wanted = request.url.path.removeprefix(dashboard_path(request))
            wanted += f"?{request.url.query}" if request.url.query else ""
        asked = f"?{urllib.parse.urlencode({'next': wanted})}" if wanted else ""
        return RedirectResponse(f"{dashboard_path(request)}/login{asked}", 303)

    @pages.exception_handler(ProblemError)
    async def _(request: Request, error: ProblemError) -> Response:
        await note_refusal(request, error)
        return answer(request, error)

    @pages.exception_handler(UnknownCluster)
    async def _(request: Request, error: UnknownCluster) -> Response:
        return answer(request, ProblemError("unknown-cluster", str(error)))

    @pages.exception_handler(PlannerStopped)
    @pages.exception_handler(Overloaded)
    async def _(request: Request, error: Exception) -> Response:
        return answer(request, ProblemError("not-ready", str(error), hint="try again in a moment"))

    @pages.exception_handler(StoreError)
    @pages.exception_handler(WorkSpent)
    @pages.exception_handler(CursorError)
    async def _(request: Request, error: ReadError) -> Response:
        return answer(request, convert_read_error(error))

    @pages.exception_handler(RequestValidationError)
    async def _(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        problem = ProblemError("invalid", f"{first['loc'][-1]}: {problem_text(first)}")
        await note_refusal(request, problem)
        return answer(request, problem)

    @pages.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> Response:
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            return answer(request, ProblemError("wrong-method", f"{request.method} is not served here"))
        return answer(request, ProblemError("unknown-path", "there is no such page"))

    @pages.exception_handler(Exception)
    async def _(request: Request, error: Exception) -> Response:
        _log.error("a page failed", path=request.url.path, error=repr(error), exc_info=error)
        return answer(request, ProblemError("defect", "an internal error; see the daemon's log"))
