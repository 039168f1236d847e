"""Reservations: nodes kept free of planned jobs for a time, or kept for the jobs of an access list; whole, or
some of their cores and gpus. Gates enforce the access lists: see ``gates.py``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from schedd.engine.component.cluster_hooks import withdraw_nodes
from schedd.engine.component.hook_values import NodeClaim
from schedd.engine.facts.alerts import withdraw_alert
from schedd.engine.facts.records import Cause, Phase
from schedd.engine.facts.shares import BLOCK, block_takes
from schedd.engine.facts.state import HORIZON, EngineState
from schedd.engine.machine.nodes import refresh_nodes
from schedd.engine.place.placement import displace_for, place_unplaced
from schedd.features.reservations.gates import (
    MOST_GATES,
    is_partial,
    open_node_gate,
    open_partial_gates,
    reserved_parts,
    reserved_takes,
    update_partial_takes,
)
from schedd.features.reservations.naming import closed_slots, update_named
from schedd.features.reservations.state import (
    ReservationRecord,
    ReservationState,
    reservation_access,
    reservation_records,
)
from schedd.model import FOREVER, Chunk, Node, NodeState, Place, Request
from schedd.name_list import shorten_list
from schedd.plan.gates import UNLIMITED
from schedd.wire import SERVER_RESERVATION, Event, Reserve, Snapshot, Unreserve

_GUARD: Final = Request((Chunk(cpus=0),), Place.FREE)


def matching_nodes(event: Reserve, nodes: Mapping[str, Node]) -> tuple[str, ...]:
    """Return the nodes that a reservation is for, in the order of ``nodes``."""
    if event.everywhere:
        return tuple(nodes)
    named, features = frozenset(event.nodes), frozenset(event.features)
    return tuple(
        name for name, node in nodes.items() if name in named or (features and features <= node.all_features)
    )


def reserve(state: EngineState, event: Reserve) -> None:
    """Reserve nodes over an interval; see ``place_reservation``. Jobs that name the reservation follow."""
    place_reservation(state, event)
    update_named(state, [event.name], event.id, f"reservation {event.name} was made or changed")


def place_reservation(state: EngineState, event: Reserve, *, again: bool = False) -> None:
    """Reserve nodes over an interval. Running jobs stay; planned jobs in conflict are planned again.

    ``again``: the reservation is in force already, and its nodes have changed.
    """
    reservations = reservation_records(state)
    before = reservations.get(event.name)
    if before is not None and not again and _plain(event) == _plain(before.event):
        return
    end = event.end if event.end is not None else state.now + 2 * HORIZON
    start = max(event.start, state.now)
    access = reservation_access(event)
    replaced = _drop(state, event.name)
    gates_before = dict(state.gates)
    gates: tuple[str, ...] = ()
    if end <= event.start:
        words = f"reservation {event.name} was not made: it ends before it begins"
        state.alert(event.id, "reservation", words)
    elif start >= end:
        pass  # it is over; a server may list a reservation for a while after its end
    names = matching_nodes(event, state.plan.nodes)
    partial = is_partial(event)
    if start < end and partial:
        gates = open_partial_gates(state, event, names, start, end)
        partial = bool(gates) or not event.shares  # a server's reservation may keep whole nodes instead
    if start < end and access and not partial:
        gates = open_node_gate(state, access)
    if start < end and not gates and (partial or access):
        stays = replaced if not again else None
        done = "made" if stays is None else "changed"
        few = (
            f"its access list, and those of reservations of cores on the same nodes, need more than "
            f"{MOST_GATES} access lists together"
            if partial
            else f"at most {MOST_GATES} different access lists are allowed"
        )
        state.alert(event.id, "reservation", f"reservation {event.name} was not {done}: {few}")
        start = end
        if stays is not None:  # its nodes must not become free
            place_reservation(state, stays.event)
    missing = [name for name in event.nodes if name not in state.plan.nodes]
    if missing and not again and start < end:
        state.alert(
            event.id,
            "reservation",
            f"reservation {event.name}: unknown nodes are left out: {shorten_list(missing, 5)}",
            event.name,
        )
    if again and not missing:
        withdraw_alert(state, "reservation", event.name)
    if start < end:
        slot = -1
        if names:
            slot = state.new_slot(_GUARD if gates else BLOCK, end - start)
            takes = (
                reserved_takes(state, event, names)
                if partial
                else block_takes(state.plan, names, gates[0] if gates else "")
            )
            state.plan.fix(slot, start, takes)
        reservations[event.name] = ReservationRecord(event, slot, names, gates)
        state.part(ReservationState).edge = None
        words = f"reservation {event.name} was made"
        changed = update_partial_takes(state) if partial and state.gates != gates_before else []
        if slot >= 0:
            stay = [slot, *(one.slot for one in changed)]
            displace_for(state, stay, event.id, Cause.RESERVATION, words)
            if not gates:
                withdraw_nodes(state, names, event.id, words)
    words = f"reservation {event.name} was changed"
    refresh_nodes(state, dict.fromkeys([*names, *(replaced.nodes if replaced else ())]), event.id, words)
    if replaced is not None:
        place_unplaced(state, event.id, words)


def unreserve(state: EngineState, event: Unreserve) -> None:
    """Remove a reservation. Jobs that name it follow."""
    remove_reservation(state, event)
    update_named(state, [event.name], event.id, f"reservation {event.name} was removed")


def remove_reservation(state: EngineState, event: Unreserve) -> None:
    """Remove a reservation, and plan jobs on its nodes again."""
    gone = _drop(state, event.name)
    if gone is not None:
        words = f"reservation {event.name} was removed"
        state.note_freed(event.id, words)
        refresh_nodes(state, gone.nodes, event.id, words)
        place_unplaced(state, event.id, words)


def snapshot_changes(state: EngineState, snapshot: Snapshot) -> list[Event]:
    """Return what a snapshot of the server changes in the reservations of the server."""
    if snapshot.reservations is None:
        return []
    known = {name: one.event for name, one in reservation_records(state).items()}
    listed = {one.name for one in snapshot.reservations}
    changes: list[Event] = [
        Unreserve(id=snapshot.id, time=snapshot.time, name=name)
        for name, one in known.items()
        if one.reason == SERVER_RESERVATION and name not in listed
    ]
    for one in snapshot.reservations:
        over = one.end is not None and one.end <= state.now  # a server may list it for a while after its end
        before = known.get(one.name)
        if not over and (before is None or _plain(before) != _plain(one)):
            changes.append(one)
    return changes


def _plain(event: Reserve) -> Reserve:
    """Return the event without the fields that differ whenever it is sent."""
    return replace(event, id="", time=0)


def follow_nodes(state: EngineState, reported: Iterable[str], other: frozenset[str]) -> None:
    """Renew the reservations that match other nodes now, because nodes are new or have other features.

    ``other`` are the ``reported`` nodes that are new or have a changed offer.
    """
    if other:
        _reserve_again(state, _with_other_nodes(state, other))
    names = frozenset(reported)
    for record in update_partial_takes(state, lambda one: names if one.event.total else other):
        event, words = record.event, f"the nodes of reservation {record.event.name} were changed"
        displace_for(state, [record.slot], event.id, Cause.RESERVATION, words)
        refresh_nodes(state, record.nodes, event.id, words)


def _with_other_nodes(state: EngineState, other: frozenset[str]) -> list[ReservationRecord]:
    """Return the reservations that gained or lost one of the ``other`` nodes."""
    nodes = {name: state.plan.nodes[name] for name in other}
    matching: dict[tuple[object, ...], frozenset[str]] = {}
    found = []
    for record in reservation_records(state).values():
        event = record.event
        what = (event.everywhere, event.nodes, event.features)  # the same for all windows of a standing one
        if what not in matching:
            matching[what] = frozenset(matching_nodes(event, nodes))
        if matching[what] != record.names & other:
            found.append(record)
    return found


def reserve_again(state: EngineState) -> None:
    """Put all reservations into a plan that was rebuilt."""
    _reserve_again(state, list(reservation_records(state).values()))


def _reserve_again(state: EngineState, records: Sequence[ReservationRecord]) -> None:
    """Renew reservations. Jobs follow once for all windows of a standing reservation."""
    for record in records:
        place_reservation(state, record.event, again=True)
    if records:
        names = [record.event.name for record in records]
        update_named(state, names, records[-1].event.id, "the nodes of its reservation were changed")


def follow_edges(state: EngineState, event: str) -> None:
    """Drop reservations that are over; plan for nodes that are down until their reservation ends."""
    part = state.part(ReservationState)
    if part.edge is not None and state.now < part.edge:
        return
    over: list[str] = []
    for name, record in list(reservation_records(state).items()):
        end = record.event.end
        if end is not None and end <= state.now:
            _drop(state, name)
            over.append(name)
            refresh_nodes(state, record.nodes, event, f"reservation {name} is over")
        elif end is not None and record.event.start <= state.now and not record.down_followed:
            record.down_followed = True  # the reports of nodes that go down later find it in force
            known = state.plan.nodes
            down = [node for node in record.nodes if node in known and known[node].state is NodeState.DOWN]
            words = f"nodes that are down are assumed to return when reservation {name} is over"
            refresh_nodes(state, down, event, words)
    update_named(state, over, event, "the reservation that it names is over")
    part.edge = min(_future_edges(state), default=FOREVER)


def next_edge(state: EngineState) -> int:
    """Return the next start or end of a reservation; FOREVER: there is none."""
    edge = state.part(ReservationState).edge
    return edge if edge is not None and edge > state.now else min(_future_edges(state), default=FOREVER)


def _future_edges(state: EngineState) -> Iterator[int]:
    for record in reservation_records(state).values():
        for edge in (record.event.start, record.event.end):
            if edge is not None and edge > state.now:
                yield edge


def _drop(state: EngineState, name: str) -> ReservationRecord | None:
    record = reservation_records(state).pop(name, None)
    state.part(ReservationState).edge = None
    if record is not None and record.slot >= 0:
        state.drop_slot(record.slot)
    return record


# ---- what the engine asks -----------------------------------------------------------------------


def will_return(state: EngineState, name: str) -> bool:
    """Whether a reservation for everybody with a known end has begun: then a node that is down returns."""
    return any(
        name in one.names
        and not one.gates
        and one.event.end is not None
        and one.event.start <= state.now < one.event.end
        for one in reservation_records(state).values()
    )


def reservation_claim(state: EngineState, event: Reserve) -> NodeClaim:
    """Return the nodes that a reservation takes from jobs; of a reservation of cores, those on which jobs
    without access use reserved cores.
    """
    nodes = matching_nodes(event, state.plan.nodes)
    if is_partial(event):
        nodes = tuple(_crowded(state, event, nodes))
    return NodeClaim(frozenset(nodes), event.start, event.end, reservation_access(event))


def _crowded(state: EngineState, event: Reserve, nodes: Sequence[str]) -> Iterator[str]:
    """Yield the nodes on which running jobs leave too few cores or gpus to a reservation."""
    parts = reserved_parts(state, event, nodes)
    sizes = {name: state.plan.nodes[name] for name in parts}
    left = {name: [one.cpus, one.gpus, one.mem or UNLIMITED] for name, one in sizes.items()}
    access = reservation_access(event)
    for record in state.records.values():
        if record.phase is not Phase.RUNNING or state.plan.end(record.slot) <= event.start:
            continue
        facts, request = record.facts, record.understood.request
        requested = record.understood.requested_walltime
        if access.admits(facts.owner, facts.group, facts.account, facts.queue, requested):
            continue
        whole = request is not None and request.exclusive
        for share in facts.shares:
            if share.node in left:
                free = left[share.node]
                held = (share.cpus, share.gpus, share.mem)
                free[:] = [0, 0, 0] if whole else [n - used for n, used in zip(free, held, strict=True)]
    for name, part in parts.items():
        if any(n < reserved for n, reserved in zip(left[name], part, strict=True)):
            yield name


def endless_reservations(state: EngineState) -> list[str]:
    """Reservations without an end, to follow "the job waits for"."""
    endless = [one.event.name for one in reservation_records(state).values() if one.event.end is None]
    return [f"reservation {name}, which has no end" for name in endless]


def block_slots(state: EngineState) -> list[int]:
    """Slots that hold the nodes of reservations."""
    held = [one.slot for one in reservation_records(state).values() if one.slot >= 0]
    return held + closed_slots(state)


def slot_names(state: EngineState) -> dict[int, str]:
    found = {one.slot: name for name, one in reservation_records(state).items() if one.slot >= 0}
    named = state.part(ReservationState).named
    return found | {slot: name for name, one in named.items() for slot in one.closed}


def published_blocks(state: EngineState) -> list[Reserve]:
    """The reservations as readers see them: with their present nodes."""
    return [replace(one.event, nodes=one.nodes) for one in reservation_records(state).values()]


def is_reserved(state: EngineState, name: str) -> bool:
    """Whether there is a reservation of this name."""
    return name in reservation_records(state)
