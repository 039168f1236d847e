"""Rules for users' bookings, and the order in which flexible bookings are replanned.

After Netto, *Adaptive co-allocation of distributed resources* (2009), chapter 3: flexible advance
reservations.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar


class Order(StrEnum):
    """Order for replanning flexible bookings."""

    EDF = "edf"  # earliest deadline first
    LFF = "lff"  # least flexible first
    BJF = "bjf"  # largest first, by cores times seconds
    FIFO = "fifo"  # first requested first


@dataclass(frozen=True, slots=True)
class Window:
    """Properties of a booking that determine its order. Times in seconds."""

    asked: int  # time of the request
    ready: int
    deadline: int
    duration: int
    cpus: int
    name: str

    def spare(self, now: int) -> int:
        """Return how far the start may still move: the booking's flexibility (section 1.2)."""
        return self.deadline - max(self.ready, now) - self.duration


def sort_key(order: Order, one: Window, now: int) -> tuple[int, int, str]:
    """Return the sort key of ``one``; ties go to the earlier request, then to the name."""
    match order:
        case Order.EDF:
            first = one.deadline
        case Order.LFF:
            first = one.spare(now)
        case Order.BJF:
            first = -one.cpus * one.duration
        case _:
            first = one.asked
    return first, one.asked, one.name


def stretch(one: Window, start: int) -> float:
    """Return a start's distance from the window in lengths of the booking; negative: before it."""
    if start < one.ready:
        return (start - one.ready) / one.duration
    return max(0, start + one.duration - one.deadline) / one.duration


class _Off(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def stretch(self) -> float: ...


_Option = TypeVar("_Option", bound=_Off)


def nearest(options: Iterable[_Option], most: int) -> tuple[_Option, ...]:
    """Return up to ``most`` places outside a window, nearest first, from both sides if possible."""
    found = sorted(options, key=_distance)
    before = [one for one in found if one.stretch < 0]
    after = [one for one in found if one.stretch >= 0]
    few = min(len(before), max(most // 2, most - len(after)))
    return tuple(sorted(before[:few] + after[: most - few], key=_distance))


def _distance(one: _Off) -> tuple[float, int]:
    return abs(one.stretch), one.start
