"""Requirements of a request that no configured node can meet, checked chunk by chunk and node by node."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from schedd.dialect.node_properties import describe_property
from schedd.dialect.units import format_rounded_size
from schedd.model import Chunk, Features, Never, Place, Request
from schedd.name_list import name_node
from schedd.plan.candidate_nodes import CandidateNodes
from schedd.plan.requests import chunks_to_place
from schedd.wire import FLOAT_PARTS
from schedd.wire.resources import describe_amount

NO_UNITS: Final[Mapping[str, str]] = MappingProxyType({"mem": "size", "vmem": "size"})
"""Default units of resources."""


def find_unmet_by_chunk(nodes: CandidateNodes, request: Request, units: Mapping[str, str]) -> Never | None:
    """Return the first requirement that no node can meet, by chunk; None: all can be met.

    ``units``: unit of each resource by name (``size``: KiB, ``float``: ``FLOAT_PARTS``).
    """
    if request.place is Place.PACK and request.units > 1:
        where = "on one node"
    elif request.exclusive:
        where = "on a whole node"
    else:
        where = "on a node"
    for i, chunk in enumerate(chunks_to_place(request)):
        if not nodes.suffice(chunk, request):
            part = f" (chunk {i + 1})" if len(request.chunks) > 1 and request.place is not Place.PACK else ""
            return Never(_describe_unmet(nodes, chunk, where, part, units))
    return None


def _describe_unmet(
    nodes: CandidateNodes, chunk: Chunk, where: str, part: str, units: Mapping[str, str]
) -> str:
    """Return the first requirement of a chunk that too few nodes meet; ``part`` names the chunk."""
    if removed := nodes.removed_nodes(chunk):
        return f"{' and '.join(map(name_node, removed))} no longer exist{'s' * (len(removed) == 1)}{part}"
    wanted = _format_features(chunk.features)
    classes = [one for one in nodes.classes if nodes.has_features(chunk, one)]
    if not classes:
        return f"no node has {_unmet_features(nodes, chunk)}{part}" if wanted else "the cluster has no nodes"
    with_what = f" with {wanted}" if wanted else ""
    for name, need in nodes.amounts(chunk):
        column = nodes.columns.get(name)
        best = max(one.capacity[column] for one in classes) if column is not None else 0
        if need > best:
            asked, there = _format_amounts(need, best, units.get(name, ""))
            what = describe_amount(name)
            if asked == "1" and what in ("cpus", "gpus"):
                what = what[:-1]
            most = f"the largest has {there}" if best > 0 else f"no node{with_what} has any"
            return f"{asked} {what} {where}{with_what}{part}; {most}"
        if column is not None:
            classes = [one for one in classes if one.capacity[column] >= need]
    fit = nodes.count(chunk)
    if fit == 0:
        return f"no single node{with_what} has all that a unit needs{part}"
    return f"it needs {chunk.count} nodes{with_what}{part}; the cluster has {fit} that fit"


def _unmet_features(nodes: CandidateNodes, chunk: Chunk) -> str:
    """Return the features that no node has; if each is on some node, all features."""
    lacking = [
        names
        for names in chunk.features
        if not any(nodes.has_features(replace(chunk, features=(names,)), one) for one in nodes.classes)
    ]
    return _format_features(tuple(lacking) or chunk.features)


def _format_amounts(need: int, best: int, unit: str) -> tuple[str, str]:
    """Return both amounts as readable, different texts."""
    if unit == "float":
        return f"{need / FLOAT_PARTS:g}", f"{best / FLOAT_PARTS:g}"
    if unit != "size":
        return str(need), str(best)
    asked, there = format_rounded_size(need), format_rounded_size(best)
    return (asked, there) if asked != there else (f"{need}kb", f"{best}kb")


def _format_features(features: Features) -> str:
    """Return features as readable text, negated ones last."""
    texts = [
        (any(name.startswith("!") for name in names), " or ".join(map(describe_property, sorted(names))))
        for names in features
    ]
    return " and ".join(text for _, text in sorted(texts, key=lambda one: one[0]))
