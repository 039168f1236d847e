"""Groups, their rounds and copies, and how each event changes them. Pure: events in, groups out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from schedd.federation.groups.events import (
    CopyBack,
    CopyGone,
    CopyHeld,
    CopyOver,
    CopyRefused,
    CopyStarted,
    GroupArmed,
    GroupBegan,
    GroupCancelled,
    GroupEvent,
    GroupLetGo,
    GroupOver,
    GroupReleased,
    GroupSubmitted,
    OfCopy,
    Place,
    PlaceArmed,
    PlaceBooked,
    PlaceConfirmed,
    RoundCleared,
    RoundCommitted,
    RoundDropped,
    RoundProposed,
)
from schedd.federation.routing.jobs import ImpossibleError

__all__ = ["Copy", "Group", "Groups", "Options", "Part", "Round"]

RoundPhase = Literal["proposed", "committed", "dropped", "cleared"]
CopyPhase = Literal["submitting", "held", "started", "withdrawing", "withdrawn", "refused", "ended"]
_DONE: Final = ("withdrawn", "refused", "ended")


@dataclass(frozen=True, slots=True)
class Part:
    """One part: a job, and the ``clusters`` to which it may go (none: all). ``walltime`` in seconds."""

    submission: Mapping[str, Any]
    walltime: int
    clusters: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """``ready`` and ``deadline`` (seconds since the epoch) bound start and end; ``overhead`` is by how many
    percent it runs longer on more than one cluster; ``remap``: parts may change their clusters while they
    wait; ``most`` clusters at once (0: any number). ``units``: so many of what its part asks for, divided
    into at most ``most`` pieces at a cluster each; 0: parts are not divided.
    """

    ready: int = 0
    deadline: int | None = None
    overhead: int = 0
    remap: bool = True
    most: int = 0
    units: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """``plans`` are, by part, the versions of the plans in which it was booked."""

    number: int
    start: int
    length: int
    places: tuple[Place, ...]
    why: str
    phase: RoundPhase = "proposed"
    since: int = 0
    plans: Mapping[int, int] = field(default_factory=dict)
    confirmed: frozenset[int] = frozenset()
    armed: frozenset[int] = frozenset()
    text: str = ""

    @property
    def end(self) -> int:
        """When its jobs have ended by their walltimes."""
        return self.start + self.length

    @property
    def clusters(self) -> tuple[str, ...]:
        """Where it is, by name."""
        return tuple(sorted({one.cluster for one in self.places}))


@dataclass(frozen=True, slots=True)
class Copy:
    """A part's job at one cluster; ``length`` is its walltime in seconds, ``units`` are as in ``Place``."""

    number: int
    part: int
    cluster: str
    user: str
    length: int
    phase: CopyPhase
    since: int
    server_job: str = ""
    started: int = 0
    how: str = ""
    exit_status: int | None = None
    text: str = ""
    units: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """``told`` is the first (start, end) that was committed: later ones are no later, unless a cluster broke
    its word. ``let_go``, ``armed``, ``began`` and ``over_at`` are moments, 0 before them. Of one that is
    divided the ``parts`` are its pieces, all alike, of which a round has some.
    """

    id: str
    owner: str
    parts: tuple[Part, ...]
    options: Options
    submitted: int
    key: str = ""
    rounds: tuple[Round, ...] = ()
    copies: tuple[Copy, ...] = ()
    told: tuple[int, int] | None = None
    let_go: int = 0
    armed: int = 0
    began: int = 0
    released: str = ""
    cancelled: bool = False
    over: Literal["", "ended", "cancelled", "failed", "refused"] = ""
    over_at: int = 0
    text: str = ""

    @property
    def committed(self) -> Round | None:
        """The round that counts."""
        return next((one for one in self.rounds if one.phase == "committed"), None)

    @property
    def proposed(self) -> Round | None:
        """The round that is being booked."""
        return next((one for one in self.rounds if one.phase == "proposed"), None)

    @property
    def moves(self) -> int:
        """How often a round took the place of another that held."""
        return max(0, sum(one.text == "moved" for one in self.rounds))

    @property
    def settled(self) -> bool:
        """Whether nothing is left to be done, at any cluster."""
        rounds = all(one.phase == "cleared" for one in self.rounds)
        return bool(self.over) and rounds and all(one.phase in _DONE for one in self.copies)

    def copy_of(self, place: Place) -> Copy:
        """The job of a place."""
        return self.copies[place.copy - 1]


