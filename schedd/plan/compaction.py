"""Incremental compaction: the next slab of the allocations is filled while the present one is in use."""

import numpy as np

from schedd.plan.kernels import layout as at
from schedd.plan.kernels.layout import Ints, Tables
from schedd.plan.kernels.memory import copy_entries, move_alloc


class Compaction:
    """Copies the entries of jobs ahead of the move to a new slab.

    Entries of a job are never changed, so a copy is valid as long as the job holds the same ones. While the
    tables keep their slab, ``step`` continues and ``finish`` completes the compaction.
    """

    __slots__ = ("_copied", "_new_first", "_old_first", "_top", "alloc")

    def __init__(self, tb: Tables, alloc: Ints) -> None:
        """``alloc`` is the new, empty slab."""
        slots = tb.jobs.shape[1]
        self.alloc = alloc
        self._old_first = np.empty(slots, np.int64)
        self._new_first = np.empty(slots, np.int64)
        self._copied = 0
        self._top = 0

    def step(self, tb: Tables, slots: int) -> bool:
        """Copy the entries of the next ``slots`` jobs. Return whether all are copied, or the slab is full."""
        n = min(slots, self._old_first.shape[0] - self._copied)
        top = copy_entries(tb, self.alloc, self._old_first, self._new_first, self._copied, n, self._top)
        if top < 0:
            return True
        self._top = top
        self._copied += n
        return self._copied == self._old_first.shape[0]

    def finish(self, tb: Tables) -> bool:
        """Switch all jobs to ``alloc``, which then belongs into ``tb``. Return False if it is too small."""
        fits = self.alloc.shape[1] == at.A_TAKE + tb.F.shape[0]
        return fits and move_alloc(tb, self.alloc, self._old_first, self._new_first, self._copied, self._top)

    @classmethod
    def compact_now(cls, tb: Tables, size: int) -> Ints:
        """Move all jobs to a slab of ``size`` at once. Return it. Raises ValueError if it is too small."""
        whole = cls(tb, np.empty((size, at.A_TAKE + tb.F.shape[0]), np.int64))
        whole.step(tb, tb.jobs.shape[1])
        if not whole.finish(tb):
            raise ValueError(f"the allocations do not fit in {size} entries")
        return whole.alloc
