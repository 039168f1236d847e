"""Errors in requests: the fault, its position in the text, and the allowed values."""

_WINDOW = 72  # characters of a long request that are shown around the position of the error


class RequestError(ValueError):
    """A resource request that is invalid or cannot be planned.

    ``what`` is the fault, ``text`` the whole request, ``position`` the index of the fault in it, ``allowed``
    the allowed values (may be empty).
    """

    def __init__(self, what: str, text: str = "", position: int = 0, allowed: str = "") -> None:
        super().__init__(what, text, position, allowed)  # all of them in args: so it can be pickled
        self.what = what
        self.text = text
        self.position = position
        self.allowed = allowed

    def __str__(self) -> str:
        """Return two lines: the request, and below it a caret with the fault and the allowed values."""
        message = f"{self.what}; allowed: {self.allowed}" if self.allowed else self.what
        if not self.text:
            return message
        shown, column = _window(self.text, self.position)
        return f"{shown}\n{' ' * column}^ {message}"

    @property
    def comment(self) -> str:
        """The error in one line, for the comment attribute of a job."""
        where = f"{_window(self.text, self.position)[0]}: " if self.text else ""
        place = f" (at character {self.position + 1})" if self.text else ""
        allowed = f"; allowed: {self.allowed}" if self.allowed else ""
        return f"{where}{self.what}{place}{allowed}"


def printable(text: str, limit: int = _WINDOW) -> str:
    """Return the text in one line of at most ``limit`` printable characters."""
    clean = "".join(character if character.isprintable() else "?" for character in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def _window(text: str, position: int) -> tuple[str, int]:
    """Return a printable excerpt of the text around a position, and the position's column in it."""
    start = 0 if len(text) <= _WINDOW else max(0, min(position - _WINDOW // 2, len(text) - _WINDOW))
    stop = min(len(text), start + _WINDOW)
    head, tail = "…" if start else "", "…" if stop < len(text) else ""
    return head + printable(text[start:stop]) + tail, len(head) + position - start
