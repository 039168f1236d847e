"""The next slab of the allocations, filled little by little while the present one is in use."""

import numpy as np

from schedd.plan.kernels import layout as at
from schedd.plan.kernels.layout import Ints, Tables
from schedd.plan.kernels.memory import copy_entries, move_alloc

__all__ = ["Compaction"]


class Compaction:
    """Copies what jobs hold ahead of the moment at which all of them move to a new slab.

    Entries that a job holds are not written to, so a copy is good as long as the job holds the same ones. In
    the same tables, while their slab is the same,
    ``step`` goes on with it and ``finish`` ends it.
    """

    __slots__ = ("_copied", "_new_first", "_old_first", "_top", "alloc")

    def __init__(self, tb: Tables, alloc: Ints) -> None:
        """``alloc`` is the new slab, in which nothing stands yet."""
        slots = tb.jobs.shape[1]
        self.alloc = alloc
        self._old_first = np.empty(slots, np.int64)
        self._new_first = np.empty(slots, np.int64)
        self._copied = 0
        self._top = 0

    def step(self, tb: Tables, slots: int) -> bool:
        """Copy what the next ``slots`` jobs hold; returns whether all is copied, or the slab is full."""
        n = min(slots, self._old_first.shape[0] - self._copied)
        top = copy_entries(tb, self.alloc, self._old_first, self._new_first, self._copied, n, self._top)
        if top < 0:
            return True
        self._top = top
        self._copied += n
        return self._copied == self._old_first.shape[0]

    def finish(self, tb: Tables) -> bool:
        """Let all jobs hold their entries in ``alloc``, which belongs into ``tb`` then; False: too small."""
        fits = self.alloc.shape[1] == at.A_TAKE + tb.F.shape[0]
        return fits and move_alloc(tb, self.alloc, self._old_first, self._new_first, self._copied, self._top)

    @classmethod
    def compact_now(cls, tb: Tables, size: int) -> Ints:
        """Let all jobs hold their entries in a slab of ``size``, at once; returns it. Raises ValueError when
        it is too small.
        """
        whole = cls(tb, np.empty((size, at.A_TAKE + tb.F.shape[0]), np.int64))
        whole.step(tb, tb.jobs.shape[1])
        if not whole.finish(tb):
            raise ValueError(f"the allocations do not fit in {size} entries")
        return whole.alloc
