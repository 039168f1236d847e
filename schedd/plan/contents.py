"""The parts of a plan, copied and saved as their fields declare, and all reading access to them."""

from collections.abc import Collection, Generator, Iterable, KeysView, Mapping, Sequence
from typing import Any, Self, TypeVar

import numpy as np

from schedd.model import FOREVER, Chunk, Never, Node, Place, Request
from schedd.plan.columns import HeldEntries, PlanReadView, SlotColumns, select_entries
from schedd.plan.job_order import by_start
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.current_use import overcommitted_row
from schedd.plan.kernels.due_jobs import due_jobs, next_start, waiting_before
from schedd.plan.kernels.free_amounts import is_on_first_row, least_free
from schedd.plan.kernels.layout import Ints, Tables
from schedd.plan.kernels.place import first_startable, jobs_in_conflict, jobs_on_rows, misplaced
from schedd.plan.machine import Machine
from schedd.plan.records import ChunkNeeds, Take, Timeline
from schedd.plan.repairs import Repairs
from schedd.plan.requests import chunks_to_place
from schedd.plan.scarcity import NodeChoice
from schedd.plan.schema import Arrays, arrays_below, fork_part, load_part, save_part
from schedd.plan.shapes import Shapes
from schedd.plan.slabs import Slabs
from schedd.plan.unmet_requirements import NO_UNITS, find_unmet_by_chunk

_C = TypeVar("_C", bound="PlanContents")
_NOTHING = np.zeros(0, np.int64)
_NO_AMOUNTS = np.zeros((0, 1), np.int64)


