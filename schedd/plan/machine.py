"""Rows of the plan: nodes, pools (limits, licences, quotas) and the demand for pools."""

from collections.abc import Iterable, KeysView, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np

from schedd.model import FOREVER, Node, NodeState
from schedd.plan.candidate_nodes import node_capacity
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.layout import Ints
from schedd.plan.kernels.place import jobs_on_rows
from schedd.plan.kernels.rows import change, make_room
from schedd.plan.repairs import Repairs
from schedd.plan.schema import COUNTS, FOUND, NAMES, SHARED, FieldRule, declared
from schedd.plan.shapes import Shapes
from schedd.plan.slabs import Slabs

MOST_TIERS = 8  # maximum number of speed tiers; with more speeds, neighbours share a tier


def _save_node(node: Node) -> list[Any]:
    return [
        *(node.name, node.cpus, node.mem, node.vmem, node.gpus, node.resources),
        *(sorted(node.features), node.state.value, node.speed),
    ]


def _load_nodes(saved: list[list[Any]]) -> dict[str, Node]:
    nodes = {}
    for name, cpus, mem, vmem, gpus, resources, features, state, speed in saved:
        generic = tuple((resource, amount) for resource, amount in resources)
        nodes[name] = Node(name, cpus, mem, vmem, gpus, generic, frozenset(features), NodeState(state), speed)
    return nodes


_NODES: Final = FieldRule(dict, lambda nodes: list(nodes.values()), _load_nodes, each=_save_node)
_ROWS: Final = FieldRule(set, sorted, set)


