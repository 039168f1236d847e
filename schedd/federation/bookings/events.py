"""What the log holds of bookings. ``job`` is the booking's number; numbers are those of jobs, too.

A booking has *attempts*: each a booking at one cluster, made there in its user's name and given up by that
cluster unless it is confirmed. At most one attempt of a booking is *taken* and not known to be given back:
that row of the log decides, and only such a one is ever confirmed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "AlternativeStart",
    "BookingAccepted",
    "BookingAttemptEvent",
    "BookingAttempted",
    "BookingCancelled",
    "BookingConfirmed",
    "BookingDeclined",
    "BookingEnded",
    "BookingEvent",
    "BookingFrozen",
    "BookingPlaced",
    "BookingRefused",
    "BookingTerms",
    "BookingUpdated",
    "BookingWithdrawalRequested",
    "BookingWithdrawn",
    "StartMove",
]

StartMove = tuple[int, int | None, int]
"""When, the start before (None: there was none), the start after."""


@dataclass(frozen=True, slots=True)
class AlternativeStart:
    """A place that a cluster offers instead of what was asked for."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingTerms:
    """``owner`` (``user@realm``) wants what ``resources`` ask for, for ``duration`` seconds that begin at
    ``ready`` or later and are over by ``deadline``, under this ``name``.

    It may be moved within that window until ``freeze`` percent of its wait are over. With ``clusters`` it may
    be booked at these alone. ``users`` is what the owner's ID token said, by cluster.
    """

    job: str
    time: int
    owner: str
    name: str
    resources: Mapping[str, str]
    duration: int
    ready: int
    deadline: int
    freeze: int = 50
    account: str = ""
    clusters: tuple[str, ...] = ()
    users: Mapping[str, str] | None = None
    type: Literal["booking_requested"] = "booking_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingAttempted:
    """It is to be booked at ``cluster``, as ``user`` there, which gives it up at ``until`` unless it is
    confirmed. ``expected``: the start that its plan named before; None: it named none within the window.
    """

    job: str
    time: int
    attempt: int
    cluster: str
    user: str
    until: int
    expected: int | None
    why: str
    type: Literal["booking_attempted"] = "booking_attempted"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingPlaced:
    """The cluster keeps cores for it from ``start`` on, until it is confirmed or its time is over: this is
    the place that counts from now on. ``plan`` is the plan's version that was seen last.
    """

    job: str
    time: int
    attempt: int
    start: int
    cpus: int
    plan: int
    type: Literal["booking_placed"] = "booking_placed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingConfirmed:
    """The cluster does not give it up by itself any more."""

    job: str
    time: int
    attempt: int
    type: Literal["booking_confirmed"] = "booking_confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingDeclined:
    """The cluster does not book it; ``options`` are what it offers instead."""

    job: str
    time: int
    attempt: int
    text: str
    options: tuple[AlternativeStart, ...] = ()
    type: Literal["booking_declined"] = "booking_declined"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingWithdrawalRequested:
    """It is not wanted there any more: it is to be given back."""

    job: str
    time: int
    attempt: int
    why: str
    type: Literal["booking_withdrawal_requested"] = "booking_withdrawal_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingWithdrawn:
    """The cluster keeps nothing for it."""

    job: str
    time: int
    attempt: int
    type: Literal["booking_withdrawn"] = "booking_withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingUpdated:
    """What the cluster says of it that is new: ``phase``, ``start``, from when on it is not moved, and the
    latest moves.
    """

    job: str
    time: int
    attempt: int
    phase: Literal["flexible", "frozen", "open"]
    start: int
    freezes: int | None
    moves: tuple[StartMove, ...]
    type: Literal["booking_updated"] = "booking_updated"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingEnded:
    """Its time is over (``ended``), somebody gave it back there (``cancelled``), or the cluster does not know
    it any more (``lost``).
    """

    job: str
    time: int
    attempt: int
    how: Literal["ended", "cancelled", "lost"]
    text: str = ""
    type: Literal["booking_ended"] = "booking_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingRefused:
    """No cluster has room for it; an option may yet be accepted."""

    job: str
    time: int
    text: str
    type: Literal["booking_refused"] = "booking_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingAccepted:
    """Instead of what was asked for it is to begin at ``start`` at ``cluster``."""

    job: str
    time: int
    by: str
    cluster: str
    start: int
    type: Literal["booking_accepted"] = "booking_accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingFrozen:
    """It is to stay where it is planned."""

    job: str
    time: int
    by: str
    type: Literal["booking_frozen"] = "booking_frozen"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingCancelled:
    """Its owner does not want it any more: what is booked is to be given back."""

    job: str
    time: int
    by: str
    type: Literal["booking_cancelled"] = "booking_cancelled"


BookingAttemptEvent = (
    BookingPlaced
    | BookingConfirmed
    | BookingDeclined
    | BookingWithdrawalRequested
    | BookingWithdrawn
    | BookingUpdated
    | BookingEnded
)
BookingEvent = (
    BookingTerms
    | BookingAttempted
    | BookingAttemptEvent
    | BookingRefused
    | BookingAccepted
    | BookingFrozen
    | BookingCancelled
)
