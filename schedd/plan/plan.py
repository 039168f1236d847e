"""The schedule of one cluster: where and when every job is planned or runs, and the operations on it.

Jobs are named by *slots*, small integers that the caller maps to job ids. Nothing here knows a clock:
every operation is told ``now``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from schedd.model import FOREVER, Node, NodeState, Request
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.layout import Ints, Tables
from schedd.plan.kernels.place import evict, first_startable, lift, occupy, on_row, place, probe
from schedd.plan.kernels.repair import DIRTY_FIELDS, FULL, PAUSED, mark, mark_job, next_pass, repair
from schedd.plan.kernels.rows import forget, make_room
from schedd.plan.kernels.rows import change as change_row
from schedd.plan.shapes import Shapes, capacity_of
from schedd.plan.slabs import Slabs

__all__ = ["Moves", "Plan", "Take"]

NOT_BOUND = FOREVER
_WHOLE_PASS = 1 << 60


@dataclass(frozen=True, slots=True)
class Take:
    """What is held of one row: ``units`` of chunk ``chunk``, ``amounts`` per resource column."""

    row: int
    chunk: int
    units: int
    amounts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Moves:
    """Jobs whose start changed: slots, the old starts (-1: none), the new ones (-1: none); equal lengths."""

    slots: Ints
    old: Ints
    new: Ints

    def __len__(self) -> int:
        return int(self.slots.shape[0])


def no_moves() -> Moves:
    """Moves of nobody."""
    empty = np.zeros(0, np.int64)
    return Moves(empty, empty, empty)


class Plan:
    """A schedule over nodes and pools. Changed by one thread only; ``fork`` gives others their own."""

    def __init__(self, nodes: Sequence[Node], now: int) -> None:
        self.slabs = Slabs(at.BASE_RESOURCES)
        self.shapes = Shapes(self.slabs)
        self.nodes: dict[str, Node] = {}
        self.row_of: dict[str, int] = {}
        self.name_of: dict[int, str] = {}
        self.pools: dict[str, int] = {}
        self._demand: dict[int, int] = {}
        self._vacant: list[int] = list(range(self.slabs.tb.jobs.shape[1] - 1, -1, -1))
        self._dirty = np.zeros((DIRTY_FIELDS, 0), np.int64)
        self._order = np.zeros(0, np.int64)
        self._cursor = 0
        self._repairing = False
        self.set_nodes(nodes, now)

    @property
    def tables(self) -> Tables:
        """The arrays, for kernels and read-only views."""
        return self.slabs.tb

    # ---- nodes and pools ------------------------------------------------------------------------

    def set_nodes(self, nodes: Iterable[Node], now: int) -> None:
        """Add nodes, or take over what changed in nodes already known; a new one begins to be free at ``now``."""
        changed = {node.name: node for node in nodes if self.nodes.get(node.name) != node}
        if not changed:
            return
        new = [node for name, node in changed.items() if name not in self.nodes]
        old = {name: self.nodes[name] for name in changed if name in self.nodes}
        first = self.slabs.tb.rows.shape[0]
        for i, node in enumerate(new):
            self.row_of[node.name] = first + i
            self.name_of[first + i] = node.name
        self.nodes.update(changed)
        if new or any(_shape_of(old[name]) != _shape_of(changed[name]) for name in old):
            # Columns first: capacities are as wide as there are resources.
            self.shapes.set_nodes([(self.row_of[name], node) for name, node in self.nodes.items()])
        if new:
            capacities = [capacity_of(node, self.shapes.columns) for node in new]
            self.slabs.add_rows(np.array(capacities, np.int64).reshape(len(new), -1), now)
            self._fit_dirty()
        self.slabs.fit_levels(max(node.cpus for node in changed.values()))
        for name, before in old.items():
            self._resize_node(before, changed[name], now)
        for node in changed.values():
            self._set_usable(self.row_of[node.name], node.state is NodeState.UP, now)

    def _resize_node(self, before: Node, after: Node, now: int) -> None:
        row = self.row_of[after.name]
        tb = self.slabs.tb
        capacity = np.array(capacity_of(after, self.shapes.columns), np.int64)
        delta = capacity - tb.cap[row]
        if not delta.any():
            return
        first, n = int(tb.rows[row, at.OFF]), int(tb.rows[row, at.LEN])
        tb.F[:, first : first + n] += delta[:, None]
        tb.cap[row] = capacity
        tb.bounds[:, row] = 0
        tb.rows[row, at.VERSION] += 1
        # Those who hold the whole node hold what came to it, too.
        for slot in np.flatnonzero(tb.jobs[at.ALLOCS]).tolist():
            if not tb.shapes[tb.jobs[at.SHAPE, slot], at.EXCLUSIVE]:
                continue
            for i in range(int(tb.jobs[at.ALLOC, slot]), int(tb.jobs[at.ALLOC, slot] + tb.jobs[at.ALLOCS, slot])):
                if tb.alloc[i, at.A_ROW] == row and tb.alloc[i, at.A_TAKE + at.SHARE]:
                    start = int(tb.jobs[at.START, slot])
                    self._change(row, start, start + int(tb.jobs[at.DUR, slot]), delta, -1)
                    self.slabs.tb.alloc[i, at.A_TAKE :] += delta
                    tb = self.slabs.tb
        if (delta > 0).any():
            mark(self._dirty, row, now, FOREVER)

    def _change(self, row: int, start: int, end: int, amount: Ints, sign: int) -> None:
        while not make_room(self.slabs.tb, row, 2):
            self.slabs.grow_segments()
        change_row(self.slabs.tb, row, start, end, amount, sign)

    def _set_usable(self, row: int, usable: bool, now: int) -> None:
        tb = self.slabs.tb
        if usable and not tb.rows[row, at.USABLE]:
            mark(self._dirty, row, now, FOREVER)
        tb.rows[row, at.USABLE] = int(usable)

    def _fit_dirty(self) -> None:
        n = self.slabs.tb.rows.shape[0]
        kept = self._dirty.shape[1]
        dirty = np.zeros((DIRTY_FIELDS, n), np.int64)
        dirty[0] = dirty[2] = FOREVER
        dirty[:, :kept] = self._dirty
        self._dirty = dirty

    def set_pool(self, name: str, capacity: int, now: int) -> int:
        """Make or resize a pool of which jobs may need some amount; returns its row."""
        row = self.pools.get(name)
        if row is None:
            amounts = np.zeros((1, self.slabs.resources), np.int64)
            amounts[0, 0] = capacity
            row = self.slabs.add_rows(amounts, now)
            self.pools[name] = row
            self._demand[row] = 0
            self._fit_dirty()
        else:
            tb = self.slabs.tb
            delta = capacity - int(tb.cap[row, 0])
            first, n = int(tb.rows[row, at.OFF]), int(tb.rows[row, at.LEN])
            tb.F[0, first : first + n] += delta
            tb.cap[row, 0] = capacity
            if delta > 0:
                mark(self._dirty, row, now, FOREVER)
        self._note_slack(row)
        return row

    def limit_pool(self, name: str, start: int, end: int, delta: int, now: int) -> None:
        """Change a pool's capacity by ``delta`` over ``[start, end)`` (a quota by day, a licence that is lent)."""
        row = self.pools[name]
        amount = np.zeros(self.slabs.resources, np.int64)
        amount[0] = delta
        self._change(row, start, end, amount, 1)
        # The capacity now differs over time: nobody may rely on the total any more.
        self._demand[row] = FOREVER
        self._note_slack(row)
        if delta > 0:
            mark(self._dirty, row, max(start, now), end)

    def _note_slack(self, row: int) -> None:
        tb = self.slabs.tb
        slack = int(self._demand[row] <= int(tb.cap[row, 0]))
        if slack and not tb.rows[row, at.SLACK]:
            mark(self._dirty, row, 0, FOREVER)
        tb.rows[row, at.SLACK] = slack

    # ---- jobs -----------------------------------------------------------------------------------

    def new(self, request: Request, duration: int, ready: int, pools: Mapping[str, int] | None = None) -> int:
        """A slot for a job that needs ``request`` for ``duration`` seconds, not before ``ready``; unplaced.

        ``pools`` maps names of pools to the amounts that the job holds of each while it runs.
        """
        if not 0 < duration < 1 << 60:
            raise ValueError(f"duration {duration}: must be at least 1 second and finite")
        shape = self.shapes.intern(request)
        if not self._vacant:
            size = self.slabs.tb.jobs.shape[1]
            self.slabs.add_slots()
            self._vacant = list(range(2 * size - 1, size - 1, -1))
        slot = self._vacant.pop()
        entries = [(self.pools[name], amount) for name, amount in (pools or {}).items() if amount > 0]
        first = self.slabs.add_pools(entries) if entries else 0
        for row, amount in entries:
            self._demand[row] += amount
            self._note_slack(row)
        self.slabs.tb.jobs[:, slot] = (-1, duration, ready, shape, at.UNPLACED, 0, 0, first, len(entries))
        return slot

    def place(self, slot: int, now: int, bound: int = NOT_BOUND) -> int:
        """Put an unplaced job into its earliest gap in ``[now, bound)``; returns its start, or -1."""
        while True:
            start = place(self.slabs.tb, slot, now, bound)
            if start != at.GROW:
                return start
            self.slabs.grow()

    def probe(self, slot: int, now: int, bound: int = NOT_BOUND) -> int:
        """Where ``place`` would put an unplaced job; changes nothing."""
        return probe(self.slabs.tb, slot, now, bound)

    def fix(self, slot: int, start: int, takes: Sequence[Take]) -> None:
        """Let an unplaced job hold exactly ``takes`` from ``start`` on for its duration: it runs, or blocks.

        Whether the rows have room is not asked: reality may be over-committed.
        """
        slabs = self.slabs
        pools = range(int(slabs.tb.jobs[at.POOL, slot]), int(slabs.tb.jobs[at.POOL, slot] + slabs.tb.jobs[at.POOLS, slot]))
        n = len(takes) + len(pools)
        while int(slabs.tb.ctl[at.ALLOC_TOP]) + n > slabs.tb.alloc.shape[0]:
            if n > slabs.tb.out.shape[0]:
                slabs.tb = slabs.tb._replace(out=np.zeros((n, 3), np.int64))
            slabs.grow_alloc()
        tb = slabs.tb
        first = int(tb.ctl[at.ALLOC_TOP])
        for i, take in enumerate(takes):
            tb.alloc[first + i] = (take.row, take.chunk, take.units, *take.amounts)
        for i, entry in enumerate(pools):
            tb.alloc[first + len(takes) + i] = 0
            tb.alloc[first + len(takes) + i, : at.A_TAKE + 1] = (tb.pools[entry, 0], -1, 1, tb.pools[entry, 1])
        tb.ctl[at.ALLOC_TOP] = first + n
        tb.jobs[at.ALLOC, slot] = first
        tb.jobs[at.ALLOCS, slot] = n
        tb.jobs[at.START, slot] = start
        tb.jobs[at.STATE, slot] = at.FIXED
        self._occupy(slot, start, start + int(tb.jobs[at.DUR, slot]), -1)

    def _occupy(self, slot: int, start: int, end: int, sign: int) -> None:
        while not occupy(self.slabs.tb, slot, start, end, sign):
            self.slabs.grow_segments()

    def begin(self, slot: int) -> None:
        """A planned job now runs, as planned: searches leave it where it is."""
        self.slabs.tb.jobs[at.STATE, slot] = at.FIXED

    def lift(self, slot: int, now: int) -> None:
        """Take a job out of the plan, leaving it unplaced; what it frees is remembered for the next repair."""
        tb = self.slabs.tb
        start = int(tb.jobs[at.START, slot])
        if start < 0:
            return
        mark_job(tb, self._dirty, slot, max(now, start), start + int(tb.jobs[at.DUR, slot]))
        while not lift(self.slabs.tb, slot):
            self.slabs.grow_segments()

    def drop(self, slot: int, now: int) -> None:
        """Take a job out of the plan and give its slot back."""
        self.lift(slot, now)
        tb = self.slabs.tb
        for i in range(int(tb.jobs[at.POOL, slot]), int(tb.jobs[at.POOL, slot] + tb.jobs[at.POOLS, slot])):
            row = int(tb.pools[i, 0])
            self._demand[row] -= int(tb.pools[i, 1])
            self._note_slack(row)
        tb.jobs[:, slot] = 0
        self._vacant.append(slot)
        if self.slabs.n_pools > 4 * len(self._demand) + 1024 and self.slabs.n_pools > 4 * int(tb.jobs[at.POOLS].sum()):
            self.slabs.repack_pools()

    def set_duration(self, slot: int, duration: int, now: int) -> None:
        """Change how long a job holds its resources; a longer one may then over-commit: see ``evict``."""
        tb = self.slabs.tb
        start, before = int(tb.jobs[at.START, slot]), int(tb.jobs[at.DUR, slot])
        if start >= 0 and duration < before:
            mark_job(tb, self._dirty, slot, max(now, start + duration), start + before)
            self._occupy(slot, start + duration, start + before, 1)
        elif start >= 0:
            self._occupy(slot, start + before, start + duration, -1)
        self.slabs.tb.jobs[at.DUR, slot] = duration

    def set_ready(self, slot: int, ready: int) -> None:
        """Change a job's earliest start; where it is planned stays."""
        self.slabs.tb.jobs[at.READY, slot] = ready

    # ---- repair ---------------------------------------------------------------------------------

    def planned(self) -> Ints:
        """The slots of planned jobs by start, ties by slot."""
        jobs = self.slabs.tb.jobs
        slots = np.flatnonzero(jobs[at.STATE] == at.PLANNED)
        return slots[np.argsort(jobs[at.START, slots], kind="stable")]

    @property
    def freed(self) -> bool:
        """Whether something was freed since the last repair came to its end."""
        return bool((self._dirty[0] < FOREVER).any())

    def repair_now(self, now: int) -> Moves:
        """Move to ``now`` every planned job that can start there, earliest planned first. Nobody is delayed."""
        if not self.freed:
            return no_moves()
        moves: list[Ints] = []
        self._slice(self.planned(), 0, now, True, _WHOLE_PASS, moves)
        return _moves(moves)

    def repair(self, now: int, budget: int = _WHOLE_PASS) -> tuple[Moves, bool]:
        """Go on with the repair for ``budget`` visited segments: jobs by start, each to its earliest place.

        Returns who moved, and whether the repair came to its end: no job can start earlier by itself.
        """
        moves: list[Ints] = []
        while True:
            if not self._repairing:
                if not self.freed:
                    return _moves(moves), True
                self._order = self.planned()
                self._cursor = 0
                self._dirty[2] = FOREVER
                self._dirty[3] = 0
                self._repairing = True
            before = int(self.slabs.tb.ctl[at.WORK])
            self._cursor, how = self._slice(self._order, self._cursor, now, False, budget, moves)
            if how == PAUSED:
                return _moves(moves), False
            budget -= int(self.slabs.tb.ctl[at.WORK]) - before
            self._repairing = False
            next_pass(self._dirty)

    def _slice(
        self, order: Ints, cursor: int, now: int, only_now: bool, budget: int, moves: list[Ints]
    ) -> tuple[int, int]:
        freed = np.empty(self._dirty.shape[1], np.int64)
        out = np.empty((order.shape[0] - cursor, 3), np.int64)
        while True:
            cursor, n, how = repair(
                self.slabs.tb, self._dirty, freed, order, cursor, now, only_now, budget, out
            )
            if n:
                moves.append(out[:n].copy())
            if how != FULL:
                return cursor, how
            self.slabs.grow()

    def evict(self, slots: Ints) -> Ints:
        """Lift those planned ``slots`` that lie where a row is over-committed, in this order, until none does.

        Returns those lifted. What they free was over-committed, so nothing is noted for repair but their rest.
        """
        gone = np.empty(slots.shape[0], np.int64)
        done = lifted = 0
        while True:
            done, n = evict(self.slabs.tb, slots, done, gone[lifted:])
            lifted += n
            if done == slots.shape[0]:
                return gone[:lifted]
            self.slabs.grow_segments()

    def on_node(self, name: str) -> Ints:
        """The planned slots that hold something of this node, by start."""
        return on_row(self.slabs.tb, self.planned(), self.row_of[name])

    def first_startable(self, slots: Ints, begin: int, now: int) -> int:
        """Index in ``slots`` from ``begin`` on of the first unplaced job that fits at ``now``, or its length."""
        return first_startable(self.slabs.tb, slots, begin, now)

    def forget(self, now: int) -> None:
        """Drop what ended by ``now`` from the timelines; starts and placements stay."""
        forget(self.slabs.tb, now)

    # ---- reading --------------------------------------------------------------------------------

    def start(self, slot: int) -> int:
        """The job's start, or -1."""
        return int(self.slabs.tb.jobs[at.START, slot])

    def end(self, slot: int) -> int:
        """The job's end, or -1."""
        start = self.start(slot)
        return start + int(self.slabs.tb.jobs[at.DUR, slot]) if start >= 0 else -1

    def state(self, slot: int) -> int:
        """One of VACANT, UNPLACED, PLANNED, FIXED."""
        return int(self.slabs.tb.jobs[at.STATE, slot])

    def takes(self, slot: int) -> tuple[Take, ...]:
        """What a placed job holds of nodes, in the order of its chunks; pools are left out."""
        tb = self.slabs.tb
        first = int(tb.jobs[at.ALLOC, slot])
        rows: list[list[int]] = tb.alloc[first : first + int(tb.jobs[at.ALLOCS, slot])].tolist()
        return tuple(
            Take(row[at.A_ROW], row[at.A_CHUNK], row[at.A_UNITS], tuple(row[at.A_TAKE :]))
            for row in rows
            if row[at.A_CHUNK] >= 0
        )

    def fork(self) -> "Plan":
        """An independent copy for what-if and searches; slots mean the same jobs."""
        new = object.__new__(Plan)
        new.slabs = self.slabs.fork()
        new.shapes = self.shapes.fork(new.slabs)
        new.nodes = dict(self.nodes)
        new.row_of = dict(self.row_of)
        new.name_of = dict(self.name_of)
        new.pools = dict(self.pools)
        new._demand = dict(self._demand)
        new._vacant = list(self._vacant)
        new._dirty = self._dirty.copy()
        new._order = np.zeros(0, np.int64)
        new._cursor = 0
        new._repairing = False
        return new


def _shape_of(node: Node) -> tuple[object, ...]:
    """All of a node that decides which requests it could meet."""
    return (node.cpus, node.mem, node.vmem, node.gpus, node.resources, node.features)


def _moves(parts: list[Ints]) -> Moves:
    if not parts:
        return no_moves()
    whole = np.concatenate(parts)
    # A job may move more than once: its first old start and its last new one count.
    slots, first = np.unique(whole[:, 0], return_index=True)
    _, last = np.unique(whole[::-1, 0], return_index=True)
    return Moves(slots, whole[first, 1], whole[::-1][last, 2])
