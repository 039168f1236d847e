"""What can be wrong with DIS bytes: they end too early, break the grammar, or exceed a limit."""


class DisError(ValueError):
    """Bytes that are no DIS value. `offset` is the byte where the trouble was met."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} at byte {offset}")
        self.reason = reason
        self.offset = offset


class DisIncompleteError(DisError):
    """The value goes on after the last byte at hand; with at least `needed` bytes it is worth another try."""

    def __init__(self, offset: int, needed: int) -> None:
        super().__init__(f"the value needs {needed} bytes or more and they end", offset)
        self.needed = needed


class DisSyntaxError(DisError):
    """Bytes that no continuation can make legal."""


class DisLimitError(DisError):
    """Legal, but longer or larger than the reader's limits."""
