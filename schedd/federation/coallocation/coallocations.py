"""Co-allocations with their rounds and component jobs, as a pure fold over events."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

from schedd.federation.events import (
    AttemptEnded,
    AttemptEvent,
    AttemptHeld,
    AttemptRefused,
    AttemptStarted,
    AttemptWithdrawn,
    CoAllocationAborted,
    CoAllocationArmed,
    CoAllocationReleaseRequested,
    CoAllocationStarted,
    CoAllocationSubmitted,
    ComponentPlace,
    FederationEvent,
    ItemCancelled,
    ItemEnded,
    PlaceArmed,
    PlaceBooked,
    PlaceConfirmed,
    RoundCleared,
    RoundCommitted,
    RoundDropped,
    RoundEvent,
    RoundProposed,
    WithdrawalRequested,
)
from schedd.federation.items import Attempt, FederationItem, Items, Transitions

RoundPhase = Literal["proposed", "committed", "dropped", "cleared"]


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
    """A start with a place for each component. ``plans``: plan versions of its bookings."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentJob(Attempt):
    """A component's job at one cluster; ``length`` in seconds, ``units`` as in ``ComponentPlace``."""

    component: int
    length: int
    units: int = 0
    server_job: str = ""
    started: int = 0
    how: str = ""
    exit_status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocation(FederationItem[ComponentJob]):
    """State of one co-allocation. Its attempts are the component jobs.

    ``promised`` is the first committed (start, end); later rounds are no later, unless a cluster loses a
    booking. ``release_requested_at``, ``armed_at`` and ``started_at`` are times, or 0. A divided request has
    all its possible ``components``, which are equal; a round uses some of them.
    """

    components: tuple[Component, ...]
    options: CoAllocationOptions
    rounds: tuple[PlacementRound, ...] = ()
    promised: tuple[int, int] | None = None
    release_requested_at: int = 0
    armed_at: int = 0
    started_at: int = 0
    abort_reason: str = ""

    transitions: ClassVar[Transitions] = {
        AttemptHeld: (("submitting",), "held"),
        AttemptRefused: (("submitting", "held"), "refused"),
        AttemptStarted: (("held",), "started"),
        WithdrawalRequested: (("submitting", "held", "started"), "withdrawing"),
        AttemptWithdrawn: (("withdrawing",), "withdrawn"),
        AttemptEnded: (("held", "started", "withdrawing"), "ended"),
    }

    @classmethod
    def create(cls, event: CoAllocationSubmitted) -> Self:
        components = tuple(
            Component(**{**one, "clusters": tuple(one.get("clusters", ()))}) for one in event.components
        )
        options = CoAllocationOptions(**event.options)
        if options.units:
            components *= max(1, options.most)
        return cls(
            id=event.job,
            owner=event.owner,
            submitted=event.time,
            key=event.key,
            components=components,
            options=options,
        )

    @property
    def committed(self) -> PlacementRound | None:
        return next((one for one in self.rounds if one.phase == "committed"), None)

    @property
    def proposed(self) -> PlacementRound | None:
        return next((one for one in self.rounds if one.phase == "proposed"), None)

    @property
    def moves(self) -> int:
        """Number of rounds that replaced another one."""
        return max(0, sum(one.text == "moved" for one in self.rounds))

    @property
    def settled(self) -> bool:
        """Whether the co-allocation is over and no request to a cluster is pending."""
        finished = bool(self.over) and all(one.final for one in self.attempts)
        return finished and all(one.phase == "cleared" for one in self.rounds)

    def component_job(self, place: ComponentPlace) -> ComponentJob:
        return self.attempts[place.attempt - 1]

    def apply(self, event: FederationEvent) -> Self:
        """Return the co-allocation after the event. Raises ImpossibleError if the event cannot follow."""
        starting = bool(self.release_requested_at) and not self.abort_reason
        match event:
            case RoundProposed():
                return self._propose(event)
            case RoundCommitted():
                return self._commit(event)
            case RoundEvent():
                return self._change_round(event)
            case CoAllocationReleaseRequested():
                ready = self.committed is not None and not self.release_requested_at
                self.require(ready and not self.over and not self.cancelled, event)
                return replace(self, release_requested_at=event.time)
            case CoAllocationArmed():
                self.require(starting and not self.armed_at, event)
                return replace(self, armed_at=event.time)
            case CoAllocationStarted():
                self.require(starting and not self.started_at, event)
                return replace(self, started_at=event.time)
            case CoAllocationAborted():
                self.require(starting and not self.started_at, event)
                return replace(self.withdraw_attempts(event.time, event.why), abort_reason=event.why)
            case ItemCancelled():
                return replace(self, cancelled=True)
            case ItemEnded():
                return self._end(event)
            case AttemptStarted():
                self.require(bool(self.release_requested_at), event)
                return self.advance_attempt(event, started=event.time)
            case AttemptEnded():
                return self.advance_attempt(event, how=event.how, exit_status=event.exit_status)
            case AttemptEvent():
                return self.advance_attempt(event)
        self.require(False, event)
        return self

    def _end(self, event: ItemEnded) -> Self:
        self.require(not self.over, event)
        rounds = tuple(
            replace(one, phase="dropped", since=event.time) if one.phase in ("proposed", "committed") else one
            for one in self.rounds
        )
        ended = replace(self, rounds=rounds, over=event.how, over_at=event.time, text=event.text)
        return ended.withdraw_attempts(event.time, event.text)

    def _propose(self, event: RoundProposed) -> Self:
        free = self.proposed is None and not self.over and not self.release_requested_at
        self.require(free and event.number == len(self.rounds) + 1, event)
        made = PlacementRound(
            event.number, event.start, event.length, tuple(event.places), event.why, since=event.time
        )
        return replace(self, rounds=(*self.rounds, made))

    def _commit(self, event: RoundCommitted) -> Self:
        new, before = self.proposed, self.committed
        current = new is not None and new.number == event.number and not self.release_requested_at
        self.require(current, event)
        assert new is not None
        self.require(all(one.component in new.plans for one in new.places), event)
        rounds = list(self.rounds)
        rounds[new.number - 1] = replace(
            new, phase="committed", since=event.time, text="moved" if before else ""
        )
        if before is not None:
            rounds[before.number - 1] = replace(before, phase="dropped", since=event.time)
        jobs = list(self.attempts)
        for place in sorted(new.places, key=lambda one: one.attempt):
            if place.attempt == len(jobs) + 1:
                jobs.append(
                    ComponentJob(
                        number=place.attempt,
                        component=place.component,
                        cluster=place.cluster,
                        user=place.user,
                        length=new.length,
                        since=event.time,
                        units=place.units,
                    )
                )
            self.require(place.attempt <= len(jobs), event)
        wanted = {one.attempt for one in new.places}
        text = f"round {new.number} has no place for it"
        jobs = [
            replace(one, phase="withdrawing", since=event.time, text=text)
            if one.number not in wanted and one.phase in ("submitting", "held")
            else one
            for one in jobs
        ]
        promised = self.promised or (new.start, new.end)
        return replace(self, rounds=tuple(rounds), attempts=tuple(jobs), promised=promised)

    def _change_round(self, event: RoundEvent) -> Self:
        self.require(0 < event.number <= len(self.rounds), event)
        one, group = self.rounds[event.number - 1], self
        match event:
            case PlaceBooked():
                self.require(one.phase == "proposed", event)
                one = replace(one, plans={**one.plans, event.component: event.plan})
            case PlaceConfirmed():
                self.require(one.phase == "committed", event)
                one = replace(one, confirmed=one.confirmed | {event.component})
            case PlaceArmed():
                self.require(one.phase == "committed" and bool(self.armed_at), event)
                one = replace(one, armed=one.armed | {event.component})
            case RoundDropped():
                # Before arming no component can have started, so another round may follow.
                free = not self.armed_at and not self.abort_reason
                self.require(one.phase in ("proposed", "committed") and free, event)
                if one.phase == "committed":
                    group = replace(self.withdraw_attempts(event.time, event.why), release_requested_at=0)
                one = replace(one, phase="dropped", since=event.time, text=event.why)
            case _:
                self.require(isinstance(event, RoundCleared) and one.phase == "dropped", event)
                one = replace(one, phase="cleared", since=event.time)
        rounds = (*self.rounds[: event.number - 1], one, *self.rounds[event.number :])
        return replace(group, rounds=rounds)


class CoAllocations(Items[CoAllocation]):
    """All co-allocations, built from events."""

    kind = CoAllocation
