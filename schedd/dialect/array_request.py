"""Requests for job arrays: ``qsub -t 1-100%5`` (TORQUE) and ``qsub -J 1-100:2%5`` (OpenPBS)."""

import re
from typing import Final, NamedTuple

from schedd.dialect.errors import RequestError
from schedd.dialect.span import Span

_PART: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
_MOST: Final = 100_000


class ArrayRequest(NamedTuple):
    """Number of subjobs of an array, and how many may run at once (None: no limit)."""

    subjobs: int
    slot_limit: int | None = None


def parse_array_request(text: str) -> ArrayRequest:
    """Parse ``1-100``, ``0-98:2``, ``1,5,7-9`` with an optional slot limit ``%5``. Raises RequestError."""
    indices, percent, limit = text.partition("%")
    found: set[int] = set()
    listed = 0  # with repeated indices, which bounds the work
    for part in indices.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise _error(text, f"{part.strip()[:40]!r} is no range of indices")
        first = int(match[1])
        last, step = int(match[2] or first), int(match[3] or 1)
        if last < first or step < 1:
            raise _error(text, f"{part.strip()} has no index")
        listed += (last - first) // step + 1
        if listed > _MOST:
            raise _error(text, f"more than {_MOST:,} subjobs")
        found.update(range(first, last + 1, step))
    if percent and not (limit.isdecimal() and int(limit[:9]) > 0 and len(limit) <= 9):
        raise _error(text, f"{limit[:40]!r} is no slot limit")
    return ArrayRequest(len(found), int(limit) if percent else None)


def _error(text: str, what: str) -> RequestError:
    return Span.from_text(text, "array").error(what, "such as 1-100 or 1-100%5")
