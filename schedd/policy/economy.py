"""Power draw of nodes and prices of node time by node and window."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from schedd.policy.recurrence import occurrences
from schedd.policy.site_tables import WindowSettings
from schedd.wire.section import Names, Section

ALL_OTHERS: Final = "*"  # key for nodes without an entry
AHEAD: Final = 400 * 86_400
"""Price windows are expanded for this many seconds; later, prices without a window apply."""
_HOUR: Final = 3600.0

Floats = npt.NDArray[np.float64]


Watts = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Money = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class Draw(Section):
    """Watts of a node, by its name or a property; `"*"` is for all other nodes. Its name goes before its
    properties, the first in this order counting.
    """

    idle: Watts
    """Watts while it is on and idle."""
    core: Watts = 0.0
    """Additional watts per core that a job holds."""
    gpu: Watts = 0.0
    """Additional watts per gpu that a job holds."""
    off: Watts = 0.0
    """Watts while it is off; also used for nodes that are down."""


class PowerCap(WindowSettings):
    """Maximum power of all nodes together, at every moment of the plan, calculated from their watts
    (`[clusters.NAME.site.power.NODES]`). If several apply at once, the lowest counts. See
    docs/administrators/power.md.
    """

    watts: Watts
    """Watts, including idle nodes; all nodes are assumed to be on."""


class Price(WindowSettings):
    """Prices of node time, always or in recurring windows. If several apply to a node at once, the last in
    the list counts; without any, time is free.
    """

    core_hour: Money
    """Price of one core-hour, in `currency`."""
    gpu_hour: Money = 0.0
    """Price of one gpu-hour."""
    nodes: Names = ()
    """Names or properties of the nodes; empty: all."""


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
    zone: str = "UTC"  # of the windows of prices and caps

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
            for first, last in found if price.first is not None else [(begin, int(edges[-1]) + 1)]:
                held = (edges >= first) & (edges < last)
                core[held], gpu[held] = price.core_hour / _HOUR, price.gpu_hour / _HOUR
        return Rates(edges, core, gpu)

    def _windows(self, price: Price, begin: int, end: int) -> list[tuple[int, int]]:
        window = price.window(self.zone)
        if window is None:
            return []
        return [(max(first, begin), last) for first, last in occurrences(window, begin, end)]
