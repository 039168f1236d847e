"""Offers for bags that were told to somebody: each may be taken once, by him, before it expires."""

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from schedd.federation.bags.offers import Offered, Split

__all__ = ["BagAsked", "BagOffer", "Told"]

_MOST: Final = 10_000
"""Offers that are remembered; then the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class BagAsked:
    """A bag as it is asked for. ``resources`` and ``walltime`` (seconds) are one task's; with ``clusters``
    it may go to these alone.
    """

    resources: Mapping[str, str]
    walltime: int
    cpu_seconds: int
    tasks: int
    deadline: int
    clusters: tuple[str, ...] = ()
    queues: Mapping[str, str] = field(default_factory=dict)
    balance: str = "none"


@dataclass(frozen=True, slots=True)
class BagOffer:
    """What was told: the clusters' offers and the split, by the plans of these versions, until it expires."""

    id: str
    owner: str
    asked: BagAsked
    offers: Sequence[Offered]
    split: Split | None
    plans: Mapping[str, int]
    whys: Mapping[str, str]
    """By cluster: why it offers nothing."""
    expires: int


class Told:
    """The offers of one federation. Thread-safe; what was told before a restart is not known any more."""

    def __init__(self, expiry: int, clock: Callable[[], float]) -> None:
        self._expiry = expiry
        self._clock = clock
        self._known: dict[str, BagOffer] = {}
        self._lock = threading.Lock()

    def tell(self, owner: str, asked: BagAsked, **found: Any) -> BagOffer:
        """A new offer: ``offers``, ``split``, ``plans`` and ``whys``."""
        made = BagOffer(
            id=secrets.token_hex(8),
            owner=owner,
            asked=asked,
            expires=int(self._clock()) + self._expiry,
            **found,
        )
        with self._lock:
            self._known[made.id] = made
            while len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        return made

    def find(self, name: str, owner: str) -> BagOffer:
        """The owner's offer of this name. Raises LookupError: why it cannot be taken."""
        with self._lock:
            found = self._known.get(name)
        if found is None or found.owner != owner:
            raise LookupError(
                f"there is no offer {name} of {owner}: it was taken, or the federation began anew"
            )
        if self._clock() >= found.expires:
            raise LookupError(f"offer {name} has expired")
        return found

    def taken(self, name: str) -> None:
        """It is a bag now."""
        with self._lock:
            self._known.pop(name, None)
