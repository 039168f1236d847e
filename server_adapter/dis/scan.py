"""The hot loop: attribute lists of a status reply to dictionaries, at well under a microsecond an entry."""

from collections.abc import Collection
from functools import lru_cache
from typing import Final

from server_adapter.dis.attribute import REPEATED
from server_adapter.dis.decode import DEFAULT_LIMITS, Decoder, Limits
from server_adapter.dis.errors import DisIncompleteError, DisSyntaxError
from server_adapter.text import decode_text, is_plain

_PLUS = 0x2B
_MAX_HEADS: Final = 10_000  # known heads; a server has some hundred
_ONES: tuple[int | None, ...] = tuple(b - 48 if 48 <= b < 58 else None for b in range(256))
_TENS: tuple[int | None, ...] = tuple((b - 48) * 10 if 48 <= b < 58 else None for b in range(256))


class _Head:
    """The bytes of an entry between its size and its value, seen before; `key` is None if unwanted."""

    __slots__ = ("key", "length", "successor", "text")

    def __init__(self, text: str, key: str | None) -> None:
        self.text = text
        self.length = len(text)
        self.key = key
        self.successor: _Head = self


class AttributeScanner:
    """Decodes many attribute lists that resemble each other, such as those of a status reply.

    Objects of one reply list the same attributes in nearly the same order. The scanner remembers each entry's
    head (name and resource) and its last successor, compares the bytes with that guess in one call, and
    decodes a head in full only if the guess fails. Values are sliced out of `text` without inspection;
    unwanted entries are skipped.

    `wanted` names attributes without resource (`Resource_List` includes all its resources); None selects all.
    """

    def __init__(self, wanted: Collection[str] | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self._wanted = None if wanted is None else frozenset(wanted)
        self._limits = limits
        self._start = _Head("", None)
        self._heads: dict[str, _Head] = {}

    def scan(self, data: bytes, text: str, position: int, *, plain: bool) -> tuple[dict[str, str], int]:
        """The attribute list of `data` at `position`: values by key, and the position after the list.

        `text` is `data` decoded as latin-1, one character for each byte, made once by the caller for many
        lists, and `plain` what `is_plain` says of it. Keys are `name` or `name.resource`. The values of
        entries with the same key are one list, joined by `REPEATED`: servers send the entries of a limit one
        by one. The operator of every entry must be one digit, as in replies. Raises `DisIncompleteError`,
        `DisSyntaxError`, `DisLimitError`.
        """
        decoder = Decoder(data, position, self._limits)
        count = decoder.count()
        try:
            values, position = self._entries(data, text, decoder.position, count)
        except IndexError:
            raise DisIncompleteError(position, len(data) + 1) from None
        except TypeError:
            raise DisSyntaxError("an entry with a length that is no number", position) from None
        if not plain:
            values = {
                key: value if is_plain(value) else decode_text(value.encode("latin-1"))
                for key, value in values.items()
            }
        return values, position

    def _entries(self, data: bytes, text: str, position: int, count: int) -> tuple[dict[str, str], int]:
        values: dict[str, str] = {}
        begun = position
        unwanted = 0
        starts = text.startswith
        ones, tens = _ONES, _TENS
        head = previous = self._start
        head = head.successor
        for _ in range(count):
            # 1. The size: only a hint.
            byte = data[position]
            if byte == _PLUS:
                at = position + 2
            elif data[position + 1] == _PLUS:
                at = position + 2 + ones[byte]  # type: ignore[operator]
            else:
                at = self._integer(data, position)[1]
            # 2. Name and resource: as guessed, or decoded.
            if not head.length or not starts(head.text, at):
                head = self._learn(data, text, at)
                previous.successor = head
            at += head.length
            # 3. The value's length, mostly one or two digits.
            byte = data[at]
            if byte == _PLUS:
                begin = at + 2
                end = begin + ones[data[at + 1]]  # type: ignore[operator]
            elif byte == 0x32 and data[at + 1] == _PLUS:
                begin = at + 4
                end = begin + tens[data[at + 2]] + ones[data[at + 3]]  # type: ignore[operator]
            else:
                length, begin = self._integer(data, at)
                end = begin + length
            # 4. The operator.
            if end + 1 >= len(data):
                raise DisIncompleteError(position, end + 2)
            if data[end] != _PLUS or ones[data[end + 1]] is None:
                raise DisSyntaxError("no operator after a value", end)
            if head.key is not None:
                values[head.key] = text[begin:end]
            else:
                unwanted += 1
            position = end + 2
            previous = head
            head = head.successor
        if len(values) + unwanted != count:
            values = self._merged(data, text, begun, count)
        return values, position

    def _merged(self, data: bytes, text: str, position: int, count: int) -> dict[str, str]:
        """Return the values of a list with repeated keys."""
        found: dict[str, list[str]] = {}
        decoder = Decoder(data, position, self._limits)
        for _ in range(count):
            decoder.unsigned()
            head = self._learn(data, text, decoder.position)
            decoder.position += head.length
            value = decoder.raw_string().decode("latin-1")
            decoder.unsigned()
            if head.key is not None:
                found.setdefault(head.key, []).append(value)
        return {key: REPEATED.join(several) for key, several in found.items()}

    def _learn(self, data: bytes, text: str, position: int) -> _Head:
        decoder = Decoder(data, position, self._limits)
        name = decoder.string()
        flag = decoder.unsigned()
        if flag > 1:
            raise DisSyntaxError(f"{flag} where 0 or 1 tells of a resource", decoder.position)
        key = f"{name}.{decoder.string()}" if flag else name
        bytes_of_head = text[position : decoder.position]
        head = self._heads.get(bytes_of_head)
        if head is None:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            head = _Head(bytes_of_head, key if self._wanted is None or name in self._wanted else None)
            head.successor = self._start
            self._heads[bytes_of_head] = head
        return head

    def _integer(self, data: bytes, position: int) -> tuple[int, int]:
        decoder = Decoder(data, position, self._limits)
        value = decoder.unsigned()
        if value > self._limits.string_bytes:
            raise DisSyntaxError(f"an entry of {value} bytes", position)
        return value, decoder.position


@lru_cache(maxsize=64)
def shared_scanner(wanted: frozenset[str] | None, limits: Limits) -> AttributeScanner:
    """Return the scanner of all replies with these wanted attributes: it knows their heads from earlier ones.

    Not for several threads.
    """
    return AttributeScanner(wanted, limits)
