"""OpenPBS's requests and reply headers from the body of a packet (protocol document, section 2)."""

from server_adapter.batch.frames import RequestFrame, read_header, read_request
from server_adapter.dis import Decoder, DisSyntaxError
from server_adapter.openpbs.requests import SHAPES

_VERSIONS = (2,)


def decode_request(body: bytes) -> RequestFrame:
    """Return the request in a packet's body. Raises `UnknownRequestError` or another `DisError`."""
    decoder = Decoder(body)
    frame = read_request(decoder, SHAPES, _VERSIONS)
    if decoder.position != len(body):
        raise DisSyntaxError("bytes behind the end of a request", decoder.position)
    return frame


def decode_header(decoder: Decoder) -> None:
    """Read protocol type and version. Raises `DisError`."""
    read_header(decoder, _VERSIONS)