@dataclass(eq=False)
class Machine:
    """Nodes and pools by name, and their timelines."""

    _slabs: Slabs
    _shapes: Shapes
    _repairs: Repairs
    nodes: dict[str, Node] = declared(_NODES, make=dict)
    node_rows: dict[str, int] = declared(NAMES, make=dict)
    node_names: dict[int, str] = declared(FOUND, make=dict)
    pools: dict[str, int] = declared(NAMES, make=dict)
    pool_names: dict[int, str] = declared(FOUND, make=dict)
    _demand: dict[int, int] = declared(COUNTS, make=dict)
    _tiers: dict[float, int] = declared(COUNTS, make=dict)
    _typical_speed: float | None = declared(SHARED, default=None)
    """The median of the speeds of ``nodes``; None: to be computed again, after ``rank_speeds``."""
    _varying: set[int] = declared(_ROWS, make=set)
    """Pools with a capacity that varies over time, so that their total capacity is not reliable."""

    def derive(self) -> None:
        """Rebuild names by row."""
        self.node_names = {row: name for name, row in self.node_rows.items()}
        self.pool_names = {row: name for name, row in self.pools.items()}

    # ---- nodes ----------------------------------------------------------------------------------

    def set_nodes(self, nodes: Iterable[Node], now: int) -> None:
        """Add nodes, or apply changes of known ones; a new node is free from ``now`` on."""
        changed = {node.name: node for node in nodes if self.nodes.get(node.name) != node}
        if not changed:
            return
        new = [node for name, node in changed.items() if name not in self.nodes]
        old = {name: self.nodes[name] for name in changed if name in self.nodes}
        first = self._slabs.tb.rows.shape[0]
        tiers = self._slabs.tb.rows[:, at.USABLE].copy()
        columns = self._slabs.resources
        for i, node in enumerate(new):
            self.node_rows[node.name] = first + i
            self.node_names[first + i] = node.name
        self.nodes.update(changed)
        if new or any(_capabilities(old[name]) != _capabilities(changed[name]) for name in old):
            # Columns first: capacities are as wide as there are resources.
            self._shapes.set_nodes([(self.node_rows[name], node) for name, node in self.nodes.items()])
        if new:
            capacities = [node_capacity(node, self._shapes.columns) for node in new]
            self._slabs.add_rows(np.array(capacities, np.int64).reshape(len(new), -1), now)
        self._slabs.fit_levels(max(node.cpus for node in changed.values()))
        for row in range(first, first + len(new)):
            self._repairs.note_freed(row, now, FOREVER)
        if self._slabs.resources > columns:
            # the resource existed before it was counted, and placed jobs hold some of it
            for name in self.nodes:
                self._resize(name, now)
            self._hold_new_columns(columns)
        else:
            for name in old:
                self._resize(name, now)
        keeps = self._slabs.tb.ctl[at.PROTECT_TIER]
        for name, before in old.items():
            faster = keeps and changed[name].speed > before.speed  # jobs on equally fast nodes may move to it
            if faster or before.features != changed[name].features:
                self._repairs.note_freed(self.node_rows[name], now, FOREVER)
        if new or any(old[name].speed != changed[name].speed for name in old):
            self.rank_speeds()
            self._repairs.discard_partial_searches()
        for name, node in changed.items():
            self._set_usable(self.node_rows[name], node, now)
        if keeps:
            self._mark_lower_tiers(tiers)

    def weigh_nodes(self, now: int) -> None:
        """Update the costs of nodes from the nodes' resources and the jobs' requests."""
        if self._shapes.weigh(now):
            self._repairs.discard_partial_searches()

    def spare_scarce(self, spares: bool) -> None:
        """Switch the costs of nodes on or off."""
        if self._shapes.spare_scarce(spares):
            self._repairs.discard_partial_searches()

    def set_node_orders(self, orders: Mapping[str, Mapping[str, int]]) -> None:
        """Set the orders of nodes, by name: see ``Shapes.set_node_orders``."""
        if self._shapes.set_node_orders(orders):
            self._repairs.discard_partial_searches()

    def _mark_lower_tiers(self, tiers: Ints) -> None:
        """Let repair search jobs on nodes of a lower tier than before, and on unusable ones."""
        tb = self._slabs.tb
        rows = np.flatnonzero(tb.rows[: tiers.shape[0], at.USABLE] < tiers)
        for slot in jobs_on_rows(tb, np.flatnonzero(tb.jobs[at.STATE] == at.PLANNED), rows).tolist():
            self._repairs.mark_for_search(slot)

    def rank_speeds(self) -> None:
        """Compute the tiers of the nodes: equal speeds share a tier, the slowest is 0."""
        self._typical_speed = None
        speeds = sorted({node.speed for node in self.nodes.values()})
        n = len(speeds)
        self._tiers = {speed: i if n <= MOST_TIERS else i * MOST_TIERS // n for i, speed in enumerate(speeds)}
        rows = self._slabs.tb.rows
        for name, node in self.nodes.items():
            row = self.node_rows[name]
            if rows[row, at.USABLE]:
                rows[row, at.USABLE] = 1 + self._tiers[node.speed]

    @property
    def tiers(self) -> int:
        return max(self._tiers.values(), default=0) + 1

    @property
    def speeds(self) -> KeysView[float]:
        """The distinct speeds of the nodes."""
        return self._tiers.keys()

    @property
    def typical_speed(self) -> float:
        """The median of the nodes' speeds. Raises StatisticsError without nodes."""
        if self._typical_speed is None:
            self._typical_speed = median([node.speed for node in self.nodes.values()])
        return self._typical_speed

    def slowest(self, tier: int) -> float:
        """Return the lowest speed of a tier."""
        return min(speed for speed, one in self._tiers.items() if one == tier)

    def _resize(self, name: str, now: int) -> None:
        row = self.node_rows[name]
        tb = self._slabs.tb
        capacity = np.array(node_capacity(self.nodes[name], self._shapes.columns), np.int64)
        delta = capacity - tb.cap[row]
        gates = [column for column in range(delta.shape[0]) if int(tb.ctl[at.GATES]) >> column & 1]
        if not delta.any():
            return
        first, n = int(tb.rows[row, at.OFF]), int(tb.rows[row, at.LEN])
        tb.F[:, first : first + n] += delta[:, None]
        tb.cap[row] = capacity
        tb.bounds[:, row] = 0
        tb.rows[row, at.VERSION] += 1
        # Jobs that hold the whole node hold the added resources, too, whatever their requests are now.
        more = delta.copy()
        more[gates] = 0
        for slot in jobs_on_rows(tb, np.flatnonzero(tb.jobs[at.ALLOCS]), np.array([row])).tolist():
            first, n = int(tb.jobs[at.ALLOC, slot]), int(tb.jobs[at.ALLOCS, slot])
            held = tb.alloc[first : first + n]
            whole = (held[:, at.A_ROW] == row) & (held[:, at.A_TAKE + at.SHARE] >= at.WHOLE)
            self._hold_more(slot, [(i, more) for i in np.flatnonzero(whole).tolist()])
            tb = self._slabs.tb
        if (delta > 0).any():
            self._repairs.note_freed(row, now, FOREVER)

    def _hold_new_columns(self, first: int) -> None:
        """Let placed jobs hold their needs of the resource columns from ``first`` on."""
        tb = self._slabs.tb
        for slot in np.flatnonzero(tb.jobs[at.ALLOCS]).tolist():
            shape = int(tb.jobs[at.SHAPE, slot])
            chunk0 = int(tb.shapes[shape, at.CHUNK])
            more: list[tuple[int, Ints]] = []
            at_first = int(tb.jobs[at.ALLOC, slot])
            for i in range(at_first, at_first + int(tb.jobs[at.ALLOCS, slot])):
                chunk, units = int(tb.alloc[i, at.A_CHUNK]), int(tb.alloc[i, at.A_UNITS])
                if chunk < 0 or not tb.alloc[i, at.A_TAKE :].any():
                    continue
                amount = units * tb.chunks[chunk0 + chunk, at.NEED :]
                amount[:first] = 0
                if tb.alloc[i, at.A_TAKE + at.SHARE] >= at.WHOLE:
                    # it holds the whole resized node, except gates
                    amount = np.minimum(amount, 1)
                    amount[[not int(tb.ctl[at.GATES]) >> c & 1 for c in range(amount.shape[0])]] = 0
                if amount.any():
                    more.append((i - at_first, amount))
            self._hold_more(slot, more)
            tb = self._slabs.tb

    def _hold_more(self, slot: int, more: list[tuple[int, Ints]]) -> None:
        """Increase some entries of a placed job, by their index, whether that is free or not.

        The job gets new entries, since published snapshots read the old ones.
        """
        if not more:
            return
        first = self._slabs.renew_entries(slot)
        start = int(self._slabs.tb.jobs[at.START, slot])
        end = start + int(self._slabs.tb.jobs[at.DUR, slot])
        for i, amount in more:
            self._change(int(self._slabs.tb.alloc[first + i, at.A_ROW]), start, end, amount, -1)
            self._slabs.tb.alloc[first + i, at.A_TAKE :] += amount

    def _change(self, row: int, start: int, end: int, amount: Ints, sign: int) -> None:
        while not make_room(self._slabs.tb, row, 2):
            self._slabs.grow_segments()
        change(self._slabs.tb, row, start, end, amount, sign)

    def _set_usable(self, row: int, node: Node, now: int) -> None:
        tb = self._slabs.tb
        usable = node.state is NodeState.UP
        if usable and not tb.rows[row, at.USABLE]:
            self._repairs.note_freed(row, now, FOREVER)
        tb.rows[row, at.USABLE] = 1 + self._tiers[node.speed] if usable else 0

    # ---- pools ----------------------------------------------------------------------------------

    def set_pool(self, name: str, capacity: int, now: int) -> int:
        """Add or resize a pool. Return its row."""
        row = self.pools.get(name)
        if row is None:
            row = self._spare_row(capacity, now)
            self.pools[name] = row
            self.pool_names[row] = name
            self._demand[row] = 0
        else:
            tb = self._slabs.tb
            delta = capacity - int(tb.cap[row, 0])
            first, n = int(tb.rows[row, at.OFF]), int(tb.rows[row, at.LEN])
            tb.F[0, first : first + n] += delta
            tb.cap[row, 0] = capacity
            if delta > 0:
                self._repairs.note_freed(row, now, FOREVER)
        self._note_slack(row)
        return row

    def _spare_row(self, capacity: int, now: int) -> int:
        """Return a row with ``capacity`` free from ``now``; new rows come in groups for future pools."""
        tb = self._slabs.tb
        spare = np.flatnonzero(tb.rows[:, at.KIND] == at.SPARE_ROW)
        if spare.shape[0]:
            row = int(spare[0])
        else:
            more = max(16, len(self.pools) // 4)
            row = self._slabs.add_rows(np.zeros((more, self._slabs.resources), np.int64), now)
            tb = self._slabs.tb
            tb.rows[row : row + more, at.KIND] = at.SPARE_ROW
        first = int(tb.rows[row, at.OFF])
        tb.rows[row, at.KIND] = at.POOL_ROW
        tb.rows[row, at.MOST] = 0
        tb.rows[row, at.LEN] = 1
        tb.rows[row, at.VERSION] += 1
        tb.cap[row, 0] = capacity
        tb.T[first] = now
        tb.F[:, first] = tb.cap[row]
        return row

    @property
    def idle_pools(self) -> list[str]:
        """Pools that no job needs."""
        return [name for name, row in self.pools.items() if not self._demand[row]]

    def drop_pool(self, name: str) -> None:
        """Drop a pool that no job needs."""
        row = self.pools.pop(name)
        del self.pool_names[row]
        del self._demand[row]
        self._varying.discard(row)
        tb = self._slabs.tb
        tb.rows[row, at.KIND] = at.SPARE_ROW
        tb.rows[row, at.SLACK] = 0
        tb.rows[row, at.LEN] = 1
        tb.cap[row] = tb.F[:, tb.rows[row, at.OFF]] = 0

    def limit_pool(self, name: str, start: int, end: int, delta: int, now: int) -> None:
        """Change a pool's capacity by ``delta`` over ``[start, end)``."""
        row = self.pools[name]
        amount = np.zeros(self._slabs.resources, np.int64)
        amount[0] = delta
        self._change(row, start, end, amount, 1)
        self._varying.add(row)
        self._note_slack(row)
        if delta > 0:
            self._repairs.note_freed(row, max(start, now), end)

    def add_demand(self, row: int, amount: int) -> None:
        """Add ``amount`` to the total demand for a pool (negative: a job left)."""
        self._demand[row] += amount
        rows = self._slabs.tb.rows
        rows[row, at.MOST] = max(rows[row, at.MOST], amount)
        self._note_slack(row)

    def _note_slack(self, row: int) -> None:
        tb = self._slabs.tb
        fits = self._demand[row] <= int(tb.cap[row, 0])
        tb.rows[row, at.SLACK] = int(fits and row not in self._varying)


def _capabilities(node: Node) -> tuple[object, ...]:
    """Return everything of a node that decides which requests it can meet."""
    return (node.cpus, node.mem, node.vmem, node.gpus, node.resources, node.features)
