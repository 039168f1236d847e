"""What the engine knows of reservations: each with the slot that holds its nodes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from schedd.engine.facts.encoding import known_fields, load_facts, save_facts
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.model import FOREVER
from schedd.plan.schema import MOMENT, NUMBER, SHARED, FieldRule, declared
from schedd.policy.access import Access
from schedd.wire import Reserve


@dataclass(slots=True)
class ReservationRecord:
    """A reservation with the slot that blocks its nodes; -1: none of its nodes is known.

    ``nodes`` are the known nodes that it names or describes. ``gates`` are the gates that it needs: see
    ``gates.py``; empty for whole nodes without an access list.
    """

    event: Reserve
    slot: int
    nodes: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    down_followed: bool = False
    """Whether it has begun, and nodes that were down then are planned as up. Not saved: repeating this
    changes nothing.
    """
    names: frozenset[str] = field(init=False)  # the same nodes as a set

    def __post_init__(self) -> None:
        self.names = frozenset(self.nodes)


def _save(one: ReservationRecord) -> dict[str, Any]:
    return {"event": save_facts(one.event), "slot": one.slot, "nodes": one.nodes, "gates": one.gates}


def _load(saved: list[dict[str, Any]]) -> dict[str, ReservationRecord]:
    found = {}
    for one in saved:
        event = load_facts(Reserve, known_fields(Reserve, one["event"]))
        found[event.name] = ReservationRecord(event, one["slot"], tuple(one["nodes"]), tuple(one["gates"]))
    return found


_RECORDS: Final = FieldRule(
    lambda value: {name: replace(one) for name, one in value.items()},
    lambda value: list(value.values()),
    _load,
    each=_save,
    kind=ReservationRecord,
)


@dataclass(frozen=True, slots=True)
class NamedReservation:
    """What jobs may name: a reservation with an access list, or all known windows of a standing one.

    ``windows`` are its times, without overlap, by start. ``closed`` are slots that fill its pool outside of
    these times.
    """

    name: str
    nodes: frozenset[str]
    access: Access
    windows: tuple[tuple[int, int | None], ...]
    closed: tuple[int, ...] = ()

    @property
    def pool(self) -> str:
        """The name of its pool; empty if it is open from now on without an end."""
        return f"reservation {self.name}" if self.closed else ""

    @property
    def longest(self) -> int:
        """The length of its longest window, in seconds."""
        return max((FOREVER if end is None else end - start for start, end in self.windows), default=0)


def _save_named(one: NamedReservation) -> dict[str, Any]:
    access = {key: sorted(names) for key, names in asdict(one.access).items() if key != "shorter"}
    return {
        "name": one.name,
        "nodes": sorted(one.nodes),
        "access": access | {"shorter": one.access.shorter},
        "windows": one.windows,
        "closed": one.closed,
    }


def _load_named(saved: list[dict[str, Any]]) -> dict[str, NamedReservation]:
    found = {}
    for one in saved:
        lists = {key: frozenset(names) for key, names in one["access"].items() if key != "shorter"}
        found[one["name"]] = NamedReservation(
            one["name"],
            frozenset(one["nodes"]),
            Access(**lists, shorter=one["access"]["shorter"]),
            tuple((start, end) for start, end in one["windows"]),
            tuple(one["closed"]),
        )
    return found


_NAMED: Final = FieldRule(dict, lambda value: list(value.values()), _load_named, each=_save_named)

_MOMENTS: Final = FieldRule(
    dict, lambda value: list(value.items()), lambda saved: {str(name): at for name, at in saved}
)


@dataclass(slots=True)
class ReservationState:
    """The component's part of the engine's state. Times are seconds since the epoch (UTC)."""

    records: dict[str, ReservationRecord] = declared(_RECORDS, make=dict, carried=True, lasting=True)
    """By name."""
    edge: int | None = declared(MOMENT, default=None)
    """The first start or end of ``records`` after the last call of ``follow_edges``, which has no work before
    it; None: a record was added or removed since."""
    standing_due: int = declared(NUMBER, default=0)
    """When the windows of standing reservations are examined next."""
    stands: bool = declared(SHARED, default=False, carried=True)  # the site has standing reservations
    named: dict[str, NamedReservation] = declared(_NAMED, make=dict)  # by name: what jobs may name
    gone: dict[str, int] = declared(_MOMENTS, make=dict, carried=True, lasting=True)
    """By name: when a reservation that jobs could name ended or was removed."""


@dataclass(frozen=True, slots=True)
class PublishedReservations:
    """What other threads may read of the component."""

    named: Mapping[str, NamedReservation]
    gone: frozenset[str]
    maintenance: frozenset[str]  # names of reservations without an access list


def publish_reservations(state: EngineState) -> PublishedReservations:
    """A copy for other threads."""
    part = state.part(ReservationState)
    return PublishedReservations(dict(part.named), frozenset(part.gone), _without_access(part))


def _without_access(part: ReservationState) -> frozenset[str]:
    return frozenset(base_name(name) for name in part.records) - part.named.keys()


def reservation_access(event: Reserve) -> Access:
    """The access list of a reservation; empty by default."""
    users, groups, accounts, queues = map(
        frozenset, (event.users, event.groups, event.accounts, event.queues)
    )
    return Access(users, groups, accounts, queues, event.shorter)


def base_name(name: str) -> str:
    """Return the name that jobs use for a reservation; all windows of a standing reservation share it."""
    return name.partition("@")[0]


def known_reservations(known: EngineState | PlanSnapshot) -> PublishedReservations:
    """What jobs may name in a state or a snapshot of it."""
    if isinstance(known, EngineState):
        return publish_reservations(known)
    return known.part(PublishedReservations)


def reservation_records(state: EngineState) -> dict[str, ReservationRecord]:
    """The reservations by name."""
    return state.part(ReservationState).records


def without_slots(part: ReservationState) -> None:
    """Forget slots and nodes: the plan is rebuilt without them."""
    part.records = {name: ReservationRecord(one.event, -1) for name, one in part.records.items()}
