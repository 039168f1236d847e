"""Who asks, what that one may do and see, and which cluster it is about."""

import math
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final, NoReturn
from urllib.parse import urlsplit

from fastapi import Depends, Path, Request
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from schedd.api.metering import COST
from schedd.api.problems import Fault, ProblemError
from schedd.service.access.askers import Askers, UnknownUser
from schedd.service.access.identity import IdentityError, Provider
from schedd.service.access.munge import MungeError
from schedd.service.access.roles import RIGHTS, Bearer, Right
from schedd.service.cluster.errors import UnknownCluster
from schedd.service.cluster.loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.read.sight import Sight, sight

__all__ = [
    "PEER",
    "TRUST",
    "Adapter",
    "Admin",
    "Cluster",
    "Daemon",
    "Federation",
    "Operator",
    "Reader",
    "Seen",
    "User",
    "address_of",
    "asker_of",
    "daemon_of",
    "here",
    "known_parameters",
    "open_to",
    "same_site",
    "seen_by",
    "still_counts",
    "user_of",
]

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="A token of the daemon. On its UNIX socket the peer's user is known without.",
)
PEER: Final = "peer_uid"
"""Under this name the connection keeps the uid at the other end of the UNIX socket."""
TRUST: Final = "trust"
"""Under this name a connection keeps what is to be called when the site's own people or programs use it."""


def daemon_of(request: Request) -> Clusters:
    """All clusters, when the daemon can answer for them. Raises ProblemError."""
    clusters: Clusters = request.app.state.clusters
    if not clusters.ready:
        what = f"it is getting ready: {clusters.getting_ready}"
        if clusters.stopping:
            what = "it is shutting down"
        elif clusters.waits_for:
            what = "it is starting and waits for its database; the log says why"
        raise ProblemError(
            "not-ready", what, hint="GET /readyz tells when it is ready", headers={"Retry-After": "2"}
        )
    return clusters


async def _asker(request: Request, _: Annotated[object, Depends(_bearer)]) -> Bearer:
    return here(request, await asker_of(request))


def here(request: Request, asker: Bearer, cluster: str | None = None) -> Bearer:
    """The asker with the role on the cluster of the request's path, or on the one named; the same where there
    is none. Raises UnknownCluster: one that a scope leaves out does not exist for who has it.
    """
    name: str | None = cluster if cluster is not None else request.path_params.get("cluster")
    if name is None:
        return asker
    found = asker.at(name)
    if found is None or name not in request.app.state.clusters:
        names = ", ".join(loop.name for loop in open_to(request, asker)) or "none"
        raise UnknownCluster(f"no cluster {name!r}; there is {names}")
    return found


def open_to(request: Request, asker: Bearer, right: Right = "ask") -> list[PlanLoop]:
    """The clusters on which the asker has this right."""
    clusters: Clusters = request.app.state.clusters
    return [loop for loop in clusters if (one := asker.at(loop.name)) is not None and one.may(right)]


async def asker_of(request: Request) -> Bearer:
    """Who asks. Raises ProblemError for what does not count, and when it is asked too often."""
    askers: Askers = request.app.state.askers
    address = address_of(request)
    try:
        asker = await _shown(request, askers)
    except ProblemError as error:
        if error.kind == "no-token":
            _not_too_often(askers.wait_refused(address), f"requests of {address} without a valid token")
        raise
    _not_too_often(askers.wait(asker, address), f"requests of {asker.name}")
    payer = askers.payer(asker, address)
    _not_too_often(askers.wait_cost(payer), f"costly requests of {asker.name}")
    if (cost := request.scope.get(COST)) is not None:
        cost.key = payer
    trust: Callable[[], None] | None = getattr(request.state, TRUST, None)
    if trust is not None and asker.role != "user" and asker is not askers.tokens.anonymous:
        trust()
    return asker


async def _shown(request: Request, askers: Askers) -> Bearer:
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and shown:
        token = shown.strip()
        if askers.oidc is not None and token.count(".") == 2 and askers.tokens.bearer(token) is None:
            return await _of_provider(askers.oidc, token)
        return _of_token(request, askers, token)
    if scheme.lower() == "munge" and shown and askers.auth.munge:
        return await _of_munge(askers, shown.strip())
    if "authorization" in request.headers:
        _unknown("the Authorization header is not of the form: Bearer TOKEN")
    uid: int | None = getattr(request.state, PEER, None)
    if uid is not None:
        try:
            return await run_in_threadpool(askers.local, uid)
        except UnknownUser as error:
            _unknown(str(error))
    if askers.tokens.anonymous is None:
        _unknown("no token was sent")
    return askers.tokens.anonymous


async def _of_provider(provider: Provider, token: str) -> Bearer:
    """By an ID token of the site's identity provider."""
    try:
        identity = await provider.identity(token)
    except IdentityError as error:
        if error.ours:
            raise ProblemError(
                "not-ready", f"the identity provider cannot be asked: {error}", headers={"Retry-After": "10"}
            ) from None
        _unknown(str(error))
    found = provider.bearer(identity)
    if found is None:
        _unknown(f"{identity.name} is known, but has no grant here")
    return found


