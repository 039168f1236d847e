"""The arrays of a plan, each declared once: creation, growth, copies and saving follow."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from math import prod
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any, Final, Self

import numpy as np

from schedd.plan.compaction import Compaction
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.bounds import levels_for
from schedd.plan.kernels.freed import MOST_FREED, FreedLog
from schedd.plan.kernels.layout import Ints, Tables
from schedd.plan.kernels.memory import SPARE, repack_rows
from schedd.plan.kernels.place import note_all_held
from schedd.plan.packed_array import PackedArray, pack_array
from schedd.plan.schema import MOMENT, NUMBER, NUMBERS, Arrays, declared, fork_part, load_part, save_part

MOST_WORK = 100_000_000  # default limit of visited segments per search: one or two seconds

_LARGE = 1 << 13  # allocations with at least this many entries are moved to another slab in steps
_STEP = 1024  # jobs per step of the compaction, which then takes less than 0.1 ms


def _grown(a: Ints, shape: tuple[int, ...], make: Callable[..., Ints]) -> Ints:
    """Return a copy of ``a`` in this shape, padded with zeros."""
    new = make(*shape)
    new[tuple(map(slice, a.shape))] = a
    return new


@dataclass(frozen=True, slots=True)
class _ArraySpec:
    """Shape of an array: along each axis a number, the size of a named axis, or both.

    ``temporary`` arrays are not copied or saved; ``large`` ones are reserved at their full size; of those
    that are not ``cleared`` only the used part is ever read.
    """

    axes: tuple[int | str | tuple[int, str], ...]
    temporary: bool = False
    large: bool = False
    cleared: bool = True

    @property
    def make(self) -> Callable[..., Ints]:
        return self.make_zeros if self.cleared else _uncleared

    @property
    def make_zeros(self) -> Callable[..., Ints]:
        return reserve_zeros if self.large else _zeros

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape for these sizes of axes."""
        return tuple(
            axis
            if isinstance(axis, int)
            else axis[0] + sizes[axis[1]]
            if isinstance(axis, tuple)
            else sizes[axis]
            for axis in self.axes
        )

    def used(self, used: Mapping[str, int]) -> tuple[slice, ...]:
        """Return the part in use, if only this much of some axes is ``used``."""
        return tuple(slice(used.get(axis) if isinstance(axis, str) else None) for axis in self.axes)


def _zeros(*shape: int) -> Ints:
    return np.zeros(shape, np.int64)


def _uncleared(*shape: int) -> Ints:
    return np.empty(shape, np.int64)


_TABLES: Final = {
    "T": _ArraySpec(("segments",)),
    "F": _ArraySpec(("resources", "segments")),
    "rows": _ArraySpec(("rows", at.ROW_FIELDS)),
    "cap": _ArraySpec(("rows", "resources")),
    "jobs": _ArraySpec((at.JOB_FIELDS, "slots")),
    "shapes": _ArraySpec(("shapes", at.SHAPE_FIELDS)),
    "chunks": _ArraySpec(("chunks", (at.NEED, "resources"))),
    "sets": _ArraySpec(("sets",)),
    "costs": _ArraySpec(("sets",)),
    "pools": _ArraySpec(("pools", 2)),
    "alloc": _ArraySpec(("entries", (at.A_TAKE, "resources")), cleared=False),
    "ctl": _ArraySpec((at.CTL_FIELDS,)),
    "bounds": _ArraySpec(("steps", "rows")),
    "exact": _ArraySpec(("steps", "rows")),
    "scratch": _ArraySpec((at.SCRATCH_ROWS, "rows"), temporary=True),
    "out": _ArraySpec(("found", 3), temporary=True),
    "freed.entries": _ArraySpec((at.T_FIELDS, "holes"), large=True),
    "freed.length": _ArraySpec(("levels", "holes"), large=True),
    "freed.since": _ArraySpec(("levels", "holes"), large=True),
    "freed.until": _ArraySpec(("levels", "holes"), large=True),
}
"""The arrays of a plan: the arrays of ``Tables``, and the log of freed intervals."""

_BEGIN: Final = {
    "resources": at.BASE_RESOURCES,
    "rows": 0,
    "segments": 64,
    "slots": 64,
    "entries": 64,
    "shapes": 16,
    "chunks": 16,
    "sets": 64,
    "pools": 16,
    "steps": 0,
    "found": 1,
    "holes": MOST_FREED,
    "levels": 0,
}
"""Initial size of each axis. Sizes decide when arrays grow, and so the progress of a slice of repair: forks
have arrays of the same size.
"""


