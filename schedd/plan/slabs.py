"""The plan's arrays: made, grown, copied."""

from collections.abc import Callable

import numpy as np

from schedd.plan.compaction import Compaction
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.bounds import levels_for
from schedd.plan.kernels.layout import Ints, Tables
from schedd.plan.kernels.memory import SPARE, repack_rows
from schedd.plan.reserve import reserved

__all__ = ["MOST_WORK", "Slabs"]

MOST_WORK = 100_000_000
"""Segments that one search visits at most, unless the plan is told otherwise: one or two seconds."""

_LARGE = 1 << 13
"""Entries of the allocations from which on they are moved to another slab in steps."""
_STEP = 1024
"""Jobs whose entries are copied in one step, which then takes less than 0.1 ms."""


def _grown(a: Ints, size: int, axis: int) -> Ints:
    """A copy of ``a`` with ``size`` places along ``axis``, the new ones zero."""
    shape = list(a.shape)
    kept = shape[axis]
    shape[axis] = size
    new = np.zeros(shape, np.int64)
    new[(slice(None),) * axis + (slice(0, kept),)] = a
    return new


class Slabs:
    """Holder of the ``Tables`` that kernels work on; replaces arrays that are full by larger ones."""

    __slots__ = ("_ahead", "_former", "most_chunks", "n_chunks", "n_pools", "n_sets", "n_shapes", "tb")

    def __init__(self, resources: int) -> None:
        self.tb = Tables(
            T=np.zeros(64, np.int64),
            F=np.zeros((resources, 64), np.int64),
            rows=np.zeros((0, at.ROW_FIELDS), np.int64),
            cap=np.zeros((0, resources), np.int64),
            jobs=np.zeros((at.JOB_FIELDS, 64), np.int64),
            shapes=np.zeros((16, at.SHAPE_FIELDS), np.int64),
            chunks=np.zeros((16, at.NEED + resources), np.int64),
            sets=np.zeros(64, np.int64),
            pools=np.zeros((16, 2), np.int64),
            alloc=np.zeros((64, at.A_TAKE + resources), np.int64),
            ctl=np.zeros(at.CTL_FIELDS, np.int64),
            bounds=np.zeros((at.DURATIONS, 0), np.int64),
            exact=np.zeros((at.DURATIONS, 0), np.int64),
            scratch=np.zeros((at.SCRATCH_ROWS, 1), np.int64),
            out=np.zeros((1, 3), np.int64),
        )
        self.limit_work(MOST_WORK, at.FAR)
        self._ahead: Compaction | None = None
        self._former: Ints | None = None
        self.n_shapes = 0
        self.most_chunks = 1
        self.n_chunks = 0
        self.n_sets = 0
        self.n_pools = 0

    @property
    def resources(self) -> int:
        """How many resources every row counts."""
        return int(self.tb.F.shape[0])

    def _swap(self, **arrays: Ints) -> None:
        self.tb = self.tb._replace(**arrays)

    def limit_work(self, each: int, end: int) -> None:
        """Let a search give up beyond so much work, and all searches when the work of all is at ``end``."""
        self.tb.ctl[at.MOST_WORK] = each
        self.tb.ctl[at.WORK_END] = end

    def add_resource(self) -> int:
        """Count one resource more (no row has any of it yet); returns its column.

        Raises ValueError for more than ``layout.MOST_RESOURCES``.
        """
        tb = self.tb
        column = self.resources
        if column == at.MOST_RESOURCES:
            raise ValueError(f"nodes have more than {column} resources, memory and cpus among them")
        self._swap(
            F=_grown(tb.F, column + 1, 0),
            cap=_grown(tb.cap, column + 1, 1),
            chunks=_grown(tb.chunks, at.NEED + column + 1, 1),
            alloc=_grown(tb.alloc, at.A_TAKE + column + 1, 1),
        )
        return column

    def add_rows(self, capacities: Ints, now: int) -> int:
        """Add timelines on which ``capacities`` (rows, resources) are free; returns the first's number."""
        tb = self.tb
        first, n = int(tb.rows.shape[0]), int(capacities.shape[0])
        if int(tb.ctl[at.SLAB_TOP]) + n * SPARE > tb.T.shape[0]:
            self.grow_segments(n)
            tb = self.tb
        self._swap(
            rows=_grown(tb.rows, first + n, 0),
            cap=_grown(tb.cap, first + n, 0),
            bounds=_grown(tb.bounds, first + n, 1),
            exact=_grown(tb.exact, first + n, 1),
            scratch=np.zeros((at.SCRATCH_ROWS, first + n), np.int64),
        )
        self._fit_out()
        tb = self.tb
        top = int(tb.ctl[at.SLAB_TOP])
        offsets = top + SPARE * np.arange(n)
        tb.rows[first:, at.OFF] = offsets
        tb.rows[first:, at.LEN] = 1
        tb.rows[first:, at.ROOM] = SPARE
        tb.rows[first:, at.USABLE] = 1
        tb.rows[first:, at.VERSION] = 1
        tb.rows[first:, at.FREED_AT] = -1
        tb.cap[first:] = capacities
        tb.T[offsets] = now
        tb.F[:, offsets] = capacities.T
        tb.ctl[at.SLAB_TOP] = top + n * SPARE
        return first

    def fit_levels(self, cpus: int) -> None:
        """Keep bounds for nodes of up to ``cpus`` cpus."""
        width = levels_for(cpus) * at.DURATIONS
        if width > self.tb.bounds.shape[0]:
            self._swap(bounds=_grown(self.tb.bounds, width, 0), exact=_grown(self.tb.exact, width, 0))

    def _fit_out(self) -> None:
        """Room in ``out`` for every row and kind of chunk."""
        tb = self.tb
        size = tb.rows.shape[0] * self.most_chunks
        if tb.out.shape[0] < size:
            self._swap(out=np.zeros((size, 3), np.int64))

    def grow_segments(self, rows: int = 0, wanted: int = 0) -> None:
        """Give the rows a larger slab (with some for so many more ``rows``), dropping what lies unused.

        So many segments as are ``wanted`` are unused in it.
        """
        tb = self.tb
        used = int(tb.ctl[at.SLAB_TOP] - tb.ctl[at.GARBAGE])
        size = max(2 * used + 2 * SPARE * (tb.rows.shape[0] + rows + 1), 64)
        if wanted:
            lengths = tb.rows[:, at.LEN]
            size = max(size, int((lengths + lengths // 2 + SPARE).sum()) + wanted)
        T = np.zeros(size, np.int64)
        F = np.zeros((self.resources, size), np.int64)
        repack_rows(tb, T, F)
        self._swap(T=T, F=F)

    def spare_segments(self) -> None:
        """Give the rows a larger slab before theirs is full: when a job comes, not in a slice of repair."""
        if 8 * int(self.tb.ctl[at.SLAB_TOP]) > 7 * self.tb.T.shape[0]:
            self.grow_segments()

    @property
    def _held(self) -> int:
        """How many entries of the allocations jobs hold."""
        return int(self.tb.ctl[at.ALLOC_TOP] - self.tb.ctl[at.ALLOC_GARBAGE])

    def size_of_alloc(self, more: int = 0) -> tuple[int, int]:
        """The shape of a slab for what jobs hold, and as much, at least ``more``, besides."""
        return 2 * self._held + max(self.tb.out.shape[0], more) + 64, at.A_TAKE + self.resources

    def grow_alloc(self, more: int = 0) -> None:
        """Give the allocations another slab with room for ``more``, dropping what lies unused."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.finish(self.tb):
            self._take_over(ahead.alloc)
            if int(self.tb.ctl[at.ALLOC_TOP]) + more <= ahead.alloc.shape[0]:
                return
        self._take_over(Compaction.of(self.tb, self.size_of_alloc(more)[0]))

    def make_room(self, entries: int, times: int) -> None:
        """Make room for an attempt with several jobs that take so many ``entries`` of the allocations.

        ``times``: how often room was made for it already, and was not enough; it is twice as much each time,
        since rows that grow in such an attempt leave their old places unused until it ends.
        """
        self.tb.ctl[[at.WANTED_ENTRIES, at.WANTED_SEGMENTS]] = 0
        more = entries << times
        if int(self.tb.ctl[at.ALLOC_TOP]) + more > self.tb.alloc.shape[0]:
            self.grow_alloc(more)
        self.grow_segments(more)

    def _take_over(self, alloc: Ints) -> None:
        self._former = self.tb.alloc
        self._swap(alloc=alloc)

    def tidy(self, room: int) -> None:
        """See to it that ``room`` entries of the allocations are free; do so in steps as far as possible.

        Call it often. Published snapshots read the slab, so no place in it is used a second time; and to copy
        all of it, or to give back the memory of the last one, would take as long as a slice of repair.
        """
        self._former = None
        tb = self.tb
        top, size = int(tb.ctl[at.ALLOC_TOP]), tb.alloc.shape[0]
        if self._ahead is not None:
            if self._ahead.step(tb, _STEP):
                self.grow_alloc(room)
        elif size >= _LARGE and 4 * top > 3 * size:
            self._ahead = Compaction(tb, reserved(*self.size_of_alloc()))
        if int(tb.ctl[at.ALLOC_TOP]) + room > self.tb.alloc.shape[0]:
            self.grow_alloc(room)

    def renew_entries(self, slot: int) -> int:
        """Let a placed job hold copies of its entries of the allocations; returns the first.

        They may be written to: published snapshots read those that the job had.
        """
        n = int(self.tb.jobs[at.ALLOCS, slot])
        if int(self.tb.ctl[at.ALLOC_TOP]) + n > self.tb.alloc.shape[0]:
            self.grow_alloc(n)
        tb = self.tb
        old, new = int(tb.jobs[at.ALLOC, slot]), int(tb.ctl[at.ALLOC_TOP])
        tb.alloc[new : new + n] = tb.alloc[old : old + n]
        tb.jobs[at.ALLOC, slot] = new
        tb.ctl[at.ALLOC_TOP] += n
        tb.ctl[at.ALLOC_GARBAGE] += n
        return new

    def packed(self) -> tuple[Ints, Ints, Ints]:
        """Copies of the jobs, of the counters and of the allocations, these without what lies unused."""
        tb = self.tb
        jobs, ctl = tb.jobs.copy(), tb.ctl.copy()
        jobs[at.ALLOC, jobs[at.ALLOCS] == 0] = 0
        jobs[at.HELD] = 0  # which is found again
        alloc = Compaction.of(tb._replace(jobs=jobs, ctl=ctl), self._held)
        return jobs, ctl, alloc

    def grow(self) -> None:
        """After a kernel said that a slab is full: enlarge it by as much as is wanted."""
        ctl = self.tb.ctl
        entries, segments = int(ctl[at.WANTED_ENTRIES]), int(ctl[at.WANTED_SEGMENTS])
        if not entries and not segments:
            raise AssertionError("a kernel says that a slab is full, and does not say which")
        ctl[[at.WANTED_ENTRIES, at.WANTED_SEGMENTS]] = 0
        if entries:
            self.grow_alloc(entries)
        if segments:
            self.grow_segments(wanted=segments)

    def until_it_fits(self, change: Callable[[Tables], bool]) -> None:
        """Call ``change`` until it says that it is done, enlarging what was full in between.

        Both slabs may be full, one after the other: who finds one full once more asks for more than was
        wanted. Raises AssertionError.
        """
        for _ in range(3):
            if change(self.tb):
                return
            self.grow()
        raise AssertionError("a slab is full again, though it was made as large as was wanted")

    def add_slots(self) -> None:
        """Twice as many places for jobs."""
        self._swap(jobs=_grown(self.tb.jobs, 2 * self.tb.jobs.shape[1], 1))

    def add_pools(self, entries: list[tuple[int, int]]) -> int:
        """Append (row, amount) entries; returns the first."""
        first = self.n_pools
        n = first + len(entries)
        if n > self.tb.pools.shape[0]:
            self._swap(pools=_grown(self.tb.pools, 2 * n, 0))
        for i, entry in enumerate(entries):
            self.tb.pools[first + i] = entry
        self.n_pools = n
        return first

    def repack_pools(self) -> None:
        """Drop pool entries that no job refers to."""
        tb = self.tb
        pools = np.zeros_like(tb.pools)
        slots = np.flatnonzero(tb.jobs[at.POOLS])
        held = tb.jobs[at.POOLS, slots]
        first = np.cumsum(held) - held
        self.n_pools = int(held.sum())
        moved = np.repeat(tb.jobs[at.POOL, slots] - first, held)
        pools[: self.n_pools] = tb.pools[np.arange(self.n_pools) + moved]
        tb.jobs[at.POOL, slots] = first
        self._swap(pools=pools)

    def add_set(self, rows: Ints) -> int:
        """Append a sorted row set; returns its first place."""
        first = self.n_sets
        n = first + rows.shape[0]
        if n > self.tb.sets.shape[0]:
            self._swap(sets=_grown(self.tb.sets, 2 * n, 0))
        self.tb.sets[first:n] = rows
        self.n_sets = n
        return first

    def add_shape(self) -> int:
        """Append a shape, of which ``set_shape`` says what it is; returns its number."""
        shape = self.n_shapes
        if shape == self.tb.shapes.shape[0]:
            self._swap(shapes=_grown(self.tb.shapes, 2 * shape, 0))
        self.n_shapes = shape + 1
        return shape

    def set_shape(self, shape: int, room: int, fields: list[int], chunks: list[list[int]]) -> int:
        """Say what a shape is: its ``fields`` (layout.CHUNKS and on) and chunk rows (layout.COUNT and on).

        They stand where those did that it had, if these had as much ``room``; returns how much they have.
        """
        first, n = int(self.tb.shapes[shape, at.CHUNK]), len(chunks)
        if n > room:
            first, room = self.n_chunks, n
            if first + n > self.tb.chunks.shape[0]:
                self._swap(chunks=_grown(self.tb.chunks, 2 * (first + n), 0))
            self.n_chunks = first + n
        self.tb.chunks[first : first + n] = chunks
        self.tb.shapes[shape] = (first, *fields)
        if fields[0] > self.most_chunks:
            self.most_chunks = fields[0]
            self._fit_out()
        return room

    def fork(self) -> "Slabs":
        """An independent copy, trimmed to what is in use."""
        tb = self.tb
        new = object.__new__(Slabs)
        top = int(tb.ctl[at.SLAB_TOP])
        spare = top // 8 + 64
        T = np.empty(top + spare, np.int64)
        T[:top] = tb.T[:top]
        F = np.empty((self.resources, top + spare), np.int64)
        F[:, :top] = tb.F[:, :top]
        ctl = tb.ctl.copy()
        ctl[at.STOP] = 0
        taken = int(ctl[at.ALLOC_TOP])
        alloc = np.empty((taken + taken // 8 + tb.out.shape[0] + 64, tb.alloc.shape[1]), np.int64)
        alloc[:taken] = tb.alloc[:taken]
        new.tb = Tables(
            T=T,
            F=F,
            rows=tb.rows.copy(),
            cap=tb.cap.copy(),
            jobs=tb.jobs.copy(),
            shapes=tb.shapes.copy(),
            chunks=tb.chunks.copy(),
            sets=tb.sets.copy(),
            pools=tb.pools.copy(),
            alloc=alloc,
            ctl=ctl,
            bounds=tb.bounds.copy(),
            exact=tb.exact.copy(),
            scratch=np.zeros_like(tb.scratch),
            out=np.zeros_like(tb.out),
        )
        new._ahead = new._former = None
        new.most_chunks = self.most_chunks
        new.n_shapes, new.n_chunks = self.n_shapes, self.n_chunks
        new.n_sets, new.n_pools = self.n_sets, self.n_pools
        return new
