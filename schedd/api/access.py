"""The caller of a request: identity, rights, visible jobs, and the cluster in question."""

import math
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final, NoReturn
from urllib.parse import urlsplit

from fastapi import Depends, Path, Request
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from schedd.api.audit import watch_for_refusal
from schedd.api.cost_metering import COST_KEY
from schedd.api.problems import Fault, ProblemError
from schedd.service.access.callers import Callers, UnknownUser
from schedd.service.access.identity import IdentityError, IdentityProvider
from schedd.service.access.munge import MungeError
from schedd.service.access.roles import RIGHTS, Bearer, Right
from schedd.service.cluster.errors import UnknownCluster
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.job_visibility import JobVisibility, visibility_for

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="A token of the daemon. On its UNIX socket the peer's user is known without.",
)
TOKEN_EXPIRED: Final = "this token has expired"
TOKEN_UNKNOWN: Final = "this token is not known here"
PEER_UID_KEY: Final = "peer_uid"
"""Under this name the connection keeps the uid at the other end of the UNIX socket."""
TRUST_KEY: Final = "trust"
"""Scope key of the connection's function that is called when an administrator or a program uses it.
"""


def get_daemon(request: Request) -> Clusters:
    """All clusters, when the daemon can answer for them. Raises ProblemError."""
    clusters: Clusters = request.app.state.clusters
    if not clusters.ready:
        if clusters.stopping:
            what = "it is shutting down"
        elif clusters.startup_trouble:
            what = "it is starting and waits for its database; the log says why (journalctl -u schedd)"
        else:
            what = f"it is getting ready: {clusters.startup_progress}"
        raise ProblemError(
            "not-ready", what, hint="GET /readyz shows when it is ready", headers={"Retry-After": "2"}
        )
    return clusters


async def _scoped_caller(request: Request, _: Annotated[object, Depends(_bearer)]) -> Bearer:
    return resolve_scope(request, await authenticate(request))


def resolve_scope(request: Request, caller: Bearer, cluster: str | None = None) -> Bearer:
    """The caller with the role on the cluster of the request's path, or on the one named; unchanged without
    one.

    Raises UnknownCluster: a cluster outside the token's scope does not exist for its holder.
    """
    name: str | None = cluster if cluster is not None else request.path_params.get("cluster")
    if name is None:
        return caller
    found = caller.on_cluster(name)
    if found is None or name not in request.app.state.clusters:
        names = ", ".join(loop.name for loop in visible_clusters(request, caller)) or "none"
        raise UnknownCluster(f"no cluster {name!r}; there is {names}")
    return found


def visible_clusters(request: Request, caller: Bearer, right: Right = "ask") -> list[PlanLoop]:
    clusters: Clusters = request.app.state.clusters
    return [loop for loop in clusters if (one := caller.on_cluster(loop.name)) is not None and one.may(right)]


async def authenticate(request: Request) -> Bearer:
    """Identify the caller. Raises ProblemError for invalid credentials, and after too many attempts."""
    callers: Callers = request.app.state.callers
    address = client_address(request)
    try:
        caller = await _identify_caller(request, callers)
    except ProblemError as error:
        if error.kind == "no-token":
            _check_rate(callers.count_refused(address), f"requests of {address} without a valid token")
        raise
    _check_rate(callers.count_request(caller, address), f"requests of {caller.name}")
    payer = callers.cost_key(caller, address)
    _check_rate(callers.cost_wait_s(payer), f"costly requests of {caller.name}")
    if (cost := request.scope.get(COST_KEY)) is not None:
        cost.key = payer
    trust: Callable[[], None] | None = getattr(request.state, TRUST_KEY, None)
    if trust is not None and caller.role != "user" and caller is not callers.tokens.anonymous:
        trust()
    return caller


async def _identify_caller(request: Request, callers: Callers) -> Bearer:
    scheme, _, credential = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and credential:
        token = credential.strip()
        if callers.oidc is not None and token.count(".") == 2 and callers.tokens.bearer(token) is None:
            return await _authenticate_id_token(callers.oidc, token)
        return _authenticate_token(request, callers, token)
    if scheme.lower() == "munge" and credential and callers.auth.munge:
        return await _authenticate_munge(callers, credential.strip())
    if "authorization" in request.headers:
        _reject_credentials("the Authorization header is not of the form: Bearer TOKEN")
    uid: int | None = getattr(request.state, PEER_UID_KEY, None)
    if uid is not None:
        try:
            return await run_in_threadpool(callers.authenticate_local, uid)
        except UnknownUser as error:
            _reject_credentials(str(error))
    if callers.tokens.anonymous is None:
        _reject_credentials("no token was sent")
    return callers.tokens.anonymous