class Groups:
    """All groups, as the events so far made them."""

    def __init__(self) -> None:
        self.by_id: dict[str, Group] = {}
        self.by_key: dict[tuple[str, str], str] = {}
        self.open: dict[str, None] = {}
        """Groups for which something is left to be done, oldest first."""

    def __getitem__(self, group: str) -> Group:
        return self.by_id[group]

    def apply(self, event: GroupEvent) -> None:
        """Takes one event in. Raises ImpossibleError."""
        if isinstance(event, GroupSubmitted):
            self._submitted(event)
            return
        group = self.by_id.get(event.job)
        if group is None:
            raise ImpossibleError(f"there is no group {event.job}")
        group = _changed(group, event)
        self.by_id[group.id] = group
        if group.settled:
            self.open.pop(group.id, None)

    def check(self, event: GroupEvent) -> None:
        """Raises ImpossibleError for an event that cannot be now; changes nothing."""
        group = self.by_id.get(event.job)
        if group is None:
            raise ImpossibleError(f"there is no group {event.job}")
        _changed(group, event)

    def forget(self, before: int, among: Iterable[str]) -> tuple[str, ...]:
        """Drops those of the groups ``among`` these that were settled before that moment; returns them."""
        known = (self.by_id[name] for name in among if name in self.by_id)
        gone = tuple(one.id for one in known if one.settled and one.over_at < before)
        for name in gone:
            group = self.by_id.pop(name)
            self.by_key.pop((group.owner, group.key), None)
        return gone

    def _submitted(self, event: GroupSubmitted) -> None:
        if event.job in self.by_id:
            raise ImpossibleError(f"group {event.job} came twice")
        parts = tuple(Part(**{**one, "clusters": tuple(one.get("clusters", ()))}) for one in event.parts)
        options = Options(**event.options)
        if options.units:
            parts *= max(1, options.most)
        group = Group(event.job, event.owner, parts, options, event.time, event.key)
        self.by_id[group.id] = group
        self.open[group.id] = None
        if event.key:
            self.by_key[event.owner, event.key] = group.id


def _changed(group: Group, event: GroupEvent) -> Group:
    match event:
        case RoundProposed():
            return _proposed(group, event)
        case RoundCommitted():
            return _committed(group, event)
        case PlaceBooked() | PlaceConfirmed() | PlaceArmed() | RoundDropped() | RoundCleared():
            return _of_round(group, event)
        case GroupLetGo():
            _must(group, group.committed is not None and not group.let_go and not group.over, event)
            _must(group, not group.cancelled, event)
            return replace(group, let_go=event.time)
        case GroupArmed():
            _must(group, bool(group.let_go) and not group.armed and not group.released, event)
            return replace(group, armed=event.time)
        case GroupBegan():
            _must(group, bool(group.let_go) and not group.released and not group.began, event)
            return replace(group, began=event.time)
        case GroupReleased():
            _must(group, bool(group.let_go) and not group.began and not group.released, event)
            return replace(_all_back(group, event.time, event.why), released=event.why)
        case GroupCancelled():
            return replace(group, cancelled=True)
        case GroupOver():
            _must(group, not group.over, event)
            rounds = tuple(
                replace(one, phase="dropped", since=event.time)
                if one.phase in ("proposed", "committed")
                else one
                for one in group.rounds
            )
            group = replace(group, rounds=rounds, over=event.how, over_at=event.time, text=event.text)
            return _all_back(group, event.time, event.text)
        case GroupSubmitted():
            raise ImpossibleError(f"group {group.id} came twice")
        case _:
            return _of_copy(group, event)


def _must(group: Group, so: bool, event: GroupEvent) -> None:
    if not so:
        raise ImpossibleError(f"group {group.id}: {event.type} cannot be now")


def _proposed(group: Group, event: RoundProposed) -> Group:
    free = group.proposed is None and not group.over and not group.let_go
    _must(group, free and event.number == len(group.rounds) + 1, event)
    made = Round(event.number, event.start, event.length, tuple(event.places), event.why, since=event.time)
    return replace(group, rounds=(*group.rounds, made))


