"""Conversion of requests to plain values and back."""

from typing import Any

from schedd.model import Chunk, NodeSets, Place, Request


def save_request(request: Request) -> list[Any]:
    chunks = [
        [c.count, c.cpus, c.mem, c.vmem, c.gpus, c.resources, [sorted(names) for names in c.features]]
        for c in request.chunks
    ]
    passes = sorted(request.passes)
    sets = request.together
    together = None
    if sets is not None:
        named = [[name, sorted(of)] for name, of in sets.named]
        together = [sets.by, named, sets.wait, *([sets.most] if sets.most != 1 else [])]
    return [
        chunks,
        request.place.value,
        request.exclusive,
        request.walltime,
        request.notes,
        passes,
        together,
        *([sorted(request.avoids)] if request.avoids or request.node_order else []),
        *([request.node_order] if request.node_order else []),
    ]


def load_request(saved: list[Any]) -> Request:
    """Return the request that ``save_request`` saved. Raises ValueError and TypeError for anything else."""
    chunks, place, exclusive, walltime, notes, passes, together, *rest = saved
    return Request(
        tuple(
            Chunk(
                count,
                cpus,
                mem,
                vmem,
                gpus,
                tuple((name, amount) for name, amount in resources),
                tuple(map(frozenset, features)),
            )
            for count, cpus, mem, vmem, gpus, resources, features in chunks
        ),
        Place(place),
        exclusive,
        walltime,
        tuple(notes),
        frozenset(passes),
        _load_sets(*together) if together is not None else None,
        frozenset(*rest[:1]),
        *rest[1:],
    )


def _load_sets(by: str, named: list[Any], wait: int | None, most: int = 1) -> NodeSets:
    return NodeSets(by, tuple((name, frozenset(of)) for name, of in named), wait, most)
