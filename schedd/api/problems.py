"""Errors as problem documents (RFC 9457): the error, its location, what is allowed, and the remedy."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from http import HTTPStatus
from typing import Annotated, Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from schedd.plan.work_limits import WorkSpent
from schedd.service.cluster.errors import Overloaded, PlannerStopped, UnknownCluster
from schedd.service.read.cursors import CursorError
from schedd.store import StoreError
from schedd.wire.section import main_problems, problem_place, problem_text

_log = structlog.get_logger(__name__)
READ_PROBLEMS: Final = ("no-token", "unknown-cluster", "not-ready")
"""Problems of every request that reads a cluster."""
ACT_PROBLEMS: Final = ("no-token", "not-allowed", "unknown-cluster", "not-ready", "invalid")
"""Problems of every request that changes something in a cluster."""
BODY_PROBLEMS: Final = ("bad-request", "too-large")  # further problems of a request with a body
ReadError = StoreError | WorkSpent | CursorError
"""Errors of reads and questions that are no defects: see ``convert_read_error``."""
_MEDIA_TYPE: Final = "application/problem+json"
_MAX_FAULTS: Final = 20

PROBLEM_KINDS: Final[Mapping[str, tuple[int, str]]] = {
    "bad-request": (400, "The request is not understood"),
    "no-token": (401, "No valid token"),
    "not-allowed": (403, "Access denied"),
    "unknown-path": (404, "Nothing is served here"),
    "unknown-cluster": (404, "No such cluster"),
    "unknown-job": (404, "No such job"),
    "unknown-transfer": (404, "No such transfer"),
    "unknown-reservation": (404, "No such reservation"),
    "unknown-booking": (404, "No such booking"),
    "unknown-plan": (404, "No such alternative plan"),
    "wrong-method": (405, "This path is served with another method"),
    "another-adapter": (409, "Another adapter serves this cluster"),
    "not-now": (409, "Not in this state"),
    "no-room": (409, "There is no room for it"),
    "moved-on": (409, "The plan has moved on"),
    "breaks-promises": (409, "It would put promises at risk"),
    "too-large": (413, "The body is too large"),
    "invalid": (422, "Something in the request is not allowed"),
    "too-hard": (422, "The answer takes more work, or longer, than a question may"),
    "too-much": (429, "Too many events wait"),
    "too-often": (429, "Too many requests"),
    "defect": (500, "A defect of the daemon"),
    "not-installed": (501, "A part is not installed"),
    "not-ready": (503, "The daemon cannot answer now"),
}
"""Status and title by the last part of a problem's ``type``."""


class Fault(BaseModel):
    """One thing in a request that is not allowed."""

    where: Annotated[
        str, Field(description="Its place in the request.", examples=["body.events[0].job.submitted"])
    ]
    what: Annotated[str, Field(description="The error.", examples=["a whole number is expected"])]
    allowed: Annotated[str | None, Field(description="The allowed values, if they are more than a type.")] = (
        None
    )


class Problem(BaseModel):
    """An error (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:schedd:problem:unknown-job",
                    "title": "No such job",
                    "status": 404,
                    "detail": "cluster main has no job 124",
                    "instance": "/v1/clusters/main/jobs/124",
                    "hint": "did you mean 124.server?",
                }
            ]
        }
    )

    type: Annotated[str, Field(description="`urn:schedd:problem:` and the kind of error; stable.")]
    title: Annotated[str, Field(description="The kind of error in words.")]
    status: Annotated[int, Field(description="The HTTP status.")]
    detail: Annotated[str, Field(description="The error in this request.")]
    instance: Annotated[str, Field(description="The path of the request.")]
    hint: Annotated[str | None, Field(description="What to do about it.")] = None
    errors: Annotated[list[Fault] | None, Field(description="With 422: each thing that is wrong.")] = None
    options: Annotated[
        list[dict[str, Any]] | None, Field(description="With `no-room`: what could be had instead.")
    ] = None


class ProblemError(Exception):
    """Raised by a handler to answer with a problem document."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        hint: str | None = None,
        errors: Sequence[Fault] | None = None,
        headers: Mapping[str, str] | None = None,
        options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.hint = hint
        self.errors = errors
        self.headers = headers
        self.options = options
        self.audited = False  # whether the audit has an entry for the refused action
        self.pending: Future[Any] | None = None  # outcome of an action that the planner still has to do


def invalid_problem(where: str, what: str, allowed: str | None = None) -> ProblemError:
    """Return the problem of one place in a request."""
    return ProblemError("invalid", what, errors=[Fault(where=where, what=what, allowed=allowed)])


def problem_response(path: str, error: ProblemError) -> Response:
    status, title = PROBLEM_KINDS[error.kind]
    problem = Problem(
        type=f"urn:schedd:problem:{error.kind}",
        title=title,
        status=status,
        detail=error.detail,
        instance=path,
        hint=error.hint,
        errors=list(error.errors) if error.errors is not None else None,
        options=[dict(one) for one in error.options] if error.options is not None else None,
    )
    body = problem.model_dump_json(exclude_none=True)
    headers = {"Cache-Control": "no-store", **(error.headers or {})}
    return Response(body, status, headers, media_type=_MEDIA_TYPE)


def unknown_cluster_problem(error: UnknownCluster) -> ProblemError:
    """The response for a caller that asked for it."""
    return ProblemError("unknown-cluster", str(error), hint="GET /v1/clusters lists them")


