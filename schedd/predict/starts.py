"""Expected starts: what a plan with predicted run times says, and how late it may become.

Such a plan knows nothing of jobs that come later and go first. So the start for nine of ten cases lies
between the one by walltimes and that of nine of ten draws, calibrated: by the latest outcomes (conformal
prediction, on a logarithmic scale of waits), and, as for run times, in steps.
"""

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import Any, Final

import numpy as np

__all__ = ["Calibration", "Expected", "Told"]

_WINDOW: Final = 300
_ENOUGH: Final = 20
"""Outcomes; before there are so many, nothing is corrected."""
_RENEWED: Final = 10
_FLOOR: Final = 60
"""Seconds added to waits before logarithms are taken: who waits for less is told within a minute or so."""
_MOST_DOWN, _MOST_UP = 5.0, 3.0
"""Bounds of a correction; a base near zero would else make it explode."""
_STEP: Final = 0.03
_MISSES: Final = 0.1


@dataclass(frozen=True, slots=True)
class Expected:
    """When a job is expected to start: in half of the cases by ``p50``, in nine of ten by ``p90``.

    Seconds since the epoch; ``p50 <= p90``.
    """

    p50: int
    p90: int


@dataclass(frozen=True, slots=True)
class Told:
    """What was told of a job at the moment ``at``, and what it came from."""

    at: int
    expected: Expected
    base: float
    """The logarithm of the wait from which P90 was made."""


@dataclass(slots=True)
class Calibration:
    """How told starts of one kind came true: those at submission, or those of jobs that wait already."""

    errors: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    outcomes: int = 0
    correction: float = 0.0
    shift: float = 0.0
    open: list[tuple[int, str]] = field(default_factory=list)
    """When the P90 of jobs that wait passes."""
    told: dict[str, Told] = field(default_factory=dict)
    held: deque[tuple[bool, bool]] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    """Of the latest outcomes: whether the job had started by its P50, and by its P90."""
    hits: tuple[int, int] = (0, 0)
    """How many of them had."""

    @property
    def coverage(self) -> tuple[float, float]:
        """The shares of the latest outcomes that P50 and P90 covered; 0 before the first."""
        n = max(1, len(self.held))
        return self.hits[0] / n, self.hits[1] / n

    def _came(self, held: tuple[bool, bool]) -> None:
        gone = self.held[0] if len(self.held) == _WINDOW else (False, False)
        self.hits = (self.hits[0] + held[0] - gone[0], self.hits[1] + held[1] - gone[1])
        self.held.append(held)

    def tell(self, job: str, now: int, predicted: int, planned: int, late: int) -> Expected:
        """What to tell at ``now`` of a job that waits.

        It starts at ``predicted`` in half of the draws of run times, by ``late`` in nine of ten (-1: not
        known), at ``planned`` were all as long as their walltimes.
        """
        self.advance(now)
        expected = self.estimate(now, predicted, planned, late)
        self.note(job, now, expected, planned, late)
        return expected

    def estimate(self, now: int, predicted: int, planned: int, late: int) -> Expected:
        """The same without keeping it: nothing is learned from how it comes true."""
        p50 = max(predicted, now + 1)
        p90 = now + round(exp(_base(now, planned, late) + self.correction + self.shift)) - _FLOOR
        return Expected(p50, max(p50, p90))

    def note(self, job: str, at: int, expected: Expected, planned: int, late: int) -> None:
        """Keep what was told of a job at a moment: what comes of it is to be learned from."""
        self.told[job] = Told(at, expected, _base(at, planned, late))
        heapq.heappush(self.open, (expected.p90, job))

    def started(self, job: str, now: int) -> None:
        """A job began to run; one of which nothing was told is passed over."""
        self.advance(now)
        told = self.told.pop(job, None)
        if told is None:
            return
        self.errors.append(log(now - told.at + _FLOOR) - told.base)
        self.outcomes += 1
        if now <= told.expected.p90:
            self.shift -= _STEP * _MISSES
            self._came((now <= told.expected.p50, True))
        if self.outcomes >= _ENOUGH and self.outcomes % _RENEWED == 0:
            likely = float(np.quantile(self.errors, 1.0 - _MISSES))
            self.correction = min(max(likely, -_MOST_DOWN), _MOST_UP)

    def forget(self, job: str) -> None:
        """A job is gone without having started."""
        self.told.pop(job, None)

    def advance(self, now: int) -> None:
        """The clock reads ``now``: whose P90 has passed is a miss already, however long it will wait."""
        while self.open and self.open[0][0] < now:
            moment, job = heapq.heappop(self.open)
            told = self.told.get(job)
            if told is not None and told.expected.p90 == moment:
                self.shift += _STEP * (1.0 - _MISSES)
                self._came((False, False))

    # ---- saved ----------------------------------------------------------------------------------

    def copy(self) -> "Calibration":
        """With containers of its own."""
        return replace(
            self,
            errors=self.errors.copy(),
            open=list(self.open),
            told=dict(self.told),
            held=self.held.copy(),
        )

    def save(self) -> dict[str, Any]:
        """As JSON-able values."""
        told = [[job, t.at, t.expected.p50, t.expected.p90, t.base] for job, t in self.told.items()]
        return {
            "errors": list(self.errors),
            "outcomes": self.outcomes,
            "correction": self.correction,
            "shift": self.shift,
            "open": sorted(self.open),
            "told": told,
            "held": [[p50, p90] for p50, p90 in self.held],
        }

    @classmethod
    def load(cls, plain: Mapping[str, Any]) -> "Calibration":
        """What ``save`` saved. Raises KeyError, TypeError and ValueError for anything else."""
        new = cls(
            deque(plain["errors"], _WINDOW), plain["outcomes"], plain["correction"], plain["shift"],
            [(moment, job) for moment, job in plain["open"]],
            {job: Told(at, Expected(p50, p90), base) for job, at, p50, p90, base in plain["told"]},
            deque(((bool(p50), bool(p90)) for p50, p90 in plain["held"]), _WINDOW),
            (sum(p50 for p50, _ in plain["held"]), sum(p90 for _, p90 in plain["held"])),
        )  # fmt: skip
        heapq.heapify(new.open)
        return new


def _base(now: int, planned: int, late: int) -> float:
    by_plan = log(max(planned - now, 0) + _FLOOR)
    return (by_plan + log(max(late - now, 0) + _FLOOR)) / 2 if late >= 0 else by_plan
