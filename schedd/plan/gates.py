"""Gates: resources of nodes that only keep jobs out, for reservations with access lists."""

from functools import lru_cache
from typing import Final

from schedd.model import Node
from schedd.plan.kernels import layout as at

GATE = "gate "
"""Prefix of the names of gates: see ``Request.passes``.

A gate of nodes is needed by each job, and each node has ``WHOLE`` of it. Gates of cpus, gpus and memory are
needed by jobs that share nodes, as many units as the job needs cpus, gpus or KiB, and the node has as many as
it has of these. A gate of whole nodes is needed only by jobs that have nodes to themselves.
"""
CPUS_GATE: Final = f"{GATE}cpus "
GPUS_GATE: Final = f"{GATE}gpus "
MEM_GATE: Final = f"{GATE}mem "
COUNTED_GATES: Final = (CPUS_GATE, GPUS_GATE, MEM_GATE)
"""Gates that a job needs as many units of as of the resource of that name."""
WHOLE_NODES_GATE: Final = f"{GATE}whole nodes "

UNLIMITED = 1 << 50
"""Capacity of a resource that the server does not report (memory of a node that never reported)."""


def gate_capacity(gate: str, node: Node) -> int:
    """Return the units of a gate that a node has."""
    if gate.startswith(CPUS_GATE):
        return node.cpus
    if gate.startswith(MEM_GATE):
        return node.mem or UNLIMITED
    return node.gpus if gate.startswith(GPUS_GATE) else at.WHOLE


def gate_amount(gate: str, *, units: int, cpus: int, gpus: int, mem: int, whole: bool) -> int:
    """Return the amount of a gate that a job needs for ``units`` on one node, if the gate is closed to it.

    ``cpus``, ``gpus`` and ``mem`` are those of the units together; ``whole``: the job has the node to itself.
    """
    return gate_amounts(units, cpus, gpus, mem, whole=whole)[gate_kind(gate)]


def gate_amounts(
    units: int, cpus: int, gpus: int, mem: int, *, whole: bool
) -> tuple[int, int, int, int, int]:
    """Return the amounts of ``gate_amount`` by ``gate_kind``."""
    return (0, 0, 0, 1, 1) if whole else (cpus, gpus, mem, 0, units)


@lru_cache(1_024)
def gate_kind(gate: str) -> int:
    """Return the kind of a gate: its place in the result of ``gate_amounts``."""
    kinds = (*COUNTED_GATES, WHOLE_NODES_GATE)
    return next((place for place, kind in enumerate(kinds) if gate.startswith(kind)), len(kinds))
