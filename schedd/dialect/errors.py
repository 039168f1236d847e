"""The error of a request that could not be understood: what, where in the string, and what is allowed."""

__all__ = ["RequestError", "printable"]

_WINDOW = 72
"""How much of a long request is shown around the place of the error, in characters."""


class RequestError(ValueError):
    """A resource request that cannot be understood or cannot be planned.

    ``what`` says what is wrong, ``text`` is the whole string, ``position`` the index in it that ``what`` is
    about, ``allowed`` what may stand there (may be empty).
    """

    def __init__(self, what: str, text: str = "", position: int = 0, allowed: str = "") -> None:
        super().__init__(what, text, position, allowed)  # all of them in args: so it can be pickled
        self.what = what
        self.text = text
        self.position = position
        self.allowed = allowed

    def __str__(self) -> str:
        """Two lines: the request, and below it a caret with what is wrong and what is allowed."""
        message = f"{self.what}; allowed: {self.allowed}" if self.allowed else self.what
        if not self.text:
            return message
        shown, column = _window(self.text, self.position)
        return f"{shown}\n{' ' * column}^ {message}"

    @property
    def comment(self) -> str:
        """The same in one line, fit for a job's comment."""
        where = f"{_window(self.text, self.position)[0]}: " if self.text else ""
        place = f" (at character {self.position + 1})" if self.text else ""
        allowed = f"; allowed: {self.allowed}" if self.allowed else ""
        return f"{where}{self.what}{place}{allowed}"


def printable(text: str, limit: int = _WINDOW) -> str:
    """The text in one line of at most ``limit`` characters, whatever was in it."""
    clean = "".join(character if character.isprintable() else "?" for character in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def _window(text: str, position: int) -> tuple[str, int]:
    """A printable stretch of the text around a position, and the position's column in it."""
    start = 0 if len(text) <= _WINDOW else max(0, min(position - _WINDOW // 2, len(text) - _WINDOW))
    stop = min(len(text), start + _WINDOW)
    head, tail = "…" if start else "", "…" if stop < len(text) else ""
    return head + printable(text[start:stop]) + tail, len(head) + position - start
