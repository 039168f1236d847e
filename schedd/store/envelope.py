"""What is put around a checkpoint: by it one that is not as it was written is known before it is read.

Twelve bytes that name the format, the length of the body (8 bytes, little-endian), and the SHA-256 (32 bytes)
of the number of the batch and of the event that it comes after, of the length, and of the body.
"""

import hashlib
import struct
from typing import Final

from schedd.store.errors import BadCheckpoint
from schedd.store.records import Tail

__all__ = ["opened", "sealed"]

_MAGIC: Final = b"schedd-ckpt1"
_HEAD: Final = struct.Struct("<12sQ32s")
_PLACE: Final = struct.Struct("<QQQ")


def sealed(at: Tail, body: bytes) -> bytes:
    """The body of the checkpoint after ``at``, as it is kept."""
    return _HEAD.pack(_MAGIC, len(body), _digest(at, body)) + body


def opened(at: Tail, kept: bytes) -> bytes:
    """The body of the checkpoint after ``at``. Raises BadCheckpoint for what was not sealed as that."""
    if len(kept) < _HEAD.size or not kept.startswith(_MAGIC):
        raise BadCheckpoint(at.batch, f"checkpoint after batch {at.batch}: its beginning is damaged")
    _, length, digest = _HEAD.unpack_from(kept)
    body = kept[_HEAD.size :]
    if len(body) != length:
        raise BadCheckpoint(
            at.batch, f"checkpoint after batch {at.batch}: {len(body)} bytes are there, {length} were written"
        )
    if digest != _digest(at, body):
        raise BadCheckpoint(at.batch, f"checkpoint after batch {at.batch}: its checksum is wrong")
    return body


def _digest(at: Tail, body: bytes) -> bytes:
    return hashlib.sha256(_PLACE.pack(at.batch, at.event, len(body)) + body).digest()