async def _authenticate_id_token(provider: IdentityProvider, token: str) -> Bearer:
    """By an ID token of the site's identity provider."""
    try:
        identity = await provider.identity(token)
    except IdentityError as error:
        if error.ours:
            raise ProblemError(
                "not-ready", f"the identity provider cannot be asked: {error}", headers={"Retry-After": "10"}
            ) from None
        _reject_credentials(str(error))
    found = provider.bearer(identity)
    if found is None:
        _reject_credentials(f"{identity.name} is known, but has no grant here")
    return found


def _authenticate_token(request: Request, callers: Callers, token: str) -> Bearer:
    caller = callers.tokens.bearer(token)
    if caller is None:
        if not callers.tokens.complete:
            raise ProblemError(
                "not-ready", "the daemon's tokens are not read yet", headers={"Retry-After": "2"}
            )
        expired = callers.tokens.has_expired(token)
        _reject_credentials(TOKEN_EXPIRED if expired else TOKEN_UNKNOWN)
    if caller.role != "proxy":
        return caller
    header = callers.auth.proxy_header
    check_same_site(request)
    users = request.headers.getlist(header)
    if len(users) != 1:
        _reject_credentials(f"a proxy must name the user for whom it asks in one header {header}")
    try:
        return callers.authenticate_user(users[0]).restricted_to(caller.clusters)
    except UnknownUser as error:
        _reject_credentials(f"{header}: {error}")


def check_same_site(request: Request) -> None:
    """Refuse requests that change something and come from another site's page (behind a proxy, a browser
    sends its credentials with requests of any page). Raises ProblemError.
    """
    if request.method in ("GET", "HEAD"):
        return
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    if site != "same-origin" or (
        origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    ):
        raise ProblemError(
            "not-allowed",
            "this was sent by a page of another site",
            hint="the proxy must pass the Host header on",
        )


async def _authenticate_munge(callers: Callers, credential: str) -> Bearer:
    try:
        return await run_in_threadpool(callers.authenticate_munge, credential)
    except UnknownUser as error:
        _reject_credentials(str(error))
    except MungeError as error:
        if error.ours:
            raise ProblemError(
                "not-ready", f"MUNGE: {error}", hint="use a token", headers={"Retry-After": "10"}
            ) from None
        _reject_credentials(f"MUNGE: {error}")


def credential_check(request: Request, caller: Bearer) -> Callable[[], bool]:
    """Return a check whether the credentials of a request still give ``caller``, its role on the path's
    cluster: a token may expire or be revoked, and a role or scope change, while a stream is open.
    """
    callers: Callers = request.app.state.callers
    cluster: str = request.path_params.get("cluster", "")

    def counts() -> bool:
        try:
            found = _present_caller(request, callers, caller)
        except UnknownUser:
            return False
        return found is not None and found.on_cluster(cluster) == caller

    return counts


def _present_caller(request: Request, callers: Callers, caller: Bearer) -> Bearer | None:
    """Return the caller by the present settings, without a new question to a provider or to munged; None:
    its credentials are no longer valid. Raises UnknownUser.
    """
    scheme, _, credential = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        found = callers.tokens.bearer(credential.strip())
        if found is not None and found.role == "proxy":
            users = request.headers.getlist(callers.auth.proxy_header)
            return callers.authenticate_user("".join(users)).restricted_to(found.clusters)
        if found is None and callers.oidc is not None:
            identity = callers.oidc.cached_identity(credential.strip())
            found = callers.oidc.bearer(identity) if identity is not None else None
        return found
    if scheme.lower() == "munge":
        return callers.authenticate_user(caller.name) if callers.auth.munge else None
    uid: int | None = getattr(request.state, PEER_UID_KEY, None)
    return callers.tokens.anonymous if uid is None else callers.authenticate_local(uid, caller.name)


def client_address(request: Request) -> str:
    """Where a request comes from."""
    return request.client.host if request.client is not None else "the UNIX socket"


