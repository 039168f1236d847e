"""What the engine knows of reservations: each with the slot that holds its nodes."""

from dataclasses import dataclass, field, replace
from typing import Any, Final

from schedd.engine.facts.encoding import known_fields, load_facts, save_facts
from schedd.engine.facts.state import EngineState
from schedd.plan.schema import SHARED, FieldRule, declared
from schedd.wire import Reserve

__all__ = ["ReservationRecord", "ReservationState", "reservations_of", "without_slots"]


@dataclass(slots=True)
class ReservationRecord:
    """A reservation with the slot that blocks its nodes; -1: no node of it is known.

    ``nodes`` are the known nodes that it names or describes. ``gate`` is the gate that is open to the jobs of
    its access list; empty without a list.
    """

    event: Reserve
    slot: int
    nodes: tuple[str, ...] = ()
    gate: str = ""
    names: frozenset[str] = field(init=False)
    """The same nodes as a set."""

    def __post_init__(self) -> None:
        self.names = frozenset(self.nodes)


def _save(one: ReservationRecord) -> dict[str, Any]:
    return {"event": save_facts(one.event), "slot": one.slot, "nodes": one.nodes, "gate": one.gate}


def _load(saved: list[dict[str, Any]]) -> dict[str, ReservationRecord]:
    found = {}
    for one in saved:
        event = load_facts(Reserve, known_fields(Reserve, one["event"]))
        found[event.name] = ReservationRecord(event, one["slot"], tuple(one["nodes"]), one["gate"])
    return found


_RECORDS: Final = FieldRule(
    lambda value: {name: replace(one) for name, one in value.items()},
    lambda value: list(value.values()),
    _load,
    each=_save,
    kind=ReservationRecord,
)


@dataclass(slots=True)
class ReservationState:
    """The component's part of the engine's state. Times are seconds since the epoch (UTC)."""

    records: dict[str, ReservationRecord] = declared(_RECORDS, make=dict, carried=True, lasting=True)
    """By name."""
    standing_due: int = declared(SHARED, default=0)
    """When the windows of standing reservations are examined next."""


def reservations_of(state: EngineState) -> dict[str, ReservationRecord]:
    """The reservations by name."""
    return state.part(ReservationState).records


def without_slots(part: ReservationState) -> None:
    """Forget slots and nodes: the plan is rebuilt without them."""
    part.records = {name: ReservationRecord(one.event, -1) for name, one in part.records.items()}
