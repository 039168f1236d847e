"""Operations on bookings: request, accept an alternative, freeze, cancel."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from schedd.federation.bookings.bookings import FederationBooking, FederationBookings
from schedd.federation.bookings.decisions import FederationBookingRules
from schedd.federation.bookings.events import (
    BookingAccepted,
    BookingCancelled,
    BookingEvent,
    BookingFrozen,
    BookingRequested,
)
from schedd.federation.events import FederationEvent
from schedd.federation.routing.jobs import ImpossibleError
from schedd.federation.state.logged_state import LoggedState
from schedd.federation.state.priority_lock import PriorityLock

__all__ = ["BookingOperations"]

_log = structlog.get_logger(__name__)


class BookingOperations:
    """Operations on bookings. Thread-safe. ``commit`` stores events while the lock is held."""

    def __init__(
        self,
        rules: FederationBookingRules,
        record: LoggedState,
        lock: PriorityLock,
        commit: Callable[[Sequence[FederationEvent]], Sequence[FederationEvent]],
        now: Callable[[], int],
    ) -> None:
        self.rules = rules
        self._record = record
        self._lock = lock
        self._commit = commit
        self._now = now

    @property
    def wakeup(self) -> threading.Event:
        """Set when a booking has changed."""
        return self._record.booking_wakeup

    @property
    def _bookings(self) -> FederationBookings:
        return self._record.bookings

    def request(self, owner: str, name: str, asked: Mapping[str, Any]) -> FederationBooking:
        """Create a booking with the fields of BookingRequested. Raises StoreError.

        Return the existing booking if the owner has an open booking of this name.
        """
        with self._lock.request():
            known = self._bookings.named(name, owner)
            if known is not None and not known.over:
                return known
            now = self._now()
            number = str(self._record.number + 1)
            ready = asked["ready"] if asked["ready"] is not None else now
            self._commit(
                [BookingRequested(job=number, time=now, owner=owner, name=name, **{**asked, "ready": ready})]
            )
            return self._bookings[number]

    def accept(self, booking: str, by: str, cluster: str, start: int) -> FederationBooking:
        """Accept an alternative. Raises StoreError, and ImpossibleError unless the booking was refused."""
        return self._commit_checked(
            BookingAccepted(job=booking, time=self._now(), by=by, cluster=cluster, start=start)
        )

    def freeze(self, booking: str, by: str) -> FederationBooking:
        """Keep the planned start of the booking. Raises StoreError."""
        return self._commit_checked(BookingFrozen(job=booking, time=self._now(), by=by))

    def cancel(self, booking: str, by: str) -> FederationBooking:
        """Cancel the booking. Raises StoreError, and ImpossibleError if it is over."""
        return self._commit_checked(BookingCancelled(job=booking, time=self._now(), by=by))

    def _commit_checked(self, event: BookingEvent) -> FederationBooking:
        with self._lock.request():
            self._bookings.check(event)
            self._commit([event])
            return self._bookings[event.job]

    def commit(self, events: Sequence[BookingEvent]) -> None:
        """Store events of one booking. The first event that does not apply any more, and all after it, are
        dropped. Raises StoreError.
        """
        with self._lock.request():
            trial = FederationBookings()
            found: list[BookingEvent] = []
            for event in events:
                if event.job in self._bookings.by_id:
                    trial.by_id.setdefault(event.job, self._bookings[event.job])
                try:
                    trial.apply(event)
                except ImpossibleError as error:
                    _log.info("outdated event dropped", booking=event.job, what=event.type, why=str(error))
                    break
                found.append(event)
            if found:
                self._commit(found)
