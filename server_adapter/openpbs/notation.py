"""OpenPBS's notations to plain values: sizes, times, `exec_vnode`, `select`, indices of subjobs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from schedd.wire import FLOAT_PARTS, NO_TYPES, ResourceTypes, float_parts
from schedd.wire.bounds import AMOUNT_END, bounded

_UNITS: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4, "p": 1024**5}
_SIZE: Final = re.compile(r"(\d+)(?:([kmgtp])?([bw])?)", re.IGNORECASE)
_WORD: Final = 8  # bytes
_LONG: Final = re.compile(r"[+-]?[0-9]{1,400}")
_MOST: Final = 1_000_000  # subjobs of one array
_DIGITS: Final = 400  # of a number; Python reads some thousands


def kib(text: str) -> int:
    """`512mb`, `8gb` or plain bytes in KiB, rounded up. Raises ValueError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"not a size: {text!r}")
    digits, unit, kind = found.groups(default="")
    return bounded(
        -(-int(digits) * _UNITS[unit.lower()] * (_WORD if kind.lower() == "w" else 1) // 1024), AMOUNT_END
    )


def parse_amount(name: str, text: str, types: ResourceTypes = NO_TYPES) -> int | None:
    """Parse an amount of a resource of type long, size (in KiB) or float (in `FLOAT_PARTS`), at least 0; None
    for other types and malformed values.

    A resource without a type is parsed by the form of its value.
    """
    kind = types.resource_type(name)
    found: int | None = None
    if kind == "float":
        found = float_parts(text.strip())
    elif kind == "long" or (not kind and text.isdecimal()):
        found = int(text) if _LONG.fullmatch(text.strip()) else None
    elif kind in ("size", ""):
        found = kib(text) if len(text) <= _DIGITS and _SIZE.fullmatch(text.strip()) else None
    return None if found is None else bounded(found, AMOUNT_END)


def format_amount(name: str, count: int, types: ResourceTypes, *, size: bool = False) -> str:
    """An amount as the server writes it; `size`: one without a type was written as a size before."""
    kind = types.resource_type(name)
    if kind == "float":
        return f"{Decimal(count) / FLOAT_PARTS:f}"
    return f"{count}kb" if kind == "size" or (not kind and size) else str(count)


def unquote(text: str) -> str:
    """A value of a `select` without the quotes around it."""
    return text[1:-1] if len(text) > 1 and text[0] in "\"'" and text[0] == text[-1] else text


_TRUE: Final = frozenset({"true", "t", "y", "1"})
_FALSE: Final = frozenset({"false", "f", "n", "0"})


def boolean(name: str, text: str, types: ResourceTypes) -> bool | None:
    """The value of a resource of type boolean; None for a value of another type.

    A resource without a type is one where its value is True or False.
    """
    kind, word = types.resource_type(name), text.strip().lower()
    if kind not in ("boolean", "") or (not kind and word not in ("true", "false")):
        return None
    return True if word in _TRUE else False if word in _FALSE else None


@dataclass(frozen=True, slots=True)
class VnodePiece:
    """What a chunk takes of one vnode: resources as text by name."""

    vnode: str
    resources: dict[str, str]


def exec_vnode(text: str) -> list[list[VnodePiece]]:
    """`(n1:ncpus=2:mem=4kb+n2:ncpus=1)+(n3:ncpus=1)`: the vnodes of each chunk. Raises ValueError."""
    chunks: list[list[VnodePiece]] = []
    for bracket in re.findall(r"\(([^()]*)\)", text) or [text]:
        pieces = []
        for part in bracket.split("+"):
            vnode, *pairs = part.split(":")
            if not vnode:
                raise ValueError(f"not a list of vnodes: {text!r}")
            pieces.append(VnodePiece(vnode, _pairs(pairs)))
        chunks.append(pieces)
    return chunks


def seconds(text: str) -> int:
    """`3600`, `60:00` or `01:00:00` in seconds. Raises ValueError."""
    total = 0
    for part in text.split(":"):
        if not part.isdecimal():
            raise ValueError(f"not a duration: {text!r}")
        total = 60 * total + int(part)
    return total


def clock_time(seconds: int) -> str:
    """`01:00:00`, as the server writes a time."""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def condensed(places: Sequence[str]) -> str:
    """Where each time of a standing reservation is, as one text: `3#(n1:ncpus=1){0-1}(n2:ncpus=1){2}`."""
    times: dict[str, list[int]] = {}
    for index, where in enumerate(places):
        times.setdefault(where, []).append(index)
    return f"{len(places)}#" + "".join(f"{where}{{{_ranges(found)}}}" for where, found in times.items())


def _ranges(numbers: Sequence[int]) -> str:
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


def unrolled(text: str) -> list[str]:
    """Return each occurrence's text, the inverse of `condensed`. Raises ValueError."""
    if not text:
        return []
    count, hash_, rest = text.partition("#")
    size = int(count) if hash_ and count.strip().isdecimal() else -1
    if not 0 <= size <= _MOST:
        raise ValueError(f"not a sequence of vnodes: {text[:80]!r}")
    found = [""] * size
    for where, ranges in re.findall(r"([^{}]+)\{([^{}]*)\}", rest):
        for part in ranges.split(","):
            if not part.strip():
                continue
            low, dash, high = part.strip().partition("-")
            for index in range(int(low), int(high if dash else low) + 1):
                if index >= size:
                    raise ValueError(f"not a sequence of vnodes: {text[:80]!r}")
                found[index] = where
    return found


def select(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """`2:ncpus=4:mem=1gb+1:ncpus=1`: units of each chunk, and what one asks for. Raises ValueError.

    A separator inside quotes is part of a value.
    """
    for chunk in split_chunks(text):
        first, *rest = _split(chunk, ":")
        if "=" in first:
            yield 1, _pairs([first, *rest])
        else:
            yield int(first), _pairs(rest)


def split_chunks(text: str) -> list[str]:
    """Split a `select` into its chunks."""
    return _split(text, "+")


def _split(text: str, separator: str) -> list[str]:
    if '"' not in text and "'" not in text:
        return text.split(separator)
    found, start, quote = [], 0, ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == separator:
            found.append(text[start:at])
            start = at + 1
    return [*found, text[start:]]


def _pairs(items: list[str]) -> dict[str, str]:
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"not a resource: {item!r}")
        found[name] = value
    return found


def index_ranges(text: str) -> Iterator[range]:
    """The ranges of indices of subjobs in `1,3-5,7-11:2`. Raises ValueError."""
    for part in text.split(","):
        bounds, colon, step = part.partition(":")
        first, dash, last = bounds.partition("-")
        low = int(first)
        high = int(last) if dash else low
        if high - low > _MOST:
            raise ValueError(f"not a list of indices: {text!r}")
        yield range(low, high + 1, int(step) if colon else 1)


def subjob(array: str, index: int) -> str:
    """`5018[3].vm` of `5018[].vm`."""
    return array.replace("[]", f"[{index}]", 1)


def parent(job: str) -> str:
    """`5018[].vm` of `5018[3].vm`; the same of a job that is in no array."""
    head, bracket, rest = job.partition("[")
    return f"{head}[]{rest.partition(']')[2]}" if bracket else job
