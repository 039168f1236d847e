"""Bookings and their attempts, and how each event changes them. Pure: events in, bookings out."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from schedd.federation.bookings.events import (
    AlternativeStart,
    BookingAccepted,
    BookingAttempted,
    BookingAttemptEvent,
    BookingCancelled,
    BookingConfirmed,
    BookingDeclined,
    BookingEnded,
    BookingEvent,
    BookingFrozen,
    BookingPlaced,
    BookingRefused,
    BookingTerms,
    BookingUpdated,
    BookingWithdrawalRequested,
    BookingWithdrawn,
    StartMove,
)
from schedd.federation.routing.jobs import ImpossibleError

__all__ = ["BookingAttempt", "BookingOutcome", "FederationBooking", "FederationBookings"]

BookingAttemptPhase = Literal[
    "requested", "booked", "confirmed", "declined", "withdrawing", "withdrawn", "ended"
]
BookingOutcome = Literal["", "ended", "cancelled", "lost", "refused"]
_ACTIVE: Final = ("requested", "booked", "confirmed")
_HOLDING_CORES: Final = ("booked", "confirmed")
_DONE: Final = ("declined", "withdrawn", "ended")
_ALLOWED: Final[Mapping[type, tuple[str, ...]]] = {
    BookingPlaced: ("requested",),
    BookingConfirmed: ("booked",),
    BookingDeclined: ("requested",),
    BookingWithdrawalRequested: _ACTIVE,
    BookingWithdrawn: ("withdrawing",),
    BookingUpdated: _HOLDING_CORES,
    BookingEnded: _HOLDING_CORES,
}
"""In which phases of an attempt an event may come."""


@dataclass(frozen=True, slots=True)
class BookingAttempt:
    """A booking at one cluster. Times are seconds since the epoch."""

    number: int
    cluster: str
    user: str
    ready: int
    deadline: int
    until: int
    phase: BookingAttemptPhase
    since: int
    expected: int | None = None
    why: str = ""
    text: str = ""
    options: tuple[AlternativeStart, ...] = ()

    @property
    def active(self) -> bool:
        """Whether it is to be booked, or is."""
        return self.phase in _ACTIVE


@dataclass(frozen=True, slots=True)
class FederationBooking:
    """Times are seconds since the epoch, ``duration`` in seconds. ``ready`` and ``deadline`` are as asked
    for; ``wanted_ready`` and ``wanted_deadline`` what is tried: of an option that was accepted, its own.

    ``first`` is the number of the first attempt at that, ``since`` when it was asked for. ``start``,
    ``phase`` and ``moves`` are what its cluster said last.
    """

    id: str
    owner: str
    name: str
    resources: Mapping[str, str]
    duration: int
    ready: int
    deadline: int
    freeze: int
    account: str
    submitted: int
    since: int
    wanted_ready: int
    wanted_deadline: int
    clusters: tuple[str, ...] = ()
    wanted_clusters: tuple[str, ...] = ()
    first: int = 1
    attempts: tuple[BookingAttempt, ...] = ()
    phase: Literal["", "flexible", "frozen", "open"] = ""
    start: int | None = None
    cpus: int = 0
    freezes: int | None = None
    moves: tuple[StartMove, ...] = ()
    freeze_requested: bool = False
    cancelled: bool = False
    over: BookingOutcome = ""
    over_at: int = 0
    text: str = ""

    @property
    def active(self) -> BookingAttempt | None:
        """The attempt that is to be booked, or is."""
        return next((one for one in self.attempts if one.active), None)

    @property
    def placed(self) -> BookingAttempt | None:
        """The attempt that a cluster keeps cores for."""
        return next((one for one in self.attempts if one.phase in _HOLDING_CORES), None)

    @property
    def booked(self) -> bool:
        """Whether cores are kept for it, and not given up by themselves."""
        return any(one.phase == "confirmed" for one in self.attempts)

    @property
    def seeks(self) -> bool:
        """Whether a cluster is to be found for it."""
        return not self.over and not self.cancelled and self.active is None

    @property
    def declined(self) -> dict[str, BookingAttempt]:
        """By cluster, the attempt at what is tried now that it declined."""
        tried = self.attempts[self.first - 1 :]
        return {one.cluster: one for one in tried if one.phase == "declined"}

    @property
    def missed(self) -> Counter[str]:
        """By cluster, how often what is tried now was given up there, unheard."""
        tried = self.attempts[self.first - 1 :]
        return Counter(one.cluster for one in tried if one.phase in ("withdrawing", "withdrawn"))

    @property
    def settled(self) -> bool:
        """Whether nothing is left to be done for it, at any cluster."""
        return bool(self.over) and all(one.phase in _DONE for one in self.attempts)


class FederationBookings:
    """All bookings, as the events so far made them."""

    def __init__(self) -> None:
        self.by_id: dict[str, FederationBooking] = {}
        self.by_name: dict[tuple[str, str], str] = {}
        """By owner and name, the newest of that name: each user has names of his own."""
        self.open: dict[str, None] = {}
        """Bookings for which something is left to be done, oldest first."""

    def __getitem__(self, booking: str) -> FederationBooking:
        return self.by_id[booking]

    def named(self, name: str, owner: str) -> FederationBooking | None:
        """The owner's newest of that name."""
        found = self.by_name.get((owner, name))
        return self.by_id.get(found) if found is not None else None

    def newest_named(self, name: str) -> FederationBooking | None:
        """The newest of that name, whoever's."""
        found = [int(number) for (_, known), number in self.by_name.items() if known == name]
        return self.by_id.get(str(max(found))) if found else None

    def check(self, event: BookingEvent) -> None:
        """Raises ImpossibleError where the event cannot follow."""
        trial = FederationBookings()
        if event.job in self.by_id:
            trial.by_id[event.job] = self.by_id[event.job]
        trial.apply(event)

    def apply(self, event: BookingEvent) -> None:
        """Takes one event in. Raises ImpossibleError."""
        match event:
            case BookingTerms():
                self._apply_request(event)
            case BookingAttempted():
                self._apply_attempt(event)
            case BookingRefused():
                one = self._find(event.job)
                if not one.seeks:
                    raise ImpossibleError(f"booking {one.id} is refused while it is {one.over or 'booked'}")
                self._store(replace(one, over="refused", over_at=event.time, text=event.text))
            case BookingAccepted():
                self._apply_acceptance(event)
            case BookingFrozen():
                self._store(replace(self._find(event.job), freeze_requested=True))
            case BookingCancelled():
                self._apply_cancellation(event)
            case _:
                self._apply_to_attempt(event)

    def forget(self, before: int, among: Iterable[str]) -> tuple[str, ...]:
        """Drops those of the bookings ``among`` these that were settled before that moment; returns them."""
        known = (self.by_id[name] for name in among if name in self.by_id)
        gone = tuple(one.id for one in known if one.settled and one.over_at < before)
        for name in gone:
            one = self.by_id.pop(name)
            if self.by_name.get((one.owner, one.name)) == name:
                del self.by_name[one.owner, one.name]
        return gone

    def _apply_request(self, event: BookingTerms) -> None:
        if event.job in self.by_id:
            raise ImpossibleError(f"booking {event.job} came twice")
        names = ("owner", "name", "resources", "duration", "ready", "deadline", "freeze", "account")
        own: dict[str, Any] = {name: getattr(event, name) for name in names}
        clusters = tuple(event.clusters)
        self.by_name[event.owner, event.name] = event.job
        self._store(
            FederationBooking(
                event.job,
                **own,
                submitted=event.time,
                since=event.time,
                wanted_ready=event.ready,
                wanted_deadline=event.deadline,
                clusters=clusters,
                wanted_clusters=clusters,
            )
        )

    def _apply_attempt(self, event: BookingAttempted) -> None:
        one = self._find(event.job)
        if event.attempt != len(one.attempts) + 1 or not one.seeks:
            raise ImpossibleError(f"booking {one.id}: attempt {event.attempt} cannot be made now")
        attempt = BookingAttempt(
            event.attempt,
            event.cluster,
            event.user,
            one.wanted_ready,
            one.wanted_deadline,
            event.until,
            "requested",
            event.time,
            event.expected,
            event.why,
        )
        self._store(replace(one, attempts=(*one.attempts, attempt)))

    def _apply_acceptance(self, event: BookingAccepted) -> None:
        one = self._find(event.job)
        if one.over != "refused":
            raise ImpossibleError(f"booking {one.id} was not refused: no option can be accepted")
        self._store(
            replace(
                one,
                over="",
                over_at=0,
                text="",
                since=event.time,
                wanted_ready=event.start,
                wanted_deadline=event.start + one.duration,
                wanted_clusters=(event.cluster,),
                first=len(one.attempts) + 1,
            )
        )

    def _apply_cancellation(self, event: BookingCancelled) -> None:
        one = self._find(event.job)
        if one.over or one.cancelled:
            raise ImpossibleError(f"booking {one.id} is {one.over or 'cancelled'} already")
        words = f"taken back by {event.by}"
        attempts = tuple(
            replace(it, phase="withdrawing", since=event.time, text=words) if it.active else it
            for it in one.attempts
        )
        one = replace(one, attempts=attempts, cancelled=True, text=words)
        self._store(self._cancelled_if_withdrawn(one, event.time))

    def _apply_to_attempt(self, event: BookingAttemptEvent) -> None:
        one = self._find(event.job)
        if not 0 < event.attempt <= len(one.attempts):
            raise ImpossibleError(f"booking {one.id} has no attempt {event.attempt}")
        attempt = one.attempts[event.attempt - 1]
        if attempt.phase not in _ALLOWED[type(event)]:
            raise ImpossibleError(
                f"booking {one.id}: {event.type} of attempt {attempt.number}, {attempt.phase}"
            )
        about: dict[str, Any] = {}
        match event:
            case BookingPlaced():
                attempt = replace(attempt, phase="booked")
                about = {"start": event.start, "cpus": event.cpus}
            case BookingConfirmed():
                attempt = replace(attempt, phase="confirmed")
            case BookingDeclined():
                attempt = replace(attempt, phase="declined", text=event.text, options=tuple(event.options))
            case BookingWithdrawalRequested():
                attempt = replace(attempt, phase="withdrawing", text=event.why)
                about = {"start": None, "phase": "", "moves": (), "freezes": None}
            case BookingWithdrawn():
                attempt = replace(attempt, phase="withdrawn")
            case BookingUpdated():
                moves = tuple((at, before, after) for at, before, after in event.moves)
                about = {"phase": event.phase, "start": event.start, "freezes": event.freezes, "moves": moves}
            case BookingEnded():
                attempt = replace(attempt, phase="ended", text=event.text)
                about = {"over": event.how, "over_at": event.time, "text": event.text}
        if not isinstance(event, BookingUpdated):
            attempt = replace(attempt, since=event.time)
        attempts = (*one.attempts[: event.attempt - 1], attempt, *one.attempts[event.attempt :])
        self._store(self._cancelled_if_withdrawn(replace(one, attempts=attempts, **about), event.time))

    @staticmethod
    def _cancelled_if_withdrawn(one: FederationBooking, now: int) -> FederationBooking:
        """One that was cancelled is over when nothing is left of it anywhere."""
        if one.cancelled and not one.over and all(it.phase in _DONE for it in one.attempts):
            return replace(one, over="cancelled", over_at=now)
        return one

    def _find(self, name: str) -> FederationBooking:
        found = self.by_id.get(name)
        if found is None:
            raise ImpossibleError(f"there is no booking {name}")
        return found

    def _store(self, one: FederationBooking) -> None:
        self.by_id[one.id] = one
        if one.settled:
            self.open.pop(one.id, None)
        else:
            self.open[one.id] = None
