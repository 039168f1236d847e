"""Who asks, what that one may do, and which cluster it is about."""

from typing import Annotated, Final, NoReturn

from fastapi import Depends, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from schedd.api.problems import Fault, ProblemError
from schedd.service.clusters import Clusters
from schedd.service.loop import PlanLoop
from schedd.service.settings import TokenRole
from schedd.service.tokens import Bearer, Tokens

__all__ = ["Adapter", "Admin", "Cluster", "Daemon", "Reader", "daemon_of", "known_parameters"]

_RANK: Final[dict[TokenRole, int]] = {"reader": 0, "adapter": 1, "admin": 2}

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="A token of the daemon's configuration, with the role `reader`, `adapter` or `admin`.",
)
_Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def daemon_of(request: Request) -> Clusters:
    """All clusters, when the daemon can answer for them. Raises ProblemError."""
    clusters: Clusters = request.app.state.clusters
    if not clusters.ready:
        what = "it is shutting down" if clusters.stopping else "it is getting ready: kernels are compiled"
        raise ProblemError(
            "not-ready", what, hint="GET /readyz tells when it is ready", headers={"Retry-After": "2"}
        )
    return clusters


def _asker(request: Request, credentials: HTTPAuthorizationCredentials | None, least: TokenRole) -> Bearer:
    tokens: Tokens = request.app.state.tokens
    if credentials is None:
        if "authorization" in request.headers:
            _unknown("the Authorization header is not of the form: Bearer TOKEN")
        asker = tokens.anonymous
        if asker is None:
            _unknown("no token was sent")
    else:
        asker = tokens.bearer(credentials.credentials)
        if asker is None:
            _unknown("this token is not known here")
    if _RANK[asker.role] < _RANK[least]:
        if credentials is None:
            _unknown(f"this needs a token of role {least}, and none was sent")
        raise ProblemError(
            "not-allowed", f"{asker.name} has the role {asker.role}; this needs the role {least}"
        )
    return asker


def _unknown(detail: str) -> NoReturn:
    raise ProblemError(
        "no-token",
        detail,
        hint="send the header Authorization: Bearer TOKEN",
        headers={"WWW-Authenticate": 'Bearer realm="schedd"'},
    )


def _reader(request: Request, credentials: _Credentials) -> Bearer:
    return _asker(request, credentials, "reader")


def _adapter(request: Request, credentials: _Credentials) -> Bearer:
    return _asker(request, credentials, "adapter")


def _admin(request: Request, credentials: _Credentials) -> Bearer:
    return _asker(request, credentials, "admin")


Reader = Annotated[Bearer, Depends(_reader)]
Adapter = Annotated[Bearer, Depends(_adapter)]
Admin = Annotated[Bearer, Depends(_admin)]
Daemon = Annotated[Clusters, Depends(daemon_of)]


def known_parameters(request: Request) -> None:
    """Refuse query parameters that the path does not have: a mistyped filter would show too much.

    Raises ProblemError.
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


def _cluster(
    daemon: Daemon,
    cluster: Annotated[str, Path(description="The cluster's name in the configuration.", examples=["main"])],
) -> PlanLoop:
    return daemon[cluster]


Cluster = Annotated[PlanLoop, Depends(_cluster)]
