"""Bookings and their attempts, as a pure fold over events."""

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
    BookingRequested,
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
"""Allowed phases of an attempt for each event."""


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
        """Whether the attempt is requested or booked."""
        return self.phase in _ACTIVE


@dataclass(frozen=True, slots=True)
class FederationBooking:
    """State of one booking. Times are seconds since the epoch, ``duration`` is in seconds.

    ``ready``, ``deadline`` and ``clusters`` are as requested. ``wanted_ready``, ``wanted_deadline`` and
    ``wanted_clusters`` are the same, or come from an accepted alternative. ``first`` is the number of the
    first attempt for them, ``since`` the time of that request. ``start``, ``phase`` and ``moves`` were last
    reported by the cluster.
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
        """The attempt that is requested or booked."""
        return next((one for one in self.attempts if one.active), None)

    @property
    def placed(self) -> BookingAttempt | None:
        """The attempt with reserved cores at a cluster."""
        return next((one for one in self.attempts if one.phase in _HOLDING_CORES), None)

    @property
    def booked(self) -> bool:
        """Whether a confirmed attempt exists."""
        return any(one.phase == "confirmed" for one in self.attempts)

    @property
    def seeks(self) -> bool:
        """Whether the booking needs another attempt."""
        return not self.over and not self.cancelled and self.active is None

    @property
    def declined(self) -> dict[str, BookingAttempt]:
        """Declined attempts for the current window, by cluster."""
        tried = self.attempts[self.first - 1 :]
        return {one.cluster: one for one in tried if one.phase == "declined"}

    @property
    def missed(self) -> Counter[str]:
        """Number of unanswered attempts for the current window, by cluster."""
        tried = self.attempts[self.first - 1 :]
        return Counter(one.cluster for one in tried if one.phase in ("withdrawing", "withdrawn"))

    @property
    def settled(self) -> bool:
        """Whether the booking is over and no request to a cluster is pending."""
        return bool(self.over) and all(one.phase in _DONE for one in self.attempts)


class FederationBookings:
    """All bookings, built from events."""

    def __init__(self) -> None:
        self.by_id: dict[str, FederationBooking] = {}
        self.by_name: dict[tuple[str, str], str] = {}
        """Number of the newest booking by (owner, name). Names are unique for each user."""
        self.open: dict[str, None] = {}
        """Bookings that are not settled, oldest first."""

    def __getitem__(self, booking: str) -> FederationBooking:
        return self.by_id[booking]

    def named(self, name: str, owner: str) -> FederationBooking | None:
        """Return the owner's newest booking of that name."""
        found = self.by_name.get((owner, name))
        return self.by_id.get(found) if found is not None else None

    def newest_named(self, name: str) -> FederationBooking | None:
        """Return the newest booking of that name of any user."""
        found = [int(number) for (_, known), number in self.by_name.items() if known == name]
        return self.by_id.get(str(max(found))) if found else None

    def check(self, event: BookingEvent) -> None:
        """Raise ImpossibleError if the event cannot follow the state."""
        trial = FederationBookings()
        if event.job in self.by_id:
            trial.by_id[event.job] = self.by_id[event.job]
        trial.apply(event)

    def apply(self, event: BookingEvent) -> None:
        """Apply one event. Raises ImpossibleError."""
        match event:
            case BookingRequested():
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
        """Drop settled bookings in ``among`` that ended before that time, and return them."""
        known = (self.by_id[name] for name in among if name in self.by_id)
        gone = tuple(one.id for one in known if one.settled and one.over_at < before)
        for name in gone:
            one = self.by_id.pop(name)
            if self.by_name.get((one.owner, one.name)) == name:
                del self.by_name[one.owner, one.name]
        return gone

    def _apply_request(self, event: BookingRequested) -> None:
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
        """Set the outcome of a cancelled booking once all attempts are final."""
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
