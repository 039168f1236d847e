"""Calibration of expected starts.

A plan with predicted run times does not know jobs that arrive later and start earlier. P90 is therefore based
on the mean (of log waits) of the planned start by walltimes and the 90th percentile of the samples. It is
corrected by conformal prediction over the latest outcomes and by small steps after each hit and miss (Gibbs
and Candès 2021). Both are factors on the wait, and are learned apart for short and long waits: where near
jobs start minutes late, the factor of these would move P90 of long waits by days. Until there are enough
outcomes for a correction, P90 is no earlier than the planned start by walltimes.

The delay of starts is added to all of these times: no estimate is earlier than a start that was due now.
"""

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import Any, Final

import numpy as np

from schedd.predict.start_delays import NO_START_DELAY, StartDelay

_WINDOW: Final = 300
_ENOUGH: Final = 20  # outcomes before the first correction
_RENEWED: Final = 10
_FLOOR: Final = 60
"""Seconds added to a wait before its logarithm is taken; limits the resolution to about a minute."""
_MOST_DOWN, _MOST_UP = 5.0, 3.0  # bounds of the correction, needed for bases near zero
_STEP: Final = 0.03
_SHIFT_MOST: Final = 1.0
"""Bound of the sum of small steps. Without it thousands of jobs that wait through one outage, each a miss,
would move P90 to another century, and as many hits would be needed to move it back (integrator windup)."""
_LONGEST_WAIT_S: Final = 10 * 366 * 86_400
_MISSES: Final = 0.1
_BAND_ENDS: Final = tuple(log(seconds + _FLOOR) for seconds in (600, 3_600, 6 * 3_600))
"""Upper bases of the bands of waits: 10 minutes, an hour, 6 hours."""


@dataclass(frozen=True, slots=True)
class CalibratedStart:
    """Expected start of a job: median and 90th percentile, seconds since the epoch; ``p50 <= p90``."""

    p50: int
    p90: int


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """Start estimate of a job, issued at ``issued_at``, with its base."""

    issued_at: int
    expected: CalibratedStart
    base: float  # logarithm of the wait behind P90


@dataclass(slots=True)
class WaitBand:
    """Calibration from estimates of similar waits."""

    errors: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    outcomes: int = 0
    correction: float = 0.0
    shift: float = 0.0

    def add_error(self, error: float) -> None:
        """Learn from the outcome of an estimate."""
        self.errors.append(error)
        self.outcomes += 1
        if self.outcomes >= _ENOUGH and self.outcomes % _RENEWED == 0:
            likely = float(np.quantile(self.errors, 1.0 - _MISSES))
            self.correction = min(max(likely, -_MOST_DOWN), _MOST_UP)

    def move(self, step: float) -> None:
        """Make the next estimates later, or earlier."""
        self.shift = min(max(self.shift + step, -_SHIFT_MOST), _SHIFT_MOST)

    def copy(self) -> "WaitBand":
        """Return an independent copy."""
        return replace(self, errors=self.errors.copy())

    def save(self) -> list[Any]:
        """Return the state as JSON values."""
        return [list(self.errors), self.outcomes, self.correction, self.shift]

    @classmethod
    def load(cls, plain: Sequence[Any]) -> "WaitBand":
        """Restore from the result of ``save``. Raises TypeError or ValueError for other input."""
        errors, outcomes, correction, shift = plain
        new = cls(deque(errors, _WINDOW), outcomes, correction, shift)
        new.move(0.0)
        return new


