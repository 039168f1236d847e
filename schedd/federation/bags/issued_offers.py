"""Issued offers for bags. An owner may accept an offer once, before it expires."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from schedd.federation.bags.offers import ClusterOffer, TaskSplit
from schedd.federation.events import BagOffered, BagSpecification

_MOST: Final = 10_000  # maximum number of stored offers; the oldest are dropped


@dataclass(frozen=True, slots=True)
class BagOffer:
    """An issued offer: the split of the clusters' offers, based on these plan versions, valid until it
    expires.

    ``ends`` is the end of the share by cluster. ``offers``, ``whys`` (reasons for no offer by cluster) and
    ``wished`` (clusters that accept no deadline) are only for the reply and are not in the log.
    """

    id: str
    owner: str
    asked: BagSpecification
    split: TaskSplit | None
    ends: Mapping[str, int]
    plans: Mapping[str, int]
    expires: int
    offers: Sequence[ClusterOffer] = ()
    whys: Mapping[str, str] | None = None
    wished: Collection[str] = ()

    def event(self, now: int) -> BagOffered:
        """Return the log event, with the fields needed to accept the offer."""
        shares = self.split.shares if self.split is not None else None
        return BagOffered(
            job=self.id,
            time=now,
            owner=self.owner,
            asked=self.asked,
            expires=self.expires,
            shares=shares,
            end=self.split.end if self.split is not None else 0,
            met=self.split is not None and self.split.met,
            ends=self.ends,
            plans={name: plan for name, plan in self.plans.items() if name in (shares or ())},
        )


def offer_from_event(event: BagOffered) -> BagOffer:
    split = TaskSplit(event.shares, event.end, event.met) if event.shares is not None else None
    return BagOffer(event.job, event.owner, event.asked, split, event.ends, event.plans, event.expires)


class IssuedOffers:
    """Issued offers of one federation. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._find: dict[str, BagOffer] = {}
        self._bags: dict[str, str] = {}  # bag number by accepted offer
        self._dropped: list[str] = []  # offers dropped for newer ones since the last `forget_expired`
        self._lock = threading.Lock()

    def add(self, offer: BagOffer) -> None:
        with self._lock:
            self._find[offer.id] = offer
            while len(self._find) > _MOST:
                self._dropped.append(next(iter(self._find)))
                self._drop(self._dropped[-1])

    def find(self, name: str, owner: str) -> BagOffer:
        """Return the owner's offer of this name. Raises LookupError with the reason if it has none."""
        with self._lock:
            found, bag = self._find.get(name), self._bags.get(name)
        if found is None or found.owner != owner:
            raise LookupError(f"{owner} has no offer {name}: it never existed, or expired long ago")
        if bag is not None:
            raise LookupError(f"offer {name} was already accepted, as bag {bag}")
        if self._clock() >= found.expires:
            raise LookupError(f"offer {name} has expired")
        return found

    def mark_accepted(self, name: str, bag: str) -> None:
        """Store that the offer became this bag."""
        with self._lock:
            if name in self._find:
                self._bags[name] = bag

    def forget_expired(self, before: float) -> list[str]:
        """Drop offers that expired before. Return the names of all dropped since the last call."""
        with self._lock:
            gone = [name for name, one in self._find.items() if one.expires < before]
            for name in gone:
                self._drop(name)
            dropped, self._dropped = self._dropped, []
        return dropped + gone

    def _drop(self, name: str) -> None:
        del self._find[name]
        self._bags.pop(name, None)
