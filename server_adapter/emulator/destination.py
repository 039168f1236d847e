"""Destinations of RunJob, and the server's choice of slots for them (protocol document, section 5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from server_adapter.emulator.errors import RefusalError, refusal
from server_adapter.emulator.nodes import EmulatedNode
from server_adapter.torque.errors import TorqueErrorCode


@dataclass(frozen=True, slots=True)
class DestinationPart:
    """One `+` part: `count` nodes with `slots` each, either the node `name` or any nodes with
    `properties`.
    """

    name: str | None
    count: int
    slots: int
    properties: tuple[str, ...]
    leading: bool = False  # a property in place of a node name


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
    slots, properties = 1, []
    for word in rest:
        key, equals, value = word.partition("=")
        if not equals:
            properties.append(word)
        elif key == "ppn" and value.isdecimal() and int(value) > 0:
            slots = int(value)
        elif key not in ("gpus", "mics"):
            raise RefusalError(TorqueErrorCode.UNKNODE)
    if first.isdecimal():
        return DestinationPart(None, int(first), slots, tuple(properties))
    if first in nodes:
        return DestinationPart(first, 1, slots, tuple(properties))
    if any(first in node.properties for node in nodes.values()):
        return DestinationPart(None, 1, slots, (first, *properties), leading=True)
    raise RefusalError(TorqueErrorCode.UNKNODE)


def find_slots(
    parts: Sequence[DestinationPart], nodes: Mapping[str, EmulatedNode]
) -> list[tuple[EmulatedNode, int]]:
    """Return nodes and slot counts for all parts, in their order; a repeated node appears once.

    Raises 15064 if the parts can never fit these nodes, 15046 if they do not fit now. The job's request and
    memory are not checked, like in the real server.
    """
    wanted: dict[str, int] = {}
    requested = available = 0
    for part in parts:
        if part.name is not None:
            requested += 1
            wanted[part.name] = wanted.get(part.name, 0) + part.slots
    for name, count in wanted.items():
        if count > nodes[name].slots:
            raise RefusalError(TorqueErrorCode.UNKNODE)
        fits = nodes[name].usable and nodes[name].free >= count
        available += sum(part.name == name for part in parts) if fits else 0
    for part in parts:
        if part.name is None:
            chosen = _choose(part, nodes, wanted)
            requested += part.count
            available += len(chosen)
            for name in chosen:
                wanted[name] = wanted.get(name, 0) + part.slots
    if available < requested:
        raise refusal(
            TorqueErrorCode.RESCUNAV,
            "job allocation request exceeds currently available cluster nodes, "
            f"{requested} requested, {available} available",
        )
    return [(nodes[name], count) for name, count in wanted.items()]


def _choose(part: DestinationPart, nodes: Mapping[str, EmulatedNode], wanted: Mapping[str, int]) -> list[str]:
    able = [
        node
        for node in nodes.values()
        if node.slots >= part.slots and set(part.properties) <= set(node.properties)
    ]
    if len(able) < part.count:
        raise RefusalError(TorqueErrorCode.UNKNODE)
    free = [node.name for node in able if node.usable and node.free >= part.slots and node.name not in wanted]
    if part.leading and len(free) < part.count:
        raise RefusalError(TorqueErrorCode.UNKNODE)
    return free[: part.count]
