"""Slot limits of job arrays, derived from held subjobs and refusals, since servers do not report them."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from schedd.wire import JobFacts

_STATED_FOR_S: Final = 600.0  # a stated limit may have been raised since


class SlotLimits:
    """Known slot limits of arrays.

    While a server holds subjobs for the limit (hold `l`), the number of subjobs without a hold equals the
    limit. Right after an end there is one less, so a known limit is never lowered. There are more if a user
    released subjobs, or lowered the limit later: then the server refuses a run and states the limit.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._derived: dict[str, int] = {}
        self._stated: dict[str, tuple[int, float]] = {}
        self._limits: dict[str, int] = {}
        self._members: dict[str, list[str]] = {}
        self._free: Counter[str] = Counter()
        self._held: set[str] = set()

    def state(self, array: str, limit: int) -> None:
        """Record the limit that the server stated when it refused a run."""
        self._stated[array] = limit, self._clock()

    def limit_of(self, array: str) -> int | None:
        """Return the known limit of this array, or None."""
        return self._limits.get(array)

    def begin_reading(self) -> None:
        self._members, self._free, self._held = {}, Counter(), set()

    def count_subjob(self, job: JobFacts) -> None:
        """Count a subjob of the reading that has not ended."""
        self._members.setdefault(job.array, []).append(job.id)
        if job.holds == "l":
            self._held.add(job.array)
        elif not job.holds:
            self._free[job.array] += 1

    def finish_reading(self) -> Iterator[str]:
        """Finish the reading; yield the subjobs of arrays with a new or changed limit."""
        before, now = self._limits, self._clock()
        for array in self._held:
            self._derived[array] = max(self._free[array], self._derived.get(array, 0))
        self._derived = {
            array: limit for array, limit in self._derived.items() if limit and array in self._members
        }
        self._stated = {
            array: (limit, at)
            for array, (limit, at) in self._stated.items()
            if array in self._members and now - at < _STATED_FOR_S
        }
        self._limits = self._derived | {array: limit for array, (limit, _) in self._stated.items()}
        for array, members in self._members.items():
            if self._limits.get(array) != before.get(array):
                yield from members
