"""Requests of hypothetical jobs for hosts with several vnodes, as OpenPBS's adapter reports those of jobs.

The plan sees such a host as one node with amounts that the adapter adds: its vnodes, and its cores and gpus
with each value of a property. The adapter adds these to the requests of jobs; one that is not on the server
lacks them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from schedd.dialect.openpbs import VSCATTER_NOTE
from schedd.model import Chunk, Place, Request
from schedd.wire import JobFacts, NodeFacts
from schedd.wire.resources import OWN_VNODE, cpu_amount_name, gpu_amount_name, is_adapter_amount

_VSCATTER: Final = "vscatter"


def adapter_amounts(nodes: Mapping[str, NodeFacts]) -> frozenset[str]:
    """Return the amounts that the adapter has added to nodes."""
    names = {name for facts in nodes.values() for name in facts.resources}
    return frozenset(name for name in names if is_adapter_amount(name))


def request_vnodes(
    request: Request, place: str, amounts: frozenset[str], count_nodes: Callable[[Chunk], int], hosts: int
) -> Request:
    """Return the request with the amounts of cores and gpus of the requested kinds, and with one vnode for
    each chunk of ``place=vscatter`` if there are fewer hosts than chunks.

    ``count_nodes`` returns the number of nodes that could hold a chunk; ``hosts`` is the number of nodes with
    vnodes.
    """
    chunks = tuple(_with_kinds(chunk, amounts) for chunk in request.chunks)
    scattered = OWN_VNODE in amounts and _VSCATTER in place.lower().split(":")
    if scattered and (
        sum(chunk.count for chunk in chunks) > hosts
        or any(chunk.count > count_nodes(chunk) > 0 for chunk in chunks)
    ):
        own = tuple(_with_amount(chunk, OWN_VNODE, 1) for chunk in chunks)
        notes = tuple(note for note in request.notes if note != VSCATTER_NOTE)
        return replace(request, chunks=own, place=Place.FREE, notes=notes)
    return request if chunks == request.chunks else replace(request, chunks=chunks)


def with_requested_vnodes(facts: JobFacts, request: Request, found: Request) -> JobFacts:
    """Return a job with the amounts in its ``select`` that ``found`` has in addition to its request."""
    parts = facts.resources.get("select", "").split("+")
    if request == found or len(parts) != len(found.chunks):
        return facts
    for i, (chunk, more) in enumerate(zip(request.chunks, found.chunks, strict=True)):
        added = [
            f":{name}={amount}" for name, amount in more.resources if (name, amount) not in chunk.resources
        ]
        parts[i] += "".join(added)
    resources = {**facts.resources, "select": "+".join(parts)}
    if request.place is not found.place:
        resources["place"] = "free"
    return replace(facts, resources=resources)


def _with_kinds(chunk: Chunk, amounts: frozenset[str]) -> Chunk:
    for names in chunk.features:
        for feature in names if len(names) == 1 else ():
            name, _, value = feature.partition("=")
            for amount, count in (
                (gpu_amount_name(name, value), chunk.gpus),
                (cpu_amount_name(name, value), chunk.cpus),
            ):
                if count and amount in amounts:
                    chunk = _with_amount(chunk, amount, count)
    return chunk


def _with_amount(chunk: Chunk, name: str, amount: int) -> Chunk:
    if any(known == name for known, _ in chunk.resources):
        return chunk
    return replace(chunk, resources=tuple(sorted((*chunk.resources, (name, amount)))))
