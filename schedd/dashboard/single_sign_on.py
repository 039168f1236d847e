"""Logging in at the site's identity provider: there with a state of our own, and back with a code."""

import hashlib
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

import structlog
from fastapi import Query, Request
from starlette.responses import RedirectResponse, Response

from schedd.api.access import client_address
from schedd.api.problems import ProblemError
from schedd.api.routes import RouteTable
from schedd.dashboard.login import safe_redirect_path, set_session
from schedd.dashboard.paths import dashboard_path
from schedd.dashboard.rendering import render_plain_page
from schedd.dashboard.sessions import Sessions
from schedd.service.access.callers import Callers
from schedd.service.access.identity import IdentityError, IdentityProvider, PendingLogin

router = RouteTable(prefix="/oidc")
_log = structlog.get_logger(__name__)
_COOKIE: Final = "schedd_oidc"
_LIFETIME_S: Final = 600
_MAX_PENDING: Final = 1_000


@dataclass(frozen=True, slots=True)
class _PendingLogin:
    began: PendingLogin
    following: str
    until: float


class PendingLogins:
    """Logins that were started here and have not returned yet; the oldest one is dropped for a new one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._away: dict[str, _PendingLogin] = {}

    def begin(self, began: PendingLogin, following: str) -> None:
        if len(self._away) >= _MAX_PENDING:
            del self._away[next(iter(self._away))]
        self._away[began.state] = _PendingLogin(began, following, self._clock() + _LIFETIME_S)

    def end(self, state: str) -> tuple[PendingLogin, str] | None:
        """The one with this state, this once, unless it took too long."""
        found = self._away.pop(state, None)
        if found is None or found.until <= self._clock():
            return None
        return found.began, found.following


@router.get("/login")
async def start_login(request: Request, next: Annotated[str, Query(max_length=2_000)] = "") -> Response:  # noqa: A002
    """Go to the provider."""
    provider = _provider(request)
    try:
        place, began = await provider.begin()
    except IdentityError as error:
        _log.warning("the identity provider cannot be asked", why=str(error))
        return _render_refusal(request, "The identity provider does not answer. Log in with a token.", 503)
    journeys: PendingLogins = request.app.state.journeys
    journeys.begin(began, next)
    answer = RedirectResponse(place, 303)
    answer.set_cookie(
        _COOKIE,
        began.state,
        max_age=_LIFETIME_S,
        path=f"{dashboard_path(request)}/oidc",
        httponly=True,
        samesite="lax",  # it is to come along from the provider's page
        secure=request.url.scheme == "https",
    )
    return answer


@router.get("/callback")
async def finish_login(
    request: Request,
    state: Annotated[str, Query(max_length=200)] = "",
    code: Annotated[str, Query(max_length=4_000)] = "",
    error: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Come back from the provider, in the browser that went there."""
    provider = _provider(request)
    journeys: PendingLogins = request.app.state.journeys
    own = hmac.compare_digest(request.cookies.get(_COOKIE, "").encode(), state.encode()) and state
    found = journeys.end(state) if own else None
    if found is None:
        _check_rate(request)
        return _render_refusal(request, "This login did not begin here, or took too long. Try again.")
    if error or not code:
        return _render_refusal(request, f"The identity provider refused: {error or 'it sent no code'}.")
    began, following = found
    try:
        identity = await provider.finish(code, began)
    except IdentityError as wrong:
        _log.warning("a login was refused", why=str(wrong))
        if wrong.ours:
            return _render_refusal(
                request, "The identity provider does not answer. Log in with a token.", 503
            )
        return _render_refusal(request, "The identity provider's word does not count here; the log says why.")
    bearer = provider.bearer(identity)
    if bearer is None:
        _log.warning("a login was refused", name=identity.name, why="no grant")
        return _render_refusal(
            request, f"The user {identity.name} has no role here. Ask the administrators of your cluster."
        )
    _log.info("logged in", name=bearer.name, role=bearer.role, by="identity provider")
    sessions: Sessions = request.app.state.sessions
    digest = hashlib.sha256(f"oidc {identity.subject}".encode()).digest()
    # The session's cookie does not come along where another site's page led here: a page of ours goes on.
    onward = dashboard_path(request) + safe_redirect_path(following)
    answer = render_plain_page(request, "entered", None, onward=onward)
    set_session(request, answer, sessions.open(digest, identity, provider.session))
    answer.delete_cookie(_COOKIE, path=f"{dashboard_path(request)}/oidc")
    return answer


def _provider(request: Request) -> IdentityProvider:
    callers: Callers = request.app.state.callers
    if callers.oidc is None:
        raise ProblemError("unknown-path", "there is no such page")
    return callers.oidc


def _check_rate(request: Request) -> None:
    callers: Callers = request.app.state.callers
    if callers.count_refused(client_address(request)):
        raise ProblemError("too-often", "too many logins were refused", hint="try again in a moment")


def _render_refusal(request: Request, words: str, status: int = 403) -> Response:
    return render_plain_page(request, "login", None, status, following="", wrong=words)
