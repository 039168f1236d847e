"""Exclusive use of OpenPBS vnodes by their attribute ``sharing``.

The adapter reports it as the feature ``sharing=…`` of each vnode that is not ``default_shared``. The rules
are as in ``is_excl`` of the server's scheduler.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from schedd.model import Node
from schedd.model.request import Chunk

_SHARING: Final = "sharing="
_USUAL: Final = "default_shared"
_FORCED: Final = frozenset({"force_excl", "force_exclhost"})
_BY_DEFAULT: Final = frozenset({"default_excl", "default_exclhost"})
_PASSING: Final = "resv="  # a temporary feature, ignored in node classes


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Equivalence class of nodes with equal resources; ``names`` are node names and properties, ``nodes`` is
    the number of nodes.
    """

    features: frozenset[str]
    capacity: tuple[int, int, int, int, tuple[tuple[str, int], ...]]
    names: frozenset[str] = field(default=frozenset())
    nodes: int = 0

    @property
    def sharing(self) -> str:
        """The value of ``sharing``."""
        return next((one[len(_SHARING) :] for one in self.features if one.startswith(_SHARING)), _USUAL)

    def could_hold(self, chunk: Chunk) -> bool:
        """Return whether a unit fits on an empty node of the class."""
        cpus, mem, vmem, gpus, resources = self.capacity
        has = dict(resources)
        return (
            chunk.cpus <= cpus
            and (not mem or chunk.mem <= mem)
            and (not vmem or chunk.vmem <= vmem)
            and chunk.gpus <= gpus
            and all(amount <= has.get(name, 0) for name, amount in chunk.resources)
            and all(any(self._meets(name) for name in alternatives) for alternatives in chunk.features)
        )

    def count_units(self, chunk: Chunk, *, apart: bool) -> int:
        """Return how many units fit on the empty nodes of the class, at most one on each if ``apart``."""
        if not self.could_hold(chunk):
            return 0
        named = any(
            self.features.isdisjoint(one) and not self.names.isdisjoint(one) for one in chunk.features
        )
        nodes = 1 if named else self.nodes
        if apart:
            return nodes
        cpus, mem, vmem, gpus, resources = self.capacity
        has = dict(resources)
        amounts = [(cpus, chunk.cpus), (mem, chunk.mem), (vmem, chunk.vmem), (gpus, chunk.gpus)]
        amounts += [(has[name], amount) for name, amount in chunk.resources]
        return nodes * min([size // need for size, need in amounts if size and need], default=chunk.count)

    def _meets(self, name: str) -> bool:
        if name.startswith("!"):
            return name[1:] not in self.features
        return name in self.features or name in self.names


def node_kinds(nodes: Iterable[Node], hidden: str = "") -> tuple[NodeKind, ...]:
    """Return the classes of nodes; none if the job decides the sharing of every node.

    Resources with the prefix ``hidden`` are ignored.
    """
    nodes = list(nodes)
    if not any(one.startswith(_SHARING) for node in nodes for one in node.features):
        return ()
    names: dict[NodeKind, set[str]] = {}
    counts: Counter[NodeKind] = Counter()
    for node in nodes:
        features = frozenset(one for one in node.features if "=" in one and not one.startswith(_PASSING))
        resources = tuple(one for one in node.resources if not (hidden and one[0].startswith(hidden)))
        capacity = (node.cpus, node.mem, node.vmem, node.gpus, resources)
        kind = NodeKind(features, capacity)
        counts[kind] += 1
        names.setdefault(kind, set()).update([node.name, *(one for one in node.features if "=" not in one)])
    return tuple([replace(kind, names=frozenset(own), nodes=counts[kind]) for kind, own in names.items()])


def shared_or_not(
    words: Collection[str], chunks: list[Chunk], kinds: Collection[NodeKind]
) -> tuple[bool, list[Chunk], str]:
    """Return whether a job with these words in its ``place`` has exclusive nodes, its chunks, and a remark or
    an empty string.

    If that differs between nodes, the job is restricted to the nodes that match its request, if its chunks
    fit there; else to the other nodes. If they fit only on both, all of its nodes are exclusive. If they fit
    nowhere, and for a job of a reservation, the request alone decides.
    """
    asks = bool({"excl", "exclhost"} & set(words))
    values = {kind.sharing for kind in kinds} or {_USUAL}
    alone = {value for value in values if _is_alone(value, words)}
    together = values - alone
    if not alone or not together:
        return bool(alone), chunks, ""
    if any(name.startswith(_PASSING) for chunk in chunks for names in chunk.features for name in names):
        return asks, chunks, ""  # node classes outlast a reservation: the adapter follows its nodes' sharing
    for exclusive, wanted, other in sorted(
        [(True, alone, together), (False, together, alone)], key=lambda one: one[0] is not asks
    ):
        if _hold(chunks, [kind for kind in kinds if kind.sharing in wanted], words):
            return exclusive, _restrict_sharing(chunks, wanted, other), ""
    if not _hold(chunks, kinds, words):
        return asks, chunks, ""
    return (
        True,
        chunks,
        "its chunks fit on shared and on exclusive nodes only together: planned as place=excl",
    )


def _hold(chunks: Sequence[Chunk], kinds: Collection[NodeKind], words: Collection[str]) -> bool:
    """Return whether empty nodes of these classes hold the units of each chunk, looked at by itself, and the
    nodes, cores and other resources of all chunks together.
    """
    apart = bool({"scatter", "vscatter"} & set(words))
    nodes = sum(kind.nodes for kind in kinds)
    cpus = sum(kind.nodes * kind.capacity[0] for kind in kinds)
    gpus = sum(kind.nodes * kind.capacity[3] for kind in kinds)
    needs, has = Counter[str](), Counter[str]()
    for chunk in chunks:
        needs.update({name: chunk.count * amount for name, amount in chunk.resources})
    for kind in kinds:
        has.update({name: kind.nodes * amount for name, amount in kind.capacity[4] if name in needs})
    return (
        all(sum(kind.count_units(chunk, apart=apart) for kind in kinds) >= chunk.count for chunk in chunks)
        and sum(chunk.count * chunk.cpus for chunk in chunks) <= cpus
        and sum(chunk.count * chunk.gpus for chunk in chunks) <= gpus
        and all(amount <= has[name] for name, amount in needs.items())
        and (not apart or sum(chunk.count for chunk in chunks) <= nodes)
    )


def _is_alone(sharing: str, words: Collection[str]) -> bool:
    if sharing in _FORCED:
        return True
    if sharing == "ignore_excl":
        return False
    if {"excl", "exclhost"} & set(words):
        return True
    return "shared" not in words and sharing in _BY_DEFAULT


def _restrict_sharing(
    chunks: Sequence[Chunk], wanted: Collection[str], other: Collection[str]
) -> list[Chunk]:
    """Restrict chunks to nodes with a ``wanted`` value; ``default_shared`` is no feature of nodes."""
    if _USUAL in wanted:
        clauses = [frozenset({f"!{_SHARING}{value}"}) for value in other]
    else:
        clauses = [frozenset(f"{_SHARING}{value}" for value in wanted)]
    return [
        replace(chunk, features=tuple(sorted({*chunk.features, *clauses}, key=sorted))) for chunk in chunks
    ]