def _reject_credentials(detail: str) -> NoReturn:
    raise ProblemError(
        "no-token",
        detail,
        hint="send the header Authorization: Bearer TOKEN",
        headers={"WWW-Authenticate": 'Bearer realm="schedd"'},
    )


def _check_rate(wait: float, what: str) -> None:
    if wait:
        seconds = str(math.ceil(wait))
        raise ProblemError(
            "too-often", f"too many {what}", hint="ask less often", headers={"Retry-After": seconds}
        )


_AUDITED_RIGHTS: Final = frozenset({"steer", "administer", "transfer jobs"})
"""Rights; the audit has refused actions that need them."""


def _require_right(right: Right) -> Callable[[Request, Bearer], Coroutine[Any, Any, Bearer]]:
    roles = [role for role, rights in RIGHTS.items() if right in rights]
    words = f"the role {roles[0]}" if len(roles) == 1 else f"one of the roles {', '.join(roles)}"

    async def allowed(request: Request, caller: Annotated[Bearer, Depends(_scoped_caller)]) -> Bearer:
        cluster = request.path_params.get("cluster")
        if right in _AUDITED_RIGHTS and cluster and caller is not request.app.state.callers.tokens.anonymous:
            watch_for_refusal(request, cluster, caller.name)
        if caller.may(right):
            return caller
        if caller is request.app.state.callers.tokens.anonymous:
            _reject_credentials(f"this needs a token with {words}, and none was sent")
        raise ProblemError("not-allowed", f"{caller.name} has the role {caller.role}; this needs {words}")

    return allowed


require_user = _require_right("ask")
User = Annotated[Bearer, Depends(require_user)]
"""Every caller with valid credentials; ``Visibility`` says which jobs of other users are shown."""
Reader = Annotated[Bearer, Depends(_require_right("see all"))]  # callers that may see every job in full
Operator = Annotated[Bearer, Depends(_require_right("steer"))]
require_adapter = _require_right("exchange")
Adapter = Annotated[Bearer, Depends(require_adapter)]
Admin = Annotated[Bearer, Depends(_require_right("administer"))]
Federation = Annotated[Bearer, Depends(_require_right("transfer jobs"))]
Daemon = Annotated[Clusters, Depends(get_daemon)]


async def check_query_parameters(request: Request) -> None:
    """Refuse unknown query parameters (a mistyped filter would show too much) and repeated ones (only the
    last would count). Raises ProblemError.
    """
    endpoint = request.scope["route"].dependant
    parts = (endpoint, *endpoint.dependencies)  # `iso` is declared by a dependency
    allowed = [field.alias for part in parts for field in part.query_params]
    unknown = [name for name in request.query_params if name not in allowed]
    if unknown:
        words = f"there is {', '.join(allowed)}" if allowed else "there are none here"
        faults = [
            Fault(where=f"query.{name[:80]}", what="no such parameter", allowed=words)
            for name in unknown[:10]
        ]
        raise ProblemError("invalid", f"{faults[0].where}: no such parameter; {words}", errors=faults)
    names = [name for name, _ in request.query_params.multi_items()]
    twice = [name for name in request.query_params if names.count(name) > 1]
    if twice:
        faults = [Fault(where=f"query.{name}", what="given more than once", allowed="once") for name in twice]
        raise ProblemError("invalid", f"{faults[0].where}: given more than once", errors=faults)


async def _find_cluster(
    request: Request,
    _: Annotated[Bearer, Depends(_scoped_caller)],  # no cluster names without credentials
    cluster: Annotated[str, Path(description="The cluster's name in the configuration.", examples=["main"])],
) -> PlanLoop:
    return get_daemon(request)[cluster]


Cluster = Annotated[PlanLoop, Depends(_find_cluster)]


def job_visibility(request: Request, caller: Bearer, cluster: PlanLoop) -> JobVisibility:
    """What ``caller``, a user, may see of the cluster's jobs."""
    callers: Callers = request.app.state.callers
    return visibility_for(caller, callers.auth, cluster.published)


async def _job_visibility(request: Request, cluster: Cluster, caller: User) -> JobVisibility:
    return job_visibility(request, caller, cluster)


Visibility = Annotated[JobVisibility, Depends(_job_visibility)]
"""What the caller may see of the cluster's jobs; requires valid credentials."""
