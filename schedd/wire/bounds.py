"""Bounds of the numbers in messages: an adapter sends none beyond them, and a daemon takes none.

Sums and products of numbers within these bounds fit into 64 bits wherever the planner makes them.
"""

from typing import Final

__all__ = ["AMOUNT_END", "CORES_END", "TIME_END", "bounded"]

TIME_END: Final = 1 << 36
"""Moments, in seconds since the epoch, are before this one (the year 4147)."""
AMOUNT_END: Final = 1 << 48
"""Amounts are below this; KiB of memory, too. A number with a sign is above its negative."""
CORES_END: Final = 1 << 24
"""Cores and gpus of a node, or of a job on a node, are below this."""


def bounded(number: int, end: int, least: int = 0) -> int:
    """The number, or the nearest one from ``least`` on and below ``end``."""
    return min(max(number, least), end - 1)
