"""TORQUE's requests and reply headers from bytes (protocol document, section 4)."""

from server_adapter.batch.frames import RequestFrame, read_header, read_request
from server_adapter.dis import Decoder
from server_adapter.torque.requests import SHAPES

_VERSIONS = (1, 2)


def decode_request(decoder: Decoder) -> RequestFrame:
    """Return the request at the decoder's position. Raises as `read_request`."""
    return read_request(decoder, SHAPES, _VERSIONS)


def decode_header(decoder: Decoder) -> int:
    """Read protocol type and version; return the version, 1 or 2. Raises `DisError`."""
    return read_header(decoder, _VERSIONS)
