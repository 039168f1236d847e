"""Counts and times requests, by route and class of status: never by job, user or address."""

import time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_LONG_POLL_SUFFIXES: Final = ("/decisions", "/stream")
"""Their answers wait for something to happen: how long is no measure."""


class RequestMetrics:
    """ASGI middleware; ``registry`` holds the metrics."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        self._count = Counter(
            "schedd_http_requests",
            "Requests by route and kind of answer",
            ["route", "code"],
            registry=registry,
        )
        self._times = Histogram(
            "schedd_http_request_seconds",
            "From a request's headers to the end of its response; without requests that wait for something",
            ["route"],
            buckets=_BUCKETS_S,
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        code = "none"

        async def send_and_note_code(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = f"{message['status'] // 100}xx"
            await send(message)

        try:
            await self._app(scope, receive, send_and_note_code)
        finally:
            route: str = getattr(scope.get("route"), "path", "other")
            self._count.labels(route, code).inc()
            if not route.endswith(_LONG_POLL_SUFFIXES):
                self._times.labels(route).observe(time.perf_counter() - begun)
