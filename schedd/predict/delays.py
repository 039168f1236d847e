"""Delays that no plan contains, learned from the latest starts and ends of a cluster.

A start is delayed from the moment at which the job is due until it runs, an end from the end of the job until
its report. The planner, the adapter and the server take this time. Meanwhile nodes are idle: each job holds
them for both delays in addition to its run time.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

_WINDOW: Final = 200  # latest delays that are remembered
_ENOUGH: Final = 5  # number of delays below which none is expected
LONGEST_DELAY_S: Final = 1_800  # longer delays come from outages


class Delay(NamedTuple):
    """Median and 90th percentile of a delay, in seconds."""

    p50: int
    p90: int


NO_DELAY: Final = Delay(0, 0)


class RecentDelays:
    """Latest delays of one kind on one cluster; not thread-safe."""

    def __init__(self, latest: Iterable[int] = ()) -> None:
        self._latest = deque((min(max(one, 0), LONGEST_DELAY_S) for one in latest), _WINDOW)
        self._current: Delay | None = None  # None: it must be computed from the latest delays

    def record(self, seconds: int) -> None:
        """Learn a delay."""
        self._latest.append(min(max(seconds, 0), LONGEST_DELAY_S))
        self._current = None

    @property
    def known(self) -> bool:
        """Whether there are enough delays to expect the next one from them."""
        return len(self._latest) >= _ENOUGH

    @property
    def current(self) -> Delay:
        """The expected next delay; zero until there are enough delays."""
        if self._current is None:
            self._current = NO_DELAY
            if self.known:
                found = np.quantile(self._latest, (0.5, 0.9), method="higher")
                self._current = Delay(*found.tolist())
        return self._current

    def copy(self) -> "RecentDelays":
        """Return an independent copy."""
        return RecentDelays(self._latest)

    def save(self) -> list[int]:
        """Return the state as JSON values."""
        return list(self._latest)

    @classmethod
    def load(cls, plain: Iterable[int]) -> "RecentDelays":
        """Restore from the result of ``save``. Raises TypeError or ValueError for other input."""
        latest = list(plain)
        if not all(type(one) is int for one in latest):
            raise TypeError("delays must be whole numbers of seconds")
        return cls(latest)
