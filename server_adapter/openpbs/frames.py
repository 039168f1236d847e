"""Requests to the body of a packet and back: the header, the body by its layout, the extension."""

from dataclasses import dataclass
from typing import Any

from server_adapter.batch.request_layout import READERS, BatchRequest, encode_body
from server_adapter.dis import Decoder, DisSyntaxError, encode_integer, encode_string
from server_adapter.openpbs.codes import PROTOCOL_TYPE, PROTOCOL_VERSION, RequestCode
from server_adapter.openpbs.requests import SHAPES, AuthenticateRequest, DeferredReplyRequest


@dataclass(frozen=True, slots=True)
class RequestFrame:
    """A request as received: its user, its content."""

    user: str
    request: BatchRequest


class UnknownRequestError(DisSyntaxError):
    """A request number that nobody here knows; what follows it cannot be read."""

    def __init__(self, number: int, offset: int) -> None:
        super().__init__(f"unknown request number {number}", offset)
        self.number = number


def encode_request(request: BatchRequest, *, user: str) -> bytes:
    """The body of a request's packet."""
    parts = [
        encode_integer(PROTOCOL_TYPE),
        encode_integer(PROTOCOL_VERSION),
        encode_integer(request.code),
        encode_string(user),
        _encode_fields(request),
    ]
    if request.code is not RequestCode.DISCONNECT:
        parts.append(b"+0" if request.extension is None else b"+1" + encode_string(request.extension))
    return b"".join(parts)


def decode_request(body: bytes) -> RequestFrame:
    """The request in a packet's body. Raises `UnknownRequestError` or another `DisError`."""
    decoder = Decoder(body)
    decode_header(decoder)
    offset = decoder.position
    number = decoder.unsigned()
    user = decoder.string()
    try:
        code = RequestCode(number)
    except ValueError:
        raise UnknownRequestError(number, offset) from None
    fields = _decode_fields(code, decoder)
    extension = None
    if code is not RequestCode.DISCONNECT:
        flag = decoder.unsigned()
        if flag > 1:
            raise DisSyntaxError(f"{flag} where 0 or 1 tells of an extension", decoder.position)
        extension = decoder.string() if flag else None
    if decoder.position != len(body):
        raise DisSyntaxError("bytes behind the end of a request", decoder.position)
    return RequestFrame(user, SHAPES[code](code=code, extension=extension, **fields))


def decode_header(decoder: Decoder) -> None:
    """Reads protocol type and version. Raises `DisError`."""
    start = decoder.position
    kind, version = decoder.unsigned(), decoder.unsigned()
    if (kind, version) != (PROTOCOL_TYPE, PROTOCOL_VERSION):
        raise DisSyntaxError(f"protocol type {kind} version {version}, not 2 and 2", start)


def _encode_fields(request: BatchRequest) -> bytes:
    # Two requests have fields that are there only sometimes; all others go by their layout.
    match request:
        case AuthenticateRequest(method=method, encryption=encryption, port=port):
            encrypted = b"+0"
            if encryption:
                encrypted = encode_integer(len(encryption)) + encode_string(encryption)
            return encode_integer(len(method)) + encode_string(method) + encrypted + encode_integer(port)
        case DeferredReplyRequest(command=command, job=job, result=result, text=text):
            said = b"+0" if text is None else b"+1" + encode_string(text)
            return encode_integer(command) + encode_string(job) + encode_integer(result) + said
        case _:
            return encode_body(request)


def _decode_fields(code: RequestCode, decoder: Decoder) -> dict[str, Any]:
    if code is RequestCode.AUTHENTICATE:
        decoder.unsigned()
        method = decoder.string()
        encryption = decoder.string() if decoder.unsigned() else ""
        return {"method": method, "encryption": encryption, "port": decoder.unsigned()}
    if code is RequestCode.DEFERRED_SCHEDULER_REPLY:
        command, job, result = decoder.unsigned(), decoder.string(), decoder.integer()
        return {
            "command": command,
            "job": job,
            "result": result,
            "text": decoder.string() if decoder.unsigned() else None,
        }
    return {name: READERS[kind](decoder) for name, kind in SHAPES[code].layout}
