"""Where a job is to run, as the server writes it: one bracket for each unit of the job's chunks."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from schedd.wire import ShareFacts
from server_adapter.openpbs.values import SIZES, kib, select
from server_adapter.servers.openpbs.rooms import Rooms, laid

_CHARGED: Final = frozenset({"ncpus", "mem", "vmem", "ngpus"})
_NODE: Final = frozenset({"host", "vnode"})
_NO_ROOMS: Final[Rooms] = MappingProxyType({})


@dataclass(slots=True)
class _Left:
    cpus: int
    mem: int
    gpus: int


@dataclass(frozen=True, slots=True)
class _Unit:
    number: int
    asked: Mapping[str, str]
    cpus: int
    mem: int
    gpus: int


def exec_vnode(
    schedselect: str,
    shares: Sequence[ShareFacts],
    consumable: Collection[str] = (),
    rooms: Rooms = _NO_ROOMS,
    *,
    whole: bool = False,
) -> str:
    """`(n1:ncpus=2:mem=1048576kb)+(n2:ncpus=2)`: the units of the select on these shares, in its order.

    `consumable` are the names of vnodes' own amounts, which are charged beside cores, memory and gpus. Memory
    is in kb. On nodes of `rooms` a unit gets vnodes of the host, several if it must and is not to stay
    `whole`: `(n1a:ncpus=2+n1b:ncpus=1)`. Raises ValueError where the units do not make up the shares: the job
    was altered since; VnodesFullError where the vnodes have no room at the moment.
    """
    units = _units(schedselect)
    left = {share.node: _Left(share.cpus, share.mem, share.gpus) for share in shares}
    rooms = dict(rooms)
    charged = _CHARGED | frozenset(consumable)
    places: dict[int, str] = {}
    # The largest go first, so that small ones do not take their room.
    for unit in sorted(units, key=lambda one: (-one.gpus, -one.cpus, -one.mem, one.number)):
        node = _place(unit, left, schedselect, rooms)
        if node in rooms:
            pieces, rooms[node] = laid(unit.asked, charged, rooms[node], whole=whole)
            places[unit.number] = _pieces(unit, pieces, charged)
        else:
            places[unit.number] = f"{node}{_resources(unit, charged)}"
    if any(room.cpus for room in left.values()):
        raise ValueError(f"select {schedselect} asks for fewer cores than were decided")
    return "+".join(f"({places[unit.number]})" for unit in units)


def _units(schedselect: str) -> list[_Unit]:
    found: list[_Unit] = []
    for count, asked in select(schedselect):
        cpus, gpus = int(asked.get("ncpus", "1")), int(asked.get("ngpus", "0"))
        mem = kib(asked["mem"]) if "mem" in asked else 0
        found += [_Unit(len(found) + one, asked, cpus, mem, gpus) for one in range(count)]
    return found


def _place(unit: _Unit, left: Mapping[str, _Left], schedselect: str, rooms: Rooms) -> str:
    wanted = unit.asked.get("vnode")
    for node, room in left.items():
        vnodes = [one.vnode for one in rooms[node]] if node in rooms else [node]
        if wanted is not None and wanted not in vnodes:
            continue
        if unit.cpus <= room.cpus and unit.gpus <= room.gpus and (unit.mem <= room.mem or not room.mem):
            room.cpus -= unit.cpus
            room.gpus -= unit.gpus
            room.mem = max(0, room.mem - unit.mem)
            return node
    raise ValueError(f"select {schedselect} does not fit on what was decided")


def _resources(unit: _Unit, charged: Collection[str]) -> str:
    found = ""
    for name, value in unit.asked.items():
        if name in charged and name not in _NODE:
            found += f":{name}={f'{kib(value)}kb' if name in ('mem', 'vmem') else value}"
    return found


def _pieces(unit: _Unit, pieces: Sequence[tuple[str, Mapping[str, int]]], charged: Collection[str]) -> str:
    if len(pieces) == 1:
        return f"{pieces[0][0]}{_resources(unit, charged)}"
    texts = []
    for vnode, taken in pieces:
        parts = [vnode]
        for name, count in taken.items():
            size = name in SIZES or not unit.asked[name].isdecimal()
            parts.append(f"{name}={count}kb" if size else f"{name}={count}")
        texts.append(":".join(parts))
    return "+".join(texts)
