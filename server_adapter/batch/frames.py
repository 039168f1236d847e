"""Requests to bytes and back: header, body by its layout, extension. The families differ by their tables."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from server_adapter.batch.codes import PROTOCOL_TYPE, RequestCode
from server_adapter.batch.request_layout import READERS, BatchRequest, encode_body
from server_adapter.dis import Decoder, DisSyntaxError, encode_integer, encode_string


@dataclass(frozen=True, slots=True)
class RequestFrame:
    """A request as received: protocol version (1 only for TORQUE up to 3.x), user, content."""

    version: int
    user: str
    request: BatchRequest


class UnknownRequestError(DisSyntaxError):
    """A request number that the family does not have; the bytes after it cannot be decoded."""

    def __init__(self, version: int, number: int, offset: int) -> None:
        super().__init__(f"unknown request number {number}", offset)
        self.version = version
        self.number = number


def encode_request(request: BatchRequest, *, user: str, version: int = 2) -> bytes:
    parts = [
        encode_integer(PROTOCOL_TYPE),
        encode_integer(version),
        encode_integer(request.code),
        encode_string(user),
        encode_body(request),
    ]
    if request.code is not RequestCode.DISCONNECT:
        extension = request.extension
        parts.append(b"+0" if extension is None else b"+1" + encode_string(extension))
    return b"".join(parts)


def read_request(
    decoder: Decoder, shapes: Mapping[RequestCode, type[BatchRequest]], versions: Collection[int]
) -> RequestFrame:
    """Read the request at the decoder's position. `shapes` are the family's requests.

    Raises `DisIncompleteError` when more bytes are needed, `UnknownRequestError`, or another `DisError` for
    bytes that are no request.
    """
    version = read_header(decoder, versions)
    offset = decoder.position
    number = decoder.unsigned()
    user = decoder.string()
    shape = shapes.get(number)  # type: ignore[call-overload]
    if shape is None:
        raise UnknownRequestError(version, number, offset)
    code = RequestCode(number)
    fields: dict[str, Any] = {name: READERS[kind](decoder) for name, kind in shape.layout}
    extension = None
    if code is not RequestCode.DISCONNECT:
        flag = decoder.unsigned()
        if flag > 1:
            raise DisSyntaxError(f"{flag} where 0 or 1 tells of an extension", decoder.position)
        extension = decoder.string() if flag else None
    return RequestFrame(version, user, shape(code=code, extension=extension, **fields))


def read_header(decoder: Decoder, versions: Collection[int]) -> int:
    """Read the protocol type and version; return the version. Raises `DisError`."""
    start = decoder.position
    kind, version = decoder.unsigned(), decoder.unsigned()
    if kind != PROTOCOL_TYPE or version not in versions:
        known = " or ".join(map(str, versions))
        raise DisSyntaxError(f"protocol type {kind} version {version}, not 2 and {known}", start)
    return version
