"""Bookings of users: what the site allows, and in which order those that may still move are planned anew.

After Netto, *Adaptive co-allocation of distributed resources* (2009), chapter 3: flexible advance
reservations.
"""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["BookingRules", "Order", "Window", "sort_key", "stretch"]


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
