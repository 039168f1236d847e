"""The viewer of a page: identity and permissions."""

import math
import urllib.parse
from dataclasses import dataclass, replace
from typing import Annotated, Final

from fastapi import Depends, Request

from schedd.api.access import authenticate, check_same_site, get_daemon, resolve_scope, visible_clusters
from schedd.api.audit import watch_for_refusal
from schedd.api.problems import ProblemError
from schedd.dashboard.sessions import COOKIE, DashboardSession, Sessions
from schedd.service.access.callers import Callers
from schedd.service.access.roles import Bearer
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.job_visibility import JobVisibility, visibility_for

_MAX_FORM_BYTES: Final = 8_192


class NotLoggedIn(Exception):
    """The page requires a login."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """The viewer. ``session`` is None without a login: a proxy's identity, a socket, or anonymous."""

    bearer: Bearer
    session: DashboardSession | None
    whole: Bearer | None = None  # the same on all clusters, where `bearer` is with the role on one

    def at(self, request: Request, cluster: str) -> "Viewer":
        """With the role on this cluster. Raises UnknownCluster."""
        return replace(self, bearer=resolve_scope(request, self.bearer, cluster), whole=self.bearer)

    def visible_clusters(self, request: Request) -> list[str]:
        """The clusters that may be looked at, by name."""
        return [loop.name for loop in visible_clusters(request, self.whole or self.bearer)]

    @property
    def may_administer(self) -> bool:
        """Whether what changes how the daemon works is open to this one."""
        return self.bearer.may("administer")

    @property
    def may_act(self) -> bool:
        """Whether the acts of operators are open to this one."""
        return self.bearer.may("steer")


def find_session(request: Request) -> tuple[DashboardSession, Bearer] | None:
    """The session named by the request's cookie, and its identity; None when it is over."""
    sessions: Sessions = request.app.state.sessions
    callers: Callers = request.app.state.callers
    session = sessions.get(request.cookies.get(COOKIE, ""))
    if session is None:
        return None
    if session.identity is None:
        bearer = callers.tokens.holder(session.digest)
    else:
        bearer = callers.oidc.bearer(session.identity) if callers.oidc is not None else None
    if bearer is None:
        if callers.tokens.complete or session.identity is not None:
            sessions.close(session.id)
        return None
    return session, bearer


async def identify_viewer(request: Request) -> Viewer | None:
    """The viewer, logged in or identified otherwise; None if unknown. Raises ProblemError."""
    found = find_session(request)
    if found is None:
        try:
            return Viewer(await authenticate(request), None)
        except ProblemError as error:
            if error.kind != "no-token":
                raise
            return None
    callers: Callers = request.app.state.callers
    wait = callers.count_request(found[1], request.client.host if request.client is not None else "")
    if wait:
        headers = {"Retry-After": str(math.ceil(wait))}
        raise ProblemError("too-often", f"too many requests of {found[1].name}", headers=headers)
    return Viewer(found[1], found[0])


async def _require_viewer(request: Request) -> Viewer:
    viewer = await identify_viewer(request)
    if viewer is None or not viewer.bearer.may("ask"):
        raise NotLoggedIn
    cluster = request.path_params.get("cluster")
    return viewer if cluster is None else viewer.at(request, cluster)


Reader = Annotated[Viewer, Depends(_require_viewer)]


async def _require_operator(viewer: Reader, request: Request) -> Viewer:
    callers: Callers = request.app.state.callers
    cluster = request.path_params.get("cluster")
    if cluster is not None and viewer.bearer is not callers.tokens.anonymous:
        watch_for_refusal(request, cluster, viewer.bearer.name)
    if viewer.may_act:
        return viewer
    if viewer.bearer is callers.tokens.anonymous:
        raise NotLoggedIn
    raise ProblemError(
        "not-allowed",
        f"{viewer.bearer.name} has the role {viewer.bearer.role}; this page is for operators and admins",
        hint="log out, then log in with an operator's or an admin's token",
    )


Operator = Annotated[Viewer, Depends(_require_operator)]


async def _require_administrator(viewer: Operator) -> Viewer:
    if viewer.may_administer:
        return viewer
    raise ProblemError(
        "not-allowed",
        f"{viewer.bearer.name} has the role {viewer.bearer.role}; this is for admins",
        hint="log out, then log in with an admin's token",
    )


Administrator = Annotated[Viewer, Depends(_require_administrator)]


async def _find_cluster(request: Request, _: Reader, cluster: str) -> PlanLoop:
    return get_daemon(request)[cluster]


Cluster = Annotated[PlanLoop, Depends(_find_cluster)]


async def _viewer_visibility(request: Request, cluster: Cluster, viewer: Reader) -> JobVisibility:
    callers: Callers = request.app.state.callers
    return visibility_for(viewer.bearer, callers.auth, cluster.published)


Visibility = Annotated[JobVisibility, Depends(_viewer_visibility)]
"""Visibility of the cluster's jobs for the viewer."""


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form. Raises ProblemError where it is too long, or was not sent from a page of ours."""
    check_same_site(request)
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_FORM_BYTES:
            raise ProblemError("too-large", f"a form has at most {_MAX_FORM_BYTES} bytes")
    fields = dict(urllib.parse.parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    found = find_session(request)
    if found is not None and not found[0].meant(fields.get("csrf", "")):
        raise ProblemError(
            "not-allowed", "this form is of an earlier login", hint="load the page again, then repeat it"
        )
    return fields


Form = Annotated[dict[str, str], Depends(read_form)]
