"""Co-allocations with their rounds and component jobs, as a pure fold over events."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, Self

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
    ComponentEditRefused,
    ComponentEditRequested,
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
EditPhase = Literal["pending", "made", "refused"]
NO_REQUIRED_COMPONENT: Final = "at least one component must not be optional"
MAX_COMPONENTS: Final = 32
"""Maximum number of components, including deleted ones, whose numbers are not reused."""


@dataclass(frozen=True, slots=True)
class CoallocationComponent:
    """One component: a job, and its possible ``clusters`` (empty: all). ``walltime`` is in seconds.

    ``revision`` counts substitutions. A ``deleted`` component keeps its number.
    """

    submission: Mapping[str, Any]
    walltime: int
    clusters: tuple[str, ...] = ()
    optional: bool = False
    revision: int = 0
    deleted: bool = False

    @classmethod
    def parse(cls, fields: Mapping[str, Any], revision: int = 0) -> Self:
        """Return the component of an event."""
        return cls(**{**fields, "clusters": tuple(fields.get("clusters", ()))}, revision=revision)


@dataclass(frozen=True, slots=True)
class ComponentEdit:
    """A change of one component, requested at ``since``, with the ``components`` after it.

    ``rounds`` is the number of rounds before it. ``text`` is the reason of a refusal.
    """

    component: int
    act: Literal["add", "substitute", "delete"]
    by: str
    since: int
    later: bool
    components: tuple[CoallocationComponent, ...]
    rounds: int
    phase: EditPhase = "pending"
    text: str = ""


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
    """A component's job at one cluster; ``length`` in seconds, ``units`` as in ``ComponentPlace``,
    ``revision`` that of the component.
    """

    component: int
    length: int
    units: int = 0
    revision: int = 0
    server_job: str = ""
    started: int = 0
    how: str = ""
    exit_status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocation(FederationItem[ComponentJob]):
    """State of one co-allocation. Its attempts are the component jobs.

    ``promised`` is the first committed (start, end), of the latest edit if there is one; later rounds are no
    later, unless a cluster loses a booking. ``release_requested_at``, ``armed_at`` and ``started_at`` are
    times, or 0. A divided request has all its possible ``components``, which are equal; a round uses some of
    them.
    """

    components: tuple[CoallocationComponent, ...]
    options: CoAllocationOptions
    rounds: tuple[PlacementRound, ...] = ()
    edits: tuple[ComponentEdit, ...] = ()
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
        components = tuple(CoallocationComponent.parse(one) for one in event.components)
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
    def pending_edit(self) -> ComponentEdit | None:
        """The requested edit that is neither made nor refused."""
        return self.edits[-1] if self.edits and self.edits[-1].phase == "pending" else None

    @property
    def next_components(self) -> tuple[CoallocationComponent, ...]:
        """The components of the next round: with the pending edit."""
        edit = self.pending_edit
        return edit.components if edit is not None else self.components

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
            case ComponentEditRequested():
                return self._request_edit(event)
            case ComponentEditRefused():
                self.require(self.pending_edit is not None and self.proposed is None, event)
                return self.settle_edit("refused", event.why)
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

    def _request_edit(self, event: ComponentEditRequested) -> Self:
        """Return the co-allocation with a pending edit. Before the first round it is made at once."""
        self.require(not self.edit_obstacle(event), event)
        index, known = event.component, len(self.components)
        edit = ComponentEdit(
            component=index,
            act="delete" if event.request is None else "add" if index == known else "substitute",
            by=event.by,
            since=event.time,
            later=event.later,
            components=self._edited_components(event),
            rounds=len(self.rounds),
        )
        rounds = tuple(
            replace(one, phase="dropped", since=event.time, text="a component is edited")
            if one.phase == "proposed"
            else one
            for one in self.rounds
        )
        edited = replace(self, edits=(*self.edits, edit), rounds=rounds)
        return edited if self.committed is not None else edited.settle_edit("made")

    def edit_obstacle(self, event: ComponentEditRequested) -> str:
        """Return why the change cannot be requested now, or an empty string."""
        index, known = event.component, len(self.components)
        if self.over or self.cancelled:
            return "it is over"
        if self.release_requested_at:
            return "it is about to start or runs"
        if self.options.units:
            return "it is a total of cores, which the federation divides by itself"
        if self.pending_edit is not None:
            return "the change before this one is not settled yet"
        if event.request is not None and index == known:
            return f"it has had {known} components, the maximum" if known >= MAX_COMPONENTS else ""
        if not 0 <= index < known or self.components[index].deleted:
            return f"it has no component {index + 1}"
        if all(one.optional or one.deleted for one in self._edited_components(event)):
            return NO_REQUIRED_COMPONENT
        return ""

    def _edited_components(self, event: ComponentEditRequested) -> tuple[CoallocationComponent, ...]:
        index = event.component
        old = self.components[index] if index < len(self.components) else None
        if event.request is not None:
            changed = CoallocationComponent.parse(event.request, old.revision + 1 if old is not None else 0)
        else:
            changed = replace(self.components[index], deleted=True)
        return (*self.components[:index], changed, *self.components[index + 1 :])

    def settle_edit(self, phase: EditPhase, text: str = "") -> Self:
        """Return the co-allocation after its pending edit is made or refused; without one, itself."""
        edit = self.pending_edit
        if edit is None:
            return self
        components = edit.components if phase == "made" else self.components
        settled = replace(edit, phase=phase, text=text)
        return replace(self, components=components, edits=(*self.edits[:-1], settled))

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
        edited = self.pending_edit is not None
        components = self.next_components
        text = "moved" if before and not edited else ""
        rounds = list(self.rounds)
        rounds[new.number - 1] = replace(new, phase="committed", since=event.time, text=text)
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
                        revision=components[place.component].revision,
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
        promised = (new.start, new.end) if edited else self.promised or (new.start, new.end)
        committed = replace(self, rounds=tuple(rounds), attempts=tuple(jobs), promised=promised)
        return committed.settle_edit("made")

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
                    # A pending edit has no committed round to keep any longer: the next round includes it.
                    group = replace(self.withdraw_attempts(event.time, event.why), release_requested_at=0)
                    group = group.settle_edit("made")
                one = replace(one, phase="dropped", since=event.time, text=event.why)
            case _:
                self.require(isinstance(event, RoundCleared) and one.phase == "dropped", event)
                one = replace(one, phase="cleared", since=event.time)
        rounds = (*self.rounds[: event.number - 1], one, *self.rounds[event.number :])
        return replace(group, rounds=rounds)


class CoAllocations(Items[CoAllocation]):
    """All co-allocations, built from events."""

    kind = CoAllocation
