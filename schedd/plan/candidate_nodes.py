"""Candidate nodes of a request: nodes that could hold a unit when empty and up, by classes of equal nodes."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from schedd.model import Chunk, Features, Node, Place, Request, matches
from schedd.plan.gates import UNLIMITED
from schedd.plan.kernels import layout as at
from schedd.plan.schema import FOUND, SHARED, FieldRule, declared, fork_part

_MOST_CACHED: Final = 4096


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Equivalence class of nodes with identical resources and properties."""

    features: frozenset[str]
    capacity: tuple[int, ...]


def _load_node_classes(saved: list[Any]) -> dict[NodeClass, list[int]]:
    return {NodeClass(frozenset(features), tuple(amounts)): list(rows) for features, amounts, rows in saved}


NODE_CLASSES: Final = FieldRule(
    save=lambda classes: [
        [sorted(node_class.features), node_class.capacity, rows] for node_class, rows in classes.items()
    ],
    load=_load_node_classes,
)
"""A dict from node classes to their rows that is replaced, never changed."""


def node_capacity(node: Node, columns: Mapping[str, int]) -> list[int]:
    """Return the capacity of ``node`` per resource column; unreported memory counts as unlimited."""
    capacity = [0] * len(columns)
    capacity[at.CPUS] = node.cpus
    capacity[at.SHARE] = at.WHOLE
    capacity[at.MEM] = node.mem or UNLIMITED
    capacity[at.GPUS] = node.gpus
    if "vmem" in columns:
        capacity[columns["vmem"]] = node.vmem or UNLIMITED
    for name, amount in node.resources:
        capacity[columns[name]] = amount
    return capacity