class PlanContents:
    """Parts of a plan and reading access; changes are in ``Plan``."""

    def _assemble(self, slabs: Slabs, shapes: Shapes, repairs: Repairs, machine: Machine) -> None:
        """These parts are all that a plan is."""
        self.slabs, self.shapes, self._repairs, self._machine = slabs, shapes, repairs, machine

    # ---- copies ---------------------------------------------------------------------------------

    def _copied(self, kind: type[_C], slabs: Slabs) -> _C:
        """Return a copy of the plan with ``slabs``, a copy of its own."""
        shapes, repairs = fork_part(self.shapes, _slabs=slabs), fork_part(self._repairs, _slabs=slabs)
        machine = fork_part(self._machine, _slabs=slabs, _shapes=shapes, _repairs=repairs)
        new = object.__new__(kind)
        new._assemble(slabs, shapes, repairs, machine)
        return new

    def save(self) -> Generator[bytes, None, tuple[dict[str, Any], Arrays]]:
        """Return the plan as JSON-able values and arrays; yields nothing, often, to be interrupted there.

        The plan must not change meanwhile: save a fork.
        """
        saved = {
            "slabs": (yield from self.slabs.save()),
            "shapes": (yield from save_part(self.shapes)),
            "repairs": (yield from save_part(self._repairs)),
            "machine": (yield from save_part(self._machine)),
        }
        plain = {name: part for name, (part, _) in saved.items()}
        return plain, {f"{name}.{key}": a for name, (_, arrays) in saved.items() for key, a in arrays.items()}

    @classmethod
    def load(cls, plain: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the plan that ``save`` saved, with equal behaviour. Raises KeyError, ValueError."""
        own = {name: arrays_below(name, arrays) for name in plain}
        slabs = Slabs.load(plain["slabs"], own["slabs"])
        shapes = load_part(Shapes, plain["shapes"], own["shapes"], _slabs=slabs)
        repairs = load_part(Repairs, plain["repairs"], own["repairs"], _slabs=slabs)
        parts = {"_slabs": slabs, "_shapes": shapes, "_repairs": repairs}
        new = object.__new__(cls)
        new._assemble(slabs, shapes, repairs, load_part(Machine, plain["machine"], own["machine"], **parts))
        return new

    # ---- the whole ------------------------------------------------------------------------------

    @property
    def tables(self) -> Tables:
        """The arrays, for kernels; internal to this package."""
        return self.slabs.tb

    @property
    def repairs(self) -> Repairs:
        """The state of the repair; internal to this package."""
        return self._repairs

    # ---- reading ----------------------------------------------------------------------------------

    @property
    def jobs(self) -> SlotColumns:
        """Columns by slot: starts, durations, earliest starts, states."""
        return SlotColumns(self.slabs.tb.jobs)

    def read_view(self) -> PlanReadView:
        """Return the present plan, for readers in other threads."""
        tb = self.slabs.tb
        return PlanReadView(tb.jobs, tb.alloc)

    def held(self, slots: Ints) -> HeldEntries:
        """Return everything that ``slots`` hold, of nodes and pools."""
        tb = self.slabs.tb
        return select_entries(tb.alloc, tb.jobs[at.ALLOC, slots], tb.jobs[at.ALLOCS, slots])

    def timeline(self, row: int) -> Timeline:
        """Return the free capacity of a row over time."""
        tb = self.slabs.tb
        part = slice(tb.rows.item(row, at.OFF), int(tb.rows[row, at.OFF] + tb.rows[row, at.LEN]))
        return Timeline(tb.T[part].copy(), tb.F[:, part].copy(), tb.cap[row].copy())

    def node_choice(self, slot: int) -> NodeChoice:
        """How the nodes of a placed job were chosen among all nodes that allow the same start."""
        chunks = self.request(slot).chunks
        return self.shapes.node_choice(
            (take.row, chunks[take.chunk]) for take in self.takes(slot) if take.chunk < len(chunks)
        )

    def usable_rows(self, rows: Ints) -> Ints:
        """Return the rows among these that jobs may be placed on, in their order."""
        found: Ints = rows[self.slabs.tb.rows[rows, at.USABLE] > 0]
        return found

    def free_amounts(self, rows: Ints, start: int, end: int) -> Ints:
        """Return the least free amounts of (n,) rows over ``[start, end)``, (resources, n)."""
        return least_free(self.slabs.tb, rows, start, end)

    def is_on_first_row(self, slot: int, ranks: Ints) -> bool:
        """Return whether a placed job has one unit, and no candidate before its node has room for it.

        Candidates are ordered by ``ranks`` (by row; ``NO_RANKS``: all are equal), then by row.
        """
        return is_on_first_row(self.slabs.tb, slot, ranks)

    def node_ranks(self, order: str) -> Mapping[str, int]:
        """Return the ranks of an order of nodes, by name of node; empty: there is no such order."""
        return self.shapes.node_ranks(order)

    def request(self, slot: int) -> Request:
        """Return the request of a job's slot; equal shapes share the first request: see ``shape_key``."""
        return self.shapes.requests[self.slabs.tb.jobs.item(at.SHAPE, slot)]

    def requested_cpus(self, slots: Ints) -> Ints:
        """Return the cpus that each of these jobs requests."""
        shapes, where = np.unique(self.slabs.tb.jobs[at.SHAPE, slots], return_inverse=True)
        cpus = np.array([self.shapes.requests[shape].cpus for shape in shapes.tolist()], np.int64)
        asked: Ints = cpus[where]
        return asked

    def chunks(self, slot: int) -> list[ChunkNeeds]:
        """Return the chunks of a job; a packed request has one."""
        tb = self.slabs.tb
        shape = tb.jobs.item(at.SHAPE, slot)
        first = tb.shapes.item(shape, at.CHUNK)
        table: list[list[int]] = tb.chunks[first : first + tb.shapes.item(shape, at.CHUNKS)].tolist()
        return [
            ChunkNeeds(
                chunk[at.COUNT],
                chunk[at.PER_NODE],
                chunk[at.NEED :],
                tb.sets[chunk[at.SET] : chunk[at.SET] + chunk[at.SET_LEN]].tolist(),
            )
            for chunk in table
        ]

    def only_chunk(self, slot: int) -> tuple[Ints, int, int, Ints] | None:
        """Return the needs of a unit, the numbers of units and of units per node, and the candidate rows of a
        job with one chunk; None: it has several. The arrays are the plan's own.
        """
        tb = self.slabs.tb
        shape = tb.jobs.item(at.SHAPE, slot)
        if tb.shapes.item(shape, at.CHUNKS) != 1:
            return None
        chunk = tb.chunks[tb.shapes.item(shape, at.CHUNK)]
        first, n = int(chunk[at.SET]), int(chunk[at.SET_LEN])
        return chunk[at.NEED :], int(chunk[at.COUNT]), int(chunk[at.PER_NODE]), tb.sets[first : first + n]

    def fits_in_slot(self, slot: int) -> bool:
        """Return whether the nodes could hold the request of a slot when empty and up, as ``fits_on_nodes``
        of it; its shape has the candidates already. False may also mean that it avoids too many nodes.
        """
        tb = self.slabs.tb
        shape = tb.jobs.item(at.SHAPE, slot)
        first = tb.shapes.item(shape, at.CHUNK)
        scatters = self.shapes.requests[shape].place is Place.SCATTER
        for chunk in tb.chunks[first : first + tb.shapes.item(shape, at.CHUNKS), : at.NEED].tolist():
            if chunk[at.SET_LEN] < (chunk[at.COUNT] if scatters else 1):
                return False
        return True

    def chunk_needs(self, slot: int) -> list[list[int]]:
        """Return the needs of a unit of each chunk of a job, by resource column. Unlike ``chunks`` its cost
        does not depend on the number of nodes.
        """
        tb = self.slabs.tb
        shape = tb.jobs.item(at.SHAPE, slot)
        first = tb.shapes.item(shape, at.CHUNK)
        last = first + tb.shapes.item(shape, at.CHUNKS)
        needs: list[list[int]] = tb.chunks[first:last, at.NEED :].tolist()
        return needs

    @property
    def resource_columns(self) -> Mapping[str, int]:
        """Column of each resource in amounts, by name; ``share`` is 1 for each unit."""
        return self.shapes.columns

    def amounts(self, amounts: Mapping[str, int]) -> tuple[int, ...]:
        """Return one number per resource column. Raises KeyError for a resource that no node has."""
        columns = self.shapes.columns
        found = [0] * len(columns)
        for name, amount in amounts.items():
            found[columns[name]] = amount
        return tuple(found)

    def whole_node_amounts(self, row: int, needs: Sequence[int] = ()) -> tuple[int, ...]:
        """Return the amounts of a job that holds a whole node: of gates no more than it ``needs``."""
        return tuple(self.shapes.whole_node_amounts(row, needs))

    def find_unmet_requirement(self, request: Request, units: Mapping[str, str] = NO_UNITS) -> Never | None:
        """Return the first requirement that no configured node can meet, by chunk; None: all can be met.

        ``units``: unit of each resource by name (``size``: KiB, ``float``: ``FLOAT_PARTS``).
        """
        return find_unmet_by_chunk(self.shapes.candidates, request, {**NO_UNITS, **units})

    def count_candidates(self, chunk: Chunk) -> int:
        """Return the number of nodes that could hold a unit of the chunk when empty and up."""
        return self.shapes.candidates.count(chunk)

    def is_feature(self, name: str) -> bool:
        """Return whether any node has this feature."""
        return self.shapes.candidates.is_feature(name)

    def fits_on_nodes(self, request: Request) -> bool:
        """Return whether ``find_unmet_requirement`` finds nothing, without its words."""
        nodes = self.shapes.candidates
        return all(nodes.suffice(chunk, request) for chunk in chunks_to_place(request))

    # ---- nodes and pools ------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return self._machine.nodes

    @property
    def node_rows(self) -> Mapping[str, int]:
        """Rows of the nodes, by name."""
        return self._machine.node_rows

    @property
    def node_names(self) -> Mapping[int, str]:
        return self._machine.node_names

    @property
    def pools(self) -> Mapping[str, int]:
        """Rows of the pools, by name."""
        return self._machine.pools

    @property
    def tiers(self) -> int:
        """Number of speed tiers of nodes; 0 is the slowest."""
        return self._machine.tiers

    @property
    def speeds(self) -> KeysView[float]:
        """The distinct speeds of the nodes."""
        return self._machine.speeds

    @property
    def typical_speed(self) -> float:
        """The median of the nodes' speeds. Raises StatisticsError without nodes."""
        return self._machine.typical_speed

    def slowest(self, tier: int) -> float:
        """Return the lowest speed of a tier."""
        return self._machine.slowest(tier)

    def is_scarce(self, name: str) -> bool:
        """Return whether jobs may have to wait for this pool: their total demand exceeds its capacity."""
        return not self.slabs.tb.rows[self.pools[name], at.SLACK]

    def pool_free(self, name: str) -> tuple[Ints, Ints]:
        """Return (n,) times and the pool's free capacity from each on, as views of the plan's arrays."""
        tb = self.slabs.tb
        row = self.pools[name]
        part = slice(tb.rows.item(row, at.OFF), int(tb.rows[row, at.OFF] + tb.rows[row, at.LEN]))
        return tb.T[part], tb.F[0, part]

    def misplaced(self, slots: Ints | None = None) -> Ints:
        """Return jobs of ``slots`` (None: all planned, by start) on a row that their request forbids."""
        return misplaced(self.slabs.tb, self.planned() if slots is None else slots)

    def jobs_on_nodes(self, names: Iterable[str]) -> Ints:
        """Return the planned slots on these nodes, by start."""
        return self.jobs_on_rows([self.node_rows[name] for name in names])

    def jobs_holding_nodes(self, names: Iterable[str]) -> Ints:
        """Return all slots, planned and fixed, that hold part of one of these nodes."""
        tb = self.slabs.tb
        rows = np.array([self.node_rows[name] for name in names if name in self.node_rows], np.int64)
        found: Ints = jobs_on_rows(tb, np.flatnonzero(tb.jobs[at.ALLOCS]), rows)
        return found

    def jobs_on_rows(self, rows: Iterable[int]) -> Ints:
        """Return the planned slots that hold part of one of these rows, by start, then slot."""
        tb = self.slabs.tb
        slots = jobs_on_rows(tb, np.flatnonzero(tb.jobs[at.STATE] == at.PLANNED), np.array([*rows], np.int64))
        by_start: Ints = slots[np.argsort(tb.jobs[at.START, slots], kind="stable")]
        return by_start

    def jobs_in_conflict(self, slot: int, since: int, end: int, others: Ints) -> Ints:
        """Return the jobs of ``others`` that hold part of a row of the placed job ``slot`` that is
        over-committed at some time in ``[since, end)``.
        """
        hit: Ints = jobs_in_conflict(self.slabs.tb, slot, since, end, others)
        return hit

    def overcommitted_rows(self, rows: Ints, start: int, end: int) -> Ints:
        """Return the rows, of these, that are over-committed at some time in ``[start, end)``."""
        tb = self.slabs.tb
        first, n = tb.rows[rows, at.OFF], tb.rows[rows, at.LEN]
        last = np.cumsum(n)
        owner = np.repeat(np.arange(rows.shape[0]), n)
        where = np.arange(owner.shape[0]) + np.repeat(first - (last - n), n)
        begins = tb.T[where]
        ends = np.append(begins[1:], FOREVER)
        ends[last - 1] = FOREVER
        over = (tb.F[:, where] < 0).any(axis=0) & (begins < end) & (ends > start)
        found: Ints = rows[np.unique(owner[over])]
        return found

    def unusable_candidates(self, slot: int) -> Ints:
        """Return the unusable rows that the job's units could otherwise use, in the order of its chunks."""
        tb = self.slabs.tb
        shape = tb.jobs.item(at.SHAPE, slot)
        first = tb.shapes.item(shape, at.CHUNK)
        chunks: list[list[int]] = tb.chunks[first : first + tb.shapes.item(shape, at.CHUNKS)].tolist()
        rows = np.concatenate([tb.sets[one[at.SET] : one[at.SET] + one[at.SET_LEN]] for one in chunks])
        rows = rows[tb.rows[rows, at.USABLE] == 0]
        _, places = np.unique(rows, return_index=True)
        found: Ints = rows[np.sort(places)]
        return found

    def unusable_nodes(self, slot: int) -> list[str]:
        """Return the unusable nodes of a placed job."""
        tb = self.slabs.tb
        held = self.held(np.array([slot], np.int64))
        rows = held.rows[~held.are_pools]
        return [self.node_names[row] for row in np.unique(rows[tb.rows[rows, at.USABLE] == 0]).tolist()]

    def on_usable_nodes(self, slots: Ints) -> Ints:
        """Return the placed jobs that hold no unusable node, in their order."""
        held = self.held(slots)
        unusable = (self.slabs.tb.rows[held.rows, at.USABLE] == 0) & ~held.are_pools
        return np.delete(slots, held.owner[unusable])

    def jobs_in_pool(self, name: str) -> Ints:
        """Return the planned slots that hold part of this pool, by start."""
        return self.jobs_on_rows([self.pools[name]])

    @property
    def searched_from(self) -> int:
        """The latest present time of a search; a later search with an earlier one knows nothing of others."""
        return self.slabs.tb.ctl.item(at.NOW)

    # ---- jobs -----------------------------------------------------------------------------------

    def planned(self) -> Ints:
        """Return the slots of planned jobs by start, then slot."""
        return by_start(self.slabs.tb.jobs)

    @property
    def freed(self) -> bool:
        """Whether something was freed since the last complete repair."""
        return self._repairs.pending

    def ready(self, slot: int) -> int:
        """Return the job's earliest allowed start."""
        return self.slabs.tb.jobs.item(at.READY, slot)

    def start(self, slot: int) -> int:
        """Return the job's start, or -1."""
        return self.slabs.tb.jobs.item(at.START, slot)

    def starts(self, slots: Ints) -> Ints:
        """Return the starts of these slots; -1: none."""
        starts: Ints = self.slabs.tb.jobs[at.START, slots]
        return starts

    def last_change(self, row: int) -> int:
        """Return the time of the last change on a row."""
        tb = self.slabs.tb
        return int(tb.T[tb.rows[row, at.OFF] + tb.rows[row, at.LEN] - 1])

    def end(self, slot: int) -> int:
        """Return the job's end, or -1."""
        jobs = self.slabs.tb.jobs
        start = jobs.item(at.START, slot)
        return start + jobs.item(at.DUR, slot) if start >= 0 else -1

    def state(self, slot: int) -> int:
        """Return VACANT, UNPLACED, PLANNED or FIXED."""
        return self.slabs.tb.jobs.item(at.STATE, slot)

    def takes(self, slot: int) -> tuple[Take, ...]:
        """Return what a placed job holds of nodes, in the order of its chunks, without pools."""
        tb = self.slabs.tb
        first, n = self._entries(slot)
        rows: list[list[int]] = tb.alloc[first : first + n].tolist()
        return tuple(
            Take(row[at.A_ROW], row[at.A_CHUNK], row[at.A_UNITS], tuple(row[at.A_TAKE :]))
            for row in rows
            if row[at.A_CHUNK] >= 0
        )

    def placed_units(self, slot: int) -> list[tuple[int, int, int]]:
        """Return (row, chunk, units) of what a placed job holds of nodes, in the order of its chunks."""
        tb = self.slabs.tb
        first, n = self._entries(slot)
        rows: list[list[int]] = tb.alloc[first : first + n, : at.A_TAKE].tolist()
        return [(row, chunk, units) for row, chunk, units in rows if chunk >= 0]

    def _entries(self, slot: int) -> tuple[int, int]:
        jobs = self.slabs.tb.jobs
        return jobs.item(at.ALLOC, slot), jobs.item(at.ALLOCS, slot)

    def pool_amounts(self, slot: int) -> dict[str, int]:
        """Return the amounts of pools that a job needs, by name."""
        tb = self.slabs.tb
        n = tb.jobs.item(at.POOLS, slot)
        if not n:
            return {}
        first = tb.jobs.item(at.POOL, slot)
        entries: list[list[int]] = tb.pools[first : first + n].tolist()
        names = self._machine.pool_names
        return {names[row]: amount for row, amount in entries}

    # ---- jobs that may start ----------------------------------------------------------------------

    def overcommitted_now(
        self, slot: int, now: int, timed: Collection[int] = (), others: Sequence[Take] = ()
    ) -> str:
        """Return the node or pool that now has no room for a placed job next to the fixed jobs; empty: none.

        Timelines are not used: a fixed job counts until its removal, even past its planned end. The slots
        ``timed`` (reservations) count from their start to their end; ``others`` are held without a slot.
        """
        rows, amounts = _NOTHING, _NO_AMOUNTS
        if others:
            rows = np.array([take.row for take in others], np.int64)
            amounts = np.zeros((len(others), self.slabs.tb.F.shape[0]), np.int64)
            for i, take in enumerate(others):
                amounts[i, : len(take.amounts)] = take.amounts
        known = np.array([*timed], np.int64) if timed else _NOTHING
        row = overcommitted_row(self.slabs.tb, slot, now, known, rows, amounts)
        return "" if row < 0 else self.node_names.get(row) or self._machine.pool_names[row]

    def next_start(self) -> int:
        """Return when the first planned job is due and allowed; FOREVER: none is planned."""
        return next_start(self.slabs.tb.jobs)

    def due_jobs(self, until: int) -> Ints:
        """Return the slots of planned jobs due by ``until``, by planned start, then slot."""
        jobs = self.slabs.tb.jobs
        slots = due_jobs(jobs, until)
        return slots[np.argsort(jobs[at.START, slots], kind="stable")] if slots.shape[0] > 1 else slots

    def waiting_before(self, moments: Ints, until: int) -> Ints:
        """Return the slots of waiting jobs, planned or not, with a moment (by slot) before ``until``."""
        return waiting_before(self.slabs.tb.jobs, moments, until)

    def first_startable(self, slots: Ints, begin: int, now: int) -> int:
        """Return the index in ``slots`` from ``begin`` on of the first job that fits now, or the length."""
        return first_startable(self.slabs.tb, slots, begin, now)
