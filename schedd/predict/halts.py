"""Halts of all starts, such as a pause or a time without the daemon: earlier forecasts cannot know them."""

from collections.abc import Sequence
from typing import Any, Final

_KEPT: Final = 100  # latest halts that are remembered
_LEAST_S: Final = 60  # shorter halts together are within the resolution of forecasts
_LEAST_PART: Final = 20  # halts shorter than this part of a forecast wait are within its uncertainty


class Halts:
    """The latest halts of starts on one cluster. Other threads may read while one thread notes."""

    def __init__(self, times: tuple[tuple[int, int], ...] = (), *, lasts: bool = False) -> None:
        """``times`` are intervals in seconds since the epoch; ``lasts``: the last one is not over."""
        self._times = times
        self._lasts = lasts

    def note(self, now: int, *, halted: bool, since: int = -1) -> None:
        """Note whether starts are halted at ``now``; ``since``: the begin of a halt that shows later (-1: it
        begins now).
        """
        if self._lasts:
            self._times = (*self._times[:-1], (self._times[-1][0], now))
        elif halted:
            before = self._times[-1][1] if self._times else 0
            begin = max(since, before) if since >= 0 else now
            self._times = (*self._times[1 - _KEPT :], (min(begin, now), now))
        self._lasts = halted

    def overlap(self, since: int, until: int) -> bool:
        """Return whether starts were halted for a minute or longer in ``[since, until)``."""
        return self._halted_s(since, until) >= _LEAST_S

    def affect(self, issued_at: int, by: int, until: int) -> bool:
        """Return whether halts before ``until`` were long enough to spoil a forecast of ``issued_at`` for a
        start, or an end, until ``by``: a minute, and a twentieth of this time.

        The measure is the forecast's own time: by the actual wait, short waits would be spoilt more often
        than long ones, so that the others seem too optimistic.
        """
        least = max(_LEAST_S, (by - issued_at) // _LEAST_PART)
        return self._halted_s(issued_at, until) >= least

    def _halted_s(self, since: int, until: int) -> int:
        halted = 0
        for begin, end in reversed(self._times):
            if end <= since:
                break
            halted += max(0, min(end, until) - max(begin, since))
        return halted

    @property
    def times(self) -> tuple[tuple[int, int], ...]:
        """Begin and end of each halt, in seconds since the epoch; of one that lasts, the end known so far."""
        return self._times

    def copy(self) -> "Halts":
        """Return an independent copy."""
        return Halts(self._times, lasts=self._lasts)

    def save(self) -> list[Any]:
        """Return the state as JSON values."""
        return [self._lasts, *map(list, self._times)]

    @classmethod
    def load(cls, plain: Sequence[Any]) -> "Halts":
        """Restore from the result of ``save``. Raises TypeError or ValueError for other input."""
        lasts, *times = plain or (False,)
        return cls(tuple((int(begin), int(end)) for begin, end in times), lasts=bool(lasts) and bool(times))


NO_HALTS: Final = Halts()
"""Shared and never changed."""
