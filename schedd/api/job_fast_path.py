"""The most frequent read, one job, without the framework's routing, which costs nearly three times as much.

The response is the same; any other case (a query, a body, another method) takes the framework's route.
"""

import re
from dataclasses import dataclass
from typing import Final

from fastapi import Request, Response
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from schedd.api.access import authenticate, get_daemon, job_visibility, require_user, resolve_scope
from schedd.api.jobs import job_reply
from schedd.api.problems import ProblemError, problem_response, unknown_cluster_problem
from schedd.service.cluster.errors import UnknownCluster

_JOB_PATH: Final = re.compile(r"/v1/clusters/([^/]+)/jobs/([^/]+)")
_BODY_HEADERS: Final = (b"content-length", b"transfer-encoding")


@dataclass(frozen=True, slots=True)
class _JobRoute:
    """What `Queries` counts it as."""

    path: str = "/v1/clusters/{cluster}/jobs/{job}"


class JobFastPath:
    """ASGI middleware: answers requests for one job, and passes on all others. Responses of ``compress_from``
    bytes and more are compressed like all others.
    """

    def __init__(self, app: ASGIApp, compress_from: int, level: int) -> None:
        self._app = app
        self._compress_from = compress_from
        self._level = level
        self._route = _JobRoute()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""
        found = _match_plain_get(scope)
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = self._route
        answer = await _answer_job(Request(scope), *found.groups())
        if len(answer.body) < self._compress_from:
            await answer(scope, receive, send)
        else:
            await GZipMiddleware(answer, self._compress_from, self._level)(scope, receive, send)


def _match_plain_get(scope: Scope) -> re.Match[str] | None:
    if scope["type"] != "http" or scope["method"] != "GET" or scope["query_string"]:
        return None
    if any(name in _BODY_HEADERS for name, _ in scope["headers"]):
        return None
    return _JOB_PATH.fullmatch(scope["path"].removeprefix(scope.get("root_path", "")))


async def _answer_job(request: Request, cluster: str, job: str) -> Response:
    try:
        caller = resolve_scope(request, await authenticate(request), cluster)
        loop = get_daemon(request)[cluster]
        return job_reply(
            request, loop, job_visibility(request, await require_user(request, caller), loop), job
        )
    except ProblemError as error:
        return problem_response(request.url.path, error)
    except UnknownCluster as error:
        return problem_response(request.url.path, unknown_cluster_problem(error))
