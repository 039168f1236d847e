"""Alternative plans as the page of choices shows them: a picture of two or three objectives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from schedd.features.alternatives.plan_alternatives import AlternativeSet

WIDTH: Final = 640
HEIGHT: Final = 300
_LEFT: Final = 84
_RIGHT: Final = 48
_TOP: Final = 40
_BOTTOM: Final = 46
_POINT_RADII: Final = (9.0, 17.0)
_TICKS: Final = 3


@dataclass(frozen=True, slots=True)
class PlotAxes:
    """The objectives that the picture is of; ``size``: of the points, empty: all are alike."""

    x: str
    y: str
    size: str


@dataclass(frozen=True, slots=True)
class PlanPoint:
    """One plan in the picture, in its pixels. Number 0 is the live plan."""

    number: int
    x: float
    y: float
    radius: float
    moved: int


@dataclass(frozen=True, slots=True)
class AlternativesPlot:
    """Points, and along each axis (place, value) of ticks. ``width`` and ``height`` in pixels."""

    points: tuple[PlanPoint, ...]
    across: tuple[tuple[float, float], ...]
    up: tuple[tuple[float, float], ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    bottom: int = HEIGHT - _BOTTOM


def choose_axes(found: AlternativeSet, x: str, y: str, size: str) -> PlotAxes:
    """The objectives that are wanted, as far as the set knows them; else its first ones."""
    names = list(found.weights)
    first = x if x in names else names[0]
    second = y if y in names else next((one for one in names if one != first), first)
    return PlotAxes(first, second, size if size in names else "")


def build_plot(found: AlternativeSet, axes: PlotAxes) -> AlternativesPlot:
    """Where each plan stands."""
    rows: list[tuple[int, Mapping[str, float], int]] = [(0, found.live, 0)]
    rows += [(one.number, one.objectives, len(one.moves)) for one in found.plans]
    across = _AxisScale([values[axes.x] for _, values, _ in rows], _LEFT + 14, WIDTH - _RIGHT)
    up = _AxisScale([values[axes.y] for _, values, _ in rows], HEIGHT - _BOTTOM - 14, _TOP)
    size = _AxisScale([values[axes.size] for _, values, _ in rows], *_POINT_RADII) if axes.size else None
    points = tuple(
        PlanPoint(
            number,
            across.at(values[axes.x]),
            up.at(values[axes.y]),
            size.at(values[axes.size]) if size is not None else 10.0,
            moved,
        )
        for number, values, moved in rows
    )
    # Small points are drawn over large ones.
    return AlternativesPlot(tuple(sorted(points, key=lambda one: -one.radius)), across.ticks(), up.ticks())


class _AxisScale:
    """Maps values to pixels; equal values are centred."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self._low, self._high = min(values), max(values)
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        share = (value - self._low) / (self._high - self._low) if self._high > self._low else 0.5
        return round(self._begin + share * (self._end - self._begin), 1)

    def ticks(self) -> tuple[tuple[float, float], ...]:
        if self._high <= self._low:
            return ((self.at(self._low), self._low),)
        step = (self._high - self._low) / (_TICKS - 1)
        values = [self._low + i * step for i in range(_TICKS)]
        return tuple((self.at(value), value) for value in values)
