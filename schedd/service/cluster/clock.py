"""Clocks of a cluster."""

import time
from typing import Protocol


class ClusterClock(Protocol):
    """A clock that may run faster than real time."""

    def now(self) -> float:
        """Seconds since the epoch (UTC)."""
        ...

    def wait_for(self, moment: float) -> float:
        """Real seconds until ``moment``, at least 0."""
        ...


class SystemClock:
    """The host's clock."""

    def now(self) -> float:
        """Seconds since the epoch (UTC)."""
        return time.time()

    def wait_for(self, moment: float) -> float:
        """Real seconds until ``moment``, at least 0."""
        return max(0.0, moment - time.time())


class ScaledClock:
    """A clock that starts at ``start`` and runs ``speed`` times as fast as real time.

    It started at ``began`` on the host's monotonic clock (None: now), so processes of one host can share it.
    """

    def __init__(self, start: float, speed: float, began: float | None = None) -> None:
        if not speed > 0:
            raise ValueError(f"speed {speed}: must be above 0")
        self.start = start
        self.began = time.monotonic() if began is None else began
        self.speed = speed

    def now(self) -> float:
        """Seconds since the epoch, by this clock."""
        return self.start + (time.monotonic() - self.began) * self.speed

    def wait_for(self, moment: float) -> float:
        """Real seconds until ``moment``, at least 0."""
        return max(0.0, (moment - self.now()) / self.speed)
