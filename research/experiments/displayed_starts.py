"""How often a published start of a waiting job gets later, by the time since its publication."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from schedd.engine import EngineState

AGES_S: Final = (60, 120, 300, 600, 1200, 1800, 3600)
"""Upper bounds of the ages of published starts in the counts of delays, in seconds."""
_FIRST_S: Final = 600


@dataclass(frozen=True, slots=True)
class SlipFigures:
    """Number of published starts of waiting jobs, and of replacements by a later start.

    ``later`` counts the replacements by their age, up to each of `AGES_S`. The delays, in seconds, are of
    replacements within the first ten minutes. ``jobs_delayed`` counts jobs with a later start within ten
    minutes of their first publication.
    """

    published: int
    later: Mapping[int, int]
    mean_delay_s: float
    longest_delay_s: int
    jobs: int
    jobs_delayed: int

    @property
    def share(self) -> float:
        """Share of published starts that got later within their first ten minutes."""
        return self.later[_FIRST_S] / max(1, self.published)

    @property
    def delay_per_start_s(self) -> float:
        """Delay within the first ten minutes per published start."""
        return self.share * self.mean_delay_s

    def as_row(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return {
            "published": self.published,
            "later": {str(age): count for age, count in self.later.items()},
            "mean_delay_s": round(self.mean_delay_s, 1),
            "longest_delay_s": self.longest_delay_s,
            "jobs": self.jobs,
            "jobs_delayed": self.jobs_delayed,
        }


@dataclass(slots=True)
class DisplayedStarts:
    """Observer of a replay that publishes starts: follows each published start until it is replaced."""

    threshold: int
    """Minimum delay that counts, in seconds: the threshold for publishing a start again."""
    _last: dict[str, tuple[int, int]] = field(default_factory=dict)
    _first: dict[str, tuple[int, int]] = field(default_factory=dict)
    _delayed: set[str] = field(default_factory=set)
    _published: int = 0
    _delays: list[tuple[int, int]] = field(default_factory=list)

    def queued(self, i: int, now: int) -> None:
        """The job arrives."""

    def started(self, i: int, now: int, speed: float) -> None:  # noqa: ARG002 (the interface of observers)
        """The job starts: its published start is not replaced any more."""
        self._last.pop(str(i), None)

    def ended(self, i: int, now: int, *, killed: bool) -> None:
        """The job ends."""

    def estimate_starts(self, state: EngineState, before: int | None) -> None:  # noqa: ARG002
        """Record the starts that were published in this second."""
        now = state.now
        for slot in np.flatnonzero(state.published_at == now).tolist():
            record, start = state.by_slot[slot], int(state.published_start[slot])
            if record is not None and start >= 0 and self._last.get(record.id) != (start, now):
                self._record(record.id, start, now)

    def _record(self, job: str, start: int, now: int) -> None:
        self._published += 1
        before = self._last.get(job)
        if before is not None and start > before[0] + self.threshold:
            self._delays.append((now - before[1], start - before[0]))
        first, at = self._first.setdefault(job, (start, now))
        if now - at <= _FIRST_S and start > first + self.threshold:
            self._delayed.add(job)
        self._last[job] = (start, now)

    def figures(self) -> SlipFigures:
        ages = np.array([age for age, _ in self._delays], np.int64)
        early = np.array([delay for age, delay in self._delays if age <= _FIRST_S], np.int64)
        return SlipFigures(
            published=self._published,
            later={age: int((ages <= age).sum()) for age in AGES_S},
            mean_delay_s=float(early.mean()) if early.size else 0.0,
            longest_delay_s=int(early.max(initial=0)),
            jobs=len(self._first),
            jobs_delayed=len(self._delayed),
        )
