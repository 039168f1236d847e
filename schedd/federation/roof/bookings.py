"""Bookings of a federation at work: asked for, accepted otherwise, frozen, taken back."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from schedd.federation.bookings.booking import Booking, Bookings
from schedd.federation.bookings.events import (
    BookingAccepted,
    BookingCancelled,
    BookingEvent,
    BookingFrozen,
    BookingTerms,
)
from schedd.federation.bookings.steps import BookingRules
from schedd.federation.events import Event
from schedd.federation.roof.record import Record
from schedd.federation.roof.turns import Turns
from schedd.federation.routing.jobs import ImpossibleError

__all__ = ["RoofOfBookings"]

_log = structlog.get_logger(__name__)


class RoofOfBookings:
    """All bookings. Thread-safe. ``take`` keeps events with a turn held."""

    def __init__(
        self,
        rules: BookingRules,
        record: Record,
        turns: Turns,
        take: Callable[[Sequence[Event]], Sequence[Event]],
        now: Callable[[], int],
    ) -> None:
        self.rules = rules
        self._record = record
        self._turns = turns
        self._take = take
        self._now = now

    @property
    def bell(self) -> threading.Event:
        """Rung when a booking has changed."""
        return self._record.booking_bell

    @property
    def _bookings(self) -> Bookings:
        return self._record.bookings

    def ask(self, owner: str, name: str, asked: Mapping[str, Any]) -> Booking:
        """Takes a booking in, of what BookingTerms has beside these. The same name again, until that booking
        is over, is that booking; another user's of that name is of no account. Raises StoreError.
        """
        with self._turns.request():
            known = self._bookings.named(name, owner)
            if known is not None and not known.over:
                return known
            now = self._now()
            number = str(self._record.number + 1)
            ready = asked["ready"] if asked["ready"] is not None else now
            self._take(
                [BookingTerms(job=number, time=now, owner=owner, name=name, **{**asked, "ready": ready})]
            )
            return self._bookings[number]

    def accept(self, booking: str, by: str, cluster: str, start: int) -> Booking:
        """It is to begin then, at that cluster. Raises StoreError, and ImpossibleError unless it was
        refused.
        """
        return self._step(BookingAccepted(job=booking, time=self._now(), by=by, cluster=cluster, start=start))

    def freeze(self, booking: str, by: str) -> Booking:
        """It is to stay where it is planned. Raises StoreError."""
        return self._step(BookingFrozen(job=booking, time=self._now(), by=by))

    def cancel(self, booking: str, by: str) -> Booking:
        """Its owner does not want it any more. Raises StoreError, and ImpossibleError where it is over."""
        return self._step(BookingCancelled(job=booking, time=self._now(), by=by))

    def _step(self, event: BookingEvent) -> Booking:
        with self._turns.request():
            self._bookings.check(event)
            self._take([event])
            return self._bookings[event.job]

    def take(self, events: Sequence[BookingEvent]) -> None:
        """What came of a request or a look, all of one booking; what does not fit any more is dropped, with
        what follows it. Raises StoreError.
        """
        with self._turns.request():
            trial = Bookings()
            found: list[BookingEvent] = []
            for event in events:
                if event.job in self._bookings.by_id:
                    trial.by_id.setdefault(event.job, self._bookings[event.job])
                try:
                    trial.apply(event)
                except ImpossibleError as error:
                    _log.info("too late", booking=event.job, what=event.type, why=str(error))
                    break
                found.append(event)
            if found:
                self._take(found)
