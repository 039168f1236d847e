"""Slot limits of job arrays, which servers tell of no sub-job: what they hold back shows them."""

from collections import Counter
from collections.abc import Iterator

from schedd.wire import JobFacts


class SlotLimits:
    """How many sub-jobs of each array may run at once, where that is known.

    While a server holds sub-jobs for the limit (hold `l`) it lets exactly as many go as may run. In the
    moment after an end one is missing, so what was seen once is not lowered.
    """

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}
        self._members: dict[str, list[str]] = {}
        self._free: Counter[str] = Counter()
        self._held: set[str] = set()

    def limit_of(self, array: str) -> int | None:
        """The limit of this array; None where none is known."""
        return self._limits.get(array)

    def begin_reading(self) -> None:
        """A new reading begins."""
        self._members, self._free, self._held = {}, Counter(), set()

    def count_subjob(self, job: JobFacts) -> None:
        """A living sub-job of the reading."""
        self._members.setdefault(job.array, []).append(job.id)
        if job.holds == "l":
            self._held.add(job.array)
        elif not job.holds:
            self._free[job.array] += 1

    def finish_reading(self) -> Iterator[str]:
        """The reading is over: the sub-jobs of arrays whose limit is now known, or higher than was known."""
        self._limits = {array: limit for array, limit in self._limits.items() if array in self._members}
        for array in self._held:
            limit = self._free[array]
            if limit > self._limits.get(array, 0):
                self._limits[array] = limit
                yield from self._members[array]
