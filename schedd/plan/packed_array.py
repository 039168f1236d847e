"""Arrays of integers in less memory, without loss."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schedd.plan.kernels.layout import Ints

_TYPES: Final = (np.int8, np.int16, np.int32, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class PackedArray:
    """Columns of an array along its shorter axis, each with the smallest type that holds its values."""

    _columns: tuple[NDArray[Any], ...]
    _axis: int

    @property
    def size(self) -> int:
        """Memory in bytes."""
        return sum(column.nbytes for column in self._columns)

    def unpack_into(self, array: Ints) -> None:
        """Write the values to the beginning of each axis of ``array``."""
        for column, packed in zip(_columns(array, self._axis), self._columns, strict=False):
            column[: packed.shape[0]] = packed


def pack_array(array: Ints) -> PackedArray:
    """Pack an array of one or two axes."""
    axis = 0 if array.ndim == 1 or array.shape[0] <= array.shape[1] else 1
    return PackedArray(tuple(map(_shorten, _columns(array, axis))), axis)


def _columns(array: Ints, axis: int) -> Iterable[Ints]:
    table = array.reshape(1, -1) if array.ndim == 1 else array
    return table if axis == 0 else table.T


def _shorten(column: Ints) -> NDArray[Any]:
    if not column.shape[0]:
        return np.empty(0, np.int8)
    least, most = int(column.min()), int(column.max())
    kind = next(one for one in _TYPES if np.iinfo(one).min <= least and most <= np.iinfo(one).max)
    return column.astype(kind)
