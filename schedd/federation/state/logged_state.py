"""State of the event log: jobs, co-allocations, bags, bookings, licences; committed, then applied."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import structlog

from schedd.federation.bags.bags import Bags
from schedd.federation.bags.issued_offers import BagOffer, IssuedOffers, offer_from_event
from schedd.federation.bookings.bookings import FederationBookings
from schedd.federation.cluster_users import ClusterUsers
from schedd.federation.coallocation.coallocations import CoAllocations
from schedd.federation.event_log import FederationLog
from schedd.federation.events import (
    BagOffered,
    BagSubmitted,
    BookingSubmitted,
    CoAllocationSubmitted,
    FederationEvent,
    JobSubmitted,
    LicenceLeased,
    SubmissionEvent,
)
from schedd.federation.items import FederationItem, ImpossibleError, Items
from schedd.federation.licences import LicencePools
from schedd.federation.routing.jobs import FederationJob, FederationJobs
from schedd.federation.settings import FederationSettings

_log = structlog.get_logger(__name__)
_KEPT_S: Final = 7 * 86_400  # settled items remain available for this long
_DROP_INTERVAL_S: Final = 3_600  # interval between removals of old items
_DROP_BATCH: Final = 250  # jobs, co-allocations or offers in one removal step
_BAG_DROP_BATCH: Final = 10  # bags, with their shares, in one removal step


class LoggedState:
    """Logged state of one federation, read from the log at construction. Not thread-safe."""

    def __init__(self, settings: FederationSettings, log: FederationLog, clock: Callable[[], float]) -> None:
        self._log = log
        self.offers = IssuedOffers(clock)
        self.jobs = FederationJobs()
        self.coallocations = CoAllocations()
        self.bags = Bags(self.jobs)
        self.bookings = FederationBookings()
        self._kinds: Mapping[type[SubmissionEvent], Items[Any]] = {
            JobSubmitted: self.jobs,
            CoAllocationSubmitted: self.coallocations,
            BagSubmitted: self.bags,
            BookingSubmitted: self.bookings,
        }
        self.licences = LicencePools(settings.licences, settings.clusters)
        self.users = ClusterUsers(settings)
        self.changed_owners: dict[str, None] = {}
        """Owners with new user names in their token, until their open questions are repeated."""
        self.number = 0  # highest number of a job, co-allocation, bag or booking
        self.coallocation_wakeup = threading.Event()
        self.bag_wakeup = threading.Event()
        self.booking_wakeup = threading.Event()
        self._wakeups: Mapping[Items[Any], threading.Event] = {
            self.coallocations: self.coallocation_wakeup,
            self.bags: self.bag_wakeup,
            self.bookings: self.booking_wakeup,
        }
        self._dropped_at = 0
        for event in log.read():
            if isinstance(event, LicenceLeased):
                self.licences.apply(event)
                continue
            if isinstance(event, BagOffered):
                self.offers.add(offer_from_event(event))
                continue
            assert isinstance(event, FederationEvent)
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
        """Append events to the log and apply them; return these. Raises StoreError if none was stored."""
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

    def skip_numbers(self, last: int) -> None:
        """Give new items numbers above ``last``, which a cluster knows. Only a log that lost its end does not
        know it, as after the restore of a backup.
        """
        if last > self.number:
            _log.error("the log lost items whose transfers a cluster has", newest=self.number, known=last)
            self.number = last

    def drop_old(self, now: int) -> Iterator[None]:
        """Remove old items in steps of one transaction, if a removal is due. Raises StoreError."""
        if not self.is_drop_due(now):
            return
        self._dropped_at = now
        before = now - _KEPT_S
        # Bags come before jobs, because shares are dropped with their bags.
        for items in (self.bags, self.coallocations, self.bookings, self.jobs):
            size = _BAG_DROP_BATCH if items is self.bags else _DROP_BATCH
            for names in _slices(items.by_id, size):
                self._forget(items.forget(before, names))
                yield
        expired = self.offers.forget_expired(now - _DROP_INTERVAL_S)
        for names in _slices(expired, _DROP_BATCH):
            self._log.delete_events(names)
            yield
        if self.licences.pools:
            self._log.replace_leases(self.licences.lease_events(now))
        self._log.delete_audit_entries(now)

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
        found: list[FederationEvent] = []
        trial: dict[str, tuple[Items[Any], FederationItem[Any]]] = {}
        bad: set[str] = set()
        for event in events:
            if event.job in bad:
                continue
            try:
                items, before = trial.get(event.job) or self._find(event)
                trial[event.job] = items, items.state_after(event, before)
            except ImpossibleError as error:
                bad.add(event.job)
                _log.error("an impossible event was left out", what=event.type, job=event.job, why=str(error))
            else:
                found.append(event)
        return found

    def _find(self, event: FederationEvent) -> tuple[Items[Any], FederationItem[Any] | None]:
        """Return the event's item and its collection. Raises ImpossibleError."""
        if isinstance(event, SubmissionEvent):
            items = self._kinds[type(event)]
            return items, items.by_id.get(event.job)
        for items in self._kinds.values():
            if event.job in items.by_id:
                return items, items[event.job]
        raise ImpossibleError(f"there is no {event.job}")

    def _apply(self, event: FederationEvent) -> None:
        items, before = self._find(event)
        item = items.state_after(event, before)
        if isinstance(event, SubmissionEvent):
            self._claim_users(event)
            if isinstance(event, BagSubmitted) and event.offer:
                self.offers.mark_accepted(event.offer, event.job)
        items.store(item)
        if isinstance(item, FederationJob) and item.bag:
            if isinstance(event, JobSubmitted):
                self.bags.add_share(item)
            items = self.bags
        if items in self._wakeups:
            self._wakeups[items].set()

    def _claim_users(self, event: SubmissionEvent) -> None:
        """Store the user names of a submission's ID token, if it has any."""
        match event:
            case BookingSubmitted():
                users = event.users
            case CoAllocationSubmitted():
                users = event.components[0]["submission"].get("users")
            case JobSubmitted() | BagSubmitted():
                users = event.submission.get("users")
            case _:
                users = None
        if users is not None and self.users.update_claim(event.owner, users):
            self.changed_owners[event.owner] = None


def _slices(names: Iterable[str], size: int) -> Iterator[list[str]]:
    """Return a snapshot of the names in batches."""
    known = list(names)
    return (known[first : first + size] for first in range(0, len(known), size))
