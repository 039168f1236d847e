"""Headers of every response: no other site's page may show it in a frame, read it, or guess its type."""

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY: Final = b"content-security-policy"
_FRAMES: Final = b"x-frame-options"
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (_FRAMES, b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class SecurityHeaders:
    """Sets the headers that the response does not have yet. Nothing sets headers that open it to other sites
    (CORS). Pages have a policy of their own, whose ``frame-ancestors`` replaces ``X-Frame-Options``.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""

        async def closed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.setdefault("headers", [])
                there = {name.lower() for name, _ in headers}
                if _POLICY in there:  # it says itself who may frame it
                    there.add(_FRAMES)
                message["headers"] = [*headers, *(one for one in _HEADERS if one[0] not in there)]
            await send(message)

        await self._app(scope, receive, closed if scope["type"] == "http" else send)
