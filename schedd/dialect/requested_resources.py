"""Requested resources of a job: explicit values, defaults, and a record of the names that were used."""

import re
from collections.abc import Iterable, Mapping

from schedd.dialect.errors import printable
from schedd.dialect.span import Span, parse_integer
from schedd.dialect.units import LARGEST_SIZE, parse_size
from schedd.wire import float_parts

_SHOWN_AT_MOST = 8

_SIGNED = re.compile(r"[+-]?[0-9]+")
_DIGITS = 30  # numbers with more digits are treated as too large

_LONGEST = 1 << 18
"""Maximum length of a value, in characters: room for ten thousand node names, parsed in about a second."""


def resource_list(text: str) -> dict[str, str]:
    """Return the names and values of a list in the format of ``qsub -l``.

    Example: ``nodes=2:ppn=4,mem=8gb``. A value with commas is quoted. Raises RequestError.
    """
    resources: dict[str, str] = {}
    for item in Span.from_text(text).split_outside_quotes(","):
        name, value = item.strip().partition("=")
        key = str(name).strip()
        if value is None or not key:
            raise item.error(f"{item.shown()} is no resource", "name=value,name=value…")
        if key in resources:
            raise item.error(f"{key}= is given twice")
        resources[key] = value.unquoted()
    return resources


def parse_amount(span: Span) -> int:
    """Return an amount of a node-locked resource: a plain number unchanged, a size with a suffix in KiB."""
    text = str(span)
    if text[:1].isdigit() and text[-1].isalpha():
        return parse_size(span)
    return parse_integer(span, "an amount", least=0)


def parse_typed(span: Span, kind: str) -> int:
    """Return an amount of an OpenPBS resource of type long, size (in KiB) or float (in FLOAT_PARTS).

    Negative amounts count as 0. Raises RequestError.
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


class RequestedResources:
    """Resource list of a job, completed by defaults.

    Names are in lower case; empty values count as absent. Names passed to ``get`` or ``ignore`` count as
    used; ``notes`` collects the remarks on the request.
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
        """All names, sorted."""
        return tuple(sorted(self._values))

    @property
    def values(self) -> Mapping[str, str]:
        """All values by name."""
        return self._values

    def span_with_name(self, name: str) -> Span:
        """Return ``name=value`` as a span, for an error about the resource itself."""
        return Span.from_text(f"{name}={self._values[name]}")

    def get(self, name: str) -> Span | None:
        """Return the value of a resource as a span, for errors with a position; None if it is absent."""
        self._done.add(name)
        value = self._values.get(name)
        if value is None:
            return None
        span = Span.from_text(value, name)
        if len(value) > _LONGEST:
            raise span.error(f"{name}= is too long", f"at most {_LONGEST} characters")
        return span

    def size(self, name: str) -> int:
        """Return the value of a resource in KiB; 0 if it is absent."""
        span = self.get(name)
        return 0 if span is None else parse_size(span)

    def ignore(self, names: Iterable[str]) -> None:
        """Mark these names as used."""
        self._done.update(names)

    def note(self, text: str) -> None:
        """Add a remark to the job's explanation, unless it is already there."""
        if text not in self.notes:
            self.notes.append(text)

    def note_the_rest(self) -> None:
        """Add one remark that lists all unused resources."""
        rest = [f"{name}={value}" for name, value in sorted(self._values.items()) if name not in self._done]
        if rest:
            more = len(rest) - _SHOWN_AT_MOST
            shown = ", ".join(printable(item, 40) for item in rest[:_SHOWN_AT_MOST])
            self.note(f"not planned: {shown}" + (f" and {more} more" if more > 0 else ""))


def _cleaned(resources: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in resources.items():
        cleaned, text = name.strip().lower(), value.strip()
        if cleaned and text:
            found[cleaned] = text
    return found
