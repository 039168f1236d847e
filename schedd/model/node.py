"""A node of the cluster: what it holds, what it is called by, whether it may be used."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Node", "NodeState"]


class NodeState(StrEnum):
    """What the server says about a node's use."""

    UP = "up"
    DRAIN = "drain"
    """Offline by an admin's wish: running jobs go on, none is started."""
    DOWN = "down"
    """Not answering: running jobs keep their resources until the server says otherwise."""


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

    @property
    def all_features(self) -> frozenset[str]:
        """Its features, its own name included."""
        return self.features | {self.name}
