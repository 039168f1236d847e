"""When the whole state goes to the daemon again."""

from collections.abc import Callable
from typing import Final

_GRACE: Final = 180.0  # seconds for which the daemon doubts a large loss
_SET_BACK: Final = 60.0
_INSISTING: Final = 15.0  # seconds between snapshots while the daemon may doubt them


class SnapshotSchedule:
    """Every `interval` seconds by `clock`, at once when `request`ed, and often while the daemon doubts."""

    def __init__(self, interval: float, clock: Callable[[], float]) -> None:
        self._interval = interval
        self._clock = clock
        self._next = self._seen = 0.0
        self._insist_until = 0.0

    @property
    def should_send(self) -> bool:
        """Whether one should go now."""
        now = self._clock()
        if now < self._seen - _SET_BACK:  # a clock that was set back: what was to come then may be far off
            self._next = self._insist_until = 0.0
        self._seen = now
        return now >= self._next

    def request(self) -> None:
        """With the next reading."""
        self._next = 0.0

    def repeat_often(self) -> None:
        """The daemon was surprised by one; one that it doubts is believed when others insist."""
        self._insist_until = self._clock() + _GRACE + 2 * _INSISTING
        self._next = min(self._next, self._clock() + _INSISTING)

    def sent(self) -> None:
        """One goes."""
        now = self._clock()
        self._next = now + self._interval
        if now < self._insist_until:
            self._next = min(self._next, now + _INSISTING)
