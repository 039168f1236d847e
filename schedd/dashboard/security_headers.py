"""Security headers of every page: only our own files are loaded and run."""

import secrets
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FRAME_ORIGINS_KEY: Final = "frame_origins"
"""Under this name the state of a request has the origins whose pages may frame the response."""
_NO_FRAMES: Final = "'none'"

_CONSTANT_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=()",
}


def content_security_policy(nonce: str, frame_origins: Sequence[str] = ()) -> str:
    """The content security policy of a page; styles that the charts make carry ``nonce``. Pages of
    ``frame_origins`` may show it in a frame; none: no page may.
    """
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            f"style-src 'self' 'nonce-{nonce}'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            f"frame-ancestors {' '.join(frame_origins) or _NO_FRAMES}",
        )
    )


class SecurityHeadersMiddleware:
    """Sets the headers, and ``request.state.nonce`` for the page; makes the path whole behind a proxy."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        root = scope.get("app_root_path", "")
        if root and not scope["path"].startswith(f"{root}/"):
            # A proxy that takes its prefix off the path leaves routes and mounts at odds about it.
            scope["path"] = root + scope["path"]
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _CONSTANT_HEADERS.items():
                    headers[name] = value
                origins = scope["state"].get(FRAME_ORIGINS_KEY, ())
                headers["Content-Security-Policy"] = content_security_policy(nonce, origins)
                if origins:
                    del headers["X-Frame-Options"]  # it cannot name origins
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, guarded)
