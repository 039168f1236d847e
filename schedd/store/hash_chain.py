"""A digest over the log, batch by batch: each stands for all before it, so that what is missing shows.

It tells accidents, not forgers: who can write the database can make it anew.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

__all__ = ["EMPTY_CHAIN", "digest_events", "extend_chain"]

_SIZE: Final = 16
EMPTY_CHAIN: Final = bytes(_SIZE)
"""What stands before the first batch, and before one of which nobody knows what came before it."""


def digest_events(rows: Iterable[tuple[int, str, str | None, bytes | None]]) -> bytes:
    """Of the number, the delivery and the two bodies of each event, as they stand in the database."""
    digest = blake2b(digest_size=_SIZE)
    for number, delivery, body, packed in rows:
        text = body.encode("utf-8", "surrogatepass") if body is not None else packed or b""
        digest.update(f"{number}:{delivery}:{len(text)}:".encode("utf-8", "surrogatepass"))
        digest.update(text)
    return digest.digest()


def extend_chain(before: bytes, batch: tuple[int, int, str, bool, str, int], events: bytes) -> bytes:
    """Of a batch after ``before``: number, second, pause, whether resumed, settings, last event, and events.

    How often the engine was called may still change, so it does not count.
    """
    digest = blake2b(before, digest_size=_SIZE)
    digest.update(repr(batch).encode("utf-8", "surrogatepass"))
    digest.update(events)
    return digest.digest()
