"""Requests to bytes and back: the header, the body by its layout, the extension (protocol document, 4)."""

from dataclasses import dataclass
from typing import Any

from server_adapter.batch.request_layout import READERS, BatchRequest, encode_body
from server_adapter.dis import Decoder, DisSyntaxError, encode_integer, encode_string
from server_adapter.torque.codes import PROTOCOL_TYPE, RequestCode
from server_adapter.torque.requests import SHAPES


@dataclass(frozen=True, slots=True)
class RequestFrame:
    """A request as received: protocol version (1 up to 3.x, 2 from 4.x), its user, its content."""

    version: int
    user: str
    request: BatchRequest


class UnknownRequestError(DisSyntaxError):
    """A request number that nobody here knows; what follows it cannot be read."""

    def __init__(self, version: int, number: int, offset: int) -> None:
        super().__init__(f"unknown request number {number}", offset)
        self.version = version
        self.number = number


def encode_request(request: BatchRequest, *, user: str, version: int = 2) -> bytes:
    """The bytes of a request, ready to send."""
    parts = [
        encode_integer(PROTOCOL_TYPE),
        encode_integer(version),
        encode_integer(request.code),
        encode_string(user),
    ]
    parts.append(encode_body(request))
    if request.code is not RequestCode.DISCONNECT:
        extension = request.extension
        parts.append(b"+0" if extension is None else b"+1" + encode_string(extension))
    return b"".join(parts)


def decode_request(decoder: Decoder) -> RequestFrame:
    """The request at the decoder's position.

    Raises `DisIncompleteError` when more bytes must come, `UnknownRequestError`, or another `DisError` for
    bytes that are no request.
    """
    version = decode_header(decoder)
    offset = decoder.position
    number = decoder.unsigned()
    user = decoder.string()
    try:
        code = RequestCode(number)
    except ValueError:
        raise UnknownRequestError(version, number, offset) from None
    shape = SHAPES[code]
    fields: dict[str, Any] = {name: READERS[kind](decoder) for name, kind in shape.layout}
    extension = None
    if code is not RequestCode.DISCONNECT:
        flag = decoder.unsigned()
        if flag > 1:
            raise DisSyntaxError(f"{flag} where 0 or 1 tells of an extension", decoder.position)
        extension = decoder.string() if flag else None
    return RequestFrame(version, user, shape(code=code, extension=extension, **fields))


def decode_header(decoder: Decoder) -> int:
    """Reads protocol type and version; returns the version, 1 or 2."""
    start = decoder.position
    kind = decoder.unsigned()
    version = decoder.unsigned()
    if kind != PROTOCOL_TYPE or version not in (1, 2):
        raise DisSyntaxError(f"protocol type {kind} version {version}, not 2 and 1 or 2", start)
    return version
