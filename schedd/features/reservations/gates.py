"""Gates of reservations: resources of nodes that enforce their access lists.

Each node has many units of a *gate of nodes*, and each job needs one unit unless the list admits the job. A
reservation of whole nodes takes all units and no other resource of the node.

A reservation of cores takes its cores of the *gate of cpus*, of which a node has as many units as cpus, and a
job that is not admitted needs as many as it needs cpus. So these jobs together never hold a reserved core.
Jobs that have a node to themselves are kept out by a gate of whole nodes. The same holds for gpus and
memory.

Where reservations of several lists overlap, jobs that none of them admits must leave the cores of all free:
the union of the lists has a gate, too. A reservation takes its cores of each gate whose list includes its own
list. With a gate for each union, this is Hall's condition: the jobs fit if and only if each set of lists
leaves enough cores.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from schedd.engine.facts.state import EngineState
from schedd.engine.machine.nodes import refresh_all_nodes
from schedd.engine.place.slot_requests import refresh_request
from schedd.features.reservations.state import ReservationRecord, reservation_access, reservation_records
from schedd.model import NodeState
from schedd.plan.columns import WHOLE
from schedd.plan.gates import COUNTED_GATES, GATE, WHOLE_NODES_GATE
from schedd.plan.records import Take
from schedd.policy.access import Access
from schedd.wire import Reserve

MOST_GATES: Final = 16  # gates at once; each costs a column of every timeline
_KINDS: Final = (*COUNTED_GATES, WHOLE_NODES_GATE)


class ReservedPart(NamedTuple):
    """The reserved amounts of one node; ``mem`` in KiB."""

    cpus: int
    gpus: int
    mem: int = 0

    def amount_at_gate(self, gate: str) -> int:
        """Return the reserved amount that a gate of cpus, gpus or memory counts."""
        return next((n for kind, n in zip(COUNTED_GATES, self, strict=True) if gate.startswith(kind)), 0)


def is_partial(event: Reserve) -> bool:
    """Whether a reservation is of parts of nodes, not of whole nodes."""
    return bool(event.cores or event.gpus or event.mem or event.shares)


def reserved_parts(state: EngineState, event: Reserve, nodes: Iterable[str]) -> Mapping[str, ReservedPart]:
    """Return the reserved parts by node: the given ones, the same of each node, or with ``total`` of the
    first nodes that are up, all of a node before any of the next.
    """
    if event.shares:
        known = frozenset(nodes)
        return {
            one.node: ReservedPart(one.cpus, one.gpus, one.mem) for one in event.shares if one.node in known
        }
    cores, gpus, mem = event.cores, event.gpus, event.mem
    found = {}
    for name in nodes:
        node = state.plan.nodes[name]
        if event.total and node.state is not NodeState.UP:
            continue
        part = ReservedPart(min(cores, node.cpus), min(gpus, node.gpus), min(mem, node.mem or mem))
        if event.total:
            cores, gpus, mem = cores - part.cpus, gpus - part.gpus, mem - part.mem
        if any(part):
            found[name] = part
    return found


def reserved_takes(state: EngineState, event: Reserve, nodes: Iterable[str]) -> list[Take]:
    """Return what a reservation of cores takes of the present gates of these nodes."""
    access = reservation_access(event)
    wider = [(gate, known) for gate, known in state.gates.items() if known.includes(access)]
    takes = []
    for name, part in reserved_parts(state, event, nodes).items():
        amounts = {}
        for gate, known in wider:
            if gate.startswith(COUNTED_GATES):
                amounts[gate] = part.amount_at_gate(gate)
            elif gate.startswith(WHOLE_NODES_GATE) and known == access:
                amounts[gate] = WHOLE
        takes.append(Take(state.plan.node_rows[name], 0, 1, state.plan.amounts(amounts)))
    return takes


def open_node_gate(state: EngineState, access: Access) -> tuple[str, ...]:
    """Return the gate of nodes of an access list, made if there is none; empty if there are too many."""
    return _provide(state, [(GATE, access)])


def open_partial_gates(
    state: EngineState, event: Reserve, nodes: Collection[str], start: int, end: int
) -> tuple[str, ...]:
    """Return the gates that a reservation of cores needs on these nodes over ``[start, end)``, its own first.

    They are made if there are none; empty if there are too many.
    """
    access = reservation_access(event)
    others = [
        one.event
        for one in reservation_records(state).values()
        if is_partial(one.event)
        and one.event.name != event.name
        and one.event.start < end
        and (one.event.end is None or one.event.end > start)
        and not one.names.isdisjoint(nodes)
    ]
    wanted: list[tuple[str, Access]] = []
    for kind in _counted_kinds(event):
        lists = {access: None}
        for other in dict.fromkeys(reservation_access(one) for one in others if kind in _counted_kinds(one)):
            lists |= {one | other: None for one in lists}
            if len(lists) > MOST_GATES:
                return ()
        wanted += [(kind, one) for one in lists]
    return _provide(state, [*wanted, (WHOLE_NODES_GATE, access)])


def _provide(state: EngineState, wanted: Iterable[tuple[str, Access]]) -> tuple[str, ...]:
    """Return the gates of these kinds and lists, reused or made; empty if there are too many."""
    used = {gate for one in reservation_records(state).values() for gate in one.gates}
    found: list[str] = []
    gates = dict(state.gates)
    for kind, access in wanted:
        alike = [gate for gate in gates if _kind(gate) == kind and gate not in found]
        gate = next((gate for gate in alike if gates[gate] == access), "")
        gate = gate or next((gate for gate in alike if gate not in used), "")
        if not gate:
            if len(gates) == MOST_GATES:
                return ()
            gate = f"{kind}{len(gates) + 1}"
        gates[gate] = access
        found.append(gate)
    if gates != state.gates:
        new = len(gates) > len(state.gates)
        state.gates.update(gates)
        if new:
            refresh_all_nodes(state)
        for record in list(state.records.values()):
            refresh_request(state, record)
    return tuple(found)


def _counted_kinds(event: Reserve) -> list[str]:
    """Return the kinds of gates that a reservation on nodes takes."""
    amounts = (
        event.cores or any(one.cpus for one in event.shares),
        event.gpus or any(one.gpus for one in event.shares),
        event.mem or any(one.mem for one in event.shares),
    )
    return [kind for kind, amount in zip(COUNTED_GATES, amounts, strict=True) if amount]


def _kind(gate: str) -> str:
    return next((kind for kind in _KINDS if gate.startswith(kind)), GATE)


def update_partial_takes(
    state: EngineState, changed_nodes: Callable[[ReservationRecord], frozenset[str]] | None = None
) -> list[ReservationRecord]:
    """Let reservations of cores hold their part of present gates and nodes. Return the changed ones.

    ``changed_nodes``: the changed nodes that matter to a reservation; None: the gates are others.
    """
    changed = []
    for record in reservation_records(state).values():
        if record.slot < 0 or not is_partial(record.event) or _kind(record.gates[0]) == GATE:
            continue
        if changed_nodes is not None and record.names.isdisjoint(changed_nodes(record)):
            continue
        takes = reserved_takes(state, record.event, record.nodes)
        if takes != list(state.plan.takes(record.slot)):
            start = state.plan.start(record.slot)
            state.plan.remove(record.slot, state.now)
            state.plan.fix(record.slot, start, takes)
            changed.append(record)
    return changed
