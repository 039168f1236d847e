"""The read that comes most often, one job, without the framework's way to it: that costs three times as much.

What is said is the same; whatever is not the plain case (a query, another method) goes the framework's way.
"""

from fastapi import FastAPI, Request, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from schedd.api.access import asker_of, daemon_of, seen_by, user_of
from schedd.api.jobs import the_job

__all__ = ["install"]


class _Plain(Route):
    """Matches requests of one method without a query."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["query_string"]:
            return Match.NONE, {}
        match, child = super().matches(scope)
        return match, {**child, "route": self}


async def _get_job(request: Request) -> Response:
    asker = await asker_of(request)
    cluster = daemon_of(request)[request.path_params["cluster"]]
    seen = seen_by(request, await user_of(request, asker), cluster)
    return the_job(request, cluster, seen, request.path_params["job"])


def install(app: FastAPI) -> None:
    """Let ``app`` look here first."""
    app.router.routes.insert(
        0, _Plain("/v1/clusters/{cluster}/jobs/{job}", _get_job, include_in_schema=False)
    )
