"""Operations on bookings: request, accept an alternative, freeze, cancel."""

from collections.abc import Mapping
from typing import Any

from schedd.federation.bookings.bookings import FederationBooking
from schedd.federation.bookings.decisions import FederationBookingRules
from schedd.federation.events import (
    BookingAccepted,
    BookingFreezeRequested,
    BookingSubmitted,
    FederationEvent,
    ItemCancelled,
)
from schedd.federation.state.item_operations import ItemOperations


class BookingOperations(ItemOperations[FederationBooking]):
    """Operations on bookings. Thread-safe."""

    def __init__(self, rules: FederationBookingRules, *shared: Any) -> None:
        super().__init__(*shared)
        self.rules = rules

    def request(self, owner: str, name: str, asked: Mapping[str, Any]) -> FederationBooking:
        """Create a booking with the fields of BookingSubmitted. Raises StoreError.

        Return the existing booking if the owner has an open booking of this name.
        """
        with self._lock.request():
            known = self._items.by_owner_key(owner, name)
            if known is not None and not known.over:
                return known
            ready = asked["ready"] if asked["ready"] is not None else self._now()
            return self._submit(
                lambda number, now: BookingSubmitted(
                    job=number, time=now, owner=owner, name=name, **{**asked, "ready": ready}
                )
            )

    def accept(self, booking: str, by: str, cluster: str, start: int) -> FederationBooking:
        """Accept an alternative. Raises StoreError, and ImpossibleError unless the booking was refused."""
        return self._commit_checked(
            BookingAccepted(job=booking, time=self._now(), by=by, cluster=cluster, start=start)
        )

    def freeze(self, booking: str, by: str) -> FederationBooking:
        """Keep the planned start of the booking. Raises StoreError."""
        return self._commit_checked(BookingFreezeRequested(job=booking, time=self._now(), by=by))

    def cancel(self, name: str, by: str) -> FederationBooking:
        """Cancel the booking. Raises StoreError, and ImpossibleError if it is over."""
        return self._commit_checked(ItemCancelled(job=name, time=self._now(), by=by))

    def _commit_checked(self, event: FederationEvent) -> FederationBooking:
        with self._lock.request():
            self._items.check(event)
            self._commit([event])
            return self._items[event.job]
