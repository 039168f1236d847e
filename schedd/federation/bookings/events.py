"""Events of bookings in the federation's log. ``job`` is the number of the booking; jobs and bookings share
one sequence of numbers.

A booking has *attempts*: each is a booking at one cluster in the user's name, which expires there unless it
is confirmed. Invariant: at most one attempt is *booked* and not known to be withdrawn. The event
BookingPlaced is the decision, and only a placed attempt is ever confirmed.
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
    "BookingRequested",
    "BookingUpdated",
    "BookingWithdrawalRequested",
    "BookingWithdrawn",
    "StartMove",
]

StartMove = tuple[int, int | None, int]
"""(time, previous start or None, new start)."""


@dataclass(frozen=True, slots=True)
class AlternativeStart:
    """A period that a cluster offers in place of the requested one."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingRequested:
    """``owner`` (``user@realm``) requests ``resources`` for ``duration`` seconds between ``ready`` and
    ``deadline``, under this ``name``.

    The start may move within that window until ``freeze`` percent of the wait have passed. ``clusters``
    restricts the booking to these clusters. ``users`` are the user names by cluster from the owner's ID
    token.
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
    """The booking is requested at ``cluster`` in the name of ``user``; it expires there at ``until`` unless
    confirmed.

    ``expected`` is the start that the cluster's plan offered, or None if it had none in the window.
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
    """The cluster has reserved the cores from ``start`` on, until the booking is confirmed or expires. This
    attempt is now in force.

    ``plan`` is the last known version of the cluster's plan.
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
    """The booking is confirmed and does not expire any more."""

    job: str
    time: int
    attempt: int
    type: Literal["booking_confirmed"] = "booking_confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingDeclined:
    """The cluster declined the booking; ``options`` are its alternatives."""

    job: str
    time: int
    attempt: int
    text: str
    options: tuple[AlternativeStart, ...] = ()
    type: Literal["booking_declined"] = "booking_declined"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingWithdrawalRequested:
    """The attempt is to be withdrawn."""

    job: str
    time: int
    attempt: int
    why: str
    type: Literal["booking_withdrawal_requested"] = "booking_withdrawal_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingWithdrawn:
    """The attempt is withdrawn."""

    job: str
    time: int
    attempt: int
    type: Literal["booking_withdrawn"] = "booking_withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingUpdated:
    """The cluster reported a new ``phase``, ``start``, freeze time (``freezes``) or new ``moves``."""

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
    """The booking's period is over (``ended``), it was cancelled at the cluster (``cancelled``), or the
    cluster does not know it any more (``lost``).
    """

    job: str
    time: int
    attempt: int
    how: Literal["ended", "cancelled", "lost"]
    text: str = ""
    type: Literal["booking_ended"] = "booking_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingRefused:
    """No cluster has room. The owner may accept an alternative."""

    job: str
    time: int
    text: str
    type: Literal["booking_refused"] = "booking_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingAccepted:
    """The owner accepted an alternative: the booking starts at ``start`` at ``cluster``."""

    job: str
    time: int
    by: str
    cluster: str
    start: int
    type: Literal["booking_accepted"] = "booking_accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingFrozen:
    """The booking is to keep its planned start."""

    job: str
    time: int
    by: str
    type: Literal["booking_frozen"] = "booking_frozen"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingCancelled:
    """The owner or an admin (``by``) cancelled the booking; its attempts are to be withdrawn."""

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
    BookingRequested
    | BookingAttempted
    | BookingAttemptEvent
    | BookingRefused
    | BookingAccepted
    | BookingFrozen
    | BookingCancelled
)
