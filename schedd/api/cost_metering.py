"""Measures the processor time of each request, and charges it to its user's budget.

A request runs in steps between others in the event loop: each step is measured by itself. Work in other
threads is added by these threads (`schedd.service.access.request_costs`).
"""

import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from schedd.service.access.request_costs import RequestCost, collect_cost

COST_KEY: Final = "schedd.cost"  # under this name a request's scope has its cost


class CostMetering:
    """ASGI middleware; calls ``spend`` with the cost of each request that belongs to a user."""

    def __init__(self, app: ASGIApp, spend: Callable[[RequestCost], None]) -> None:
        self._app = app
        self._spend = spend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        cost = scope[COST_KEY] = RequestCost()
        with collect_cost(cost):
            try:
                await _MeteredAwaitable(self._app(scope, receive, send), cost)
            finally:
                if cost.key:
                    self._spend(cost)


class _MeteredAwaitable:
    """Awaits something, and measures each step of it."""

    def __init__(self, work: Awaitable[None], cost: RequestCost) -> None:
        self._work = work
        self._cost = cost

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._work.__await__()
        send: Callable[[], Any] = lambda: next(steps)  # noqa: E731
        while True:
            begun = time.thread_time()
            try:
                waits = send()
            except StopIteration:
                return
            finally:
                self._cost.seconds += time.thread_time() - begun
            try:
                came = yield waits
            except BaseException as error:
                raised = error
                send = lambda raised=raised: steps.throw(raised)  # type: ignore[misc]  # noqa: E731
            else:
                send = lambda came=came: steps.send(came)  # type: ignore[misc]  # noqa: E731
