"""Slot limits of job arrays, derived from held subjobs, since servers do not report them."""

from collections import Counter
from collections.abc import Iterator

from schedd.wire import JobFacts


class SlotLimits:
    """Known slot limits of arrays.

    While a server holds subjobs for the limit (hold `l`), the number of subjobs without a hold equals the
    limit. Right after an end there is one less, so a known limit is never lowered.
    """

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}
        self._members: dict[str, list[str]] = {}
        self._free: Counter[str] = Counter()
        self._held: set[str] = set()

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
        """Finish the reading; yield the subjobs of arrays with a new or raised limit."""
        self._limits = {array: limit for array, limit in self._limits.items() if array in self._members}
        for array in self._held:
            limit = self._free[array]
            if limit > self._limits.get(array, 0):
                self._limits[array] = limit
                yield from self._members[array]
