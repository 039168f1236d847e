"""Text that comes in is Unicode: half a surrogate pair is refused, since no database or page takes it."""

import json
import re
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute

_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATE_BYTES: Final = re.compile(rb"\xed[\xa0-\xbf]")


class UnicodeRoute(APIRoute):
    """A route that checks the text of a JSON body before the body is validated."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The framework's, which reads the body of a request that we give it."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(self.request_class(request.scope, request.receive))

        return handle

    @property
    def request_class(self) -> type[Request]:
        """What reads the body."""
        return UnicodeRequest


class UnicodeRequest(Request):
    """Its ``json`` raises JSONDecodeError for text that is not Unicode, too."""

    async def json(self) -> Any:
        """The body's value."""
        body = await self.body()
        value = json.loads(body)
        check_unicode(body, value)
        return value


def check_unicode(body: bytes, value: Any) -> None:
    """Raises JSONDecodeError where ``value``, read from ``body``, has half a surrogate pair anywhere."""
    if (
        _SURROGATE_ESCAPE.search(body) is None
        and _SURROGATE_BYTES.search(body) is None
        and body[1:2] not in (b"\0", b"\xfe")
    ):
        return  # nothing can make one; UTF-16 has a NUL or a byte order mark in front
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        place = _locate(body, error.object[error.start])
        raise json.JSONDecodeError("half of a surrogate pair, which is no character", "", place) from None


def _locate(body: bytes, half: str) -> int:
    """About where it stands: the first of its kind."""
    text = body.decode(json.detect_encoding(body), "surrogatepass")
    found = re.search(rf"\\u{ord(half):04x}|{half}", text, re.IGNORECASE)
    return found.start() if found else 0
