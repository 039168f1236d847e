"""Power draw of nodes and prices of node time by node and window."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from schedd.policy.recurrence import Recurrence, occurrences

ALL_OTHERS: Final = "*"  # key for nodes without an entry
AHEAD: Final = 400 * 86_400
"""Price windows are expanded for this many seconds; later, prices without a window apply."""
_HOUR: Final = 3600.0

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Draw:
    """Watts of one node: ``idle`` while on, plus ``core`` and ``gpu`` for each one in use, and ``off``."""

    idle: float
    core: float = 0.0
    gpu: float = 0.0
    off: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCap:
    """Maximum ``watts`` of all nodes together, always or within ``window``."""

    watts: float
    window: Recurrence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Price of one hour of a core and of a gpu on ``nodes`` (names or properties; empty: all), always or
    within ``window``.
    """

    core_hour: float
    gpu_hour: float = 0.0
    nodes: tuple[str, ...] = ()
    window: Recurrence | None = None


class Rates(NamedTuple):
    """Prices of one node's second over time: ``core[i]`` and ``gpu[i]`` apply in ``[edges[i], edges[i+1])``,
    the last ones without end. ``edges`` are seconds since the epoch.
    """

    edges: npt.NDArray[np.int64]
    core: Floats
    gpu: Floats

    def paid(self, rate: Floats, moments: npt.NDArray[np.int64]) -> Floats:
        """Return the cost of one unit at ``rate`` from the first edge to each of ``moments``."""
        lengths = np.diff(self.edges)
        until = np.concatenate([[0.0], np.cumsum(rate[:-1] * lengths)])
        at = np.clip(np.searchsorted(self.edges, moments, side="right") - 1, 0, None)
        found: Floats = until[at] + rate[at] * np.maximum(moments - self.edges[at], 0)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Economy:
    """Site settings of watts and prices. ``draws`` by node or property, ``*`` for all others; ``measured`` by
    node overrides them.
    """

    draws: Mapping[str, Draw] = field(default_factory=dict)
    measured: Mapping[str, Draw] = field(default_factory=dict)
    prices: tuple[Price, ...] = ()
    currency: str = "EUR"
    caps: tuple[PowerCap, ...] = ()

    def draw(self, name: str, properties: Iterable[str]) -> Draw | None:
        """Return a node's watts: measured, own, its first listed property's, all others'; None without."""
        found = self.measured.get(name)
        return found if found is not None else self.draw_set(name, properties)

    def draw_set(self, name: str, properties: Iterable[str]) -> Draw | None:
        """Return the same from the site's settings only."""
        for one in (name, *(key for key in self.draws if key in frozenset(properties)), ALL_OTHERS):
            if one in self.draws:
                return self.draws[one]
        return None

    def node_prices(self, name: str, properties: Iterable[str]) -> tuple[int, ...]:
        """Return the indices of the prices that apply to a node."""
        known = {name, *properties}
        return tuple(i for i, one in enumerate(self.prices) if not one.nodes or known.intersection(one.nodes))

    def rates(self, which: tuple[int, ...], begin: int, end: int) -> Rates:
        """Return the rates of these prices over ``[begin, end)``. The last of several overlapping prices
        applies; without a price, time is free.
        """
        end = max(begin + 1, min(end, begin + AHEAD))
        windows = [self._windows(self.prices[i], begin, end) for i in which]
        moments = {begin, *(moment for found in windows for window in found for moment in window)}
        edges = np.array(sorted(moment for moment in moments if begin <= moment), np.int64)
        core, gpu = np.zeros(edges.shape[0]), np.zeros(edges.shape[0])
        for i, found in zip(which, windows, strict=True):
            price = self.prices[i]
            for first, last in found if price.window is not None else [(begin, int(edges[-1]) + 1)]:
                held = (edges >= first) & (edges < last)
                core[held], gpu[held] = price.core_hour / _HOUR, price.gpu_hour / _HOUR
        return Rates(edges, core, gpu)

    @staticmethod
    def _windows(price: Price, begin: int, end: int) -> list[tuple[int, int]]:
        if price.window is None:
            return []
        return [(max(first, begin), last) for first, last in occurrences(price.window, begin, end)]
