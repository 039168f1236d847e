"""Timers: actions at simulated times."""

import heapq
from collections.abc import Callable, Iterator
from itertools import count

Action = Callable[[], None]


class Timers:
    """Actions in order of their times; equal times keep their order."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Action]] = []
        self._order = count()

    def at(self, when: float, action: Action) -> None:
        """Schedule an action. It must check by itself whether it still applies."""
        heapq.heappush(self._heap, (when, next(self._order), action))

    @property
    def next(self) -> float | None:
        """Return the time of the first action, or None."""
        return self._heap[0][0] if self._heap else None

    def pop_expired(self, now: float) -> Iterator[tuple[float, Action]]:
        """Yield and remove expired timers in order, including timers that the actions add meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            when, _, action = heapq.heappop(self._heap)
            yield when, action
