"""Where a job is to run, as the server writes it: one bracket for each unit of the job's chunks."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from schedd.wire import NO_TYPES, ResourceTypes, ShareFacts
from server_adapter.openpbs.values import kib, select, text_of_value, written
from server_adapter.servers.openpbs.rooms import Rooms, laid, meets

_CHARGED: Final = frozenset({"ncpus", "mem", "vmem", "ngpus"})
_NODE: Final = frozenset({"host", "vnode"})
_NO_ROOMS: Final[Rooms] = MappingProxyType({})

Tags = Mapping[str, Collection[str]]
"""The properties of nodes by name."""

_NO_TAGS: Final[Tags] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Unit:
    number: int
    asked: Mapping[str, str]
    cpus: int
    mem: int
    gpus: int


@dataclass(slots=True)
class _Left:
    cpus: int
    mem: int
    gpus: int

    def holds(self, unit: _Unit) -> bool:
        fits = unit.cpus <= self.cpus and unit.gpus <= self.gpus
        return fits and (unit.mem <= self.mem or not self.mem)

    def take(self, unit: _Unit) -> None:
        self.cpus -= unit.cpus
        self.gpus -= unit.gpus
        self.mem = max(0, self.mem - unit.mem)


def exec_vnode(
    schedselect: str,
    shares: Sequence[ShareFacts],
    consumable: Collection[str] = (),
    rooms: Rooms = _NO_ROOMS,
    *,
    whole: bool = False,
    tags: Tags = _NO_TAGS,
    types: ResourceTypes = NO_TYPES,
) -> str:
    """`(n1:ncpus=2:mem=1048576kb)+(n2:ncpus=2)`: the units of the select on these shares, in its order.

    `consumable` are the names of vnodes' own amounts, which are charged beside cores, memory and gpus. Memory
    is in kb. By `tags`, the properties of the nodes, each unit is on one that has what it asks for. On nodes
    of `rooms` a unit gets vnodes of the host, several if it must and is not to stay `whole`:
    `(n1a:ncpus=2+n1b:ncpus=1)`. Raises ValueError where the units do not make up the shares: the job was
    altered since; VnodesFullError where the vnodes have no room at the moment.
    """
    schedselect = types.spelled_select(schedselect)
    units = _units(schedselect)
    known = {share.node for share in shares}.union(*[tags.get(share.node, ()) for share in shares])
    eligible = {}
    for unit in units:
        if id(unit.asked) not in eligible:
            eligible[id(unit.asked)] = [
                share.node
                for share in shares
                if meets(
                    unit.asked,
                    {share.node, *tags.get(share.node, ())},
                    tags.get(share.node, ()),
                    known,
                    types,
                )
            ]
    nodes = _nodes(units, shares, eligible)
    if nodes is None:
        raise ValueError(f"select {schedselect} does not fit on what was decided")
    if sum(unit.cpus for unit in units) < sum(share.cpus for share in shares):
        raise ValueError(f"select {schedselect} asks for fewer cores than were decided")
    rooms = dict(rooms)
    charged = _CHARGED | frozenset(consumable)
    places: dict[int, str] = {}
    for unit in sorted(units, key=_largest_first):
        node = nodes[unit.number]
        if node in rooms:
            pieces, rooms[node] = laid(unit.asked, charged, rooms[node], types, whole=whole)
            places[unit.number] = _pieces(unit, pieces, charged, types)
        else:
            places[unit.number] = f"{node}{_resources(unit, charged, types)}"
    return "+".join(f"({places[unit.number]})" for unit in units)


def _nodes(
    units: Sequence[_Unit], shares: Sequence[ShareFacts], eligible: Mapping[int, Sequence[str]]
) -> dict[int, str] | None:
    """The node of each unit; None where they do not fit, in any of three orders: who may be on the
    fewest nodes first; the largest first, so that small ones do not take their room; as in the select.
    """
    orders: tuple[Callable[[_Unit], tuple[int, ...]], ...] = (
        lambda unit: (len(eligible[id(unit.asked)]), *_largest_first(unit)),
        _largest_first,
        lambda unit: (unit.number,),
    )
    for order in orders:
        left = {share.node: _Left(share.cpus, share.mem, share.gpus) for share in shares}
        found = {}
        for unit in sorted(units, key=order):
            node = next((name for name in eligible[id(unit.asked)] if left[name].holds(unit)), None)
            if node is None:
                break
            left[node].take(unit)
            found[unit.number] = node
        else:
            return found
    return None


def _largest_first(unit: _Unit) -> tuple[int, ...]:
    return (-unit.gpus, -unit.cpus, -unit.mem, unit.number)


def _units(schedselect: str) -> list[_Unit]:
    found: list[_Unit] = []
    for count, quoted in select(schedselect):
        asked = {name: text_of_value(value) for name, value in quoted.items()}
        cpus, gpus = int(asked.get("ncpus", "1")), int(asked.get("ngpus", "0"))
        mem = kib(asked["mem"]) if "mem" in asked else 0
        found += [_Unit(len(found) + one, asked, cpus, mem, gpus) for one in range(count)]
    return found


def _resources(unit: _Unit, charged: Collection[str], types: ResourceTypes) -> str:
    found = ""
    for name, value in unit.asked.items():
        if name in charged and name not in _NODE:
            found += f":{name}={f'{kib(value)}kb' if types.type_of(name) == 'size' else value}"
    return found


def _pieces(
    unit: _Unit,
    pieces: Sequence[tuple[str, Mapping[str, int]]],
    charged: Collection[str],
    types: ResourceTypes,
) -> str:
    if len(pieces) == 1:
        return f"{pieces[0][0]}{_resources(unit, charged, types)}"
    texts = []
    for vnode, taken in pieces:
        parts = [vnode]
        for name, count in taken.items():
            parts.append(f"{name}={written(name, count, types, size=not unit.asked[name].isdecimal())}")
        texts.append(":".join(parts))
    return "+".join(texts)
