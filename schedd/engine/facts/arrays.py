"""Job arrays as wholes: by what number their jobs know each other."""

from hashlib import blake2b

__all__ = ["array_number"]


def array_number(array: str) -> int:
    """A positive number for an array's id, the same in every process; 0 for the empty id of a job of none.

    63 bits of a hash: were two of a million arrays to share one (once in ten million such sites), the only
    consequence would be the order in which their jobs are repaired.
    """
    if not array:
        return 0
    return int.from_bytes(blake2b(array.encode(), digest_size=8).digest()) >> 1 | 1
