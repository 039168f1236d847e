"""Part of a request's text with its position, for error messages."""

import re
from dataclasses import dataclass

from schedd.dialect.errors import RequestError, printable
from schedd.wire.quick_init import quick_init

LARGEST = 2**31 - 1  # maximum number of units, cores or gpus in a request: the servers' own maximum

_DIGITS = re.compile(r"[0-9]+")


@quick_init
@dataclass(frozen=True, slots=True)
class Span:
    """``source[start:end]``."""

    source: str
    start: int
    end: int

    @classmethod
    def from_text(cls, text: "str | Span", name: str = "") -> "Span":
        """Return a span of the whole text; with a ``name``, errors show it as ``name=text``."""
        if isinstance(text, Span):
            return text
        prefix = f"{name}=" if name else ""
        return cls(prefix + text, len(prefix), len(prefix) + len(text))

    def __str__(self) -> str:
        return self.source[self.start : self.end]

    def split(self, separator: str) -> "list[Span]":
        """Return the parts between one-character separators; always at least one."""
        pieces, start = [], self.start
        while (found := self.source.find(separator, start, self.end)) >= 0:
            pieces.append(Span(self.source, start, found))
            start = found + 1
        return [*pieces, Span(self.source, start, self.end)]

    def split_outside_quotes(self, separator: str) -> "list[Span]":
        """Split, but not inside ``"…"`` or ``'…'``. Raises RequestError for an open quote."""
        pieces, start, quote, opened = [], self.start, "", 0
        for index in range(self.start, self.end):
            character = self.source[index]
            if quote:
                quote = "" if character == quote else quote
            elif character in "\"'":
                quote, opened = character, index
            elif character == separator:
                pieces.append(Span(self.source, start, index))
                start = index + 1
        if quote:
            raise RequestError("a quote is opened and never closed", self.source, opened)
        return [*pieces, Span(self.source, start, self.end)]

    def partition(self, separator: str) -> "tuple[Span, Span | None]":
        """Return the parts before and after the first separator; without one, the whole span and None."""
        found = self.source.find(separator, self.start, self.end)
        if found < 0:
            return self, None
        return Span(self.source, self.start, found), Span(self.source, found + 1, self.end)

    def strip(self) -> "Span":
        """Return the span without the white space at both ends."""
        text = str(self)
        start = self.start + len(text) - len(text.lstrip())
        return Span(self.source, start, max(start, self.end - len(text) + len(text.rstrip())))

    def inner(self) -> "Span":
        """Return the span without a pair of surrounding quotes."""
        text = str(self)
        quoted = len(text) > 1 and text[0] in "\"'" and text[0] == text[-1]
        return Span(self.source, self.start + 1, self.end - 1) if quoted else self

    def unquoted(self) -> str:
        """Return the text without a pair of surrounding quotes."""
        return str(self.inner())

    def shown(self) -> str:
        """Return the text in quotes, for a message."""
        return f"'{self.brief()}'"

    def brief(self) -> str:
        """Return the text for a remark: one line, shortened."""
        return printable(str(self), 40)

    def error(self, what: str, allowed: str = "") -> RequestError:
        """Return an error at the position of the first character."""
        return RequestError(what, self.source, self.start, allowed)


def parse_integer(span: Span, name: str, least: int = 1) -> int:
    """Return a whole number between ``least`` and ``LARGEST``; ``name`` is used in messages."""
    text = str(span)
    allowed = f"{least} or more"
    if not _DIGITS.fullmatch(text):
        raise span.error(f"{name} needs a whole number, not {span.shown()}", allowed)
    digits = text.lstrip("0") or "0"
    if len(digits) > 10 or int(digits) > LARGEST:
        raise span.error(f"{name} is too large", f"{least} to {LARGEST}")
    if int(digits) < least:
        raise span.error(f"{name} must not be {digits}", allowed)
    return int(digits)
