"""Hash chain over the event log: each batch's digest covers the batch and all earlier ones.

It detects lost or damaged parts of the log. It is no protection against forgery: a writer of the database can
compute a new chain.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

_SIZE: Final = 16
EMPTY_CHAIN: Final = bytes(_SIZE)  # digest before the first batch, and before a batch after a gap


def digest_events(rows: Iterable[tuple[int, str, str | None, bytes | None]]) -> bytes:
    """Return the digest of event rows (number, delivery, text, packed body) as stored."""
    digest = blake2b(digest_size=_SIZE)
    for number, delivery, body, packed in rows:
        text = body.encode("utf-8", "surrogatepass") if body is not None else packed or b""
        digest.update(f"{number}:{delivery}:{len(text)}:".encode("utf-8", "surrogatepass"))
        digest.update(text)
    return digest.digest()


def extend_chain(before: bytes, batch: tuple[int, int, str, bool, str, int], events: bytes) -> bytes:
    """Return the digest after ``batch``: (number, second, pause, resumed, settings, last event).

    The number of engine calls is not included, because it may still change.
    """
    digest = blake2b(before, digest_size=_SIZE)
    digest.update(repr(batch).encode("utf-8", "surrogatepass"))
    digest.update(events)
    return digest.digest()
