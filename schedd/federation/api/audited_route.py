"""Routes of a federation: each action is in its audit and its log, whether accepted or refused."""

import json
from collections.abc import Callable, Coroutine
from typing import Any, Final
from urllib.parse import unquote

import structlog
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool

from schedd.api.audit import describe_refusal
from schedd.api.iso_times import IsoTimesRoute
from schedd.api.problems import ProblemError
from schedd.error_text import describe_error
from schedd.federation.state.federation_state import FederationState
from schedd.store import StoreError

_log = structlog.get_logger(__name__)
_READING_METHODS = frozenset({"GET", "HEAD"})
_QUESTIONS = ("/v1/federation/what-if", "/v1/federation/bag-offers")
_THINGS: Final = {"jobs": "job", "coallocations": "co-allocation", "bags": "bag", "bookings": "booking"}
_MAX_DETAIL_LENGTH: Final = 100
_ACTS: Final = {"POST": "submit", "PUT": "book", "DELETE": "withdraw"}
_COMPONENT_ACTS: Final = {"POST": "add component", "PUT": "replace component", "DELETE": "delete component"}


class FederationRoute(IsoTimesRoute):
    """A route whose actions are audited: caller, action, and the reason of a refusal. Questions are not
    actions.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                answer = await handler(request)
            except ProblemError as error:
                await _note_act(request, refused=f"{error.kind}: {error.detail}")
                raise
            except RequestValidationError:
                await _note_act(request, refused="invalid: the request is not understood")
                raise
            except Exception as error:
                await _note_act(request, refused=describe_error(error))
                raise
            await _note_act(request, answer)
            return answer

        return handle


async def _note_act(request: Request, answer: Response | None = None, refused: str = "") -> None:
    """Record an action with its ``answer``, or with the reason of its refusal."""
    path = request.url.path
    who: str = getattr(request.state, "federation_caller", "")
    if not who or request.method in _READING_METHODS or path in _QUESTIONS:
        return
    shown = json.loads(bytes(answer.body)) if answer is not None and request.method == "POST" else {}
    act, detail = _name_act(request.method, path, shown.get("id", ""))
    if shown.get("over") == "refused":  # every cluster refused a new item while the request waited
        refused = shown.get("text", "")
    if refused:
        detail = describe_refusal(detail, refused)
        _log.warning("an act was refused", who=who, act=act, detail=detail)
    else:
        _log.info("an act was accepted", who=who, act=act, detail=detail)
    federation: FederationState | None = request.app.state.federation
    if federation is not None:
        try:
            await run_in_threadpool(federation.audit, who, act, detail)
        except StoreError as error:
            _log.error("an act is not in the audit", who=who, act=act, detail=detail, why=str(error))


def _name_act(method: str, path: str, new: str) -> tuple[str, str]:
    """Return the act and its object: `withdraw`, `job 7` for `DELETE /v1/federation/jobs/7`; ``new``: the
    number of a new item.
    """
    first, *others = [unquote(part) for part in path.removeprefix("/v1/federation/").split("/") if part]
    thing, name, more = _THINGS.get(first, first), others[0] if others else new, others[1:]
    if more[:1] == ["components"]:
        return _COMPONENT_ACTS.get(method, method), " ".join((thing, name, *more[1:]))[:_MAX_DETAIL_LENGTH]
    act = more[0] if more else _ACTS.get(method, method)
    return act, f"{thing} {name}".strip()[:_MAX_DETAIL_LENGTH]
