"""Errors in DIS bytes: incomplete, malformed, or beyond a limit."""


class DisError(ValueError):
    """Bytes that are not a DIS value. `offset` is the position of the error."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} at byte {offset}")
        self.reason = reason
        self.offset = offset


class DisIncompleteError(DisError):
    """The value continues after the last available byte; with at least `needed` bytes it may be complete."""

    def __init__(self, offset: int, needed: int) -> None:
        super().__init__(f"the value needs {needed} bytes or more and they end", offset)
        self.needed = needed


class DisSyntaxError(DisError):
    """Malformed bytes, with any continuation."""


class DisLimitError(DisError):
    """Legal, but longer or larger than the reader's limits."""
