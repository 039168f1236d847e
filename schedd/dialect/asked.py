"""What a job asked for, name by name: its own wishes over the defaults, and what became of each."""

import re
from collections.abc import Iterable, Mapping

from schedd.dialect.errors import printable
from schedd.dialect.span import Span, whole_number
from schedd.dialect.units import LARGEST_SIZE, parse_size
from schedd.wire import float_parts

__all__ = ["Asked", "parse_amount", "parse_typed", "resource_list"]

_SHOWN_AT_MOST = 8

_SIGNED = re.compile(r"[+-]?[0-9]+")
_DIGITS = 30
"""Numbers of more digits are beyond all measure."""

_LONGEST = 1 << 18
"""The longest value that is read, in characters: ten thousand nodes by name fit, at about a second."""


def resource_list(text: str) -> dict[str, str]:
    """The names and values of a list as ``qsub -l`` takes it: ``nodes=2:ppn=4,mem=8gb``.

    A value with commas stands in quotes. Raises RequestError.
    """
    resources: dict[str, str] = {}
    for item in Span.of(text).split_outside_quotes(","):
        name, value = item.strip().partition("=")
        key = str(name).strip()
        if value is None or not key:
            raise item.error(f"{item.shown()} is no resource", "name=value,name=value…")
        if key in resources:
            raise item.error(f"{key}= is given twice")
        resources[key] = value.unquoted()
    return resources


def parse_amount(span: Span) -> int:
    """An amount of a node-locked resource: a plain number as it is, a size with a suffix as KiB."""
    text = str(span)
    if text[:1].isdigit() and text[-1].isalpha():
        return parse_size(span)
    return whole_number(span, "an amount", least=0)


def parse_typed(span: Span, kind: str) -> int:
    """An amount of an OpenPBS resource of the type long, size or float: sizes as KiB, floats in FLOAT_PARTS.

    An amount below zero is none. Raises RequestError.
    """
    text = str(span)
    if kind == "size":
        return parse_size(span)
    if kind == "float":
        parts = float_parts(text)
        if parts is None:
            raise span.error(f"a number is needed, not {span.shown()}", "for example 0.5")
    else:
        if not _SIGNED.fullmatch(text):
            raise span.error(f"a whole number is needed, not {span.shown()}", "for example 2")
        parts = int(text) if len(text) <= _DIGITS else LARGEST_SIZE
    if parts >= LARGEST_SIZE:
        raise span.error("the number is too large")
    return max(0, parts)


class Asked:
    """A job's resource list over its defaults; names in lower case, empty values as if not given.

    Names taken by ``get`` or ``ignore`` count as dealt with; ``notes`` collects the remarks of the request.
    """

    def __init__(self, resources: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        self.own = _cleaned(resources)
        self.defaults = _cleaned(defaults)
        self.notes: list[str] = []
        self._values = {**self.defaults, **self.own}
        self._done: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._values

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in order."""
        return tuple(sorted(self._values))

    @property
    def values(self) -> Mapping[str, str]:
        """All values by name."""
        return self._values

    def whole(self, name: str) -> Span:
        """A resource with its name, for an error about the resource itself."""
        return Span.of(f"{name}={self._values[name]}")

    def get(self, name: str) -> Span | None:
        """The value of a resource, ready to point errors at it; None when nothing names one."""
        self._done.add(name)
        value = self._values.get(name)
        if value is None:
            return None
        span = Span.of(value, name)
        if len(value) > _LONGEST:
            raise span.error(f"{name}= is too long", f"at most {_LONGEST} characters")
        return span

    def size(self, name: str) -> int:
        """The value of a resource in KiB, 0 when nothing names one."""
        span = self.get(name)
        return 0 if span is None else parse_size(span)

    def ignore(self, names: Iterable[str]) -> None:
        """Nothing needs to be said about these."""
        self._done.update(names)

    def note(self, text: str) -> None:
        """A remark for the job's explanation, once."""
        if text not in self.notes:
            self.notes.append(text)

    def note_the_rest(self) -> None:
        """One remark that names all that was not dealt with."""
        rest = [f"{name}={value}" for name, value in sorted(self._values.items()) if name not in self._done]
        if rest:
            more = len(rest) - _SHOWN_AT_MOST
            shown = ", ".join(printable(item, 40) for item in rest[:_SHOWN_AT_MOST])
            self.note(f"not planned: {shown}" + (f" and {more} more" if more > 0 else ""))


def _cleaned(resources: Mapping[str, str]) -> dict[str, str]:
    stripped = ((name.strip().lower(), value.strip()) for name, value in resources.items())
    return {name: value for name, value in stripped if name and value}
