"""Logging in with a token or a one-time key, and out."""

import hashlib
import urllib.parse
from typing import Annotated

import structlog
from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from schedd.api.problems import ProblemError
from schedd.dashboard.rendering import base_of, plain_page
from schedd.dashboard.sessions import COOKIE, Session, Sessions
from schedd.dashboard.viewer import Viewer, form_of, session_of
from schedd.service.access.callers import Callers

__all__ = ["place_in", "router", "set_session"]

router = APIRouter()
_log = structlog.get_logger(__name__)


@router.get("/login")
async def ask(request: Request, next: Annotated[str, Query(max_length=2_000)] = "") -> Response:  # noqa: A002
    """A form that takes a token."""
    return plain_page(request, "login", _known(request), following=next, wrong="")


@router.post("/login")
async def log_in(request: Request) -> Response:
    """Open a session for the holder of the token."""
    fields = await form_of(request)
    callers: Callers = request.app.state.callers
    following = fields.get("next", "")
    given = fields.get("token", "").strip()
    bearer = callers.tokens.bearer(given)
    if bearer is None or not bearer.may("ask"):
        wait = callers.wait_refused(request.client.host if request.client is not None else "")
        if wait:
            raise ProblemError("too-often", "too many logins were refused", hint="try again in a moment")
        _log.warning("a login was refused")
        wrong = "This token is not known here." if given else "A token is needed."
        return plain_page(request, "login", _known(request), 403, following=following, wrong=wrong)
    _log.info("logged in", name=bearer.name, role=bearer.role)
    digest = hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
    return _enter(request, digest, following)


@router.get("/enter")
async def enter(request: Request, key: Annotated[str, Query(max_length=200)]) -> Response:
    """Open a session for whoever shows a one-time key first."""
    sessions: Sessions = request.app.state.sessions
    digest = sessions.redeem(key)
    if digest is None:
        if session_of(request) is not None:
            return RedirectResponse(f"{base_of(request)}/", 303)
        wrong = "This link was used before. Log in with a token."
        return plain_page(request, "login", _known(request), 403, following="", wrong=wrong)
    return _enter(request, digest, "")


@router.post("/logout")
async def log_out(request: Request) -> Response:
    """End the session."""
    await form_of(request)
    found = session_of(request)
    sessions: Sessions = request.app.state.sessions
    if found is not None:
        sessions.close(found[0].id)
    answer = RedirectResponse(f"{base_of(request)}/login", 303)
    answer.delete_cookie(COOKIE, path=base_of(request) or "/")
    return answer


def _known(request: Request) -> Viewer | None:
    """Who is logged in."""
    found = session_of(request)
    return Viewer(found[1], found[0]) if found is not None else None


def _enter(request: Request, digest: bytes, following: str) -> Response:
    answer = RedirectResponse(base_of(request) + place_in(following), 303)
    sessions: Sessions = request.app.state.sessions
    set_session(request, answer, sessions.open(digest))
    return answer


def place_in(following: str) -> str:
    """A path below ours. Behind our own path it leads nowhere else, whatever it is."""
    return urllib.parse.quote(following, safe="/?&=-._~%+") if following.startswith("/") else "/"


def set_session(request: Request, answer: Response, session: Session) -> None:
    """Give the browser its session, and end the one that it had."""
    sessions: Sessions = request.app.state.sessions
    before = session_of(request)
    if before is not None:
        sessions.close(before[0].id)
    answer.set_cookie(
        COOKIE,
        session.id,
        path=base_of(request) or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
