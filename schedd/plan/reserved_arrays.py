"""Large arrays that take memory only as far as they are used."""

from math import prod
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

import numpy as np

from schedd.plan.kernels.layout import Ints

__all__ = ["reserve_zeros"]


def reserve_zeros(*shape: int) -> Ints:
    """Zeros of this shape, which the system provides page by page as they are written to.

    NumPy's own of some MB ask for huge pages: then a whole one is cleared where the first number is written.
    """
    size = prod(shape)
    if not size:
        return np.zeros(shape, np.int64)
    return np.frombuffer(mmap(-1, 8 * size, MAP_PRIVATE | MAP_ANONYMOUS), np.int64).reshape(shape)
