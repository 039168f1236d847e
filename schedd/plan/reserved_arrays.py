"""Large arrays that use memory only for pages that were written."""

from math import prod
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

import numpy as np

from schedd.plan.kernels.layout import Ints


def reserve_zeros(*shape: int) -> Ints:
    """Return zeros of this shape; the system provides each page at its first write.

    NumPy requests huge pages for arrays of some MB: then a whole huge page is cleared at the first write.
    """
    size = prod(shape)
    if not size:
        return np.zeros(shape, np.int64)
    return np.frombuffer(mmap(-1, 8 * size, MAP_PRIVATE | MAP_ANONYMOUS), np.int64).reshape(shape)