def convert_read_error(error: ReadError) -> ProblemError:
    """Return the problem that an error of a read or a question is."""
    match error:
        case StoreError():
            hint = (
                "nothing was kept that was not confirmed: send it again, with the same `key` where it has one"
            )
            what = f"database unavailable: {error}"
            return ProblemError("not-ready", what, hint=hint, headers=_RETRY_HEADERS)
        case WorkSpent():
            hint = "ask for fewer kinds of chunks, or for fewer windows and changes at once"
            return ProblemError("too-hard", str(error), hint=hint)
        case CursorError():
            fault = Fault(where="query.cursor", what=str(error), allowed="`next` of a page of the same list")
            return ProblemError("invalid", str(error), errors=[fault])


def problem_responses(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """Return a route's ``responses`` for problems of these kinds; with `no-token` also `too-often`."""
    found: dict[int | str, dict[str, Any]] = {}
    for kind in (*kinds, "too-often") if "no-token" in kinds else kinds:
        if kind == "not-modified":
            found[304] = {"description": "Nothing changed since the `ETag` in `If-None-Match`"}
            continue
        status, title = PROBLEM_KINDS[kind]
        known = found.get(status)
        words = f"{known['description']}, or: {title}" if known else title
        found[status] = {
            "description": words,
            "content": {_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    return found


RefusalNote = Callable[[str], Awaitable[None]]  # writes a refused action and its reason to the audit


def expect_refusals(request: Request, note: RefusalNote) -> None:
    """Call ``note`` if the action of this request is refused."""
    request.state.refusal_note = note


async def note_refusal(request: Request, error: ProblemError) -> None:
    """Write the refused action to the audit, unless that was done where it was refused."""
    note: RefusalNote | None = getattr(request.state, "refusal_note", None)
    if note is not None and not error.audited:
        error.audited = True
        await note(error.detail)


def install_handlers(app: FastAPI) -> None:
    """Let every error of ``app`` be a problem document."""

    @app.exception_handler(ProblemError)
    async def _(request: Request, error: ProblemError) -> Response:
        await note_refusal(request, error)
        return problem_response(request.url.path, error)

    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: RequestValidationError) -> Response:
        problem = _convert_validation_errors(error.errors())
        await note_refusal(request, problem)
        return problem_response(request.url.path, problem)

    @app.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> Response:
        return problem_response(request.url.path, _convert_http_error(request, error))

    @app.exception_handler(UnknownCluster)
    async def _(request: Request, error: UnknownCluster) -> Response:
        return problem_response(request.url.path, unknown_cluster_problem(error))

    @app.exception_handler(PlannerStopped)
    async def _(request: Request, error: PlannerStopped) -> Response:
        return problem_response(
            request.url.path, ProblemError("not-ready", str(error), headers=_RETRY_HEADERS)
        )

    @app.exception_handler(Overloaded)
    async def _(request: Request, error: Overloaded) -> Response:
        return problem_response(
            request.url.path, ProblemError("too-much", str(error), headers=_RETRY_HEADERS)
        )

    @app.exception_handler(StoreError)
    @app.exception_handler(WorkSpent)
    @app.exception_handler(CursorError)
    async def _(request: Request, error: ReadError) -> Response:
        return problem_response(request.url.path, convert_read_error(error))

    @app.exception_handler(Exception)
    async def _(request: Request, error: Exception) -> Response:
        _log.error("a request failed", path=request.url.path, error=repr(error), exc_info=error)
        detail = "an internal error; the daemon's log has the details"
        return problem_response(request.url.path, ProblemError("defect", detail))


_RETRY_HEADERS: Final = {"Retry-After": "2"}


def _convert_http_error(request: Request, error: HTTPException) -> ProblemError:
    if error.status_code == HTTPStatus.NOT_FOUND:
        hint = "GET /openapi.json describes the API, /docs shows it to people"
        return ProblemError("unknown-path", f"no path {request.url.path}", hint=hint)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "")
        return ProblemError(
            "wrong-method",
            f"{request.method} is not served here" + (f"; {allowed} is" if allowed else ""),
            headers=error.headers,
        )
    if error.status_code == HTTPStatus.BAD_REQUEST:
        return ProblemError("bad-request", str(error.detail))
    _log.error("an unforeseen error", path=request.url.path, status=error.status_code, detail=error.detail)
    return ProblemError("defect", str(error.detail))


def _convert_validation_errors(errors: Sequence[Mapping[str, Any]]) -> ProblemError:
    if errors[0]["type"] == "json_invalid":
        why = (errors[0].get("ctx") or {}).get("error", "")
        return ProblemError("bad-request", f"the body is not JSON: {why} at character {errors[0]['loc'][-1]}")
    errors = main_problems(errors)
    faults = [_convert_fault(error) for error in errors[:_MAX_FAULTS]]
    more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
    first = faults[0]
    return ProblemError("invalid", f"{first.where}: {first.what}{more}", errors=faults)


def _convert_fault(error: Mapping[str, Any]) -> Fault:
    context = error.get("ctx") or {}
    parts = [part for part in problem_place(error) if part not in context.get("tags", ())]
    where = ""
    for part in parts:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    limits = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    bounds = [f"{words} {context[key]}" for key, words in limits.items() if key in context]
    expected = context.get("expected") or context.get("expected_tags") or context.get("pattern")
    allowed = str(expected) if expected is not None else " and ".join(bounds) or None
    return Fault(where=where, what=problem_text(error), allowed=allowed)
