"""Bookings of users: what the site allows, and in which order those that may still move are planned anew.

After Netto, *Adaptive co-allocation of distributed resources* (2009), chapter 3: flexible advance
reservations.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

__all__ = ["BookingRules", "Order", "Window", "nearest", "sort_key", "stretch"]


class Order(StrEnum):
    """In which order bookings are planned anew that may still move."""

    EDF = "edf"
    """The earliest deadline first."""
    LFF = "lff"
    """The least flexible first."""
    BJF = "bjf"
    """The biggest first: cores times seconds."""
    FIFO = "fifo"
    """Who asked first."""


@dataclass(frozen=True, slots=True)
class BookingRules:
    """What users may book; nothing unless the site says how much. Times in seconds."""

    most: int = 0
    """Bookings of one user at once that are not over; 0: users may book nothing."""
    cpus: int = 0
    """Cores of one booking at most; 0: as many as there are."""
    longest: int = 86_400
    ahead: int = 7 * 86_400
    """How far ahead the deadline may lie."""
    cost: float = 0.0
    """What it costs, as a share of what a job costs on as many cores for as long.
    Its jobs pay beside that."""
    order: Order = Order.EDF


@dataclass(frozen=True, slots=True)
class Window:
    """What counts of a booking where several are put in order. Times in seconds."""

    asked: int
    """When it was asked for."""
    ready: int
    deadline: int
    duration: int
    cpus: int
    name: str

    def spare(self, now: int) -> int:
        """By how much it may still be moved: its flexibility (section 1.2)."""
        return self.deadline - max(self.ready, now) - self.duration


def sort_key(order: Order, one: Window, now: int) -> tuple[int, int, str]:
    """By which ``one`` is put in order; among equals who asked first, then by name."""
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
    """How far a place outside the window is from what was wanted, in its own lengths; below 0 before it."""
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
    """So many places outside a window, the nearest first, and of both sides where there are both."""
    found = sorted(options, key=_distance)
    before = [one for one in found if one.stretch < 0]
    after = [one for one in found if one.stretch >= 0]
    few = min(len(before), max(most // 2, most - len(after)))
    return tuple(sorted(before[:few] + after[: most - few], key=_distance))


def _distance(one: _Off) -> tuple[float, int]:
    return abs(one.stretch), one.start