@dataclass(eq=False, slots=True)
class Slabs:
    """Holder of the arrays that kernels work on; replaces full arrays by larger ones."""

    tb: Tables
    freed: FreedLog
    vacant: list[int] = declared(NUMBERS, make=list)
    """Heap of free slots. The lowest is used next: of jobs that arrive in one second the first has the lowest
    slot, and precedes the others in repair.
    """
    n_shapes: int = declared(NUMBER, default=0)
    n_chunks: int = declared(NUMBER, default=0)
    n_sets: int = declared(NUMBER, default=0)
    n_pools: int = declared(NUMBER, default=0)
    most_chunks: int = declared(NUMBER, default=1)
    _compaction: Compaction | None = declared(MOMENT, default=None)
    _former: Ints | None = declared(MOMENT, default=None)

    @classmethod
    def empty(cls) -> Self:
        """Return the arrays of a plan without nodes and jobs."""
        arrays = {name: table.make(*table.shape(_BEGIN)) for name, table in _TABLES.items()}
        new = cls(*_bundled(arrays), vacant=list(range(_BEGIN["slots"])))
        new.limit_work(MOST_WORK, at.FAR)
        return new

    # ---- copies ---------------------------------------------------------------------------------

    @property
    def _arrays(self) -> dict[str, Ints]:
        return self.tb._asdict() | {f"freed.{name}": array for name, array in self.freed._asdict().items()}

    @property
    def _sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, array in self._arrays.items():
            pairs = zip(_TABLES[name].axes, array.shape, strict=True)
            found |= {axis: size for axis, size in pairs if isinstance(axis, str)}
        return found

    @property
    def _used(self) -> dict[str, int]:
        """Used part of the axes that are not fully used."""
        ctl = self.tb.ctl
        return {
            "segments": int(ctl[at.SLAB_TOP]),
            "entries": int(ctl[at.ALLOC_TOP]),
            "holes": int(ctl[at.FREED]),
            "shapes": self.n_shapes,
            "chunks": self.n_chunks,
            "sets": self.n_sets,
            "pools": self.n_pools,
        }

    def fork(self, room: int = 0) -> Self:
        """Return an independent copy with at least ``room`` free entries of the allocations."""
        tb, freed = _bundled(self._copied(room))
        return fork_part(self, tb=tb, freed=freed)

    def make_reset(self, to: Self) -> Callable[[], None]:
        """Return a function that resets this new fork to its origin ``to``, which must not change meanwhile:
        like another ``fork``, but always in the memory of this one.
        """
        tables, used = (self.tb, self.freed), to._used
        parts = {name: table.used(used) for name, table in _TABLES.items() if not table.temporary}
        mine, its = self._arrays, to._arrays
        pairs = [(mine[name][part], its[name][part]) for name, part in parts.items()]
        pairs = [(copy, original) for copy, original in pairs if original.size]

        def reset() -> None:
            for copy, original in pairs:
                np.copyto(copy, original)
            self.tb, self.freed = tables
            self.tb.ctl[at.STOP] = 0
            self._compaction = self._former = None

        return reset

    def _copied(self, room: int = 0) -> dict[str, Ints]:
        """Return copies of all arrays; see ``fork``."""
        used = self._used
        wanted = used["entries"] + room
        sizes = self._sizes | {"entries": wanted} if wanted > self.tb.alloc.shape[0] else None
        new = {}
        for name, array in self._arrays.items():
            table = _TABLES[name]
            new[name] = table.make(*(array.shape if sizes is None else table.shape(sizes)))
            if not table.temporary:
                part = table.used(used)
                new[name][part] = array[part]
        new["ctl"][at.STOP] = 0
        return new

    def pack(self) -> "PackedSlabs":
        """Return a copy in less memory, from which ``unpack`` makes an equal ``fork``."""
        used, arrays = self._used, self._arrays
        parts = {
            name: pack_array(arrays[name][table.used(used)])
            for name, table in _TABLES.items()
            if not table.temporary
        }
        shapes = {name: array.shape for name, array in arrays.items()}
        return PackedSlabs(fork_part(self, tb=None, freed=None), shapes, parts)

    def save(self) -> Generator[bytes, None, tuple[dict[str, Any], Arrays]]:
        """As ``save_part``: the used part of every array, the allocations in the order of their jobs."""
        plain, arrays = yield from save_part(self)
        found = self._arrays
        sizes = self._sizes | {"entries": self.alloc_shape()[0]}
        found["jobs"], found["ctl"], found["alloc"] = self._packed()
        taken = np.flatnonzero(found["jobs"][at.STATE] != at.VACANT)
        used = self._used | {"slots": int(taken[-1]) + 1 if taken.shape[0] else 0}
        used["entries"] = found["alloc"].shape[0]
        for name, table in _TABLES.items():
            if not table.temporary:
                arrays[f"tables.{name}"] = found[name][table.used(used)]
        return {**plain, "sizes": sizes}, arrays

    @classmethod
    def load(cls, plain: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return what ``save`` saved. Raises KeyError and ValueError."""
        new = {}
        for name, table in _TABLES.items():
            new[name] = table.make(*table.shape(plain["sizes"]))
            if not table.temporary:
                saved = arrays[f"tables.{name}"]
                new[name][tuple(map(slice, saved.shape))] = saved
        tb, freed = _bundled(new)
        slabs = load_part(cls, plain, arrays, tb=tb, freed=freed)
        slabs.limit_work(MOST_WORK, at.FAR)
        note_all_held(tb)
        return slabs

    def _packed(self) -> tuple[Ints, Ints, Ints]:
        """Return copies of the jobs, the counters and the allocations, the last without unused entries."""
        tb = self.tb
        jobs, ctl = tb.jobs.copy(), tb.ctl.copy()
        jobs[at.ALLOC, jobs[at.ALLOCS] == 0] = 0
        jobs[at.HELD] = 0  # recomputed by ``load``
        alloc = Compaction.compact_now(tb._replace(jobs=jobs, ctl=ctl), self._held)
        ctl[at.WORK], ctl[at.SEARCH_END] = 0, at.FAR  # previous work has no effect on a loaded plan
        return jobs, ctl, alloc

    # ---- growth ---------------------------------------------------------------------------------

    def _extend(self, **sizes: int) -> None:
        """Grow axes to these sizes, in every array that has them."""
        all_sizes = self._sizes | sizes
        arrays = self._arrays
        for name, table in _TABLES.items():
            shape = table.shape(all_sizes)
            if shape != arrays[name].shape:
                arrays[name] = (
                    table.make(*shape) if table.temporary else _grown(arrays[name], shape, table.make_zeros)
                )
        self.tb, self.freed = _bundled(arrays)

    @property
    def resources(self) -> int:
        """Number of resource columns."""
        return int(self.tb.F.shape[0])

    def limit_work(self, each: int, end: int) -> None:
        """Limit the work of each search, and the total ``WORK`` at which all searches give up."""
        self.tb.ctl[at.MOST_WORK] = each
        self.tb.ctl[at.WORK_END] = end

    def add_resource(self) -> int:
        """Add a resource column (0 on all rows). Return its number.

        Raises ValueError for more than ``layout.MOST_RESOURCES``.
        """
        column = self.resources
        if column == at.MOST_RESOURCES:
            raise ValueError(f"nodes have more than {column} resources, memory and cpus among them")
        self._extend(resources=column + 1)
        return column

    def add_rows(self, capacities: Ints, now: int) -> int:
        """Add timelines with free ``capacities`` (rows, resources). Return the first row."""
        tb = self.tb
        first, n = int(tb.rows.shape[0]), int(capacities.shape[0])
        if int(tb.ctl[at.SLAB_TOP]) + n * SPARE > tb.T.shape[0]:
            self.grow_segments(n)
        self._extend(rows=first + n)
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
        """Add bounds for nodes of up to ``cpus`` cpus."""
        width = levels_for(cpus) * at.DURATIONS
        if width > self.tb.bounds.shape[0]:
            self._extend(steps=width)

    def fit_log(self) -> None:
        """Add all levels of need to the log of freed intervals; new levels have no runs."""
        levels = self.tb.bounds.shape[0] // at.DURATIONS
        if levels > self.freed.length.shape[0]:
            self._extend(levels=levels)

    def _fit_out(self) -> None:
        """Make ``out`` large enough for every row and chunk."""
        tb = self.tb
        size = tb.rows.shape[0] * self.most_chunks
        if tb.out.shape[0] < size:
            self._extend(found=size)

    def grow_segments(self, rows: int = 0, wanted: int = 0) -> None:
        """Replace the rows' slab by a larger one (with space for ``rows`` more rows), without unused parts.
        At least ``wanted`` segments are unused in it.
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
        self.tb = self.tb._replace(T=T, F=F)

    def spare_segments(self) -> None:
        """Replace the rows' slab before it is full: when a job arrives, not in a slice of repair."""
        if 8 * int(self.tb.ctl[at.SLAB_TOP]) > 7 * self.tb.T.shape[0]:
            self.grow_segments()

    @property
    def _held(self) -> int:
        """Number of entries of the allocations held by jobs."""
        return int(self.tb.ctl[at.ALLOC_TOP] - self.tb.ctl[at.ALLOC_GARBAGE])

    def alloc_shape(self, more: int = 0) -> tuple[int, int]:
        """Return the shape of a slab for the held entries and as many again, at least ``more``."""
        return 2 * self._held + max(self.tb.out.shape[0], more) + 64, at.A_TAKE + self.resources

    def grow_alloc(self, more: int = 0) -> None:
        """Replace the allocations' slab by one with space for ``more``, without unused entries."""
        ahead, self._compaction = self._compaction, None
        if ahead is not None and ahead.finish(self.tb):
            self._replace_alloc(ahead.alloc)
            if int(self.tb.ctl[at.ALLOC_TOP]) + more <= ahead.alloc.shape[0]:
                return
        self._replace_alloc(Compaction.compact_now(self.tb, self.alloc_shape(more)[0]))

    def make_room(self, entries: int, times: int) -> bool:
        """Enlarge the slab that a kernel found full in an attempt with several jobs, which take ``entries``
        entries of the allocations. Return whether that was the rows' slab.

        ``times``: number of previous calls for this attempt that enlarged the rows' slab; its room doubles
        each time, since rows that grow in an attempt leave their old space unused until it ends. Full
        allocations have no effect on the rows' slab: a restored plan has allocations of another size.
        """
        tb = self.tb
        if wanted := int(tb.ctl[at.WANTED_ENTRIES]):
            tb.ctl[at.WANTED_ENTRIES] = 0
            self.grow_alloc(max(wanted, 2 * (tb.alloc.shape[0] - int(tb.ctl[at.ALLOC_TOP]))))
            return False
        tb.ctl[at.WANTED_SEGMENTS] = 0
        self.grow_segments(entries << times)
        return True

    def _replace_alloc(self, alloc: Ints) -> None:
        self._former = self.tb.alloc
        self.tb = self.tb._replace(alloc=alloc)

    def tidy(self, room: int) -> None:
        """Ensure that ``room`` entries of the allocations are free, in small steps where possible. Call it
        often.

        Published snapshots read the slab, so no entry is reused; copying all of it, or releasing the former
        one, would take as long as a slice of repair.
        """
        self._former = None
        tb = self.tb
        top, size = int(tb.ctl[at.ALLOC_TOP]), tb.alloc.shape[0]
        if self._compaction is not None:
            if self._compaction.step(tb, _STEP):
                self.grow_alloc(room)
        elif size >= _LARGE and 4 * top > 3 * size:
            self._compaction = Compaction(tb, reserve_zeros(*self.alloc_shape()))
        if int(tb.ctl[at.ALLOC_TOP]) + room > self.tb.alloc.shape[0]:
            self.grow_alloc(room)

    def renew_entries(self, slot: int) -> int:
        """Give a placed job copies of its entries of the allocations, which may be changed. Return the first.

        Published snapshots read the former entries.
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

    @property
    def needs_growth(self) -> bool:
        """Whether a kernel found a slab full, and none has grown since."""
        return bool(self.tb.ctl[[at.WANTED_ENTRIES, at.WANTED_SEGMENTS]].any())

    def grow(self) -> None:
        """Enlarge the slabs that a kernel found full, by the wanted size."""
        ctl = self.tb.ctl
        entries, segments = int(ctl[at.WANTED_ENTRIES]), int(ctl[at.WANTED_SEGMENTS])
        if not entries and not segments:
            raise AssertionError("a kernel says that a slab is full, and does not say which")
        ctl[[at.WANTED_ENTRIES, at.WANTED_SEGMENTS]] = 0
        if entries:
            self.grow_alloc(entries)
        if segments:
            self.grow_segments(wanted=segments)

    def grow_until_done(self, change: Callable[[Tables], bool]) -> None:
        """Call ``change`` until it reports success, enlarging full slabs in between.

        Both slabs may be full, one after the other. Raises AssertionError if one is full a second time.
        """
        for _ in range(3):
            if change(self.tb):
                return
            self.grow()
        raise AssertionError("a slab is full again, though it was made as large as was wanted")

    def add_slots(self) -> None:
        """Double the number of slots."""
        size = self.tb.jobs.shape[1]
        self._extend(slots=2 * size)
        self.vacant = list(range(size, 2 * size))

    def add_pools(self, entries: list[tuple[int, int]]) -> int:
        """Append (row, amount) entries. Return the first index."""
        first = self.n_pools
        n = first + len(entries)
        if n > self.tb.pools.shape[0]:
            self._extend(pools=2 * n)
        for i, entry in enumerate(entries):
            self.tb.pools[first + i] = entry
        self.n_pools = n
        return first

    def repack_pools(self) -> None:
        """Drop unused pool entries."""
        tb = self.tb
        pools = np.zeros_like(tb.pools)
        slots = np.flatnonzero(tb.jobs[at.POOLS])
        held = tb.jobs[at.POOLS, slots]
        first = np.cumsum(held) - held
        self.n_pools = int(held.sum())
        moved = np.repeat(tb.jobs[at.POOL, slots] - first, held)
        pools[: self.n_pools] = tb.pools[np.arange(self.n_pools) + moved]
        tb.jobs[at.POOL, slots] = first
        self.tb = self.tb._replace(pools=pools)

    def add_set(self, rows: Ints, costs: Ints) -> int:
        """Append a sorted row set with the cost of each row. Return its first index."""
        first = self.n_sets
        n = first + rows.shape[0]
        if n > self.tb.sets.shape[0]:
            self._extend(sets=2 * n)
        self.tb.sets[first:n] = rows
        self.tb.costs[first:n] = costs
        self.n_sets = n
        return first

    def add_shape(self) -> int:
        """Append an empty shape, to be filled by ``set_shape``. Return its number."""
        shape = self.n_shapes
        if shape == self.tb.shapes.shape[0]:
            self._extend(shapes=2 * shape)
        self.n_shapes = shape + 1
        return shape

    def set_shape(self, shape: int, room: int, fields: list[int], chunks: list[list[int]]) -> int:
        """Set the ``fields`` (layout.CHUNKS and on) and chunk rows (layout.COUNT and on) of a shape.

        Chunk rows replace its former ones in place if these have enough ``room``. Return the room they have.
        """
        first, n = int(self.tb.shapes[shape, at.CHUNK]), len(chunks)
        if n > room:
            first, room = self.n_chunks, n
            if first + n > self.tb.chunks.shape[0]:
                self._extend(chunks=2 * (first + n))
            self.n_chunks = first + n
        for i, chunk in enumerate(chunks, first):  # one by one: most have one, and nested lists take longer
            self.tb.chunks[i] = chunk
        self.tb.shapes[shape] = (first, *fields)
        if fields[0] > self.most_chunks:
            self.most_chunks = fields[0]
            self._fit_out()
        return room


def _bundled(arrays: Mapping[str, Ints]) -> tuple[Tables, FreedLog]:
    return (
        Tables(**{name: arrays[name] for name in Tables._fields}),
        FreedLog(**{name: arrays[f"freed.{name}"] for name in FreedLog._fields}),
    )


@dataclass(frozen=True, slots=True, eq=False)
class PackedSlabs:
    """Copy of slabs; each column has the smallest integer type that holds its values."""

    rest: Slabs  # without arrays
    _shapes: Mapping[str, tuple[int, ...]]
    _parts: Mapping[str, PackedArray]

    @property
    def size(self) -> int:
        """Memory of the arrays, in bytes."""
        return sum(part.size for part in self._parts.values())

    def unpack(self) -> Slabs:
        """Return slabs equal to a fork of the packed ones."""
        arrays = {name: _TABLES[name].make(*shape) for name, shape in self._shapes.items()}
        for name, part in self._parts.items():
            part.unpack_into(arrays[name])
        arrays["ctl"][at.STOP] = 0
        tb, freed = _bundled(arrays)
        return fork_part(self.rest, tb=tb, freed=freed)


def reserve_zeros(*shape: int) -> Ints:
    """Return zeros of this shape; the system provides each page at its first write.

    NumPy requests huge pages for arrays of some MB: then a whole huge page is cleared at the first write.
    """
    size = prod(shape)
    if not size:
        return np.zeros(shape, np.int64)
    return np.frombuffer(mmap(-1, 8 * size, MAP_PRIVATE | MAP_ANONYMOUS), np.int64).reshape(shape)
