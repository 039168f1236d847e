"""Monitor of the host's clock: detects steps, and a clock that is behind the plan."""

import time
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from schedd.service.cluster.clock import ClusterClock, SystemClock

_log = structlog.get_logger(__name__)

MOST_BEHIND_S: Final = 60
"""Maximum step back that the planner waits out; after a larger step the plan is rebuilt at the new time."""
_STEP_S: Final = 10.0
"""Minimum difference between clock and monotonic time that counts as a step; slewing is slower."""
_BEHIND_S: Final = 5.0
_TOLD_S: Final = 900.0


class ClockMonitor:
    """Monitor of a cluster's clock, checked by one thread; scaled clocks are not monitored."""

    def __init__(
        self, cluster: str, clock: ClusterClock, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._steady = steady
        self._watches = isinstance(clock, SystemClock)
        self._last = (clock.now(), steady())
        self._steps: deque[tuple[float, float]] = deque()

    def check(self, planned: int) -> str:
        """Return the clock's problem, empty: none; ``planned`` is the plan's present second."""
        if not self._watches:
            return ""
        now, steady = self._clock.now(), self._steady()
        step = (now - self._last[0]) - (steady - self._last[1])
        self._last = now, steady
        if abs(step) >= _STEP_S:
            self._steps.append((steady, step))
            _log.warning("the clock of this host was set", cluster=self._cluster, by=round(step))
        while self._steps and self._steps[0][0] < steady - _TOLD_S:
            self._steps.popleft()
        return "; ".join(filter(None, (self._was_set(), self._describe_lag(planned, now))))

    def _was_set(self) -> str:
        by = sum(step for _, step in self._steps)
        if abs(by) < _STEP_S:  # there and back
            return ""
        where = "forward" if by > 0 else "back"
        return f"the clock of the daemon's host was set {where} by {abs(by):.0f} s"

    @staticmethod
    def _describe_lag(planned: int, now: float) -> str:
        if planned - now < _BEHIND_S:
            return ""
        return (
            f"it is {planned - now:.0f} s behind the plan, whose time does not advance until the clock has "
            "caught up"
        )
