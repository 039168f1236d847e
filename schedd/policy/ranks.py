"""Ranks of jobs as integers, from values of any size.

A rank keeps the order of the values: it is the integer of the leading bits of a 64-bit float. Values that
differ by less than about one part in 10**12 have the same rank, so that rounding errors do not make equal
jobs displace each other.
"""

from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

_DROPPED_BITS: Final = 12
_FLOAT: Final = Struct("<d")
_WHOLE: Final = Struct("<q")


def encode_ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the rank of each value; values must not be NaN."""
    half = 1 << (_DROPPED_BITS - 1)  # round to nearest
    size = (np.abs(values).view(np.int64) + half) >> _DROPPED_BITS
    return np.where(values < 0, -size, size)


def encode_rank(value: float) -> int:
    """Return the rank of one value, as ``encode_ranks``."""
    half = 1 << (_DROPPED_BITS - 1)
    bits: int = _WHOLE.unpack(_FLOAT.pack(abs(value)))[0]
    size = (bits + half) >> _DROPPED_BITS
    return -size if value < 0 else size


def decode_rank(rank: int) -> float:
    """Return the value of a rank, to 12 digits."""
    bits = np.array([abs(rank) << _DROPPED_BITS], np.int64)
    size = float(min(bits.view(np.float64)[0], np.finfo(np.float64).max))
    return -size if rank < 0 else size
