"""Bounds of the numbers in messages. Adapters send and daemons accept only numbers within them.

Sums and products of such numbers fit into 64 bits in the planner.
"""

from typing import Final

TIME_END: Final = 1 << 36  # upper bound of times in seconds since the epoch (the year 4147)
AMOUNT_END: Final = 1 << 48
"""Upper bound of amounts, including KiB of memory. Signed numbers are above its negative."""
CORES_END: Final = 1 << 24  # upper bound of cores and gpus of a node, or of a job on a node


def bounded(number: int, end: int, least: int = 0) -> int:
    """Return the number, limited to ``[least, end)``."""
    return min(max(number, least), end - 1)
