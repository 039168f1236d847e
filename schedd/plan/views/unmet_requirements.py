"""Requirements that the cluster can never meet, checked against all configured nodes, empty and up."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from schedd.model import Chunk, Never, Node, NodeState, Place, Request, matches
from schedd.plan.gates import GATE, gate_capacity
from schedd.plan.plan import Plan
from schedd.plan.unmet_requirements import NO_UNITS

_NOTHING: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType({})


def empty_plan(plan: Plan, unusable: Mapping[str, Mapping[str, int]] = _NOTHING) -> Plan:
    """Return a plan with the same nodes, all up, and without jobs; cache it until nodes change.

    ``unusable``: by node, the amounts of its parts that cannot be used now; they count as usable.
    """
    return Plan([_complete(node, unusable.get(node.name, {})) for node in plan.nodes.values()], 0)


def _complete(node: Node, unusable: Mapping[str, int]) -> Node:
    """Return the node as it is when it is up with all its parts."""
    if not unusable:
        return replace(node, state=NodeState.UP)
    amounts = dict(node.resources)
    for name, amount in unusable.items():
        if name in amounts:
            amounts[name] += amount
    found = replace(
        node,
        cpus=node.cpus + unusable.get("cpus", 0),
        mem=node.mem and node.mem + unusable.get("mem", 0),
        gpus=node.gpus + unusable.get("gpus", 0),
        state=NodeState.UP,
    )
    counted = [
        (name, gate_capacity(name, found) if name.startswith(GATE) else amount)
        for name, amount in amounts.items()
    ]
    return replace(found, resources=tuple(counted))


def has_room_for_a_chunk(node: Node, request: Request) -> bool:
    """Return whether the node, when empty and up, could hold a unit of any chunk of the request."""
    return any(_holds(node, chunk) for chunk in request.chunks)


def _holds(node: Node, chunk: Chunk) -> bool:
    amounts = dict(node.resources)
    return (
        matches(chunk.features, node.all_features)
        and chunk.cpus <= node.cpus
        and chunk.gpus <= node.gpus
        and (not node.mem or chunk.mem <= node.mem)
        and all(amount <= amounts.get(name, 0) for name, amount in chunk.resources)
    )


def find_unmet_requirement(
    empty: Plan, request: Request, units: Mapping[str, str] = NO_UNITS
) -> Never | None:
    """Return the first requirement that the cluster cannot meet, with ``empty`` = ``empty_plan(plan)``; None:
    it could run.

    Order of checks: each chunk by itself, node by node; all units of a chunk at once; then the chunks
    together, naming the first that does not fit next to those before it.
    """
    alone = empty.find_unmet_requirement(request, units)
    if alone is not None or _fits(empty, request):
        return alone
    for i, chunk in enumerate(request.chunks):
        part = f" (chunk {i + 1})" if len(request.chunks) > 1 else ""
        if not _fits(empty, replace(request, chunks=(chunk,))):
            most = _most(empty, request, i)
            if request.place is Place.SCATTER:
                return Never(f"it needs {chunk.count} nodes at once{part}; the cluster has {most} that fit")
            return Never(f"it needs {chunk.count} units at once{part}; the cluster has room for {most}")
    n = next(n for n in range(2, len(request.chunks) + 1) if not _fits(empty, _first(request, n)))
    return Never(
        f"chunk {n} beside the chunks before it: the nodes that could take each cannot take them together"
    )


def _first(request: Request, n: int) -> Request:
    return replace(request, chunks=request.chunks[:n])


def _fits(empty: Plan, request: Request) -> bool:
    slot = empty.add_job(request, 1, 0)
    try:
        return empty.probe(slot, 0, 1) == 0
    finally:
        empty.drop_job(slot, 0)


def _most(empty: Plan, request: Request, i: int) -> int:
    """Return the maximum number of units of a chunk that fit at once: at least 1, fewer than requested."""
    chunk = request.chunks[i]
    low, high = 1, chunk.count
    while low + 1 < high:
        middle = (low + high) // 2
        if _fits(empty, replace(request, chunks=(replace(chunk, count=middle),))):
            low = middle
        else:
            high = middle
    return low
