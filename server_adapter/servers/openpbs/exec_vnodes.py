"""Placement in the server's notation (`exec_vnode`): a bracket per unit of the job's chunks."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from schedd.wire import NO_TYPES, ResourceTypes, ShareFacts
from server_adapter.openpbs.notation import format_amount, kib, parse_amount, select, unquote
from server_adapter.servers.openpbs.hosts import meets
from server_adapter.servers.openpbs.vnode_capacity import (
    CapacityByHost,
    VnodeCapacity,
    VnodesFullError,
    lay_out_chunk,
    meeting_vnodes,
)

_CHARGED: Final = frozenset({"ncpus", "mem", "vmem", "ngpus"})
_NODE: Final = frozenset({"host", "vnode"})
NOT_AS_DECIDED: Final = "does not fit on what was decided"
_NO_ROOMS: Final[CapacityByHost] = MappingProxyType({})

NodeProperties = Mapping[str, Collection[str]]  # properties of nodes by name

_NO_TAGS: Final[NodeProperties] = MappingProxyType({})
_NOTHING_FREE: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _ChunkUnit:
    number: int
    requested: Mapping[str, str]
    cpus: int
    mem: int
    gpus: int
    others: Mapping[str, int]  # amounts of other resources that nodes have


@dataclass(slots=True)
class _RemainingShare:
    cpus: int
    mem: int
    gpus: int
    others: dict[str, int]
    counts_mem: bool
    used: bool = False

    def holds(self, unit: _ChunkUnit) -> bool:
        fits = unit.cpus <= self.cpus and unit.gpus <= self.gpus
        fits = fits and all(count <= self.others.get(name, count) for name, count in unit.others.items())
        return fits and (unit.mem <= self.mem or not self.counts_mem)

    def subtract(self, unit: _ChunkUnit) -> None:
        self.used = True
        self.cpus -= unit.cpus
        self.gpus -= unit.gpus
        self.mem = max(0, self.mem - unit.mem)
        for name, count in unit.others.items():
            if name in self.others:
                self.others[name] -= count


def exec_vnode(
    schedselect: str,
    shares: Sequence[ShareFacts],
    consumable: Collection[str] = (),
    capacities: CapacityByHost = _NO_ROOMS,
    *,
    whole: bool = False,
    tags: NodeProperties = _NO_TAGS,
    types: ResourceTypes = NO_TYPES,
    free: Mapping[str, Mapping[str, int]] = _NOTHING_FREE,
) -> str:
    """Return the `exec_vnode` of a job: `(n1:ncpus=2:mem=1048576kb)+(n2:ncpus=2)`, the units of its select
    placed on the shares, in the order of the select.

    `consumable` are names of resources that are charged in addition to cores, memory and gpus; `free` is the
    remaining amount of them by node. Memory is in kb. A unit is placed only on nodes with the properties
    (`tags`) that it requests. On hosts in `capacities` a unit gets vnodes of the host, several if necessary
    and not `whole`: `(n1a:ncpus=2+n1b:ncpus=1)`.

    Raises ValueError if the units do not add up to the shares (the job was altered since the decision),
    VnodesFullError if the vnodes have no free resources at the moment.
    """
    schedselect = types.spelled_select(schedselect)
    units = _units(schedselect, frozenset(consumable), types)
    none = dict.fromkeys(consumable, 0)
    known = {share.node for share in shares}.union(*[tags.get(share.node, ()) for share in shares])
    eligible = {}
    for unit in units:
        if id(unit.requested) not in eligible:
            eligible[id(unit.requested)] = [
                share.node
                for share in shares
                if meets(
                    unit.requested,
                    {share.node, *tags.get(share.node, ())},
                    tags.get(share.node, ()),
                    known,
                    types,
                )
            ]
    nodes = _nodes(units, shares, eligible, {node: {**none, **free[node]} for node in free})
    if nodes is None and free and _nodes(units, shares, eligible, {}) is not None:
        raise VnodesFullError(f"its nodes have too little left for {schedselect}")
    if nodes is None:
        raise ValueError(f"select {schedselect} {NOT_AS_DECIDED}")
    if sum(unit.cpus for unit in units) < sum(share.cpus for share in shares):
        raise ValueError(f"select {schedselect} asks for fewer cores than were decided")
    charged = _CHARGED | frozenset(consumable)
    vnodes = {
        unit.number: len(meeting_vnodes(unit.requested, capacities.get(nodes[unit.number], ()), types))
        for unit in (units if capacities else ())
    }
    try:
        # Units with few possible vnodes first: others could take these.
        units.sort(key=lambda unit: (vnodes.get(unit.number, 0), *_largest_first(unit)))
        return _lay_out(units, nodes, charged, dict(capacities), types, whole=whole)
    except VnodesFullError:
        units.sort(key=_largest_first)
        return _lay_out(units, nodes, charged, dict(capacities), types, whole=whole)


def _lay_out(
    units: Sequence[_ChunkUnit],
    nodes: Mapping[int, str],
    charged: Collection[str],
    capacities: dict[str, Sequence[VnodeCapacity]],
    types: ResourceTypes,
    *,
    whole: bool,
) -> str:
    """Return the `exec_vnode` with the units on these nodes, placed on vnodes in the order of `units`. Raises
    VnodesFullError.
    """
    places: dict[int, str] = {}
    for unit in units:
        node = nodes[unit.number]
        if node in capacities:
            pieces, capacities[node] = lay_out_chunk(
                unit.requested, charged, capacities[node], types, whole=whole
            )
            places[unit.number] = _vnode_parts(unit, pieces, charged, types)
        else:
            places[unit.number] = f"{node}{_resources(unit, charged, types)}"
    return "+".join(f"({places[number]})" for number in sorted(places))


def _nodes(
    units: Sequence[_ChunkUnit],
    shares: Sequence[ShareFacts],
    eligible: Mapping[int, Sequence[str]],
    free: Mapping[str, Mapping[str, int]],
) -> dict[int, str] | None:
    """Return the node of each unit, or None if first fit fails in all three orders: fewest eligible nodes
    first; largest unit first; order of the select.

    Every share gets a unit. A unit without cores prefers a share without cores that has no unit yet.
    """
    orders: tuple[Callable[[_ChunkUnit], tuple[int, ...]], ...] = (
        lambda unit: (len(eligible[id(unit.requested)]), *_largest_first(unit)),
        _largest_first,
        lambda unit: (unit.number,),
    )
    counts_mem = any(share.mem for share in shares)
    for order in orders:
        left = {
            share.node: _RemainingShare(
                share.cpus, share.mem, share.gpus, dict(free.get(share.node, {})), counts_mem
            )
            for share in shares
        }
        bare = {share.node for share in shares if not share.cpus}
        found = {}
        for unit in sorted(units, key=order):
            fitting = [name for name in eligible[id(unit.requested)] if left[name].holds(unit)]
            if not unit.cpus:
                fitting.sort(key=lambda name: name not in bare or left[name].used)
            node = next(iter(fitting), None)
            if node is None:
                break
            left[node].subtract(unit)
            found[unit.number] = node
        else:
            if all(one.used for one in left.values()):
                return found
    return None


def _largest_first(unit: _ChunkUnit) -> tuple[int, ...]:
    return (-unit.gpus, -unit.cpus, -unit.mem, unit.number)


def _units(schedselect: str, consumable: Collection[str], types: ResourceTypes) -> list[_ChunkUnit]:
    found: list[_ChunkUnit] = []
    for count, quoted in select(schedselect):
        requested = {name: unquote(value) for name, value in quoted.items()}
        cpus, gpus = int(requested.get("ncpus", "1")), int(requested.get("ngpus", "0"))
        mem = kib(requested["mem"]) if "mem" in requested else 0
        others = {
            name: wanted
            for name, value in requested.items()
            if name in consumable and name not in _CHARGED and (wanted := parse_amount(name, value, types))
        }
        found += [_ChunkUnit(len(found) + one, requested, cpus, mem, gpus, others) for one in range(count)]
    return found


def _resources(unit: _ChunkUnit, charged: Collection[str], types: ResourceTypes) -> str:
    found = ""
    for name, value in unit.requested.items():
        if name in charged and name not in _NODE:
            found += f":{name}={f'{kib(value)}kb' if types.resource_type(name) == 'size' else value}"
    return found


def _vnode_parts(
    unit: _ChunkUnit,
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
            parts.append(
                f"{name}={format_amount(name, count, types, size=not unit.requested[name].isdecimal())}"
            )
        texts.append(":".join(parts))
    return "+".join(texts)
