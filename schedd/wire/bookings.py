"""Events of bookings: cores for a period within a window."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Act = Literal["accept", "freeze", "confirm", "arm", "keep", "cancel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """``owner`` books ``resources`` (as for ``qsub -l``) for ``duration`` seconds between ``ready`` and
    ``deadline``.

    The start may move within that window until ``freeze`` percent of the wait have passed. An unconfirmed
    booking expires at ``until``. ``transfer`` is the federation's job for which the booking is made: with a
    ``guard`` the job is deleted this many seconds after its start unless it is confirmed, with ``late`` it
    starts at most this long after ``ready`` or is deleted, and with ``arming`` it starts only once the
    booking is armed, when all components of its co-allocation may start. The booking ``instead`` counts as
    free for this one, until one of the two is cancelled.
    """

    id: str
    time: int
    name: str
    owner: str
    resources: Mapping[str, str] = field(default_factory=dict)
    duration: int
    ready: int
    deadline: int
    freeze: int = 50
    account: str = ""
    group: str = ""
    by: str = ""
    until: int | None = None
    transfer: str = ""
    guard: int = 0
    late: int = 0
    arming: bool = False
    instead: str = ""
    type: Literal["book"] = "book"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingStep:
    """An action on a booking; ``option``: accepted alternative from 1 on, ``by``: the user."""

    id: str
    time: int
    name: str
    act: Act
    option: int = 0
    by: str = ""
    type: Literal["booking_step"] = "booking_step"
