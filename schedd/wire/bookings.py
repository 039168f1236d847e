"""Events of bookings: cores that somebody wants for a time, at some moment within a window."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Act", "Book", "BookingStep"]

Act = Literal["accept", "freeze", "confirm", "arm", "keep", "cancel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """``owner`` wants what ``resources`` (as for ``qsub -l``) ask for, for ``duration`` seconds that begin at
    ``ready`` or later and are over by ``deadline``.

    It may be moved within that window until ``freeze`` percent of the wait are over. With ``until`` it is
    given up at that moment unless it was confirmed. ``transfer`` is the job of a federation that it is for:
    with a ``guard`` that job is deleted so many seconds after its start unless somebody says to keep it, and
    with ``late`` it starts no more than so many seconds after ``ready``, or is deleted. With ``arming`` it
    starts only once the booking was armed: all parts of its group may start then.
    What the booking ``instead`` of which it is made has counts as free for it, until one of the two is given
    back.
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
    """Something is done with a booking. ``option`` is the number of the counter-offer that is accepted, from
    1 on; ``by`` says who does it.
    """

    id: str
    time: int
    name: str
    act: Act
    option: int = 0
    by: str = ""
    type: Literal["booking_step"] = "booking_step"
