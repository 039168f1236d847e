"""Bookings and their attempts, as a pure fold over events."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal, Self, TypeVar

from schedd.dialect.moldable import lists_alternatives
from schedd.dialect.walltime_scale import scale_seconds
from schedd.federation.cluster_speed import scale_resources
from schedd.federation.events import (
    AlternativeStart,
    AttemptBooked,
    AttemptConfirmed,
    AttemptEnded,
    AttemptEvent,
    AttemptRefused,
    AttemptWithdrawn,
    BookingAccepted,
    BookingFreezeRequested,
    BookingSubmitted,
    BookingUpdated,
    ClusterChosen,
    FederationEvent,
    ItemCancelled,
    ItemEnded,
    StartMove,
    WithdrawalRequested,
)
from schedd.federation.items import Attempt, FederationItem, ImpossibleError, Items, Transitions

_HOLDING_CORES: Final = ("booked", "confirmed")
_BookingT = TypeVar("_BookingT", bound="FederationBooking")


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingAttempt(Attempt):
    """A booking at one cluster for ``duration`` seconds: at first the longest alternative.

    The lengths of alternatives are divided by ``speed``.
    """

    ready: int
    deadline: int
    until: int
    duration: int
    speed: float = 1.0
    expected: int | None = None
    options: tuple[AlternativeStart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationBooking(FederationItem[BookingAttempt]):
    """State of one booking; ``duration`` is in seconds, of the longest alternative, with ``by_speed`` at a
    cluster of speed 1. ``key`` is its name.

    ``ready``, ``deadline`` and ``clusters`` are as requested. ``wanted_ready``, ``wanted_deadline`` and
    ``wanted_clusters`` are the same, or come from an accepted alternative. ``first`` is the number of the
    first attempt for them, ``since`` the time of that request. ``start``, ``phase`` and ``moves`` were last
    reported by the cluster.
    """

    resources: Mapping[str, str]
    duration: int
    ready: int
    deadline: int
    freeze: int
    account: str
    by_speed: bool = False
    since: int
    wanted_ready: int
    wanted_deadline: int
    wanted_clusters: tuple[str, ...] = ()
    first: int = 1
    phase: Literal["", "flexible", "frozen", "open"] = ""
    start: int | None = None
    cpus: int = 0
    freezes: int | None = None
    moves: tuple[StartMove, ...] = ()
    freeze_requested: bool = False

    transitions: ClassVar[Transitions] = {
        AttemptBooked: (("submitting",), "booked"),
        AttemptConfirmed: (("booked",), "confirmed"),
        AttemptRefused: (("submitting",), "refused"),
        WithdrawalRequested: (("submitting", "booked", "confirmed"), "withdrawing"),
        AttemptWithdrawn: (("withdrawing",), "withdrawn"),
        BookingUpdated: (("booked", "confirmed"), None),
        AttemptEnded: (("booked", "confirmed"), "ended"),
    }

    @classmethod
    def create(cls, event: BookingSubmitted) -> Self:
        clusters = tuple(event.clusters)
        return cls(
            id=event.job,
            owner=event.owner,
            submitted=event.time,
            clusters=clusters,
            key=event.name,
            resources=event.resources,
            duration=event.duration,
            ready=event.ready,
            deadline=event.deadline,
            freeze=event.freeze,
            account=event.account,
            by_speed=event.by_speed,
            since=event.time,
            wanted_ready=event.ready,
            wanted_deadline=event.deadline,
            wanted_clusters=clusters,
        )

    @property
    def name(self) -> str:
        """Name of the booking, unique among the owner's open bookings."""
        return self.key

    def length_at(self, speed: float) -> int:
        """Return the duration at a cluster of this speed."""
        return scale_seconds(self.duration, self.factor_at(speed))

    def factor_at(self, speed: float) -> float:
        """Return the divisor of lengths at a cluster of this speed."""
        return speed if self.by_speed else 1.0

    def resources_at(self, factor: float) -> dict[str, str]:
        """Return the requested resources without a walltime, with the lengths of alternatives divided."""
        return scale_resources(
            {name: value for name, value in self.resources.items() if name.lower() != "walltime"}, factor
        )

    @property
    def has_alternatives(self) -> bool:
        """Whether the cluster chooses the size, and with it the length."""
        return lists_alternatives(self.resources)

    @property
    def active(self) -> BookingAttempt | None:
        return next((one for one in self.attempts if one.live), None)

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
    def refused(self) -> dict[str, BookingAttempt]:
        """Refused attempts for the current window, by cluster."""
        tried = self.attempts[self.first - 1 :]
        return {one.cluster: one for one in tried if one.phase == "refused"}

    @property
    def missed(self) -> Counter[str]:
        """Number of unanswered attempts for the current window, by cluster."""
        tried = self.attempts[self.first - 1 :]
        return Counter(one.cluster for one in tried if one.phase in ("withdrawing", "withdrawn"))

    def apply(self, event: FederationEvent) -> Self:
        """Return the booking after the event. Raises ImpossibleError if the event cannot follow."""
        match event:
            case ClusterChosen():
                return self._add_attempt(event)
            case ItemEnded():
                self.require(self.seeks, event)
                return replace(self, over=event.how, over_at=event.time, text=event.text)
            case BookingAccepted():
                return self._accept(event)
            case BookingFreezeRequested():
                return replace(self, freeze_requested=True)
            case ItemCancelled():
                if self.over or self.cancelled:
                    raise ImpossibleError(f"booking {self.id} is {self.over or 'cancelled'} already")
                words = f"withdrawn by {event.by}"
                cancelled = replace(self, cancelled=True, text=words)
                return _end_if_withdrawn(cancelled.withdraw_attempts(event.time, words), event.time)
            case AttemptEvent():
                return _end_if_withdrawn(self._advance(event), event.time)
        self.require(False, event)
        return self

    def _add_attempt(self, event: ClusterChosen) -> Self:
        self.require(self.seeks and event.attempt == len(self.attempts) + 1, event)
        attempt = BookingAttempt(
            number=event.attempt,
            cluster=event.cluster,
            user=event.user,
            since=event.time,
            ready=self.wanted_ready,
            deadline=self.wanted_deadline,
            until=event.until,
            duration=event.duration or self.duration,
            speed=event.speed,
            expected=event.start,
            why=event.why,
        )
        return replace(self, attempts=(*self.attempts, attempt))

    def _accept(self, event: BookingAccepted) -> Self:
        if self.over != "refused":
            raise ImpossibleError(f"booking {self.id} was not refused: no option can be accepted")
        refused = next((one for one in reversed(self.attempts) if one.cluster == event.cluster), None)
        options = refused.options if refused is not None else ()
        length = refused.duration if refused is not None else self.duration
        end = min((one.end for one in options if one.start == event.start), default=event.start + length)
        return replace(
            self,
            over="",
            over_at=0,
            text="",
            since=event.time,
            wanted_ready=event.start,
            wanted_deadline=end,
            wanted_clusters=(event.cluster,),
            first=len(self.attempts) + 1,
        )

    def _advance(self, event: AttemptEvent) -> Self:
        match event:
            case AttemptBooked():
                chosen = {"duration": event.duration} if event.duration else {}
                return replace(self.advance_attempt(event, **chosen), start=event.start, cpus=event.cpus)
            case AttemptRefused():
                return self.advance_attempt(event, options=tuple(event.options))
            case WithdrawalRequested():
                return replace(self.advance_attempt(event), start=None, phase="", moves=(), freezes=None)
            case BookingUpdated():
                return replace(
                    self.advance_attempt(event),
                    phase=event.phase,
                    start=event.start,
                    freezes=event.freezes,
                    moves=tuple((at, before, after) for at, before, after in event.moves),
                )
            case AttemptEnded():
                ended = self.advance_attempt(event, text=event.text)
                return replace(ended, over=event.how, over_at=event.time, text=event.text)
        return self.advance_attempt(event)


class FederationBookings(Items[FederationBooking]):
    """All bookings, built from events."""

    kind = FederationBooking

    def newest_named(self, name: str) -> FederationBooking | None:
        """Return the newest booking of that name of any user."""
        found = [int(number) for (_, known), number in self.by_key.items() if known == name]
        return self.by_id.get(str(max(found))) if found else None


def _end_if_withdrawn(booking: _BookingT, now: int) -> _BookingT:
    """Return the booking with its outcome if it is cancelled and all attempts are final."""
    if booking.cancelled and not booking.over and all(one.final for one in booking.attempts):
        return replace(booking, over="cancelled", over_at=now)
    return booking
