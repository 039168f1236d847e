"""Delay of starts: the time from the moment at which a job is due until it runs.

The planner, the adapter and the server take this time, and no plan contains it. It is learned from the latest
starts of the cluster, and every start estimate includes it.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

_WINDOW: Final = 200  # latest starts that are remembered
_ENOUGH: Final = 5  # starts from which on there is a delay
_LONGEST_S: Final = 1_800  # longer delays count as this one: they come from outages, not from usual starts


class StartDelay(NamedTuple):
    """Median and 90th percentile of the delay, in seconds."""

    p50: int
    p90: int


NO_START_DELAY: Final = StartDelay(0, 0)


class StartDelays:
    """Delays of the latest starts of one cluster; not thread-safe."""

    def __init__(self, latest: Iterable[int] = ()) -> None:
        self._latest = deque((min(max(one, 0), _LONGEST_S) for one in latest), _WINDOW)
        self._current: StartDelay | None = None  # none: to be computed from the latest starts

    def record(self, seconds: int) -> None:
        """Learn from a start that came ``seconds`` after its job was due."""
        self._latest.append(min(max(seconds, 0), _LONGEST_S))
        self._current = None

    @property
    def current(self) -> StartDelay:
        """The delay to expect of the next starts; zero before the first few starts."""
        if self._current is None:
            self._current = NO_START_DELAY
            if len(self._latest) >= _ENOUGH:
                found = np.quantile(self._latest, (0.5, 0.9), method="higher")
                self._current = StartDelay(*found.tolist())
        return self._current

    def copy(self) -> "StartDelays":
        """Return an independent copy."""
        return StartDelays(self._latest)

    def save(self) -> list[int]:
        """Return the state as JSON values."""
        return list(self._latest)

    @classmethod
    def load(cls, plain: Iterable[int]) -> "StartDelays":
        """Restore from the result of ``save``. Raises TypeError or ValueError for other input."""
        latest = list(plain)
        if not all(type(one) is int for one in latest):
            raise TypeError("delays of starts are whole numbers of seconds")
        return cls(latest)