@dataclass(slots=True)
class StartCalibration:
    """Calibration of the start estimates of one kind; not thread-safe. Times never go back."""

    bands: tuple[WaitBand, ...] = field(
        default_factory=lambda: tuple(WaitBand() for _ in range(len(_BAND_ENDS) + 1))
    )
    pending_p90: list[tuple[int, str]] = field(default_factory=list)
    """Heap of (P90, job) of the open estimates."""
    estimates: dict[str, StartEstimate] = field(default_factory=dict)
    recent_hits: deque[tuple[bool, bool]] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    """For each of the latest outcomes: started by P50, started by P90."""
    hit_counts: tuple[int, int] = (0, 0)  # numbers of true values in `recent_hits`

    @property
    def outcomes(self) -> int:
        """Number of outcomes that were learned from."""
        return sum(band.outcomes for band in self.bands)

    @property
    def coverage(self) -> tuple[float, float]:
        """Shares of the latest outcomes covered by P50 and P90; 0 before the first outcome."""
        n = max(1, len(self.recent_hits))
        return self.hit_counts[0] / n, self.hit_counts[1] / n

    def _record_outcome(self, held: tuple[bool, bool]) -> None:
        gone = self.recent_hits[0] if len(self.recent_hits) == _WINDOW else (False, False)
        self.hit_counts = (self.hit_counts[0] + held[0] - gone[0], self.hit_counts[1] + held[1] - gone[1])
        self.recent_hits.append(held)

    def issue_estimate(self, job: str, now: int, predicted: int, planned: int, late: int) -> CalibratedStart:
        """Return the expected start of a waiting job and record it as an estimate.

        ``predicted`` and ``late`` are P50 and P90 of the sampled starts (``late`` = -1: unknown); ``planned``
        is the start by walltimes.
        """
        self.advance_clock(now)
        expected = self.estimate(now, predicted, planned, late)
        self.record_estimate(job, now, expected, planned, late)
        return expected

    def estimate(
        self, now: int, predicted: int, planned: int, late: int, delay: StartDelay = NO_START_DELAY
    ) -> CalibratedStart:
        """Return the expected start without recording it; ``delay``: of starts of due jobs."""
        due = max(predicted, now)
        p50 = max(due + delay.p50, now + 1)
        base = _base(now, planned, late, delay)
        band = self.band(base)
        correction, shift = band.correction, band.shift
        if band.outcomes < _ENOUGH:
            correction = max(correction, _base(now, planned, -1, delay) - base)
            shift = max(shift, 0.0)
        wait = exp(min(base + correction + shift, log(_LONGEST_WAIT_S)))
        return CalibratedStart(p50, max(p50, due + delay.p90, now + round(wait) - _FLOOR))

    def record_estimate(
        self,
        job: str,
        at: int,
        expected: CalibratedStart,
        planned: int,
        late: int,
        delay: StartDelay = NO_START_DELAY,
    ) -> None:
        """Record an estimate, to learn from its outcome."""
        self.estimates[job] = StartEstimate(at, expected, _base(at, planned, late, delay))
        heapq.heappush(self.pending_p90, (expected.p90, job))

    def record_start(self, job: str, now: int) -> None:
        """Learn from the start of a job; a job without an estimate is ignored."""
        self.advance_clock(now)
        told = self.estimates.pop(job, None)
        if told is None:
            return
        band = self.band(told.base)
        band.add_error(log(now - told.issued_at + _FLOOR) - told.base)
        if now <= told.expected.p90:
            band.move(-_STEP * _MISSES)
            self._record_outcome((now <= told.expected.p50, True))

    def band(self, base: float) -> WaitBand:
        """Return the calibration of estimates with such a base."""
        return self.bands[bisect_left(_BAND_ENDS, base)]

    def without_estimates(self) -> "StartCalibration":
        return replace(self.copy(), pending_p90=[], estimates={})

    def forget(self, job: str) -> None:
        """Discard the estimate of a job that will not start."""
        self.estimates.pop(job, None)

    def advance_clock(self, now: int) -> None:
        """Count each estimate with a P90 before ``now`` as a miss."""
        while self.pending_p90 and self.pending_p90[0][0] < now:
            moment, job = heapq.heappop(self.pending_p90)
            told = self.estimates.get(job)
            if told is not None and told.expected.p90 == moment:
                self.band(told.base).move(_STEP * (1.0 - _MISSES))
                self._record_outcome((False, False))

    # ---- saved ----------------------------------------------------------------------------------

    def copy(self) -> "StartCalibration":
        """Return an independent copy."""
        return replace(
            self,
            bands=tuple(band.copy() for band in self.bands),
            pending_p90=list(self.pending_p90),
            estimates=dict(self.estimates),
            recent_hits=self.recent_hits.copy(),
        )

    def save(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        estimates = [
            [job, t.issued_at, t.expected.p50, t.expected.p90, t.base] for job, t in self.estimates.items()
        ]
        return {
            "bands": [band.save() for band in self.bands],
            "pending_p90": sorted(self.pending_p90),
            "estimates": estimates,
            "recent_hits": [[p50, p90] for p50, p90 in self.recent_hits],
        }

    @classmethod
    def load(cls, plain: Mapping[str, Any]) -> "StartCalibration":
        """Restore from the result of ``save``. Raises KeyError, TypeError or ValueError for other input."""
        new = cls(
            tuple(WaitBand.load(band) for band in plain["bands"]),
            [(moment, job) for moment, job in plain["pending_p90"]],
            {
                job: StartEstimate(at, CalibratedStart(p50, p90), base)
                for job, at, p50, p90, base in plain["estimates"]
            },
            deque(((bool(p50), bool(p90)) for p50, p90 in plain["recent_hits"]), _WINDOW),
            (sum(p50 for p50, _ in plain["recent_hits"]), sum(p90 for _, p90 in plain["recent_hits"])),
        )  # fmt: skip
        heapq.heapify(new.pending_p90)
        if len(new.bands) != len(_BAND_ENDS) + 1:
            raise ValueError(f"{len(new.bands)} bands of waits, {len(_BAND_ENDS) + 1} are expected")
        return new


def _base(now: int, planned: int, late: int, delay: StartDelay) -> float:
    least = _FLOOR + delay.p90
    by_plan = log(max(planned - now, 0) + least)
    return (by_plan + log(max(late - now, 0) + least)) / 2 if late >= 0 else by_plan
