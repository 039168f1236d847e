"""Shapes: requests in the form of the kernels, with the candidate rows and the needs of each chunk.

Equal requests share one *shape*; nodes with the same capacity and features form one class (see
``candidate_nodes.py``), so that the time to process a request depends on the number of classes, not of nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Any, Final

import numpy as np

from schedd.model import Chunk, Features, Node, NodeSets, Place, Request, matches
from schedd.plan.candidate_nodes import NODE_CLASSES, CandidateNodes, NodeClass, node_capacity
from schedd.plan.feasibility import UnitGroup, could_hold
from schedd.plan.gates import GATE, UNLIMITED, gate_amounts, gate_kind
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.bounds import need_level
from schedd.plan.requests import chunks_to_place, load_request, save_request
from schedd.plan.scarcity import NodeChoice, Scarcity
from schedd.plan.schema import FOUND, KEYS, LISTS, NAMES, NUMBERS, OWN, FieldRule, declared
from schedd.plan.slabs import Slabs

_BASE = ("cpus", "share", "mem", "gpus")


def _may_be_scarce(name: str) -> bool:
    """Return whether a resource counts for node costs: neither cores nor access."""
    return name not in ("cpus", "share") and not name.startswith(GATE)


def _offered(amount: int) -> int:
    """Return the amount, or 0 if it is unknown."""
    return amount if amount < UNLIMITED else 0


@dataclass(frozen=True, slots=True)
class _SetOfNodes:
    """A node set for a request: its chunks' rows there, their number, and whether it holds all units."""

    rows: list[list[int]]
    size: int
    holds: bool


_SetKey = tuple[tuple[int, ...], Features, frozenset[str], tuple[int, ...], str]
_ShapeKey = tuple[tuple[Chunk, ...], Place, bool, frozenset[str], NodeSets | None, frozenset[str], str]


def shape_key(request: Request) -> _ShapeKey:
    """Return the key of a request's shape: everything that decides where it can be placed."""
    return (
        request.chunks,
        request.place,
        request.exclusive,
        request.passes,
        request.together,
        request.avoids,
        request.node_order,
    )


_LATER_SET_FIELDS: Final[tuple[Any, ...]] = ([], [], "")  # fields that older saved sets lack


def _load_sets(saved: list[Any]) -> dict[_SetKey, tuple[int, int]]:
    return {
        (tuple(classes), tuple(map(frozenset, features)), frozenset(avoids), tuple(costs), order): (first, n)
        for classes, features, first, n, avoids, costs, order in (
            (*one, *_LATER_SET_FIELDS[len(one) - 4 :]) for one in saved
        )
    }


_REPLACED: Final = FieldRule()  # replaced as a whole, never changed
_SETS: Final = FieldRule(
    dict,
    lambda sets: [
        [classes, [sorted(names) for names in features], first, n, sorted(avoids), costs, order]
        for (classes, features, avoids, costs, order), (first, n) in sets.items()
    ],
    _load_sets,
)
_SCARCITY: Final = FieldRule(Scarcity.copy, Scarcity.saved, Scarcity.load)
_REQUESTS: Final = FieldRule(list, load=lambda saved: list(map(load_request, saved)), each=save_request)

_LAST_RANK: Final = 1 << 30
_MOST_JOINED_SETS: Final = 200
"""Combinations of node sets that a request may choose from; see ``NodeSets.most``."""
_KEPT = 4096  # number of unused shapes that are retained, since users repeat requests


