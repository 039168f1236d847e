"""Co-allocations with their rounds and component jobs, as a pure fold over events."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from schedd.federation.coallocation.events import (
    CoAllocationAborted,
    CoAllocationArmed,
    CoAllocationCancelled,
    CoAllocationEnded,
    CoAllocationEvent,
    CoAllocationReleaseRequested,
    CoAllocationStarted,
    CoAllocationSubmitted,
    ComponentEnded,
    ComponentHeld,
    ComponentJobEvent,
    ComponentPlace,
    ComponentRefused,
    ComponentStarted,
    ComponentWithdrawalRequested,
    ComponentWithdrawn,
    PlaceArmed,
    PlaceBooked,
    PlaceConfirmed,
    RoundCleared,
    RoundCommitted,
    RoundDropped,
    RoundProposed,
)
from schedd.federation.routing.jobs import ImpossibleError

__all__ = [
    "CoAllocation",
    "CoAllocationOptions",
    "CoAllocations",
    "Component",
    "ComponentJob",
    "PlacementRound",
]

RoundPhase = Literal["proposed", "committed", "dropped", "cleared"]
ComponentJobPhase = Literal["submitting", "held", "started", "withdrawing", "withdrawn", "refused", "ended"]
_DONE: Final = ("withdrawn", "refused", "ended")


@dataclass(frozen=True, slots=True)
class Component:
    """One component: a job, and its possible ``clusters`` (empty: all). ``walltime`` is in seconds."""

    submission: Mapping[str, Any]
    walltime: int
    clusters: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class CoAllocationOptions:
    """Options of a co-allocation. ``ready`` and ``deadline`` are seconds since the epoch and bound start and
    end.

    With several clusters the jobs run longer by ``overhead`` percent. ``remap`` allows waiting components to
    change clusters. ``most`` limits the number of clusters (0: unlimited). ``units`` is the total of a
    divided request, which has at most ``most`` components, each at another cluster; 0 for an undivided one.
    """

    ready: int = 0
    deadline: int | None = None
    overhead: int = 0
    remap: bool = True
    most: int = 0
    units: int = 0


@dataclass(frozen=True, slots=True)
class PlacementRound:
    """A start with a place for each component. ``plans`` are the plan versions of the bookings, by
    component.
    """

    number: int
    start: int
    length: int
    places: tuple[ComponentPlace, ...]
    why: str
    phase: RoundPhase = "proposed"
    since: int = 0
    plans: Mapping[int, int] = field(default_factory=dict)
    confirmed: frozenset[int] = frozenset()
    armed: frozenset[int] = frozenset()
    text: str = ""

    @property
    def end(self) -> int:
        """End of the component jobs by their walltimes."""
        return self.start + self.length

    @property
    def clusters(self) -> tuple[str, ...]:
        """Names of the clusters, sorted."""
        return tuple(sorted({one.cluster for one in self.places}))


@dataclass(frozen=True, slots=True)
class ComponentJob:
    """A component's job at one cluster. ``length`` is its walltime in seconds; ``units`` as in
    ``ComponentPlace``.
    """

    number: int
    part: int
    cluster: str
    user: str
    length: int
    phase: ComponentJobPhase
    since: int
    server_job: str = ""
    started: int = 0
    how: str = ""
    exit_status: int | None = None
    text: str = ""
    units: int = 0


@dataclass(frozen=True, slots=True)
class CoAllocation:
    """State of one co-allocation.

    ``promised`` is the first committed (start, end); later rounds are no later, unless a cluster loses a
    booking. ``release_requested_at``, ``armed_at``, ``started_at`` and ``over_at`` are times, or 0. The
    ``parts`` of a divided request are its possible components, all equal; a round uses some of them.
    """

    id: str
    owner: str
    parts: tuple[Component, ...]
    options: CoAllocationOptions
    submitted: int
    key: str = ""
    rounds: tuple[PlacementRound, ...] = ()
    component_jobs: tuple[ComponentJob, ...] = ()
    promised: tuple[int, int] | None = None
    release_requested_at: int = 0
    armed_at: int = 0
    started_at: int = 0
    abort_reason: str = ""
    cancelled: bool = False
    over: Literal["", "ended", "cancelled", "failed", "refused"] = ""
    over_at: int = 0
    text: str = ""

    @property
    def committed(self) -> PlacementRound | None:
        """The round in force."""
        return next((one for one in self.rounds if one.phase == "committed"), None)

    @property
    def proposed(self) -> PlacementRound | None:
        """The round that is being booked."""
        return next((one for one in self.rounds if one.phase == "proposed"), None)

    @property
    def moves(self) -> int:
        """Number of rounds that replaced another one."""
        return max(0, sum(one.text == "moved" for one in self.rounds))

    @property
    def settled(self) -> bool:
        """Whether the co-allocation is over and no request to a cluster is pending."""
        rounds = all(one.phase == "cleared" for one in self.rounds)
        return bool(self.over) and rounds and all(one.phase in _DONE for one in self.component_jobs)

    def component_job(self, place: ComponentPlace) -> ComponentJob:
        """Return the component job of a place."""
        return self.component_jobs[place.copy - 1]


class CoAllocations:
    """All co-allocations, built from events."""

    def __init__(self) -> None:
        self.by_id: dict[str, CoAllocation] = {}
        self.by_key: dict[tuple[str, str], str] = {}
        self.open: dict[str, None] = {}
        """Co-allocations that are not settled, oldest first."""

    def __getitem__(self, group: str) -> CoAllocation:
        return self.by_id[group]

    def apply(self, event: CoAllocationEvent) -> None:
        """Apply one event. Raises ImpossibleError."""
        if isinstance(event, CoAllocationSubmitted):
            self._submitted(event)
            return
        group = self.by_id.get(event.job)
        if group is None:
            raise ImpossibleError(f"there is no group {event.job}")
        group = _apply_event(group, event)
        self.by_id[group.id] = group
        if group.settled:
            self.open.pop(group.id, None)

    def check(self, event: CoAllocationEvent) -> None:
        """Raise ImpossibleError if the event cannot follow the state; change nothing."""
        group = self.by_id.get(event.job)
        if group is None:
            raise ImpossibleError(f"there is no group {event.job}")
        _apply_event(group, event)

    def forget(self, before: int, among: Iterable[str]) -> tuple[str, ...]:
        """Drop settled co-allocations in ``among`` that ended before that time, and return them."""
        known = (self.by_id[name] for name in among if name in self.by_id)
        gone = tuple(one.id for one in known if one.settled and one.over_at < before)
        for name in gone:
            group = self.by_id.pop(name)
            self.by_key.pop((group.owner, group.key), None)
        return gone

    def _submitted(self, event: CoAllocationSubmitted) -> None:
        if event.job in self.by_id:
            raise ImpossibleError(f"group {event.job} came twice")
        parts = tuple(Component(**{**one, "clusters": tuple(one.get("clusters", ()))}) for one in event.parts)
        options = CoAllocationOptions(**event.options)
        if options.units:
            parts *= max(1, options.most)
        group = CoAllocation(event.job, event.owner, parts, options, event.time, event.key)
        self.by_id[group.id] = group
        self.open[group.id] = None
        if event.key:
            self.by_key[event.owner, event.key] = group.id


def _apply_event(group: CoAllocation, event: CoAllocationEvent) -> CoAllocation:
    match event:
        case RoundProposed():
            return _apply_proposal(group, event)
        case RoundCommitted():
            return _apply_commit(group, event)
        case PlaceBooked() | PlaceConfirmed() | PlaceArmed() | RoundDropped() | RoundCleared():
            return _apply_to_round(group, event)
        case CoAllocationReleaseRequested():
            _require(
                group,
                group.committed is not None and not group.release_requested_at and not group.over,
                event,
            )
            _require(group, not group.cancelled, event)
            return replace(group, release_requested_at=event.time)
        case CoAllocationArmed():
            _require(
                group,
                bool(group.release_requested_at) and not group.armed_at and not group.abort_reason,
                event,
            )
            return replace(group, armed_at=event.time)
        case CoAllocationStarted():
            _require(
                group,
                bool(group.release_requested_at) and not group.abort_reason and not group.started_at,
                event,
            )
            return replace(group, started_at=event.time)
        case CoAllocationAborted():
            _require(
                group,
                bool(group.release_requested_at) and not group.started_at and not group.abort_reason,
                event,
            )
            return replace(_withdraw_all(group, event.time, event.why), abort_reason=event.why)
        case CoAllocationCancelled():
            return replace(group, cancelled=True)
        case CoAllocationEnded():
            _require(group, not group.over, event)
            rounds = tuple(
                replace(one, phase="dropped", since=event.time)
                if one.phase in ("proposed", "committed")
                else one
                for one in group.rounds
            )
            group = replace(group, rounds=rounds, over=event.how, over_at=event.time, text=event.text)
            return _withdraw_all(group, event.time, event.text)
        case CoAllocationSubmitted():
            raise ImpossibleError(f"group {group.id} came twice")
        case _:
            return _apply_to_component(group, event)


def _require(group: CoAllocation, so: bool, event: CoAllocationEvent) -> None:
    if not so:
        raise ImpossibleError(f"group {group.id}: {event.type} cannot be now")


def _apply_proposal(group: CoAllocation, event: RoundProposed) -> CoAllocation:
    free = group.proposed is None and not group.over and not group.release_requested_at
    _require(group, free and event.number == len(group.rounds) + 1, event)
    made = PlacementRound(
        event.number, event.start, event.length, tuple(event.places), event.why, since=event.time
    )
    return replace(group, rounds=(*group.rounds, made))


def _apply_commit(group: CoAllocation, event: RoundCommitted) -> CoAllocation:
    new = group.proposed
    _require(group, new is not None and new.number == event.number and not group.release_requested_at, event)
    assert new is not None
    places = new.places
    _require(group, all(one.part in new.plans for one in places), event)
    before = group.committed
    rounds = tuple(
        replace(one, phase="committed", since=event.time, text="moved" if before else "")
        if one is new
        else replace(one, phase="dropped", since=event.time, text=one.text)
        if one is before
        else one
        for one in group.rounds
    )
    copies = list(group.component_jobs)
    for place in sorted(places, key=lambda one: one.copy):
        if place.copy == len(copies) + 1:
            where = (place.part, place.cluster, place.user)
            copies.append(
                ComponentJob(place.copy, *where, new.length, "submitting", event.time, units=place.units)
            )
        _require(group, place.copy <= len(copies), event)
    wanted = {one.copy for one in places}
    copies = [
        replace(one, phase="withdrawing", since=event.time, text=f"round {new.number} has no place for it")
        if one.number not in wanted and one.phase in ("submitting", "held")
        else one
        for one in copies
    ]
    promised = group.promised or (new.start, new.end)
    return replace(group, rounds=rounds, component_jobs=tuple(copies), promised=promised)


def _apply_to_round(
    group: CoAllocation, event: PlaceBooked | PlaceConfirmed | PlaceArmed | RoundDropped | RoundCleared
) -> CoAllocation:
    _require(group, 0 < event.number <= len(group.rounds), event)
    one = group.rounds[event.number - 1]
    match event:
        case PlaceBooked():
            _require(group, one.phase == "proposed", event)
            one = replace(one, plans={**one.plans, event.part: event.plan})
        case PlaceConfirmed():
            _require(group, one.phase == "committed", event)
            one = replace(one, confirmed=one.confirmed | {event.part})
        case PlaceArmed():
            _require(group, one.phase == "committed" and bool(group.armed_at), event)
            one = replace(one, armed=one.armed | {event.part})
        case RoundDropped():
            # Before arming no component can have started, so another round may follow.
            free = not group.armed_at and not group.abort_reason
            _require(group, one.phase in ("proposed", "committed") and free, event)
            if one.phase == "committed":
                group = replace(_withdraw_all(group, event.time, event.why), release_requested_at=0)
            one = replace(one, phase="dropped", since=event.time, text=event.why)
        case _:
            _require(group, one.phase == "dropped", event)
            one = replace(one, phase="cleared", since=event.time)
    rounds = (*group.rounds[: event.number - 1], one, *group.rounds[event.number :])
    return replace(group, rounds=rounds)


def _withdraw_all(group: CoAllocation, time: int, why: str) -> CoAllocation:
    copies = tuple(
        replace(one, phase="withdrawing", since=time, text=why)
        if one.phase in ("submitting", "held", "started")
        else one
        for one in group.component_jobs
    )
    return replace(group, component_jobs=copies)


_ALLOWED: Final[Mapping[type, tuple[ComponentJobPhase, ...]]] = {
    ComponentHeld: ("submitting",),
    ComponentRefused: ("submitting", "held"),
    ComponentStarted: ("held",),
    ComponentWithdrawalRequested: ("submitting", "held", "started"),
    ComponentWithdrawn: ("withdrawing",),
    ComponentEnded: ("held", "started", "withdrawing"),
}
"""Allowed phases of a component job for each event."""


def _apply_to_component(group: CoAllocation, event: ComponentJobEvent) -> CoAllocation:
    _require(group, 0 < event.copy <= len(group.component_jobs), event)
    one = group.component_jobs[event.copy - 1]
    _require(group, one.phase in _ALLOWED[type(event)], event)
    match event:
        case ComponentHeld():
            one = replace(one, phase="held", server_job=event.server_job)
        case ComponentRefused():
            one = replace(one, phase="refused", text=event.text)
        case ComponentStarted():
            _require(group, bool(group.release_requested_at), event)
            one = replace(one, phase="started", started=event.time)
        case ComponentWithdrawalRequested():
            one = replace(one, phase="withdrawing", text=event.why)
        case ComponentWithdrawn():
            one = replace(one, phase="withdrawn")
        case _:
            one = replace(one, phase="ended", how=event.how, exit_status=event.exit_status)
    one = replace(one, since=event.time)
    copies = (*group.component_jobs[: event.copy - 1], one, *group.component_jobs[event.copy :])
    return replace(group, component_jobs=copies)
