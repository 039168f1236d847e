"""Free capacity of vnodes, and the choice of vnodes for a chunk on a host that is planned as one node."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from schedd.wire import ResourceTypes
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.facts import Values, parse_or
from server_adapter.openpbs.notation import VnodePiece, exec_vnode, parse_amount
from server_adapter.servers.openpbs.facts import ASSIGNED, AVAILABLE, SHARED, node_facts, vnode_state
from server_adapter.servers.openpbs.hosts import amounts, meets

VNODES_FULL: Final = "no vnodes of the host have room"
_NO_CHUNKS: Final[list[list[VnodePiece]]] = []


class VnodesFullError(ValueError):
    """The host has enough free resources, but no vnode has: a later end of a job may help."""


@dataclass(frozen=True, slots=True)
class VnodeCapacity:
    """Free capacity of a vnode: amounts by resource, sizes in KiB; `tags` are its properties."""

    vnode: str
    free: Mapping[str, int]
    tags: frozenset[str]


CapacityByHost = Mapping[str, Sequence[VnodeCapacity]]  # usable vnodes of each host with several vnodes


def vnode_capacity(
    vnode: DescribedObject, types: ResourceTypes, held: Mapping[str, int] | None = None
) -> VnodeCapacity:
    """Return the free capacity of a vnode, by the server's count or by the `held` amounts."""
    used = amounts(vnode.values, ASSIGNED, types) if held is None else held
    free = {
        name: max(0, count - used.get(name, 0))
        for name, count in amounts(vnode.values, AVAILABLE, types).items()
        if count
    }
    return VnodeCapacity(
        vnode.name, free, frozenset(node_facts(vnode.name, vnode.values, types=types).properties)
    )


def remaining_amounts(
    vnode: DescribedObject, types: ResourceTypes, spent: Mapping[str, int]
) -> dict[str, int]:
    """Return a vnode's or host's remaining amounts: the server's count minus `spent`."""
    used = amounts(vnode.values, ASSIGNED, types)
    return {
        name: max(0, count - used.get(name, 0) - spent.get(name, 0))
        for name, count in amounts(vnode.values, AVAILABLE, types).items()
    }


def usable(vnodes: Iterable[DescribedObject], reservation: str = "") -> list[DescribedObject]:
    """Return the usable vnodes; for a job of a reservation only the reservation's."""
    tag = f"resv={reservation}"
    return [
        one
        for one in vnodes
        if vnode_state(one.values) == "up"
        and (not reservation or tag in node_facts(one.name, one.values).properties)
    ]


def held_by(texts: Iterable[str], types: ResourceTypes) -> dict[str, dict[str, int]]:
    """Return the resources of each vnode held by jobs with these `exec_vnode`."""
    found: dict[str, dict[str, int]] = {}
    for text in texts:
        for chunk in parse_or(exec_vnode, text or None, default=_NO_CHUNKS):
            for piece in chunk:
                here = found.setdefault(piece.vnode, {})
                for name, value in piece.resources.items():
                    named = types.spelled(name)
                    here[named] = here.get(named, 0) + (parse_amount(name, value, types) or 0)
    return found


def lay_out_chunk(
    asked: Mapping[str, str],
    charged: Collection[str],
    capacities: Sequence[VnodeCapacity],
    types: ResourceTypes,
    *,
    whole: bool,
) -> tuple[list[tuple[str, dict[str, int]]], list[VnodeCapacity]]:
    """Return the vnodes of one chunk with the charged amounts, and the remaining capacity of all vnodes.

    Best fit: the vnode with the fewest free gpus and properties that others lack, and of these the fullest
    one. Otherwise the chunk is spread over several vnodes, unless `whole`:
    a vnode without another chunk of the job. Raises VnodesFullError.
    """
    needs = {
        name: count
        for name, value in asked.items()
        if name in charged
        and (count := parse_amount(name, value, types))
        and any(name in one.free for one in capacities)
    }
    meeting = meeting_vnodes(asked, capacities, types)
    fitting = [one for one in meeting if all(one.free.get(name, 0) >= n for name, n in needs.items())]
    if fitting:
        shared = frozenset.intersection(*[one.tags for one in fitting])
        best = min(
            fitting,
            key=lambda one: (
                one.free.get("ngpus", 0),
                len(one.tags - shared),
                one.free.get("ncpus", 0),
            ),
        )
        taken = [(best.vnode, needs)]
    else:
        taken = [] if whole else _spread(needs, meeting)
    if not taken:
        text = ":".join(f"{name}={value}" for name, value in asked.items())
        raise VnodesFullError(f"{VNODES_FULL} for {text} now")
    by_name = dict(taken)
    left = [
        replace(one, free=_less(one.free, one.free if whole else by_name[one.vnode]))
        if one.vnode in by_name
        else one
        for one in capacities
    ]
    return taken, left


def meeting_vnodes(
    asked: Mapping[str, str], capacities: Sequence[VnodeCapacity], types: ResourceTypes
) -> list[VnodeCapacity]:
    """Return the vnodes with the names and properties that a chunk requests."""
    known = {tag for one in capacities for tag in one.tags}
    return [one for one in capacities if meets(asked, (one.vnode,), one.tags, known, types)]


def _spread(
    needs: Mapping[str, int], capacities: Iterable[VnodeCapacity]
) -> list[tuple[str, dict[str, int]]]:
    wanting = dict(needs)
    found = []
    for one in sorted(capacities, key=lambda one: -one.free.get("ncpus", 0)):
        piece = {name: take for name, n in wanting.items() if (take := min(n, one.free.get(name, 0)))}
        if piece:
            found.append((one.vnode, piece))
            wanting = _less(wanting, piece)
    return [] if any(wanting.values()) else found


def _less(free: Mapping[str, int], taken: Mapping[str, int]) -> dict[str, int]:
    return {name: count - taken.get(name, 0) for name, count in free.items()}


def takes_vnode(place: str, vnode: Values) -> bool:
    """Return whether `place` takes the whole vnode, like `is_excl` of pbs_sched."""
    words, sharing = set(place.split(":")), vnode.get("sharing", SHARED)
    if sharing.startswith("force_") or sharing == "ignore_excl":
        return sharing != "ignore_excl"
    if words & {"excl", "exclhost"}:
        return True
    return "shared" not in words and sharing != SHARED


def takes_hosts(place: str, vnodes: Iterable[DescribedObject]) -> bool:
    """Return whether `place` or the vnodes' `sharing` takes the whole host."""
    words = set(place.split(":"))
    sharings = {one.values.get("sharing", SHARED) for one in vnodes}
    return (
        "exclhost" in words
        or "force_exclhost" in sharings
        or ("default_exclhost" in sharings and not words & {"excl", "shared"})
    )


def add_idle_vnodes(where: str, vnodes: Iterable[str]) -> str:
    """Return `exec_vnode` with unnamed vnodes without a charge, so that these count as taken."""
    named = {piece.vnode for chunk in exec_vnode(where) for piece in chunk}
    return "+".join([where, *[f"({name})" for name in vnodes if name not in named]])
