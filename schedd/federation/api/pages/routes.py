"""Pages of a federation: clusters and jobs, one job, and the login. In the dashboard's design."""

import hashlib
import secrets
import threading
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from itertools import islice
from pathlib import Path as File
from typing import Annotated, Any, Final

import jinja2
from fastapi import FastAPI, Path, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from schedd import __version__
from schedd.api.access import check_same_site, client_address
from schedd.api.problems import ProblemError
from schedd.api.routes import RouteTable
from schedd.dashboard import assets
from schedd.dashboard.filters import FILTERS, headline
from schedd.dashboard.paths import dashboard_path
from schedd.dashboard.security_headers import content_security_policy
from schedd.dashboard.sessions import DashboardSession, Sessions
from schedd.federation.api.answers import FederatedJobView, TransferAttemptView
from schedd.federation.api.app import check_rate, cluster_rows, job_row, licence_rows
from schedd.federation.api.bag_rows import bag_row
from schedd.federation.api.booking_rows import booking_page_rows
from schedd.federation.api.item_access import is_item_visible
from schedd.federation.federated_start import (
    PHASE_NAMES,
    current_attempt,
    describe_state,
    start_facts,
    start_order,
)
from schedd.federation.state.federation_state import FederationState
from schedd.service.access.roles import Bearer
from schedd.service.access.tokens import Tokens
from schedd.start_sentence import StartFacts

COOKIE: Final = "schedd_federation"
"""It differs from the dashboard's cookie, since all ports of a host share cookies."""
_MAX_ROWS: Final = 50  # maximum number of bags and bookings on the page
_MAX_JOBS: Final = 200
_MAX_FORM_BYTES: Final = 8_192
_REFRESH_MS: Final = 10_000
_SHORT_S: Final = 0.05
_KEPT_RATIO: Final = 10
_JobName = Annotated[str, Path(pattern=r"^[0-9]{1,18}$")]


@dataclass(frozen=True, slots=True)
class FederationViewer:
    """Viewer of a page, with the attributes that the dashboard's frame shows."""

    bearer: Bearer
    session: DashboardSession


@dataclass(frozen=True, slots=True)
class FederatedJobRow:
    """A job on a page: its state in a few words, and the attempt at its present cluster."""

    job: FederatedJobView
    state: str
    attempt: TransferAttemptView | None
    facts: StartFacts | None  # facts of its start; None if its cluster does not disclose it


def add_pages(app: FastAPI) -> None:
    """Add the pages, and the dashboard's style sheet and scripts."""
    app.state.sessions = Sessions()
    app.state.public_page = _PublicPage()
    _page_routes().add_to(app)


@cache
def _page_routes() -> RouteTable:
    table = RouteTable()
    for path, endpoint, method in (
        ("/", _show_federation, "GET"),
        ("/jobs/{job}", _show_job, "GET"),
        ("/login", _show_login, "GET"),
        ("/login", _log_in, "POST"),
        ("/logout", _log_out, "POST"),
        ("/-/assets/{tag}/{name}", assets.get_asset, "GET"),
    ):
        table.add(path, endpoint, methods=[method], include_in_schema=False)
    return table


def _show_federation(request: Request) -> Response:
    """Clusters and numbers of jobs; for a user who is logged in also the jobs that the user may see."""
    federation: FederationState | None = request.app.state.federation
    viewer = _find_viewer(request)
    if federation is None:
        leader = (
            request.app.state.leader if viewer is not None else ""
        )  # the page has no names of hosts, since it needs no token
        return _render(request, "federation", viewer, name="", leads=False, leader=leader)
    rows = list(islice(_visible_jobs(federation, viewer), _MAX_JOBS + 1)) if viewer is not None else []
    shown = sorted(rows[:_MAX_JOBS], key=lambda row: start_key(row, federation.now))
    open_page: _PublicPage = request.app.state.public_page
    return _render(
        request,
        "federation",
        viewer,
        leads=True,
        log_trouble=federation.log_trouble,
        settings_trouble=request.app.state.settings_trouble,
        shows_faults=viewer is not None and viewer.bearer.may("see all"),
        rows=shown,
        more_jobs=len(rows) > _MAX_JOBS,
        **open_page.values(federation),
    )


