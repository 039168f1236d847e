"""Cursors of lists: opaque texts with a position in the order of one list."""

import base64
import binascii
import json
from typing import Any, Final

_MAX_LENGTH: Final = 10_000


class CursorError(ValueError):
    """A cursor that no page returned."""


def encode_cursor(kind: str, *position: int | str) -> str:
    """Return a position in the list ``kind`` as an opaque text for URLs."""
    plain = json.dumps([kind, *position], separators=(",", ":"))
    return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def decode_cursor(cursor: str, kind: str, *types: type[int] | type[str]) -> tuple[Any, ...]:
    """Return the position of a cursor of the list ``kind``, of these types. Raises CursorError."""
    try:
        found = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        found = None
    if len(cursor) <= _MAX_LENGTH and isinstance(found, list) and found[:1] == [kind]:
        position = found[1:]
        if [type(part) for part in position] == list(types) and all(map(_is_usual, position)):
            return tuple(position)
    raise CursorError(f"cursor {cursor[:80]!r}: take it from `next` of the page before, of the same list")


def _is_usual(part: int | str) -> bool:
    """Whether a position may have this part: numbers fit into 64 bits, and texts are Unicode."""
    if isinstance(part, int):
        return abs(part) < 1 << 63
    try:
        part.encode()
    except UnicodeEncodeError:
        return False
    return True
