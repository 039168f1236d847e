"""The read that comes most often, one job, without the framework's way to it: that costs nearly three times
as much.

What is said is the same; whatever is not the plain case (a query, a body, another method) goes the
framework's way.
"""

import re
from dataclasses import dataclass
from typing import Final

from fastapi import Request, Response
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from schedd.api.access import asker_of, daemon_of, here, seen_by, user_of
from schedd.api.jobs import the_job
from schedd.api.problems import ProblemError, no_such_cluster, problem_response
from schedd.service.cluster.errors import UnknownCluster

__all__ = ["OneJob"]

_PATH: Final = re.compile(r"/v1/clusters/([^/]+)/jobs/([^/]+)")
_BODY: Final = (b"content-length", b"transfer-encoding")


@dataclass(frozen=True, slots=True)
class _Route:
    """What `Queries` counts it as."""

    path: str = "/v1/clusters/{cluster}/jobs/{job}"


class OneJob:
    """ASGI middleware: answers what is asked of one job, and passes on all the rest.

    Answers of ``compress_from`` bytes and more are compressed as all others are.
    """

    def __init__(self, app: ASGIApp, compress_from: int, level: int) -> None:
        self._app = app
        self._compress_from = compress_from
        self._level = level
        self._route = _Route()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""
        found = _plain(scope)
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = self._route
        answer = await _answer(Request(scope), *found.groups())
        if len(answer.body) < self._compress_from:
            await answer(scope, receive, send)
        else:
            await GZipMiddleware(answer, self._compress_from, self._level)(scope, receive, send)


def _plain(scope: Scope) -> re.Match[str] | None:
    if scope["type"] != "http" or scope["method"] != "GET" or scope["query_string"]:
        return None
    if any(name in _BODY for name, _ in scope["headers"]):
        return None
    return _PATH.fullmatch(scope["path"].removeprefix(scope.get("root_path", "")))


async def _answer(request: Request, cluster: str, job: str) -> Response:
    try:
        asker = here(request, await asker_of(request), cluster)
        loop = daemon_of(request)[cluster]
        return the_job(request, loop, seen_by(request, await user_of(request, asker), loop), job)
    except ProblemError as error:
        return problem_response(request.url.path, error)
    except UnknownCluster as error:
        return problem_response(request.url.path, no_such_cluster(error))
