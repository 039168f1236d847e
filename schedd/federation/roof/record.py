"""What the log holds, applied: jobs, groups, bags, bookings, licences.

Nothing is applied before it is durable.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import structlog

from schedd.federation.bags.bag import Bags
from schedd.federation.bags.events import BagEvent, BagOffered, BagSubmitted
from schedd.federation.bags.told import BagOffer, Told, offer_of
from schedd.federation.bookings.booking import Bookings
from schedd.federation.bookings.events import BookingEvent, BookingTerms
from schedd.federation.events import Event
from schedd.federation.groups.events import GroupEvent, GroupSubmitted
from schedd.federation.groups.group import Groups
from schedd.federation.licences import Leased, Licences
from schedd.federation.log import Log
from schedd.federation.routing.events import Submitted
from schedd.federation.routing.jobs import ImpossibleError, Jobs
from schedd.federation.settings import Settings
from schedd.federation.users import Users

__all__ = ["Record"]

_log = structlog.get_logger(__name__)
_KEPT_S: Final = 7 * 86_400
"""For how long what became of a job can be asked after."""
_SWEEP_S: Final = 3_600
"""How often those that are older are dropped."""
_AT_ONCE: Final = 250
"""So many jobs, groups or offers are looked at in one step of that."""
_BAGS_AT_ONCE: Final = 10
"""So many bags, each with its shares."""


class Record:
    """Of one federation; read from its log first. Used by one thread at a time."""

    def __init__(self, settings: Settings, log: Log, clock: Callable[[], float]) -> None:
        self._log = log
        self.offers = Told(clock)
        self.jobs = Jobs()
        self.groups = Groups()
        self.bags = Bags()
        self.bookings = Bookings()
        self.licences = Licences(settings.licences, settings.clusters)
        self.users = Users(settings)
        self.renamed: dict[str, None] = {}
        """Owners whose token named other users than before, until somebody has looked."""
        self.number = 0
        """The last that was given to a job, a group, a bag or a booking."""
        self.group_bell = threading.Event()
        self.bag_bell = threading.Event()
        self.booking_bell = threading.Event()
        self._swept = 0
        for event in log.read():
            if isinstance(event, Leased):
                self.licences.apply(event)
                continue
            if isinstance(event, BagOffered):
                self.offers.keep(offer_of(event))
                continue
            self.number = max(self.number, int(event.job))
            try:
                self._apply(event)
            except ImpossibleError as error:
                # Nothing was ever done upon it: whoever wrote it could not apply it, either.
                _log.error("the log holds what cannot have been; it is passed over", why=str(error))
        self.renamed.clear()
        for _ in self.sweep(int(clock())):
            pass  # nobody waits yet

    def take(self, events: Sequence[Event]) -> Sequence[Event]:
        """Keeps events and applies them; returns those that could be. Raises StoreError: none is kept."""
        possible = self._possible(events)
        self._log.append(possible)
        for event in possible:
            self.number = max(self.number, int(event.job))
            self._apply(event)
            _log.info(event.type, job=event.job, attempt=getattr(event, "attempt", None))
        return possible

    def lease(self, events: Sequence[Leased]) -> None:
        """Keeps leases of licences and applies them. Raises StoreError: none is kept."""
        if events:
            self._log.append(events)
        for event in events:
            self.licences.apply(event)
            _log.info("leased", cluster=event.cluster, licence=event.licence, copies=event.copies)

    def offer(self, offer: BagOffer, now: int) -> None:
        """Keeps an offer that is to be told. Raises StoreError: it is not kept, and not to be told."""
        self._log.append([offer.event(now)])
        self.offers.keep(offer)
        _log.info("bag_offered", offer=offer.id)

    def sweep(self, now: int) -> Iterator[None]:
        """Drops now and then what nobody asks after any more, a little in each step; what a step drops goes
        from the log in one transaction. Steps raise StoreError.
        """
        if not self.sweep_due(now):
            return
        self._swept = now
        before = now - _KEPT_S
        for names in _slices(self.bags.by_id, _BAGS_AT_ONCE):
            self._forget(self.bags.forget(self.jobs, before, names))
            yield
        for names in _slices(self.groups.by_id, _AT_ONCE):
            self._forget(self.groups.forget(before, names))
            yield
        for names in _slices(self.bookings.by_id, _AT_ONCE):
            self._forget(self.bookings.forget(before, names))
            yield
        for names in _slices(self.jobs.by_id, _AT_ONCE):
            self._forget(self.jobs.forget(before, names))
            yield
        expired = self.offers.forget(now - _SWEEP_S)
        for names in _slices(expired, _AT_ONCE):
            self._log.forget(names)
            yield
        if self.licences.pools:
            self._log.lease_anew(self.licences.events(now))

    def sweep_due(self, now: int) -> bool:
        """Whether it is time to drop what is old."""
        return now - self._swept >= _SWEEP_S

    def _forget(self, old: Sequence[str]) -> None:
        """The newest stays in the log: its number is not to be given again."""
        gone = [name for name in old if int(name) != self.number]
        if gone:
            self._log.forget(gone)

    def _possible(self, events: Sequence[Event]) -> list[Event]:
        """Those that can follow what was and one another. Others are a defect: they are said loudly and kept
        nowhere, since a log that holds one could not be followed again. It concerns that job alone.
        """
        jobs, groups, bags, bookings, bad = Jobs(), Groups(), Bags(), Bookings(), set[str]()
        found: list[Event] = []
        for event in events:
            tried: Jobs | Groups | Bags | Bookings = jobs
            known: Jobs | Groups | Bags | Bookings = self.jobs
            if isinstance(event, GroupEvent):
                tried, known = groups, self.groups
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
                _log.error("cannot be, and is left out", what=event.type, job=event.job, why=str(error))
            else:
                found.append(event)
        return found

    def _apply(self, event: Event) -> None:
        if isinstance(event, Submitted):
            self._claim(event.owner, event.submission)
        elif isinstance(event, GroupSubmitted):
            self._claim(event.owner, event.parts[0]["submission"])
        elif isinstance(event, BagSubmitted):
            self._claim(event.owner, event.submission)
            if event.offer:
                self.offers.taken(event.offer, event.job)
        elif isinstance(event, BookingTerms):
            self._claim(event.owner, {"users": event.users} if event.users is not None else {})
        if isinstance(event, GroupEvent):
            self.groups.apply(event)
            self.group_bell.set()
            return
        if isinstance(event, BookingEvent):
            self.bookings.apply(event)
            self.booking_bell.set()
            return
        if isinstance(event, BagEvent):
            self.bags.apply(event)
        else:
            self.jobs.apply(event)
            job = self.jobs[event.job]
            if isinstance(event, Submitted) and job.bag:
                self.bags.add_share(job)
            if not job.bag:
                return
        self.bag_bell.set()

    def _claim(self, owner: str, submission: Mapping[str, Any]) -> None:
        """Follow what the token said that came with a submission, if one did."""
        if "users" in submission and self.users.claim(owner, submission["users"]):
            self.renamed[owner] = None


def _slices(names: Iterable[str], size: int) -> Iterator[list[str]]:
    """The names as they are now, so many at a time."""
    known = list(names)
    return (known[first : first + size] for first in range(0, len(known), size))