class _PublicPage:
    """Contents of the page without a token. They take longer with more jobs, so they are cached: such
    requests take at most a tenth of a processor.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: FederationState | None = None
        self._until = 0.0
        self._values: dict[str, Any] = {}

    def values(self, federation: FederationState) -> dict[str, Any]:
        """Return the values for the template."""
        with self._lock:
            began = time.monotonic()
            if self._of is not federation or began >= self._until:
                self._values, self._of = _public_values(federation), federation
                took = time.monotonic() - began
                self._until = began + (_KEPT_RATIO * took if took > _SHORT_S else 0.0)
            return self._values


def _public_values(federation: FederationState) -> dict[str, Any]:
    bags = [
        row
        for name in list(federation.bags.open)
        if not (row := bag_row(federation, federation.bags[name])).over
    ]
    bookings = booking_page_rows(federation)
    return {
        "name": federation.settings.name,
        "policy": federation.settings.routing.policy.value,
        "clusters": [(one, federation.cluster_summaries.get(one.name)) for one in cluster_rows(federation)],
        "totals": _count_jobs(federation),
        "licences": licence_rows(federation),
        "bags": bags[:_MAX_ROWS],
        "more_bags": len(bags[_MAX_ROWS:]),
        "bookings": bookings[:_MAX_ROWS],
        "more_bookings": len(bookings[_MAX_ROWS:]),
    }


async def _show_job(request: Request, job: _JobName) -> Response:
    """Page of one job: its start, and each attempt to place it."""
    viewer = _find_viewer(request)
    if viewer is None:
        following = urllib.parse.urlencode({"next": f"/jobs/{job}"})
        return RedirectResponse(f"{dashboard_path(request)}/login?{following}", 303)
    federation: FederationState | None = request.app.state.federation
    if federation is None:
        return _render_error(request, viewer, HTTPStatus.SERVICE_UNAVAILABLE, "another daemon leads")
    found = federation.jobs.by_id.get(job)
    if found is None or not is_item_visible(viewer.bearer, found):
        return _render_error(request, viewer, HTTPStatus.NOT_FOUND, f"the federation has no job {job}")
    return _render(
        request, "federated-job", viewer, row=_make_row(job_row(federation, found)), phases=PHASE_NAMES
    )


async def _show_login(
    request: Request,
    next: Annotated[str, Query(max_length=2_000)] = "",  # noqa: A002
) -> Response:
    """Login form for a token."""
    return _render(request, "login", _find_viewer(request), following=next, wrong="")


async def _log_in(request: Request) -> Response:
    """Open a session for the holder of a token."""
    fields = await _read_form(request)
    tokens: Tokens = request.app.state.tokens
    given, following = fields.get("token", "").strip(), fields.get("next", "")
    bearer = tokens.bearer(given) if given else None
    if bearer is None or not bearer.may("ask"):
        check_rate(request, client_address(request), "refused logins")
        unknown = "has expired" if tokens.has_expired(given) else "is not valid here"
        wrong = f"This token {unknown}." if given else "A token is needed."
        answer = _render(request, "login", None, following=following, wrong=wrong)
        answer.status_code = HTTPStatus.FORBIDDEN
        return answer
    sessions: Sessions = request.app.state.sessions
    session = sessions.open(hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest())
    base = dashboard_path(request)
    path = urllib.parse.quote(following, safe="/?&=-._~%+") if following.startswith("/") else "/"
    found = RedirectResponse(f"{base}/{path.lstrip('/')}", 303)
    found.set_cookie(
        COOKIE,
        session.id,
        path=base or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return found


async def _log_out(request: Request) -> Response:
    """End the session."""
    fields = await _read_form(request)
    viewer = _find_viewer(request)
    base = dashboard_path(request)
    answer = RedirectResponse(f"{base}/", 303)
    if viewer is not None and viewer.session.meant(fields.get("csrf", "")):
        sessions: Sessions = request.app.state.sessions
        sessions.close(viewer.session.id)
        answer.delete_cookie(COOKIE, path=base or "/")
    return answer


def _find_viewer(request: Request) -> FederationViewer | None:
    """The holder of the session's token; None without a session, or if the token is no longer valid."""
    sessions: Sessions = request.app.state.sessions
    tokens: Tokens = request.app.state.tokens
    session = sessions.get(request.cookies.get(COOKIE, ""))
    bearer = tokens.holder(session.digest) if session is not None else None
    return FederationViewer(bearer, session) if session is not None and bearer is not None else None


