"""An adapter that ends, as by SIGKILL, after one of its requests to the server."""

from collections.abc import Callable
from typing import Any

import pytest

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.replies import Reply
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.openpbs.connection import OpenPBSConnection
from server_adapter.torque.connection import TorqueConnection

DELETIONS = (RequestCode.DELETE_JOB, RequestCode.DELETE_JOBS)


class AdapterEndedError(BaseException):
    """No handler of the adapter sees it."""


class EndingAdapter:
    """Ends the adapter after its request number ``last``, once. ``after_hold`` is called after each hold;
    with ``keeps_jobs`` the server refuses deletions, as a hook may.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        last: int,
        after_hold: Callable[[str], None] = lambda _: None,
        *,
        keeps_jobs: bool = False,
    ) -> None:
        self.ended = False
        self._left = last
        self._after_hold = after_hold
        self._keeps_jobs = keeps_jobs
        kinds: tuple[Any, ...] = (OpenPBSConnection, TorqueConnection)
        for kind in kinds:
            patch.setattr(kind, "request", self._request(kind.request))

    def _request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        async def request(connection: Any, request: BatchRequest) -> Reply:
            if self._keeps_jobs and request.code in DELETIONS:
                self._count()
                raise ServerRefusedError(15209, "not while the system is frozen", "delete it")
            reply: Reply = await original(connection, request)
            if request.code is RequestCode.HOLD_JOB:
                self._after_hold(request.name)  # type: ignore[attr-defined]
            self._count()
            return reply

        return request

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.ended = True
            raise AdapterEndedError
