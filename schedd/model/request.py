"""Request of a job: chunks of resources and the rule for placing them on nodes."""

from dataclasses import dataclass, field
from enum import StrEnum

from schedd.wire.quick_init import quick_init

Features = tuple[frozenset[str], ...]
"""A conjunction of alternatives over node features, in conjunctive normal form.

Every element must hold; an element holds when any of its names is a feature of the node. A name that
begins with ``!`` holds when the node lacks it. A node always has its own name as a feature; a string or
boolean resource of OpenPBS is the feature ``name=value``.
"""


def matches(wanted: Features, features: frozenset[str]) -> bool:
    """Whether a node with these features (its name among them) meets every alternative."""
    # Loops instead of generators, and no loop over all names: each arrival compares with each class of nodes.
    for alternatives in wanted:  # noqa: SIM110
        if not _is_met(alternatives, features):
            return False
    return True


def _is_met(alternatives: frozenset[str], features: frozenset[str]) -> bool:
    for name in alternatives & features:
        if name[:1] != "!":
            return True
    for name in alternatives:  # noqa: SIM110
        if name[:1] == "!" and name[1:] not in features:
            return True
    return False


class Place(StrEnum):
    """How the units of a request's chunks may share nodes."""

    PACK = "pack"  # all units on one node
    SCATTER = "scatter"  # every unit on a node of its own
    FREE = "free"  # units go wherever they fit; several may share a node


@quick_init
@dataclass(frozen=True, slots=True)
class Chunk:
    """``count`` equal units; each must fit on a single node.

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
    """Sets of nodes, such as the nodes of one switch; the whole job should be placed within one set.

    Each value of the nodes' resource ``by`` forms a set; or ``named`` lists sets by features or node names.
    For a single set a job may start up to ``wait`` seconds later, otherwise it uses as few sets as possible.
    With ``wait`` None it must use a single set, unless no set could ever hold it.
    """

    by: str = ""
    named: tuple[tuple[str, frozenset[str]], ...] = ()
    wait: int | None = 0
    most: int = 1  # sets that count as one: the job may use nodes of this many together


@quick_init
@dataclass(frozen=True, slots=True)
class Request:
    """Resources of a job and their duration.

    ``walltime`` is in seconds; None if neither the job nor any default names one (the engine then uses the
    site's default and marks it). ``notes`` are remarks for the job's explanation, for example about
    contradictory requests.
    """

    chunks: tuple[Chunk, ...]
    place: Place = Place.FREE
    exclusive: bool = False
    walltime: int | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)
    passes: frozenset[str] = frozenset()
    """Gates open to the job. A gate is a resource that a reservation with an access list takes completely, or
    as much of it as it reserves of the node; other jobs need some of it.
    """
    together: NodeSets | None = None
    avoids: frozenset[str] = frozenset()  # names of nodes that are temporarily excluded after failed starts
    node_order: str = ""
    """Name of the order of preference among nodes with the same start; empty: by scarcity only."""

    def __post_init__(self) -> None:
        if not self.chunks:
            raise ValueError("a request needs at least one chunk")
        for chunk in self.chunks:
            least = min(chunk.cpus, chunk.mem, chunk.vmem, chunk.gpus)
            if chunk.resources:
                least = min(least, *[amount for _, amount in chunk.resources])
            if chunk.count < 1 or least < 0:
                raise ValueError(f"chunk {chunk}: count must be at least 1 and no amount negative")
        if self.walltime is not None and self.walltime < 1:
            raise ValueError(f"walltime {self.walltime}: at least 1 second is needed")

    @property
    def units(self) -> int:
        """Total units of all chunks."""
        total = 0  # a plain loop for speed, as for cpus
        for chunk in self.chunks:
            total += chunk.count
        return total

    @property
    def cpus(self) -> int:
        """Total cpus of all chunks."""
        total = 0  # a plain loop for speed: called for every job of a list
        for chunk in self.chunks:
            total += chunk.count * chunk.cpus
        return total
