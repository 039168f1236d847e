"""What is told of bookings."""

from typing import Literal, TypedDict

from schedd.client.answers.jobs import ShareFacts

__all__ = ["BookingDone", "BookingView", "BookingsView", "MoveView", "OptionView"]


class OptionView(TypedDict):
    """A counter-offer; ``stretch`` is how far it is outside the window, in lengths of the booking."""

    option: int
    start: int
    end: int
    stretch: float


class MoveView(TypedDict):
    """A move of the planned start."""

    time: int
    before: int | None
    after: int


class BookingView(TypedDict):
    """Cores that somebody has for a time. Times are seconds since the epoch."""

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
    handover: str
    nodes: list[ShareFacts]
    jobs: list[str]
    moves: list[MoveView]
    options: list[OptionView]
    text: str


class BookingsView(TypedDict):
    """Bookings by start."""

    as_of: int
    generation: int
    stale: str
    bookings: list[BookingView]


class BookingDone(TypedDict):
    """One of them."""

    as_of: int
    generation: int
    stale: str
    booking: BookingView
