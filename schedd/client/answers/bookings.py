"""Bookings: cores reserved by users for a time.

Written by ``make docs`` from the API's description, which says what each field means.
"""

from typing import Literal, TypedDict

from schedd.client.answers.jobs import ShareFacts

__all__ = [
    "BookingMoveView",
    "BookingOptionView",
    "BookingOrderView",
    "BookingOrdersView",
    "BookingResult",
    "BookingView",
    "BookingsView",
]


class BookingMoveView(TypedDict):
    """A move of the planned start; a start of null: there was none."""

    time: int
    before: int | None
    after: int


class BookingOptionView(TypedDict):
    """A counter-offer."""

    option: int
    start: int
    end: int
    stretch: float


class BookingView(TypedDict):
    """Cores reserved for a time. Times are seconds since the epoch (UTC)."""

    name: str
    owner: str
    phase: Literal["flexible", "frozen", "open", "over", "cancelled", "refused"]
    since: int
    resources: dict[str, str]
    cpus: int
    duration: int
    ready: int
    deadline: int
    start: int | None
    end: int | None
    spare: int | None
    freezes: int | None
    confirmed: bool
    until: int | None
    transfer: str
    nodes: list[ShareFacts]
    jobs: list[str]
    moves: list[BookingMoveView]
    options: list[BookingOptionView]
    text: str


class BookingsView(TypedDict):
    """Bookings by start."""

    as_of: int
    generation: int
    stale: str
    bookings: list[BookingView]


class BookingResult(TypedDict):
    """One booking after the request."""

    as_of: int
    generation: int
    stale: str
    booking: BookingView


class BookingOrderView(TypedDict):
    """The same bookings under one order."""

    order: str
    asked: int
    taken: int
    lost: int
    won: int
    moved: int
    core_hours: float
    used: float
    until: int


class BookingOrdersView(TypedDict):
    """What would be made of the bookings by each order of replanning."""

    as_of: int
    generation: int
    stale: str
    order: str
    orders: list[BookingOrderView]
