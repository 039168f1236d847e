"""Envelope of a checkpoint: a header with a checksum, which detects damage before the body is decoded.

The header has 12 bytes that name the format, the length of the body (8 bytes, little-endian), and a SHA-256
(32 bytes) over the row's other columns (cluster, batch, event, second, log digest), the length and the body.
In the first format (before 0.2) it covers batch, event, length and body.
"""

import hashlib
import struct
from dataclasses import dataclass
from typing import Final

from schedd.store.errors import BadCheckpoint
from schedd.store.records import LogPosition

_FIRST: Final = b"schedd-ckpt1"
_MAGIC: Final = b"schedd-ckpt2"
_HEAD: Final = struct.Struct("<12sQ32s")
_OF_FIRST: Final = struct.Struct("<QQQ")
_ROW: Final = struct.Struct("<qqqqqQ")


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint's row without its body: ``time`` in seconds, digest ``chain`` if known."""

    cluster: int
    at: LogPosition
    time: int
    chain: bytes | None


def seal(place: CheckpointRow, body: bytes) -> bytes:
    return _HEAD.pack(_MAGIC, len(body), _digest(_MAGIC, place, body)) + body


def unseal(place: CheckpointRow, kept: bytes) -> bytes:
    """Return the body without its header. Raises BadCheckpoint if it is damaged or belongs to another row."""
    batch = place.at.batch
    words = f"checkpoint after batch {batch}: "
    magic = kept[: len(_MAGIC)]
    if len(kept) < _HEAD.size or magic not in (_FIRST, _MAGIC):
        raise BadCheckpoint(batch, f"{words}its beginning is damaged")
    _, length, digest = _HEAD.unpack_from(kept)
    body = kept[_HEAD.size :]
    if len(body) != length:
        raise BadCheckpoint(batch, f"{words}{len(body)} bytes are there, {length} were written")
    if digest != _digest(magic, place, body):
        raise BadCheckpoint(batch, f"{words}its checksum is wrong")
    return body


def unchecked_body(kept: bytes) -> bytes:
    """Return the body without checking it."""
    return kept[_HEAD.size :]


def _digest(magic: bytes, place: CheckpointRow, body: bytes) -> bytes:
    at = place.at
    try:
        if magic == _FIRST:
            return hashlib.sha256(_OF_FIRST.pack(at.batch, at.event, len(body)) + body).digest()
        chain = place.chain if place.chain is not None else b""
        known = len(chain) if place.chain is not None else -1
        row = _ROW.pack(place.cluster, at.batch, at.event, place.time, known, len(body))
    except struct.error:
        return b""  # a number that no row of ours has
    found = hashlib.sha256(magic + row + chain)
    found.update(body)
    return found.digest()
