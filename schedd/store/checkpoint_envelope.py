"""What is put around a checkpoint: by it one that is not as it was written is known before it is read.

Twelve bytes that name the format, the length of the body (8 bytes, little-endian), and the SHA-256 (32 bytes)
of all the rest of its row: cluster, batch, event, second, digest of the log, and of the length and the body.
Of the first format (before 0.2) the digest was of batch, event, length and body.
"""

import hashlib
import struct
from dataclasses import dataclass
from typing import Final

from schedd.store.errors import BadCheckpoint
from schedd.store.records import LogPosition

__all__ = ["CheckpointRow", "seal", "unchecked_body", "unseal"]

_FIRST: Final = b"schedd-ckpt1"
_MAGIC: Final = b"schedd-ckpt2"
_HEAD: Final = struct.Struct("<12sQ32s")
_OF_FIRST: Final = struct.Struct("<QQQ")
_ROW: Final = struct.Struct("<qqqqqQ")


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """The row of a checkpoint but for its body: ``time`` in seconds, ``chain`` the log's digest, if known."""

    cluster: int
    at: LogPosition
    time: int
    chain: bytes | None


def seal(place: CheckpointRow, body: bytes) -> bytes:
    """The body of the checkpoint of ``place``, as it is kept."""
    return _HEAD.pack(_MAGIC, len(body), _digest(_MAGIC, place, body)) + body


def unseal(place: CheckpointRow, kept: bytes) -> bytes:
    """The body of the checkpoint of ``place``. Raises BadCheckpoint for what was not sealed for that row."""
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
    """The body without any check: it may be damaged."""
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