async def _read_form(request: Request) -> dict[str, str]:
    """The fields of a form. Raises ProblemError."""
    check_same_site(request)
    body = await request.body()
    if len(body) > _MAX_FORM_BYTES:
        raise ProblemError("too-large", f"a form has at most {_MAX_FORM_BYTES} bytes")
    return dict(urllib.parse.parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def _visible_jobs(federation: FederationState, viewer: FederationViewer) -> Iterator[FederatedJobRow]:
    """Open jobs that the viewer may see, the newest first."""
    for name in reversed(list(federation.jobs.open)):
        job = federation.jobs.by_id.get(name)
        if job is not None and is_item_visible(viewer.bearer, job):
            yield _make_row(job_row(federation, job))


def start_key(row: FederatedJobRow, now: int) -> tuple[bool, bool, int]:
    """Order jobs by their next start; jobs that run, and jobs without a known start, come below."""
    start = start_order(row.job, now)
    return start is None, row.state in ("running", "starting"), start or 0


def _make_row(job: FederatedJobView) -> FederatedJobRow:
    return FederatedJobRow(job, describe_state(job), current_attempt(job), start_facts(job))


def _count_jobs(federation: FederationState) -> dict[str, int]:
    """Return the number of jobs by state."""
    jobs = federation.jobs
    choosing = sum(jobs[name].active is None for name in list(jobs.unsettled))
    running = sum(row.running for row in cluster_rows(federation))
    return {
        "open": len(jobs.open),
        "choosing": choosing,
        "running": running,
        "waiting": max(0, len(jobs.open) - choosing - running),
        "moved": sum(jobs[name].moves > 0 for name in list(jobs.open)),
    }


@cache
def _templates() -> jinja2.Environment:
    """The federation's templates, then the dashboard's: its frame, macros and login form."""
    found = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [
                jinja2.FileSystemLoader(File(__file__).with_name("templates")),
                jinja2.PackageLoader("schedd.dashboard"),
            ]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(FILTERS)
    found.globals.update(headline=headline, version=__version__)
    return found


def _now(request: Request) -> int:
    """Return the time by the federation's clock; by the host's, as long as this daemon does not lead."""
    federation: FederationState | None = request.app.state.federation
    return federation.now if federation is not None else int(time.time())


def _render(request: Request, page: str, viewer: FederationViewer | None, **values: Any) -> HTMLResponse:
    base = dashboard_path(request)
    nonce = secrets.token_urlsafe(16)
    text = (
        _templates()
        .get_template(f"{page}.html")
        .render(
            base=base,
            root=base,
            asset=lambda name: base + assets.asset_path(name),
            nonce=nonce,
            viewer=viewer,
            here=page,
            single_sign_on=False,
            csrf=viewer.session.csrf if viewer is not None else "",
            cluster=None,
            live_state="",
            live_every=0 if page == "login" else _REFRESH_MS,
            now=_now(request),
            **values,
        )
    )
    headers = {"Cache-Control": "no-store", "Content-Security-Policy": content_security_policy(nonce)}
    return HTMLResponse(text, headers=headers)


def _render_error(request: Request, viewer: FederationViewer, status: HTTPStatus, why: str) -> Response:
    title = "Job not found" if status == HTTPStatus.NOT_FOUND else status.phrase
    found = _render(request, "error", viewer, title=title, detail=why, hint="", waits=False)
    found.status_code = status
    return found