def _committed(group: Group, event: RoundCommitted) -> Group:
    new = group.proposed
    _must(group, new is not None and new.number == event.number and not group.let_go, event)
    assert new is not None
    places = new.places
    _must(group, all(one.part in new.plans for one in places), event)
    before = group.committed
    rounds = tuple(
        replace(one, phase="committed", since=event.time, text="moved" if before else "")
        if one is new
        else replace(one, phase="dropped", since=event.time, text=one.text)
        if one is before
        else one
        for one in group.rounds
    )
    copies = list(group.copies)
    for place in sorted(places, key=lambda one: one.copy):
        if place.copy == len(copies) + 1:
            where = (place.part, place.cluster, place.user)
            copies.append(Copy(place.copy, *where, new.length, "submitting", event.time, units=place.units))
        _must(group, place.copy <= len(copies), event)
    wanted = {one.copy for one in places}
    copies = [
        replace(one, phase="withdrawing", since=event.time, text=f"round {new.number} has no place for it")
        if one.number not in wanted and one.phase in ("submitting", "held")
        else one
        for one in copies
    ]
    told = group.told or (new.start, new.end)
    return replace(group, rounds=rounds, copies=tuple(copies), told=told)


def _of_round(
    group: Group, event: PlaceBooked | PlaceConfirmed | PlaceArmed | RoundDropped | RoundCleared
) -> Group:
    _must(group, 0 < event.number <= len(group.rounds), event)
    one = group.rounds[event.number - 1]
    match event:
        case PlaceBooked():
            _must(group, one.phase == "proposed", event)
            one = replace(one, plans={**one.plans, event.part: event.plan})
        case PlaceConfirmed():
            _must(group, one.phase == "committed", event)
            one = replace(one, confirmed=one.confirmed | {event.part})
        case PlaceArmed():
            _must(group, one.phase == "committed" and bool(group.armed), event)
            one = replace(one, armed=one.armed | {event.part})
        case RoundDropped():
            # Without having been armed no part can have started: another round may follow.
            free = not group.armed and not group.released
            _must(group, one.phase in ("proposed", "committed") and free, event)
            if one.phase == "committed":
                group = replace(_all_back(group, event.time, event.why), let_go=0)
            one = replace(one, phase="dropped", since=event.time, text=event.why)
        case _:
            _must(group, one.phase == "dropped", event)
            one = replace(one, phase="cleared", since=event.time)
    rounds = (*group.rounds[: event.number - 1], one, *group.rounds[event.number :])
    return replace(group, rounds=rounds)


def _all_back(group: Group, time: int, why: str) -> Group:
    copies = tuple(
        replace(one, phase="withdrawing", since=time, text=why)
        if one.phase in ("submitting", "held", "started")
        else one
        for one in group.copies
    )
    return replace(group, copies=copies)


_ALLOWED: Final[Mapping[type, tuple[CopyPhase, ...]]] = {
    CopyHeld: ("submitting",),
    CopyRefused: ("submitting", "held"),
    CopyStarted: ("held",),
    CopyBack: ("submitting", "held", "started"),
    CopyGone: ("withdrawing",),
    CopyOver: ("held", "started", "withdrawing"),
}
"""In which phases an event of a copy may come."""


def _of_copy(group: Group, event: OfCopy) -> Group:
    _must(group, 0 < event.copy <= len(group.copies), event)
    one = group.copies[event.copy - 1]
    _must(group, one.phase in _ALLOWED[type(event)], event)
    match event:
        case CopyHeld():
            one = replace(one, phase="held", server_job=event.server_job)
        case CopyRefused():
            one = replace(one, phase="refused", text=event.text)
        case CopyStarted():
            _must(group, bool(group.let_go), event)
            one = replace(one, phase="started", started=event.time)
        case CopyBack():
            one = replace(one, phase="withdrawing", text=event.why)
        case CopyGone():
            one = replace(one, phase="withdrawn")
        case _:
            one = replace(one, phase="ended", how=event.how, exit_status=event.exit_status)
    one = replace(one, since=event.time)
    copies = (*group.copies[: event.copy - 1], one, *group.copies[event.copy :])
    return replace(group, copies=copies)
