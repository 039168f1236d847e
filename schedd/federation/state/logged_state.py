"""State built from the event log: jobs, co-allocations, bags, bookings, licences. Events are committed before
they are applied.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import structlog

from schedd.federation.bags.bags import Bags
from schedd.federation.bags.events import BagEvent, BagOffered, BagSubmitted
from schedd.federation.bags.issued_offers import BagOffer, IssuedOffers, offer_from_event
from schedd.federation.bookings.bookings import FederationBookings
from schedd.federation.bookings.events import BookingEvent, BookingRequested
from schedd.federation.cluster_users import ClusterUsers
from schedd.federation.coallocation.coallocations import CoAllocations
from schedd.federation.coallocation.events import CoAllocationEvent, CoAllocationSubmitted
from schedd.federation.event_log import FederationLog
from schedd.federation.events import FederationEvent
from schedd.federation.licences import LicenceLeased, LicencePools
from schedd.federation.routing.events import JobSubmitted
from schedd.federation.routing.jobs import FederationJobs, ImpossibleError
from schedd.federation.settings import FederationSettings

__all__ = ["LoggedState"]

_log = structlog.get_logger(__name__)
_KEPT_S: Final = 7 * 86_400
"""Settled items remain available for this long."""
_DROP_INTERVAL_S: Final = 3_600
"""Interval between removals of old items."""
_DROP_BATCH: Final = 250
"""Jobs, co-allocations or offers in one removal step."""
_BAG_DROP_BATCH: Final = 10
"""Bags, with their shares, in one removal step."""


class LoggedState:
    """Logged state of one federation, read from the log at construction. Not thread-safe."""

    def __init__(self, settings: FederationSettings, log: FederationLog, clock: Callable[[], float]) -> None:
        self._log = log
        self.offers = IssuedOffers(clock)
        self.jobs = FederationJobs()
        self.coallocations = CoAllocations()
        self.bags = Bags()
        self.bookings = FederationBookings()
        self.licences = LicencePools(settings.licences, settings.clusters)
        self.users = ClusterUsers(settings)
        self.changed_owners: dict[str, None] = {}
        """Owners with new user names in their token, until their open questions are repeated."""
        self.number = 0
        """Highest number of a job, co-allocation, bag or booking."""
        self.coallocation_wakeup = threading.Event()
        self.bag_wakeup = threading.Event()
        self.booking_wakeup = threading.Event()
        self._dropped_at = 0
        for event in log.read():
            if isinstance(event, LicenceLeased):
                self.licences.apply(event)
                continue
            if isinstance(event, BagOffered):
                self.offers.add(offer_from_event(event))
                continue
            self.number = max(self.number, int(event.job))
            try:
                self._apply(event)
            except ImpossibleError as error:
                # No action followed from it, because its writer could not apply it either.
                _log.error("the log contains an impossible event, which is ignored", why=str(error))
        self.changed_owners.clear()
        for _ in self.drop_old(int(clock())):
            pass  # no request waits yet

    def commit(self, events: Sequence[FederationEvent]) -> Sequence[FederationEvent]:
        """Append events to the log and apply them. Return the applied events. Raises StoreError if none was
        stored.
        """
        possible = self._applicable(events)
        self._log.append(possible)
        for event in possible:
            self.number = max(self.number, int(event.job))
            self._apply(event)
            _log.info(event.type, job=event.job, attempt=getattr(event, "attempt", None))
        return possible

    def commit_leases(self, events: Sequence[LicenceLeased]) -> None:
        """Append licence leases to the log and apply them. Raises StoreError if none was stored."""
        if events:
            self._log.append(events)
        for event in events:
            self.licences.apply(event)
            _log.info("leased", cluster=event.cluster, licence=event.licence, copies=event.copies)

    def commit_offer(self, offer: BagOffer, now: int) -> None:
        """Store an offer before it is issued. Raises StoreError; the offer must then not be issued."""
        self._log.append([offer.event(now)])
        self.offers.add(offer)
        _log.info("bag_offered", offer=offer.id)

    def drop_old(self, now: int) -> Iterator[None]:
        """Remove old items in small steps, if a removal is due. Each step is one transaction and may raise
        StoreError.
        """
        if not self.is_drop_due(now):
            return
        self._dropped_at = now
        before = now - _KEPT_S
        for names in _slices(self.bags.by_id, _BAG_DROP_BATCH):
            self._forget(self.bags.forget(self.jobs, before, names))
            yield
        for names in _slices(self.coallocations.by_id, _DROP_BATCH):
            self._forget(self.coallocations.forget(before, names))
            yield
        for names in _slices(self.bookings.by_id, _DROP_BATCH):
            self._forget(self.bookings.forget(before, names))
            yield
        for names in _slices(self.jobs.by_id, _DROP_BATCH):
            self._forget(self.jobs.forget(before, names))
            yield
        expired = self.offers.forget_expired(now - _DROP_INTERVAL_S)
        for names in _slices(expired, _DROP_BATCH):
            self._log.delete_events(names)
            yield
        if self.licences.pools:
            self._log.replace_leases(self.licences.lease_events(now))

    def is_drop_due(self, now: int) -> bool:
        """Return whether a removal of old items is due."""
        return now - self._dropped_at >= _DROP_INTERVAL_S

    def _forget(self, old: Sequence[str]) -> None:
        """Delete events of dropped items, except the newest number, which must not be assigned again."""
        gone = [name for name in old if int(name) != self.number]
        if gone:
            self._log.delete_events(gone)

    def _applicable(self, events: Sequence[FederationEvent]) -> list[FederationEvent]:
        """Return the events that can follow the state and each other.

        An impossible event is a defect: it is logged as an error and not stored, because a log with such an
        event could not be replayed. The following events of the same job are left out, too.
        """
        jobs, groups, bags, bookings, bad = (
            FederationJobs(),
            CoAllocations(),
            Bags(),
            FederationBookings(),
            set[str](),
        )
        found: list[FederationEvent] = []
        for event in events:
            tried: FederationJobs | CoAllocations | Bags | FederationBookings = jobs
            known: FederationJobs | CoAllocations | Bags | FederationBookings = self.jobs
            if isinstance(event, CoAllocationEvent):
                tried, known = groups, self.coallocations
            elif isinstance(event, BagEvent):
                tried, known = bags, self.bags
            elif isinstance(event, BookingEvent):
                tried, known = bookings, self.bookings
            if event.job in bad:
                continue
            if event.job in known.by_id:
                tried.by_id.setdefault(event.job, known.by_id[event.job])  # type: ignore[arg-type]
            try:
                tried.apply(event)  # type: ignore[arg-type]
            except ImpossibleError as error:
                bad.add(event.job)
                _log.error("an impossible event was left out", what=event.type, job=event.job, why=str(error))
            else:
                found.append(event)
        return found

    def _apply(self, event: FederationEvent) -> None:
        if isinstance(event, JobSubmitted):
            self._claim(event.owner, event.submission)
        elif isinstance(event, CoAllocationSubmitted):
            self._claim(event.owner, event.parts[0]["submission"])
        elif isinstance(event, BagSubmitted):
            self._claim(event.owner, event.submission)
            if event.offer:
                self.offers.mark_accepted(event.offer, event.job)
        elif isinstance(event, BookingRequested):
            self._claim(event.owner, {"users": event.users} if event.users is not None else {})
        if isinstance(event, CoAllocationEvent):
            self.coallocations.apply(event)
            self.coallocation_wakeup.set()
            return
        if isinstance(event, BookingEvent):
            self.bookings.apply(event)
            self.booking_wakeup.set()
            return
        if isinstance(event, BagEvent):
            self.bags.apply(event)
        else:
            self.jobs.apply(event)
            job = self.jobs[event.job]
            if isinstance(event, JobSubmitted) and job.bag:
                self.bags.add_share(job)
            if not job.bag:
                return
        self.bag_wakeup.set()

    def _claim(self, owner: str, submission: Mapping[str, Any]) -> None:
        """Store the user names of a submission's ID token, if it has any."""
        if "users" in submission and self.users.update_claim(owner, submission["users"]):
            self.changed_owners[owner] = None


def _slices(names: Iterable[str], size: int) -> Iterator[list[str]]:
    """Return a snapshot of the names in batches."""
    known = list(names)
    return (known[first : first + size] for first in range(0, len(known), size))