@dataclass(eq=False)
class Shapes:
    """Catalogue of the shapes of one plan: those in use, and recently used ones."""

    _slabs: Slabs
    columns: dict[str, int] = declared(NAMES, make=lambda: {name: i for i, name in enumerate(_BASE)})
    _nodes: dict[str, int] = declared(_REPLACED, make=dict)
    _node_classes: dict[NodeClass, list[int]] = declared(NODE_CLASSES, make=dict)
    _sets: dict[_SetKey, tuple[int, int]] = declared(_SETS, make=dict)
    _ids: dict[_ShapeKey, int] = declared(FOUND, make=dict)
    _uses: list[int] = declared(NUMBERS, make=list)
    _rooms: list[int] = declared(NUMBERS, make=list)
    _idle: dict[int, None] = declared(KEYS, make=dict)
    _spare: dict[int, list[int]] = declared(LISTS, make=dict)
    """By number of chunks: unused shapes that may be overwritten."""
    requests: list[Request] = declared(_REQUESTS, make=list)
    _scarcity: Scarcity = declared(_SCARCITY, make=Scarcity)
    _node_orders: Mapping[str, Mapping[str, int]] = declared(_REPLACED, make=dict)
    """By name of an order: the ranks of nodes, lowest first."""
    candidates: CandidateNodes = declared(OWN, make=CandidateNodes)
    """Follows from ``columns``, ``_nodes`` and ``_node_classes``."""

    def derive(self) -> None:
        """Recompute the numbers of shapes and the offers of nodes."""
        self._update_offers()
        out_of_use = {shape for spare in self._spare.values() for shape in spare}
        self._ids = {
            shape_key(request): shape
            for shape, request in enumerate(self.requests)
            if shape not in out_of_use
        }

    def set_nodes(self, nodes: Sequence[tuple[int, Node]]) -> None:
        """Set the (row, node) pairs, and recompute the candidate rows of every shape."""
        for _, node in nodes:
            if node.vmem:
                self._column("vmem")
            for name, _ in node.resources:
                self._column(name)
        self._nodes = {node.name: row for row, node in nodes}
        self._node_classes = {}
        for row, node in nodes:
            node_class = NodeClass(node.features, tuple(node_capacity(node, self.columns)))
            self._node_classes.setdefault(node_class, []).append(row)
        self._update_offers()
        self._scarcity.weigh_again()
        self._describe_all()

    def _update_offers(self) -> None:
        """Update what node classes offer, and which of that may be scarce."""
        self.candidates = CandidateNodes(dict(self.columns), self._nodes, self._node_classes)
        names = {name: i for name, i in self.columns.items() if _may_be_scarce(name)}
        self._scarcity.set_offers(
            [
                (
                    node_class.features,
                    {name: _offered(node_class.capacity[i]) for name, i in names.items()},
                    len(rows),
                )
                for node_class, rows in self._node_classes.items()
            ],
            names,
        )

    def _describe_all(self) -> None:
        self._sets = {}
        self._slabs.n_sets = 0
        for shape, request in enumerate(self.requests):
            self._describe(shape, request)  # also of a spare one, which is harmless

    def weigh(self, now: int) -> bool:
        """Update the costs of nodes from the requests at ``now``. Return whether they changed."""
        if not self._scarcity.needs_recount(now):
            return False
        demand = (
            (uses * chunk.count * max(chunk.cpus, 1), self._requested_attributes(chunk))
            for uses, request in zip(self._uses, self.requests, strict=True)
            if uses
            for chunk in chunks_to_place(request)
        )
        changed = self._scarcity.weigh(demand, now)
        if changed:
            self._describe_all()
        return changed

    def spare_scarce(self, spares: bool) -> bool:
        """Switch the costs of nodes on or off. Return whether that changed."""
        if spares == self._scarcity.spares:
            return False
        self._scarcity.spares = spares
        self._describe_all()
        return True

    def set_node_orders(self, orders: Mapping[str, Mapping[str, int]]) -> bool:
        """Set the orders of nodes: by name, the ranks of nodes. Return whether they changed.

        Of the nodes that allow a job with such an order the same start, one of the lowest rank is used. Nodes
        without a rank come last.
        """
        if orders == self._node_orders:
            return False
        self._node_orders = orders
        self._describe_all()
        return True

    def node_ranks(self, order: str) -> Mapping[str, int]:
        """Return the ranks of an order of nodes, by name of node; empty: there is no such order."""
        return self._node_orders.get(order, {})

    @property
    def weights(self) -> Mapping[str, int]:
        """Scarce attributes and their weights: see ``scarcity.py``."""
        return self._scarcity.weights

    def node_choice(self, held: Iterable[tuple[int, Chunk]]) -> NodeChoice:
        """How the nodes of a job were chosen; ``held`` are its rows, each with the chunk that it serves."""
        class_of = {row: number for number, rows in enumerate(self._node_classes.values()) for row in rows}
        return self._scarcity.choice(
            (class_of[row], self._scarcity.request_key(self.candidates.amounts(chunk), chunk.features))
            for row, chunk in held
            if row in class_of
        )

    def _requested_attributes(self, chunk: Chunk) -> frozenset[str]:
        return self._scarcity.requested_attributes(self.candidates.amounts(chunk), chunk.features)

    def _column(self, name: str) -> int:
        found = self.columns.get(name)
        if found is None:
            found = self._slabs.add_resource()
            self.columns[name] = found
            if name.startswith(GATE):
                self._slabs.tb.ctl[at.GATES] |= 1 << found
        return found

    def intern(self, request: Request) -> int:
        """Return the number of the request's shape, and count one more use of it: see ``release``."""
        key = shape_key(request)
        shape = self._ids.get(key)
        if shape is None:
            spare = self._spare.get(len(chunks_to_place(request)))
            if spare:
                shape = spare.pop()
                self.requests[shape] = request
            else:
                shape = self._slabs.add_shape()
                self.requests.append(request)
                self._uses.append(0)
                self._rooms.append(0)
            self._describe(shape, request)
            self._ids[key] = shape
        elif not self._uses[shape]:
            del self._idle[shape]
        self._uses[shape] += 1
        return shape

    def release(self, shape: int) -> None:
        """Count one use less of a shape. Shapes that are long unused may be overwritten."""
        self._uses[shape] -= 1
        if self._uses[shape]:
            return
        self._idle[shape] = None
        if len(self._idle) > _KEPT:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            request = self.requests[oldest]
            del self._ids[shape_key(request)]
            chunks = int(self._slabs.tb.shapes[oldest, at.CHUNKS])
            self._spare.setdefault(chunks, []).append(oldest)

    def _describe(self, shape: int, request: Request) -> None:
        """Write the needs of a request, and its node sets, into the tables."""
        rows = self._chunk_rows(request)
        chunks = len(rows)
        sets = self._node_sets(request)
        holders = sum(one.holds for one in sets)
        wait = 0
        if sets and request.together is not None:
            wait = -1 if request.together.wait is None else request.together.wait
        for one in sets:
            rows += one.rows
        fields = [chunks, int(request.exclusive), len(sets), holders, wait]
        self._rooms[shape] = self._slabs.set_shape(shape, self._rooms[shape], fields, rows)

    def whole_node_amounts(self, row: int, needs: Sequence[int] = ()) -> list[int]:
        """Return the amounts of a job that holds a whole node: of gates no more than it ``needs``."""
        amounts: list[int] = self._slabs.tb.cap[row].tolist()
        for name, column in self.columns.items():
            if name.startswith(GATE):
                amounts[column] = needs[column] if needs else 0
        return amounts

    def sets_in(self, together: NodeSets) -> dict[str, frozenset[str]]:
        """Return the sets by name, each with the features that define it: its nodes have one of them."""
        if not together.by:
            found = dict(together.named)
        else:
            prefix = f"{together.by.lower()}="
            values = {
                name
                for node_class in self._node_classes
                for name in node_class.features
                if name.lower().startswith(prefix)
            }
            found = {value: frozenset({value}) for value in sorted(values)}
        return _join_sets(found, together.most) if together.most > 1 else found

    def _node_sets(self, request: Request) -> list[_SetOfNodes]:
        """Return the node sets on which units of the request fit: first those that can hold all units,
        smaller before larger. Empty if units cannot be separated.
        """
        if request.together is None or request.place is Place.PACK or request.units == 1:
            return []
        found = []
        capacity = {
            row: node_class.capacity for node_class, members in self._node_classes.items() for row in members
        }
        for names in self.sets_in(request.together).values():
            chunks = tuple(replace(one, features=(*one.features, names)) for one in request.chunks)
            restricted = replace(request, chunks=chunks)
            rows = self._chunk_rows(restricted)
            size = sum(row[at.SET_LEN] for row in rows)
            if size:
                found.append(_SetOfNodes(rows, size, self._could_hold(rows, capacity)))
        return sorted(found, key=lambda one: (not one.holds, one.size))

    def _could_hold(self, rows: list[list[int]], capacity: Mapping[int, Sequence[int]]) -> bool:
        """Return whether the empty rows of these chunks have room for all units together."""
        chunks = [
            UnitGroup(
                row[at.COUNT],
                row[at.PER_NODE],
                tuple(0 if column == at.SHARE else need for column, need in enumerate(row[at.NEED :])),
                self._by_cost(row[at.SET], row[at.SET_LEN]),
            )
            for row in rows
        ]
        return could_hold(chunks, capacity)

    def _by_cost(self, first: int, n: int) -> tuple[int, ...]:
        """Return the rows of a set by cost: the order for placing mixed units."""
        costs = self._slabs.tb.costs[first : first + n]
        rows: list[int] = self._slabs.tb.sets[first : first + n][np.argsort(costs, kind="stable")].tolist()
        return tuple(rows)

    def _chunk_rows(self, request: Request) -> list[list[int]]:
        """Return the rows of the chunk table for a request: COUNT, SET, SET_LEN, PER_NODE, LEVEL, needs."""
        rows = []
        mixed = len(request.chunks) > 1 and request.place is Place.FREE
        for chunk in chunks_to_place(request):
            amounts = self.candidates.amounts(chunk)
            set_at, n = self._row_set(chunk, amounts, request.avoids, request.node_order)
            per_node = 1 if request.place is Place.SCATTER else chunk.count
            if mixed:
                per_node = max(per_node, 2)  # one unit, but units of other chunks may share the node
            needs = [0] * self._slabs.resources
            needs[at.SHARE] = at.WHOLE if request.exclusive else 1
            for name, amount in amounts:
                if name in self.columns:
                    needs[self.columns[name]] = amount
            kept_out = gate_amounts(1, chunk.cpus, chunk.gpus, chunk.mem, whole=request.exclusive)
            for name, column in self.columns.items():
                if name.startswith(GATE) and name not in request.passes:
                    needs[column] = kept_out[gate_kind(name)]
            level = _level(chunk.cpus, int(request.exclusive))
            rows.append([chunk.count, set_at, n, per_node, level, *needs])
        return rows

    def _row_set(
        self, chunk: Chunk, amounts: Sequence[tuple[str, int]], avoids: frozenset[str], order: str
    ) -> tuple[int, int]:
        """Return the row set (first index, length) of the nodes that could hold a unit, with these
        ``amounts``, when empty and up, without nodes that the request ``avoids``. The ranks of the ``order``
        precede the costs of scarcity.
        """
        ranks = self._node_orders.get(order) if order else None
        by_name = self.candidates.names_nodes(chunk)
        classes = self.candidates.fitting_classes(chunk, amounts, by_name)
        # Sets are shared by their node classes and costs or, where nodes are named, by
        # the names too.
        costs = self._scarcity.costs(self._scarcity.request_key(amounts, chunk.features), classes)
        key: _SetKey = (
            *(classes, chunk.features if by_name else (), avoids, costs),
            order if ranks is not None else "",
        )
        found = self._sets.get(key)
        if found is None:
            members = list(self._node_classes.items())
            names = {row: name for name, row in self._nodes.items()}
            rows = sorted(
                (row, cost)
                for i, cost in zip(classes, costs or [0] * len(classes), strict=True)
                for row in members[i][1]
                if not by_name or matches(chunk.features, members[i][0].features | {names[row]})
                if names[row] not in avoids
            )
            if ranks is not None:
                rows = _rank_rows(rows, {row: ranks.get(names[row], _LAST_RANK) for row, _ in rows})
            table = np.array(rows, np.int64).reshape(-1, 2)
            found = (self._slabs.add_set(table[:, 0], table[:, 1]), len(rows))
            self._sets[key] = found
        return found


@lru_cache(_KEPT)
def _level(cpus: int, exclusive: int) -> int:
    """``need_level``: a call of a kernel takes longer than the search in the cache."""
    return need_level(cpus, exclusive)


def _rank_rows(rows: list[tuple[int, int]], ranks: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return (row, cost) pairs with costs from 0 on in the order of rank, then of the former cost."""
    pairs = sorted({(ranks[row], cost) for row, cost in rows})
    costs = {pair: i for i, pair in enumerate(pairs)}
    return [(row, costs[ranks[row], cost]) for row, cost in rows]


def _join_sets(sets: Mapping[str, frozenset[str]], most: int) -> dict[str, frozenset[str]]:
    """Return all sets of ``most`` sets; if there are very many, only of neighbours in their order."""
    names = list(sets)
    if len(names) <= most:
        groups: Iterable[Sequence[str]] = [names] if names else []
    elif comb(len(names), most) <= _MOST_JOINED_SETS:
        groups = combinations(names, most)
    else:
        groups = [names[i : i + most] for i in range(len(names) - most + 1)]
    return {" or ".join(group): frozenset().union(*(sets[name] for name in group)) for group in groups}
