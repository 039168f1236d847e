"""Logging in with a token or a one-time key, and out."""

import hashlib
import urllib.parse
from typing import Annotated

import structlog
from fastapi import Query, Request
from starlette.responses import RedirectResponse, Response

from schedd.api.problems import ProblemError
from schedd.api.routes import RouteTable
from schedd.dashboard.paths import dashboard_path
from schedd.dashboard.rendering import render_plain_page
from schedd.dashboard.sessions import COOKIE, DashboardSession, Sessions
from schedd.dashboard.viewer import Viewer, find_session, read_form
from schedd.service.access.callers import Callers

router = RouteTable()
_log = structlog.get_logger(__name__)


@router.get("/login")
async def show_login(request: Request, next: Annotated[str, Query(max_length=2_000)] = "") -> Response:  # noqa: A002
    """A form that takes a token."""
    return render_plain_page(request, "login", _identify(request), following=next, wrong="")


@router.post("/login")
async def log_in(request: Request) -> Response:
    """Open a session for the holder of the token."""
    fields = await read_form(request)
    callers: Callers = request.app.state.callers
    following = fields.get("next", "")
    given = fields.get("token", "").strip()
    bearer = callers.tokens.bearer(given)
    if bearer is None or not bearer.may("ask"):
        wait = callers.count_refused(request.client.host if request.client is not None else "")
        if wait:
            raise ProblemError("too-often", "too many logins were refused", hint="try again in a moment")
        _log.warning("a login was refused")
        unknown = "has expired" if callers.tokens.has_expired(given) else "is not known here"
        wrong = f"This token {unknown}." if given else "A token is needed."
        return render_plain_page(request, "login", _identify(request), 403, following=following, wrong=wrong)
    _log.info("logged in", name=bearer.name, role=bearer.role)
    digest = hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
    return _open_session(request, digest, following)


@router.get("/enter")
async def log_in_with_key(request: Request, key: Annotated[str, Query(max_length=200)]) -> Response:
    """Open a session for the first request with a one-time key."""
    sessions: Sessions = request.app.state.sessions
    digest = sessions.redeem(key)
    if digest is None:
        if find_session(request) is not None:
            return RedirectResponse(f"{dashboard_path(request)}/", 303)
        wrong = "This link was used before. Log in with a token."
        return render_plain_page(request, "login", _identify(request), 403, following="", wrong=wrong)
    return _open_session(request, digest, "")


@router.post("/logout")
async def log_out(request: Request) -> Response:
    """End the session."""
    await read_form(request)
    found = find_session(request)
    sessions: Sessions = request.app.state.sessions
    if found is not None:
        sessions.close(found[0].id)
    answer = RedirectResponse(f"{dashboard_path(request)}/login", 303)
    answer.delete_cookie(COOKIE, path=dashboard_path(request) or "/")
    return answer


def _identify(request: Request) -> Viewer | None:
    """The user who is logged in."""
    found = find_session(request)
    return Viewer(found[1], found[0]) if found is not None else None


def _open_session(request: Request, digest: bytes, following: str) -> Response:
    answer = RedirectResponse(dashboard_path(request) + safe_redirect_path(following), 303)
    sessions: Sessions = request.app.state.sessions
    set_session(request, answer, sessions.open(digest))
    return answer


def safe_redirect_path(following: str) -> str:
    """A path below ours. Behind our own path it leads nowhere else, whatever it is."""
    return urllib.parse.quote(following, safe="/?&=-._~%+") if following.startswith("/") else "/"


def set_session(request: Request, answer: Response, session: DashboardSession) -> None:
    """Give the browser its session, and end its previous one."""
    sessions: Sessions = request.app.state.sessions
    before = find_session(request)
    if before is not None:
        sessions.close(before[0].id)
    answer.set_cookie(
        COOKIE,
        session.id,
        path=dashboard_path(request) or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
