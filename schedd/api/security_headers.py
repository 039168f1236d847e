"""Headers of every answer: no other site's page shows it in a frame, reads it, or guesses what it is."""

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["SecurityHeaders"]

_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class SecurityHeaders:
    """Sets the headers that the answer does not have yet. Headers that open it (CORS) nobody sets."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""

        async def closed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.setdefault("headers", [])
                there = {name.lower() for name, _ in headers}
                message["headers"] = [*headers, *(one for one in _HEADERS if one[0] not in there)]
            await send(message)

        await self._app(scope, receive, closed if scope["type"] == "http" else send)
