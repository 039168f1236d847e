"""DIS bytes to values: strict, bounded, by index over one bytes object (protocol document, section 4)."""

from dataclasses import dataclass

from server_adapter.dis.attribute import Attribute, Operation
from server_adapter.dis.errors import DisIncompleteError, DisLimitError, DisSyntaxError
from server_adapter.text import decode_text

_PLUS = 0x2B
_MINUS = 0x2D
_ZERO = 0x30
_NESTING = 8  # counts of counts: two are enough for any 64-bit value, `1+4` and its like add a few


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one message: digits of a number, string bytes, list entries, total bytes."""

    digits: int = 20
    string_bytes: int = 64 * 1024 * 1024
    entries: int = 4_000_000
    message_bytes: int = 512 * 1024 * 1024


DEFAULT_LIMITS = Limits()


class Decoder:
    """Reads consecutive values of `data`, from `position` on.

    Raises `DisIncompleteError` if the bytes end inside a value, `DisSyntaxError` or `DisLimitError` if
    further bytes cannot help; `position` is then still at the start of the failed value. Lists are not
    allocated ahead of their entries, so memory is proportional to the available bytes.
    """

    __slots__ = ("data", "limits", "position")

    def __init__(self, data: bytes, position: int = 0, limits: Limits = DEFAULT_LIMITS) -> None:
        self.data = data
        self.position = position
        self.limits = limits

    def integer(self) -> int:
        """A signed integer, in the short or in any legal longer form (`1+4` is 4)."""
        data = self.data
        start = position = self.position
        count = 1
        for _ in range(_NESTING):
            if position >= len(data):
                raise DisIncompleteError(start, position + 1)
            sign = data[position]
            if sign in (_PLUS, _MINUS):
                value = self._digits(position + 1, count)
                self.position = position + 1 + count
                return value if sign == _PLUS else -value
            length = self._digits(position, count)
            if data[position] == _ZERO:
                raise DisSyntaxError("a count of digits begins with 0", position)
            if length > self.limits.digits:
                raise DisLimitError(f"a number of {length} digits", position)
            position += count
            count = length
        raise DisSyntaxError("a number with too many counts in front", start)

    def unsigned(self) -> int:
        """An integer that may not be negative."""
        start = self.position
        value = self.integer()
        if value < 0:
            self.position = start
            raise DisSyntaxError(f"{value} where a count or code belongs", start)
        return value

    def count(self) -> int:
        """The number of entries of a list."""
        start = self.position
        value = self.unsigned()
        if value > self.limits.entries:
            self.position = start
            raise DisLimitError(f"a list of {value} entries", start)
        return value

    def raw_string(self) -> bytes:
        start = self.position
        length = self.unsigned()
        if length > self.limits.string_bytes:
            self.position = start
            raise DisLimitError(f"a string of {length} bytes", start)
        end = self.position + length
        if end > len(self.data):
            self.position = start
            raise DisIncompleteError(start, end)
        raw = self.data[self.position : end]
        self.position = end
        return raw

    def string(self) -> str:
        """A string as text; bytes that are not UTF-8 are escaped, see `decode_text`."""
        return decode_text(self.raw_string())

    def attribute(self) -> Attribute:
        """One entry of an attribute list."""
        size = self.unsigned()
        name = self.string()
        start = self.position
        flag = self.unsigned()
        if flag > 1:
            raise DisSyntaxError(f"{flag} where 0 or 1 tells of a resource", start)
        resource = self.string() if flag else None
        value = self.string()
        start = self.position
        code = self.unsigned()
        if code > Operation.DFLT:
            raise DisSyntaxError(f"unknown operator {code}", start)
        plain = Attribute(name, value, resource, Operation(code))
        return plain if plain.size == size else Attribute(name, value, resource, Operation(code), size)

    def attributes(self) -> tuple[Attribute, ...]:
        return tuple([self.attribute() for _ in range(self.count())])

    def _digits(self, position: int, count: int) -> int:
        end = position + count
        digits = self.data[position:end]
        if digits and not digits.isdigit():
            raise DisSyntaxError(f"{digits!r} where digits belong", position)
        if len(digits) < count:
            raise DisIncompleteError(self.position, end)
        return int(digits)
