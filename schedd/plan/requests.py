"""Requests as chunks to place, and as plain values."""

from collections.abc import Sequence
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


def chunks_to_place(request: Request) -> Sequence[Chunk]:
    """Return the chunks to place: a packed request has one, since one node must hold everything."""
    if request.place is not Place.PACK:
        return request.chunks
    resources: dict[str, int] = {}
    for chunk in request.chunks:
        for name, amount in chunk.resources:
            resources[name] = resources.get(name, 0) + chunk.count * amount
    return (
        Chunk(
            count=1,
            cpus=sum(c.count * c.cpus for c in request.chunks),
            mem=sum(c.count * c.mem for c in request.chunks),
            vmem=sum(c.count * c.vmem for c in request.chunks),
            gpus=sum(c.count * c.gpus for c in request.chunks),
            resources=tuple(sorted(resources.items())),
            features=tuple(dict.fromkeys(f for c in request.chunks for f in c.features)),
        ),
    )
