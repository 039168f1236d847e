"""Reservations: nodes kept free of planned jobs for a time, or kept for those that an access list names.

An access list is kept by a *gate*: a resource of which every node has plenty and every job needs a little,
save the jobs that the list names. The reservation takes all of it and leaves the rest of the node alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from schedd.engine.facts.records import Cause, ReservationRecord
from schedd.engine.facts.shares import takes_of
from schedd.engine.facts.state import HORIZON, EngineState
from schedd.engine.machine.bookings import yield_nodes
from schedd.engine.machine.nodes import refresh, refresh_all, show_all
from schedd.engine.place.placement import displace_for, place_unplaced
from schedd.engine.place.slot_requests import refresh_request
from schedd.model import Chunk, Node, NodeState, Place, Request
from schedd.plan.columns import WHOLE
from schedd.plan.plan import Plan, Take
from schedd.plan.shapes import GATE
from schedd.policy.access import Access
from schedd.wire import Reserve, ShareFacts, Unreserve

__all__ = ["access_of", "block_takes", "nodes_again", "nodes_of", "reservation_edges", "reserve", "unreserve"]

_BLOCK = Request((Chunk(cpus=0),), Place.FREE, exclusive=True)
_GUARD = Request((Chunk(cpus=0),), Place.FREE)
_MOST_GATES = 16
"""Access lists at once; each costs a column of every timeline."""


def nodes_of(event: Reserve, nodes: Mapping[str, Node]) -> tuple[str, ...]:
    """The known nodes that a reservation is about, in the order in which they are known."""
    if event.everywhere:
        return tuple(nodes)
    named, features = frozenset(event.nodes), frozenset(event.features)
    return tuple(
        name for name, node in nodes.items() if name in named or (features and features <= node.all_features)
    )


def access_of(event: Reserve) -> Access:
    """Whom the reservation lets in; nobody by default."""
    users, groups, accounts, queues = map(
        frozenset, (event.users, event.groups, event.accounts, event.queues)
    )
    return Access(users, groups, accounts, queues, event.shorter)


def block_takes(plan: Plan, names: Iterable[str], gate: str) -> list[Take]:
    """What a reservation takes of its nodes: all; or where some may pass its gate, that alone."""
    if not gate:
        return takes_of(plan, _BLOCK, [ShareFacts(name, 0) for name in names])
    amounts = plan.amounts({gate: WHOLE})
    return [Take(plan.node_rows[name], 0, 1, amounts) for name in names]


def reserve(state: EngineState, event: Reserve, *, again: bool = False) -> None:
    """Block nodes over an interval. What runs there stays; planned jobs in the way are planned anew.

    ``again``: it is in force already, and its nodes are others than before.
    """
    before = state.reservations.get(event.name)
    if (
        before is not None
        and not again
        and replace(event, id="", time=0) == replace(before.event, id="", time=0)
    ):
        return  # an adapter tells all of them with each snapshot
    end = event.end if event.end is not None else state.now + 2 * HORIZON
    start = max(event.start, state.now)
    access = access_of(event)
    replaced = _drop(state, event.name)
    gate = ""
    if end <= event.start:
        words = f"reservation {event.name} was not made: it ends before it begins"
        state.alert(event.id, "reservation", words)
    elif start >= end:
        pass  # it is over; a server may show one for a while after its end
    elif access and not (gate := _gate(state, access)):
        words = (
            f"reservation {event.name} was not made: at most {_MOST_GATES} different access lists are allowed"
        )
        state.alert(event.id, "reservation", words)
        start = end
    names = nodes_of(event, state.plan.nodes)
    missing = [name for name in event.nodes if name not in state.plan.nodes]
    if missing and not again and start < end:
        state.alert(
            event.id,
            "reservation",
            f"reservation {event.name}: unknown nodes are left out: {', '.join(missing)}",
            event.name,
        )
    if start < end:
        slot = -1
        if names:
            slot = state.new_slot(_GUARD if gate else _BLOCK, end - start)
            state.plan.fix(slot, start, block_takes(state.plan, names, gate))
        state.reservations[event.name] = ReservationRecord(event, slot, names, gate)
        words = f"reservation {event.name} was made"
        if slot >= 0:
            displace_for(state, [slot], event.id, Cause.RESERVATION, words)
            if state.bookings and not gate:
                yield_nodes(state, names, event.id, words)
    words = f"reservation {event.name} was changed"
    refresh_all(state, dict.fromkeys([*names, *(replaced.nodes if replaced else ())]), event.id, words)
    if replaced is not None:
        place_unplaced(state, event.id, words)


def unreserve(state: EngineState, event: Unreserve) -> None:
    """Lift a reservation."""
    gone = _drop(state, event.name)
    if gone is not None:
        words = f"reservation {event.name} was lifted"
        refresh_all(state, gone.nodes, event.id, words)
        place_unplaced(state, event.id, words)


def nodes_again(state: EngineState) -> None:
    """Nodes are new or have other features: reservations may be about others than before."""
    for reservation in list(state.reservations.values()):
        if nodes_of(reservation.event, state.plan.nodes) != reservation.nodes:
            reserve(state, reservation.event, again=True)


def reservation_edges(state: EngineState, event: str) -> None:
    """Reservations end; a node that is down during one is planned for, or no longer."""
    for name, reservation in list(state.reservations.items()):
        end = reservation.event.end
        words = f"reservation {name} is over"
        if end is not None and end <= state.now:
            _drop(state, name)
            refresh_all(state, reservation.nodes, event, words)
        elif end is not None and reservation.event.start <= state.now:
            for node in reservation.nodes:
                if node in state.plan.nodes and state.plan.nodes[node].state is NodeState.DOWN:
                    refresh(state, node, event, f"node {node} returns when reservation {name} is over")


def _drop(state: EngineState, name: str) -> ReservationRecord | None:
    reservation = state.reservations.pop(name, None)
    if reservation is not None and reservation.slot >= 0:
        state.drop_slot(reservation.slot)
    return reservation


# ---- access lists -------------------------------------------------------------------------------


def _gate(state: EngineState, access: Access) -> str:
    """The gate of an access list, made when there is none; empty when there are too many."""
    for gate, known in state.gates.items():
        if known == access:
            return gate
    used = {reservation.gate for reservation in state.reservations.values()}
    gate = next((gate for gate in state.gates if gate not in used), "")
    if not gate:
        if len(state.gates) == _MOST_GATES:
            return ""
        gate = f"{GATE}{len(state.gates) + 1}"
    new = gate not in state.gates
    state.gates[gate] = access
    if new:
        show_all(state)
    for record in list(state.records.values()):
        refresh_request(state, record)
    return gate
