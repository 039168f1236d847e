"""Routes of a federation: each act has a line in the log, whether it was accepted or refused."""

from collections.abc import Callable, Coroutine
from typing import Any

import structlog
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError

from schedd.api.iso_times import IsoTimesRoute
from schedd.api.problems import ProblemError

_log = structlog.get_logger(__name__)
_READING_METHODS = frozenset({"GET", "HEAD"})
_QUESTIONS = ("/v1/federation/what-if", "/v1/federation/bag-offers")
_MAX_REASON_LENGTH = 400  # characters of a reason that are kept


class FederationRoute(IsoTimesRoute):
    """A route whose acts are audited: who, what, and why it was refused. Questions are no acts."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                answer = await handler(request)
            except ProblemError as error:
                _note_act(request, f"{error.kind}: {error.detail}")
                raise
            except RequestValidationError:
                _note_act(request, "invalid: the request is not understood")
                raise
            except Exception as error:
                _note_act(request, repr(error))
                raise
            _note_act(request, "")
            return answer

        return handle


def _note_act(request: Request, refused: str) -> None:
    path = request.url.path
    who: str = getattr(request.state, "federation_caller", "")
    if not who or request.method in _READING_METHODS or path in _QUESTIONS:
        return
    act = f"{request.method} {path}"
    if refused:
        _log.warning("an act was refused", who=who, act=act, why=refused[:_MAX_REASON_LENGTH])
    else:
        _log.info("an act was accepted", who=who, act=act)
