"""Times of snapshots for the daemon."""

from collections.abc import Callable
from typing import Final

_GRACE: Final = 180.0  # maximum doubt of the daemon about a large loss, in seconds
_SET_BACK: Final = 60.0
_INSISTING: Final = 15.0  # seconds between snapshots while the daemon may doubt them


class SnapshotSchedule:
    """Schedules a snapshot every `interval` s, at once after `request`, often while in doubt."""

    def __init__(self, interval: float, clock: Callable[[], float]) -> None:
        self._interval = interval
        self._clock = clock
        self._next = self._seen = 0.0
        self._insist_until = 0.0

    @property
    def should_send(self) -> bool:
        """Whether a snapshot must be sent now."""
        now = self._clock()
        if now < self._seen - _SET_BACK:  # the clock was set back: scheduled times may be far in the future
            self._next = self._insist_until = 0.0
        self._seen = now
        return now >= self._next

    def request(self) -> None:
        """With the next reading."""
        self._next = 0.0

    def repeat_often(self) -> None:
        """Schedule frequent snapshots: the daemon doubts an unexpected one until others confirm it."""
        self._insist_until = self._clock() + _GRACE + 2 * _INSISTING
        self._next = min(self._next, self._clock() + _INSISTING)

    def sent(self) -> None:
        now = self._clock()
        self._next = now + self._interval
        if now < self._insist_until:
            self._next = min(self._next, now + _INSISTING)