@dataclass(eq=False)
class CandidateNodes:
    """The nodes of one plan as candidates. The nodes do not change; answers about requests are cached."""

    columns: Mapping[str, int] = declared(SHARED, make=dict)
    """Resource columns by name, as the capacities of ``classes`` have them."""
    rows: Mapping[str, int] = declared(SHARED, make=dict)
    """Rows of nodes by name."""
    classes: Mapping[NodeClass, list[int]] = declared(SHARED, make=dict)
    """Rows of nodes by class."""
    _class_list: list[tuple[tuple[int, ...], frozenset[str]]] = declared(SHARED, make=list)
    """Capacity and properties of each class."""
    _class_sizes: list[int] = declared(SHARED, make=list)
    _present: frozenset[str] = declared(SHARED, default=frozenset())
    """The features of all nodes."""
    _named_counts: dict[tuple[tuple[int, ...], Features], int] = declared(
        FieldRule(lambda _: {}, saved=False), make=dict
    )
    """Number of candidates, by node classes and by features that name nodes."""
    _having: dict[Features, tuple[int, ...]] = declared(FOUND, make=dict)
    """Classes of nodes with these features, by features that name no nodes."""
    _capacities: Mapping[str, list[int]] = declared(SHARED, make=dict)
    """By name of a resource: the different capacities of the classes, ascending."""
    _fitting: dict[tuple[object, ...], tuple[int, ...]] = declared(FOUND, make=dict)
    """Classes that could hold a unit, by the least sufficient capacities and the features."""

    def __post_init__(self) -> None:
        self._class_list = [(node_class.capacity, node_class.features) for node_class in self.classes]
        self._class_sizes = [len(rows) for rows in self.classes.values()]
        self._capacities = {
            name: sorted({capacity[column] for capacity, _ in self._class_list})
            for name, column in self.columns.items()
        }
        self._present = frozenset().union(*(node_class.features for node_class in self.classes))

    def copy(self) -> "CandidateNodes":
        """Return the same nodes, for a plan that another thread uses."""
        return fork_part(self)

    def is_feature(self, name: str) -> bool:
        """Return whether any node has this feature."""
        return name in self._present

    def names_nodes(self, chunk: Chunk) -> bool:
        """Return whether a feature of the chunk is the name of a node."""
        return any(name.removeprefix("!") in self.rows for names in chunk.features for name in names)

    def removed_nodes(self, chunk: Chunk) -> list[str]:
        """Return the nodes that the chunk requests by name although the server removed them."""
        empty = [
            row
            for node_class, rows in self.classes.items()
            if not (node_class.features or node_class.capacity[at.CPUS] or node_class.capacity[at.GPUS])
            for row in rows
        ]
        wanted = {name for names in chunk.features if len(names) == 1 for name in names}
        return sorted(name for name in wanted if self.rows.get(name) in empty)

    def amounts(self, chunk: Chunk) -> list[tuple[str, int]]:
        """Return the needs of a unit by name; virtual memory only if some node reports it."""
        amounts = [("cpus", chunk.cpus), ("mem", chunk.mem), ("gpus", chunk.gpus), *chunk.resources]
        if "vmem" in self.columns:
            amounts.append(("vmem", chunk.vmem))
        return [(name, n) for name, n in amounts if n > 0]

    def has_features(self, chunk: Chunk, node_class: NodeClass) -> bool:
        """Return whether a node of the class has the features of the chunk."""
        if not chunk.features:
            return True
        if self.names_nodes(chunk):
            members = set(self.classes[node_class])
            names = [name for name, row in self.rows.items() if row in members]
            return any(matches(chunk.features, node_class.features | {name}) for name in names)
        return matches(chunk.features, node_class.features)

    def fitting_classes(
        self, chunk: Chunk, named: Sequence[tuple[str, int]], by_name: bool
    ) -> tuple[int, ...]:
        """Return the node classes that could hold a unit with the needs ``named``; features count unless they
        name nodes.
        """
        features = () if by_name else chunk.features
        levels: list[tuple[str, int]] = []
        for name, need in named:
            capacities = self._capacities.get(name)
            if capacities is None:
                return ()
            levels.append((name, bisect_left(capacities, need)))
        key = (*levels, features)
        found = self._fitting.get(key)
        if found is None:
            if len(self._fitting) >= _MOST_CACHED:
                self._fitting.clear()
            found = self._fitting[key] = self._find_fitting(named, features)
        return found

    def _find_fitting(self, named: Iterable[tuple[str, int]], features: Features) -> tuple[int, ...]:
        needs = [(self.columns[name], need) for name, need in named]
        return tuple(
            i
            for i in self._classes_having(features)
            if all(self._class_list[i][0][column] >= need for column, need in needs)
        )

    def _classes_having(self, features: Features) -> tuple[int, ...]:
        """Return the classes of nodes with these features, which name no nodes."""
        found = self._having.get(features)
        if found is None:
            if len(self._having) >= _MOST_CACHED:
                self._having.clear()
            found = tuple(i for i, (_, present) in enumerate(self._class_list) if matches(features, present))
            self._having[features] = found
        return found

    def count(self, chunk: Chunk) -> int:
        """Return the number of nodes that could hold a unit when empty and up.

        Adds no row set: sets are part of the saved state, and whether a request is checked depends on what
        the process remembers of earlier requests.
        """
        by_name = self.names_nodes(chunk)
        classes = self.fitting_classes(chunk, self.amounts(chunk), by_name)
        if not by_name:
            return sum(self._class_sizes[i] for i in classes)
        key = (classes, chunk.features)
        found = self._named_counts.get(key)
        if found is None:
            if len(self._named_counts) >= _MOST_CACHED:
                self._named_counts.clear()
            names = {row: name for name, row in self.rows.items()}
            members = list(self.classes.items())
            found = sum(
                matches(chunk.features, members[i][0].features | {names[row]})
                for i in classes
                for row in members[i][1]
            )
            self._named_counts[key] = found
        return found

    def suffice(self, chunk: Chunk, request: Request) -> bool:
        """Return whether there is a candidate for a unit of this chunk, and for scattered units enough."""
        fit = self.count(chunk)
        return fit > 0 and not (request.place is Place.SCATTER and chunk.count > fit)
