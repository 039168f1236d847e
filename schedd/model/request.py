"""What a job asks for: chunks of resources and the rule that places them on nodes."""

from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Chunk", "Features", "NodeSets", "Place", "Request", "matches"]

Features = tuple[frozenset[str], ...]
"""A conjunction of alternatives over node features, in conjunctive normal form.

Every element must hold; an element holds when any of its names is a feature of the node. A name that
begins with ``!`` holds when the node lacks it. A node always has its own name as a feature; a string or
boolean resource of OpenPBS is the feature ``name=value``.
"""


def matches(wanted: Features, features: frozenset[str]) -> bool:
    """Whether a node with these features (its name among them) meets every alternative."""
    return all(
        any(name[1:] not in features if name.startswith("!") else name in features for name in alternatives)
        for alternatives in wanted
    )


class Place(StrEnum):
    """How the units of a request's chunks may share nodes."""

    PACK = "pack"
    """All units on one node."""
    SCATTER = "scatter"
    """Every unit on a node of its own."""
    FREE = "free"
    """Units go wherever they fit; several may share a node."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """``count`` equal units, each of which must fit on a single node.

    ``mem`` and ``vmem`` are KiB per unit; ``resources`` are amounts per unit of node-locked generic
    resources, sorted by name.
    """

    count: int = 1
    cpus: int = 1
    mem: int = 0
    vmem: int = 0
    gpus: int = 0
    resources: tuple[tuple[str, int], ...] = ()
    features: Features = ()


@dataclass(frozen=True, slots=True)
class NodeSets:
    """Sets of nodes, such as those on one switch, on one of which all of a job is to be kept.

    Each value of the nodes' resource ``by`` makes one; or ``named`` says them: the nodes that have any of
    these features or names. For one set a job may start up to ``wait`` seconds later than elsewhere, else it
    is spread over as few as possible. With ``wait`` None it never is, unless no set could ever hold it.
    """

    by: str = ""
    named: tuple[tuple[str, frozenset[str]], ...] = ()
    wait: int | None = 0


@dataclass(frozen=True, slots=True)
class Request:
    """All that a job needs at once, and for how long.

    ``walltime`` is in seconds; None when neither the job nor any default names one (the engine then
    assumes the site's default and marks it so). ``notes`` are remarks for the job's explanation, for
    example which of two contradictory requests was followed.
    """

    chunks: tuple[Chunk, ...]
    place: Place = Place.FREE
    exclusive: bool = False
    walltime: int | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)
    passes: frozenset[str] = frozenset()
    """Gates that are open to the job: names of resources that a reservation with an access list takes whole,
    and of which every job needs some to which the gate is not open."""
    together: NodeSets | None = None
    avoids: frozenset[str] = frozenset()
    """Names of nodes on which no unit is placed, for now: starts there came to nothing."""

    def __post_init__(self) -> None:
        if not self.chunks:
            raise ValueError("a request needs at least one chunk")
        for chunk in self.chunks:
            amounts = (chunk.cpus, chunk.mem, chunk.vmem, chunk.gpus, *(n for _, n in chunk.resources))
            if chunk.count < 1 or min(amounts) < 0:
                raise ValueError(f"chunk {chunk}: count must be at least 1 and no amount negative")
        if self.walltime is not None and self.walltime < 1:
            raise ValueError(f"walltime {self.walltime}: at least 1 second is needed")

    @property
    def units(self) -> int:
        """How many units all chunks have together."""
        return sum(chunk.count for chunk in self.chunks)

    @property
    def cpus(self) -> int:
        """How many cpus all chunks ask for together."""
        total = 0  # a loop: it is asked for every job of a list
        for chunk in self.chunks:
            total += chunk.count * chunk.cpus
        return total
