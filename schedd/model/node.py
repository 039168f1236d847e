"""A node of the cluster: capacities, features and state."""

from dataclasses import dataclass, replace
from enum import StrEnum


class NodeState(StrEnum):
    """State of a node at the server."""

    UP = "up"
    DRAIN = "drain"  # set offline by an admin: running jobs continue, no job starts
    DOWN = "down"  # not answering: running jobs keep their resources until the server reports otherwise


@dataclass(frozen=True, slots=True)
class Node:
    """One node; ``mem`` and ``vmem`` in KiB, ``speed`` relative to 1.0.

    ``resources`` are capacities of node-locked generic resources, sorted by name.
    """

    name: str
    cpus: int
    mem: int = 0
    vmem: int = 0
    gpus: int = 0
    resources: tuple[tuple[str, int], ...] = ()
    features: frozenset[str] = frozenset()
    state: NodeState = NodeState.UP
    speed: float = 1.0

    def differs_in_state_at_most(self, other: "Node") -> bool:
        """Return whether the other node offers the same, whatever the states are."""
        return self == replace(other, state=self.state)

    @property
    def all_features(self) -> frozenset[str]:
        """Its features, its own name included."""
        return self.features | {self.name}