def _of_token(request: Request, askers: Askers, token: str) -> Bearer:
    asker = askers.tokens.bearer(token)
    if asker is None:
        if not askers.tokens.complete:
            raise ProblemError(
                "not-ready", "the daemon's tokens are not read yet", headers={"Retry-After": "2"}
            )
        _unknown("this token is not known here")
    if asker.role != "proxy":
        return asker
    header = askers.auth.proxy_header
    same_site(request)
    users = request.headers.getlist(header)
    if len(users) != 1:
        _unknown(f"a proxy must name the user for whom it asks in one header {header}")
    try:
        return askers.user(users[0]).within(asker.clusters)
    except UnknownUser as error:
        _unknown(f"{header}: {error}")


def same_site(request: Request) -> None:
    """Behind a proxy a browser is known by what it sends to it by itself, whichever page has it do so.

    Raises ProblemError for what would change something and comes from another site's page.
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


async def _of_munge(askers: Askers, credential: str) -> Bearer:
    try:
        return await run_in_threadpool(askers.munge, credential)
    except UnknownUser as error:
        _unknown(str(error))
    except MungeError as error:
        if error.ours:
            raise ProblemError(
                "not-ready", f"MUNGE: {error}", hint="use a token", headers={"Retry-After": "10"}
            ) from None
        _unknown(f"MUNGE: {error}")


def still_counts(request: Request) -> Callable[[], bool]:
    """Whether what the request showed still counts on its path's cluster: a token may be revoked, or its
    scope changed, while its stream is open.
    """
    askers: Askers = request.app.state.askers
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return lambda: True
    cluster: str = request.path_params.get("cluster", "")

    def counts() -> bool:
        found = askers.tokens.bearer(shown.strip())
        if found is None and askers.oidc is not None:
            identity = askers.oidc.known(shown.strip())
            found = askers.oidc.bearer(identity) if identity is not None else None
        return found is not None and found.at(cluster) is not None

    return counts


def address_of(request: Request) -> str:
    """Where a request comes from."""
    return request.client.host if request.client is not None else "the UNIX socket"


def _unknown(detail: str) -> NoReturn:
    raise ProblemError(
        "no-token",
        detail,
        hint="send the header Authorization: Bearer TOKEN",
        headers={"WWW-Authenticate": 'Bearer realm="schedd"'},
    )


def _not_too_often(wait: float, what: str) -> None:
    if wait:
        seconds = str(math.ceil(wait))
        raise ProblemError(
            "too-often", f"too many {what}", hint="ask less often", headers={"Retry-After": seconds}
        )


def _allowed(right: Right) -> Callable[[Request, Bearer], Coroutine[Any, Any, Bearer]]:
    roles = [role for role, rights in RIGHTS.items() if right in rights]
    words = f"the role {roles[0]}" if len(roles) == 1 else f"one of the roles {', '.join(roles)}"

    async def allowed(request: Request, asker: Annotated[Bearer, Depends(_asker)]) -> Bearer:
        if asker.may(right):
            return asker
        if asker is request.app.state.askers.tokens.anonymous:
            _unknown(f"this needs a token with {words}, and none was sent")
        raise ProblemError("not-allowed", f"{asker.name} has the role {asker.role}; this needs {words}")

    return allowed


user_of = _allowed("ask")
User = Annotated[Bearer, Depends(user_of)]
"""Everybody who is known. What of other people's jobs may be shown, ``Seen`` says."""
Reader = Annotated[Bearer, Depends(_allowed("see all"))]
"""Who may see every job in full."""
Operator = Annotated[Bearer, Depends(_allowed("steer"))]
Adapter = Annotated[Bearer, Depends(_allowed("exchange"))]
Admin = Annotated[Bearer, Depends(_allowed("administer"))]
Federation = Annotated[Bearer, Depends(_allowed("transfer jobs"))]
Daemon = Annotated[Clusters, Depends(daemon_of)]


async def known_parameters(request: Request) -> None:
    """Refuse query parameters that the path does not have: a mistyped filter would show too much.

    One that stands there twice is refused, too: only the last would count. Raises ProblemError.
    """
    allowed = [field.alias for field in request.scope["route"].dependant.query_params]
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


async def _cluster(
    request: Request,
    _: Annotated[Bearer, Depends(_asker)],  # strangers are told no names
    cluster: Annotated[str, Path(description="The cluster's name in the configuration.", examples=["main"])],
) -> PlanLoop:
    return daemon_of(request)[cluster]


Cluster = Annotated[PlanLoop, Depends(_cluster)]


def seen_by(request: Request, asker: Bearer, cluster: PlanLoop) -> Sight:
    """What ``asker``, a user, may see of the cluster's jobs."""
    askers: Askers = request.app.state.askers
    return sight(asker, askers.auth, cluster.published)


async def _seen(request: Request, cluster: Cluster, asker: User) -> Sight:
    return seen_by(request, asker, cluster)


Seen = Annotated[Sight, Depends(_seen)]
"""Who asks is known, and this is what that one may see of the cluster's jobs."""
