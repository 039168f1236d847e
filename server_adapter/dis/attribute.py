"""Entries of attribute lists: name, resource, value, operator."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from server_adapter.text import encode_text, is_plain

REPEATED: Final = ", "  # separator of the values of repeated attributes, as printed by qmgr


class Operation(IntEnum):
    """The operators of an attribute entry (protocol document, section 4)."""

    SET = 0
    UNSET = 1
    INCR = 2
    DECR = 3
    EQ = 4
    NE = 5
    GE = 6
    GT = 7
    LE = 8
    LT = 9
    DFLT = 10


@dataclass(frozen=True, slots=True)
class Attribute:
    """`name[.resource] op value`. In a status request, an empty value asks for the attribute.

    `declared_size` is the size the sender wrote in front of the entry where that differs from `size`: servers
    take it as a hint only, and clients fill it in differently. It is no part of equality.
    """

    name: str
    value: str = ""
    resource: str | None = None
    operation: Operation = Operation.SET
    declared_size: int | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Attribute):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, str, str | None, Operation]:
        return self.name, self.value, self.resource, self.operation

    @property
    def key(self) -> str:
        """`name` or `name.resource`, as qstat -f prints it."""
        return self.name if self.resource is None else f"{self.name}.{self.resource}"

    @property
    def size(self) -> int:
        """The size a server writes: every part with one closing byte, in bytes."""
        total = _length(self.name) + 1 + _length(self.value) + 1
        return total if self.resource is None else total + _length(self.resource) + 1


def _length(text: str) -> int:
    return len(text) if is_plain(text) else len(encode_text(text))


def values_by_key(entries: Iterable[Attribute]) -> dict[str, str]:
    """Return the values of entries by key. Several values of one key are joined by `REPEATED`."""
    found: dict[str, str] = {}
    for entry in entries:
        before = found.get(entry.key)
        found[entry.key] = entry.value if before is None else f"{before}{REPEATED}{entry.value}"
    return found
