"""Items of a federation: the state and the collection that jobs, co-allocations, bags and bookings share.

An item is a pure fold over its events.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeVar

from schedd.federation.events import (
    AttemptEvent,
    AttemptHeld,
    AttemptRefused,
    FederationEvent,
    SubmissionEvent,
    WithdrawalFailed,
    WithdrawalRequested,
)

AttemptPhase = Literal[
    "submitting",
    "held",
    "releasing",
    "released",
    "started",
    "booked",
    "confirmed",
    "withdrawing",
    "withdrawn",
    "refused",
    "ended",
]
FINAL_PHASES: Final = ("withdrawn", "refused", "ended")
"""Phases of an attempt without a further request to its cluster."""
ItemOutcome = Literal["", "ended", "deleted", "cancelled", "lost", "refused", "failed"]
Transitions = Mapping[type[AttemptEvent], tuple[tuple[AttemptPhase, ...], AttemptPhase | None]]
"""By event of an attempt: the phases that allow it, and the next phase; None if the phase stays."""
_AttemptT = TypeVar("_AttemptT", bound="Attempt")
_ItemT = TypeVar("_ItemT", bound="FederationItem[Any]")


class ImpossibleError(Exception):
    """An event that cannot follow the state: a defect, or a foreign log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A request to one cluster in the name of ``user``. ``since`` is the time of its current phase, ``why``
    the reason for the choice of the cluster, ``text`` that of the phase.
    """

    number: int
    cluster: str
    user: str
    phase: AttemptPhase = "submitting"
    since: int
    why: str = ""
    text: str = ""

    @property
    def final(self) -> bool:
        """Whether no request to the cluster follows."""
        return self.phase in FINAL_PHASES

    @property
    def live(self) -> bool:
        return self.phase not in FINAL_PHASES and self.phase != "withdrawing"


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationItem(ABC, Generic[_AttemptT]):
    """State of one item. Times are seconds since the epoch.

    ``clusters`` restricts it to these clusters. ``key`` is unique for each owner. ``over`` is its outcome at
    ``over_at``, ``text`` the reason.
    """

    id: str
    owner: str
    submitted: int
    clusters: tuple[str, ...] = ()
    key: str = ""
    attempts: tuple[_AttemptT, ...] = ()
    cancelled: bool = False
    over: ItemOutcome = ""
    over_at: int = 0
    text: str = ""

    transitions: ClassVar[Transitions] = {}

    @classmethod
    @abstractmethod
    def create(cls, event: Any) -> Self:
        """Return the new item of a submission."""

    @abstractmethod
    def apply(self, event: FederationEvent) -> Self:
        """Return the item after the event. Raises ImpossibleError if the event cannot follow."""

    @property
    def settled(self) -> bool:
        """Whether the item is over and no request to a cluster is pending."""
        return bool(self.over) and all(one.final for one in self.attempts)

    def require(self, possible: bool, event: FederationEvent) -> None:
        """Raise ImpossibleError unless the event is ``possible``."""
        if not possible:
            raise ImpossibleError(f"{self.id}: {event.type} is impossible in this state")

    def advance_attempt(self, event: AttemptEvent, **changes: Any) -> Self:
        """Return the item with the event's attempt in its next phase, and with ``changes`` to the attempt.

        Raises ImpossibleError if the event cannot come in the attempt's phase.
        """
        if not 0 < event.attempt <= len(self.attempts):
            raise ImpossibleError(f"{self.id} has no attempt {event.attempt}")
        attempt = self.attempts[event.attempt - 1]
        allowed, phase = self.transitions.get(type(event), ((), None))
        if attempt.phase not in allowed:
            raise ImpossibleError(f"{self.id}: {event.type} of attempt {attempt.number}, {attempt.phase}")
        match event:
            case AttemptHeld():
                changes = {"server_job": event.server_job, **changes}
            case AttemptRefused() | WithdrawalFailed():
                changes = {"text": event.text, **changes}
            case WithdrawalRequested():
                changes = {"text": event.why, **changes}
        if phase is not None:
            changes = {"phase": phase, "since": event.time, **changes}
        attempt = replace(attempt, **changes)
        attempts = (*self.attempts[: event.attempt - 1], attempt, *self.attempts[event.attempt :])
        return replace(self, attempts=attempts)

    def withdraw_attempts(self, time: int, why: str) -> Self:
        """Return the item with all live attempts to be withdrawn."""
        attempts = tuple(
            replace(one, phase="withdrawing", since=time, text=why) if one.live else one
            for one in self.attempts
        )
        return replace(self, attempts=attempts)


class Items(Generic[_ItemT]):
    """All items of one kind, built from events."""

    kind: type[_ItemT]

    def __init__(self) -> None:
        self.by_id: dict[str, _ItemT] = {}
        self.by_key: dict[tuple[str, str], str] = {}  # number of the newest item by (owner, key)
        self.open: dict[str, None] = {}  # items that are not settled, oldest first

    def __getitem__(self, name: str) -> _ItemT:
        return self.by_id[name]

    def by_owner_key(self, owner: str, key: str) -> _ItemT | None:
        """Return the owner's newest item with this key; None for an empty key."""
        name = self.by_key.get((owner, key)) if key else None
        return self.by_id.get(name) if name is not None else None

    def state_after(self, event: FederationEvent, before: _ItemT | None) -> _ItemT:
        """Return the item after the event; nothing is changed. Raises ImpossibleError."""
        if isinstance(event, SubmissionEvent):
            if before is not None:
                raise ImpossibleError(f"{event.job} came twice")
            return self.kind.create(event)
        if before is None:
            raise ImpossibleError(f"there is no {event.job}")
        return before.apply(event)

    def check(self, event: FederationEvent) -> None:
        """Raise ImpossibleError if the event cannot follow the state."""
        self.state_after(event, self.by_id.get(event.job))

    def apply(self, event: FederationEvent) -> None:
        """Apply one event. Raises ImpossibleError."""
        self.store(self.state_after(event, self.by_id.get(event.job)))

    def store(self, item: _ItemT) -> None:
        if item.id not in self.by_id and item.key:
            self.by_key[item.owner, item.key] = item.id
        self.by_id[item.id] = item
        if self.is_settled(item):
            self.open.pop(item.id, None)
        else:
            self.open[item.id] = None

    def is_settled(self, item: _ItemT) -> bool:
        """Return whether the item is over and no request to a cluster is pending."""
        return item.settled

    def is_old(self, item: _ItemT, before: int) -> bool:
        """Return whether the item is settled and ended before that time."""
        return item.settled and item.over_at < before

    def forget(self, before: int, among: Iterable[str]) -> tuple[str, ...]:
        """Drop settled items in ``among`` that ended before. Return the numbers of the dropped."""
        known = (self.by_id[name] for name in among if name in self.by_id)
        gone = tuple(item.id for item in known if self.is_old(item, before))
        self.drop(gone)
        return gone

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            item = self.by_id.pop(name, None)
            if item is not None:
                self.open.pop(name, None)
                if self.by_key.get((item.owner, item.key)) == name:
                    del self.by_key[item.owner, item.key]
