"""Destinations of RunJob, and the server's choice of slots for them (protocol document, section 5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from server_adapter.emulator.errors import RefusalError, refusal
from server_adapter.emulator.nodes import EmulatedNode
from server_adapter.torque.errors import TorqueErrorCode

GPU_MODES: Final = frozenset(
    {"exclusive", "exclusive_thread", "exclusive_process", "default", "shared", "reseterr"}
)
"""Words after `gpus=` that are modes and not properties."""
_NORMAL: Final = frozenset({"default", "shared"})
DEFAULT_GPU_MODE: Final = "exclusive_thread"


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """Slots and gpus chosen on a node."""

    node: EmulatedNode
    slots: int
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class DestinationPart:
    """One `+` part: `count` nodes with `slots` and `gpus` each, either the node `name` or any nodes with
    `properties`. `gpu_mode` is the mode that the part names for its gpus, or the server's default.
    """

    name: str | None
    count: int
    slots: int
    properties: tuple[str, ...]
    leading: bool = False  # a property in place of a node name
    gpus: int = 0
    gpu_mode: str = ""


def parse_destination(
    text: str, nodes: Mapping[str, EmulatedNode], *, plain: bool = False
) -> tuple[DestinationPart, ...]:
    """Parse a destination: `node1:ppn=4+node2:ppn=4`, `2:ppn=2:even`, `node1/0+node1/1`, `odd:ppn=2`.

    A name without ppn is one slot. Slot numbers are ignored. Servers up to 3.x accept only the `plain` form:
    no slot numbers, no node twice. Raises refusal 15064 for malformed text.
    """
    parts = tuple(_part(part, nodes) for part in text.split("+"))
    named = [part.name for part in parts if part.name is not None]
    if plain and ("/" in text or len(set(named)) < len(named)):
        raise RefusalError(TorqueErrorCode.UNKNODE)
    return parts


def _part(text: str, nodes: Mapping[str, EmulatedNode]) -> DestinationPart:
    first, *rest = text.strip().split(":")
    first = first.partition("/")[0]
    slots, gpus, mode, properties = 1, 0, "", []
    for word in rest:
        key, equals, value = word.partition("=")
        if not equals and mode and word.lower() in GPU_MODES:
            mode = mode if word.lower() == "reseterr" else word.lower()
        elif not equals:
            properties.append(word)
        elif key == "gpus" and value.isdecimal():
            gpus, mode = int(value), DEFAULT_GPU_MODE
        elif key == "ppn" and value.isdecimal() and int(value) > 0:
            slots = int(value)
        elif key != "mics":
            raise RefusalError(TorqueErrorCode.UNKNODE)
    if first.isdecimal():
        return DestinationPart(None, int(first), slots, tuple(properties), gpus=gpus, gpu_mode=mode)
    if first in nodes:
        return DestinationPart(first, 1, slots, tuple(properties), gpus=gpus, gpu_mode=mode)
    if any(first in node.properties for node in nodes.values()):
        wanted = (first, *properties)
        return DestinationPart(None, 1, slots, wanted, leading=True, gpus=gpus, gpu_mode=mode)
    raise RefusalError(TorqueErrorCode.UNKNODE)


def requested_gpu_mode(parts: Sequence[DestinationPart]) -> str:
    """Return the mode of the job's gpus: the server keeps that of the last part. Empty without gpus."""
    modes = [part.gpu_mode for part in parts if part.gpu_mode]
    return "default" if modes and modes[-1] in _NORMAL else modes[-1] if modes else ""


def find_slots(parts: Sequence[DestinationPart], nodes: Mapping[str, EmulatedNode]) -> list[NodeSelection]:
    """Return nodes with the slots and gpus for all parts, in their order; a repeated node appears once.

    Raises 15064 if the parts can never fit these nodes, 15046 if they do not fit now. The job's request and
    memory are not checked, like in the real server.
    """
    wanted: dict[str, int] = {}
    gpus: dict[str, int] = {}
    requested = available = 0
    for part in parts:
        if part.name is not None:
            requested += 1
            wanted[part.name] = wanted.get(part.name, 0) + part.slots
            gpus[part.name] = gpus.get(part.name, 0) + part.gpus
    for name, count in wanted.items():
        node = nodes[name]
        if count > node.slots or gpus[name] > node.gpus:
            raise RefusalError(TorqueErrorCode.UNKNODE)
        fits = node.usable and node.free >= count and len(node.free_gpus) >= gpus[name]
        available += sum(part.name == name for part in parts) if fits else 0
    for part in parts:
        if part.name is None:
            chosen = _choose(part, nodes, wanted)
            requested += part.count
            available += len(chosen)
            for name in chosen:
                wanted[name] = wanted.get(name, 0) + part.slots
                gpus[name] = gpus.get(name, 0) + part.gpus
    if available < requested:
        raise refusal(
            TorqueErrorCode.RESCUNAV,
            "job allocation request exceeds currently available cluster nodes, "
            f"{requested} requested, {available} available",
        )
    return [NodeSelection(nodes[name], count, gpus[name]) for name, count in wanted.items()]


def _choose(part: DestinationPart, nodes: Mapping[str, EmulatedNode], wanted: Mapping[str, int]) -> list[str]:
    able = [
        node
        for node in nodes.values()
        if node.slots >= part.slots
        and node.gpus >= part.gpus
        and set(part.properties) <= set(node.properties)
    ]
    if len(able) < part.count:
        raise RefusalError(TorqueErrorCode.UNKNODE)
    free = [
        node.name
        for node in able
        if node.usable
        and node.free >= part.slots
        and len(node.free_gpus) >= part.gpus
        and node.name not in wanted
    ]
    if part.leading and len(free) < part.count:
        raise RefusalError(TorqueErrorCode.UNKNODE)
    return free[: part.count]
