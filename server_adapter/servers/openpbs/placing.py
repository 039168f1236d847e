"""Where a job is to run, as the server writes it: one bracket for each unit of the job's chunks."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from schedd.wire import ShareFacts
from server_adapter.openpbs.values import kib, select

_CHARGED: Final = frozenset({"ncpus", "mem", "vmem", "ngpus"})
_NODE: Final = frozenset({"host", "vnode"})


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


def exec_vnode(schedselect: str, shares: Sequence[ShareFacts], consumable: Collection[str] = ()) -> str:
    """`(n1:ncpus=2:mem=1048576kb)+(n2:ncpus=2)`: the units of the select on these shares, in its order.

    `consumable` are the names of vnodes' own amounts, which are charged beside cores, memory and gpus. Memory
    is in kb. Raises ValueError where the units do not make up the shares: the job was altered since.
    """
    units = _units(schedselect)
    left = {share.node: _Left(share.cpus, share.mem, share.gpus) for share in shares}
    places: dict[int, str] = {}
    # The largest go first, so that small ones do not take their room.
    for unit in sorted(units, key=lambda one: (-one.gpus, -one.cpus, -one.mem, one.number)):
        places[unit.number] = _place(unit, left, schedselect)
    if any(room.cpus for room in left.values()):
        raise ValueError(f"select {schedselect} asks for fewer cores than were decided")
    charged = _CHARGED | frozenset(consumable)
    return "+".join(f"({places[unit.number]}{_resources(unit, charged)})" for unit in units)


def _units(schedselect: str) -> list[_Unit]:
    found: list[_Unit] = []
    for count, asked in select(schedselect):
        cpus, gpus = int(asked.get("ncpus", "1")), int(asked.get("ngpus", "0"))
        mem = kib(asked["mem"]) if "mem" in asked else 0
        found += [_Unit(len(found) + one, asked, cpus, mem, gpus) for one in range(count)]
    return found


def _place(unit: _Unit, left: Mapping[str, _Left], schedselect: str) -> str:
    wanted = unit.asked.get("vnode")
    for node, room in left.items():
        if wanted is not None and node != wanted:
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
