"""What the engine knows of bookings: the request, the planned place, and the jobs of each."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Literal

from schedd.engine.facts.encoding import known_fields
from schedd.engine.facts.job_requests import BOOKING
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.plan.schema import MOMENT, FieldRule, declared
from schedd.policy.bookings import Window
from schedd.wire import Book

BookingPhase = Literal["flexible", "frozen", "open", "over", "cancelled", "refused"]
_OF: Final = "~"
"""Separator of name and owner in the key of a booking with a name that another user had first."""
LIVE: Final = ("flexible", "frozen", "open")  # phases with held cores
MAX_MOVES: Final = 20  # moves of a booking that are remembered, the latest
Share = tuple[str, tuple[int, ...]]
"""A node, and how much of each of its resources, in the order of the plan's columns."""
Piece = tuple[int, int, tuple[Share, ...]]  # interval, and the cores reserved for future jobs in it


@dataclass(frozen=True, slots=True)
class Option:
    """A counter-offer: it would begin at ``start``, its own length times ``stretch`` off its window."""

    start: int
    end: int
    stretch: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """``start`` is the planned start, ``held`` its cores; ``pieces`` are the part reserved for future jobs,
    in ``slots`` of the plan; ``jobs`` use the rest.

    ``moves`` are (time, former start, new start); ``options`` the counter-offers after a refusal.
    """

    event: Book
    phase: BookingPhase
    since: int
    cpus: int = 0
    start: int = -1
    slots: tuple[int, ...] = ()
    held: tuple[Share, ...] = ()
    pieces: tuple[Piece, ...] = ()
    jobs: tuple[str, ...] = ()
    confirmed: bool = False
    armed: bool = False
    kept: bool = False
    moves: tuple[tuple[int, int, int], ...] = ()
    options: tuple[Option, ...] = ()
    text: str = ""

    @property
    def name(self) -> str:
        """Its key, unique in the cluster: the owner's name of it, unless another user had that first."""
        return self.event.name

    @property
    def shown(self) -> str:
        """Its name as its owner chose it; unique among the owner's."""
        return self.name.partition(_OF)[0]

    @property
    def end(self) -> int:
        """When it is over, as planned."""
        return self.start + self.event.duration

    @property
    def window(self) -> Window:
        """Its properties for the comparison with others."""
        one = self.event
        return Window(one.time, one.ready, one.deadline, one.duration, self.cpus, one.name)

    @property
    def frozen_at(self) -> int:
        """From when on it moves no more."""
        return self.event.time + (max(0, self.start - self.event.time) * self.event.freeze) // 100


def _load(saved: list[dict[str, Any]]) -> dict[str, Booking]:
    return {one.name: one for one in map(_load_booking, saved)}


def _load_booking(saved: dict[str, Any]) -> Booking:
    values = {
        **saved,
        "event": Book(**known_fields(Book, saved["event"])),
        "slots": tuple(saved["slots"]),
        "held": _shares(saved["held"]),
        "pieces": tuple((begin, end, _shares(held)) for begin, end, held in saved["pieces"]),
        "jobs": tuple(saved["jobs"]),
        "moves": tuple((at, before, after) for at, before, after in saved["moves"]),
        "options": tuple(Option(**one) for one in saved["options"]),
    }
    return Booking(**values)


def _shares(saved: list[list[Any]]) -> tuple[Share, ...]:
    return tuple((node, tuple(amounts)) for node, amounts in saved)


def _save(booking: Booking) -> dict[str, Any]:
    event = {one.name: getattr(booking.event, one.name) for one in fields(booking.event)}
    return asdict(booking) | {"event": event | {"resources": dict(booking.event.resources)}}


_BOOKINGS: Final = FieldRule(dict, lambda value: list(value.values()), _load, each=_save, kind=Booking)


@dataclass(slots=True)
class BookingState:
    """The component's part of the engine's state."""

    bookings: dict[str, Booking] = declared(_BOOKINGS, make=dict, carried=True, lasting=True)
    """By key: see ``lookup_key``. Finished ones are kept for a while."""
    quiet: "QuietBookings | None" = declared(MOMENT, default=None)
    """Bookings without work, as of the last examination; None: all are to be examined."""


@dataclass(frozen=True, slots=True)
class QuietBookings:
    """Bookings that only time changes, not before ``until``. ``edge`` is the time of the next freeze, begin
    or end of one; FOREVER: none.
    """

    bookings: tuple[Booking, ...]
    edge: int
    until: int

    def holds(self, bookings: Mapping[str, Booking], now: int) -> bool:
        """Return whether nothing is to be done at ``now`` about these bookings."""
        return now < self.until and self.bookings == tuple(bookings.values())


@dataclass(frozen=True, slots=True)
class PublishedBookings:
    """What other threads may read of the component."""

    bookings: Mapping[str, Booking]


def booking_table(state: EngineState) -> dict[str, Booking]:
    """Return the bookings by key."""
    return state.part(BookingState).bookings


def publish_bookings(state: EngineState) -> PublishedBookings:
    """Return a copy for other threads."""
    return PublishedBookings(dict(booking_table(state)))


def published_bookings(published: PlanSnapshot) -> Mapping[str, Booking]:
    """Return the published bookings by key."""
    return published.part(PublishedBookings).bookings


def is_live(state: EngineState, name: str) -> bool:
    """Return whether there is a live booking with this key."""
    known = booking_table(state).get(name)
    return known is not None and known.phase in LIVE


def without_slots(part: BookingState) -> None:
    """Forget slots and jobs: the plan is rebuilt without them."""
    part.bookings = {name: replace(one, slots=(), pieces=(), jobs=()) for name, one in part.bookings.items()}


def lookup_key(bookings: Mapping[str, Booking], name: str, owner: str) -> str:
    """Return the key of the owner's booking of this name. Each owner has a separate namespace: bookings of
    other users with the same name have no effect and stay hidden.
    """
    own = f"{name}{_OF}{owner}"
    return own if own in bookings else name


def new_booking_key(bookings: Mapping[str, Booking], event: Book) -> str:
    """Return the key for a request: the key of the same booking, or a free one."""
    key = lookup_key(bookings, event.name, event.owner)
    if key not in bookings:
        return key
    known = bookings[key].event
    same = known.owner == event.owner and bool(known.transfer) == bool(event.transfer)
    return key if same else f"{event.name}{_OF}{event.owner}"


def store_booking(state: EngineState, booking: Booking) -> None:
    """Store a booking as changed now."""
    booking_table(state)[booking.name] = replace(booking, since=state.now)


def booking_key(name: str) -> str:
    """Return the key of a booking in components: no job has such an id."""
    return f"{BOOKING}{name}"
