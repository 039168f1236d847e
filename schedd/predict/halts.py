"""Halts of all starts, such as an administrator's pause: forecasts made before a halt cannot know it."""

from collections.abc import Sequence
from typing import Any, Final

_KEPT: Final = 100  # latest halts that are remembered
_LEAST_S: Final = 60  # shorter halts together are within the resolution of forecasts


class Halts:
    """The latest halts of starts on one cluster. Other threads may read while one thread notes."""

    def __init__(self, times: tuple[tuple[int, int], ...] = (), *, lasts: bool = False) -> None:
        """``times`` are intervals in seconds since the epoch; ``lasts``: the last one is not over."""
        self._times = times
        self._lasts = lasts

    def note(self, now: int, *, halted: bool) -> None:
        """Note whether starts are halted at ``now``."""
        if self._lasts:
            self._times = (*self._times[:-1], (self._times[-1][0], now))
        elif halted:
            self._times = (*self._times[1 - _KEPT :], (now, now))
        self._lasts = halted

    def overlap(self, since: int, until: int) -> bool:
        """Return whether starts were halted for a minute or longer in ``[since, until)``."""
        halted = 0
        for begin, end in reversed(self._times):
            if end <= since:
                break
            halted += max(0, min(end, until) - max(begin, since))
        return halted >= _LEAST_S

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
