"""Accuracy of start estimates: coverage, error, pinball loss and sharpness."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from schedd.plan.columns import Ints

NOT_YET: Final = 1 << 60  # start of a job that has not started although its P90 has passed


@dataclass(frozen=True, slots=True)
class EstimateOutcomes:
    """Start estimates issued at ``at`` and the actual starts: arrays of equal length, seconds since the
    epoch.

    ``planned`` is the planned start at ``at``.
    """

    at: Ints
    p50: Ints
    p90: Ints
    planned: Ints
    actual: Ints

    def select(self, which: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> "EstimateOutcomes":
        """Return the rows where ``which`` is true."""
        return EstimateOutcomes(
            *(column[which] for column in (self.at, self.p50, self.p90, self.planned, self.actual))
        )


@dataclass(frozen=True, slots=True)
class AccuracyFigures:
    """Accuracy of start estimates. Times in seconds, shares in 0..1; None: no data."""

    count: int
    """Number of estimates with a P90 in the past."""
    p90_coverage: float | None = None
    """Share of jobs that started by their P90."""
    p50_coverage: float | None = None
    """Share of jobs that started by their P50."""
    median_error: float | None = None
    """Median of ``|actual - p50|``."""
    plan_median_error: float | None = None
    """Median of ``|actual - planned|``."""
    error_ratio: float | None = None
    """``median_error / plan_median_error``."""
    pinball_50: float | None = None
    """Mean pinball loss of P50."""
    pinball_90: float | None = None
    """Mean pinball loss of P90."""
    sharpness: float | None = None
    """``median(p90 - at) / median(p50 - at)``; a far P90 has good coverage and bad sharpness."""


def measure_accuracy(outcomes: EstimateOutcomes) -> AccuracyFigures:
    """Return all figures. Jobs that have not started count only for the coverage."""
    n = outcomes.at.shape[0]
    if not n:
        return AccuracyFigures(0)
    covered = AccuracyFigures(
        n, float((outcomes.actual <= outcomes.p90).mean()), float((outcomes.actual <= outcomes.p50).mean())
    )
    known = outcomes.select(outcomes.actual < NOT_YET)
    if not known.at.shape[0]:
        return covered
    error = float(np.median(np.abs(known.actual - known.p50)))
    of_plan = float(np.median(np.abs(known.actual - known.planned)))
    expected = float(np.median(known.p50 - known.at))
    return AccuracyFigures(
        n,
        covered.p90_coverage,
        covered.p50_coverage,
        error,
        of_plan,
        error / of_plan if of_plan > 0 else None,
        _pinball(known.actual, known.p50, 0.5),
        _pinball(known.actual, known.p90, 0.9),
        float(np.median(known.p90 - known.at)) / expected if expected > 0 else None,
    )


def _pinball(actual: Ints, outcomes: Ints, level: float) -> float:
    late = actual - outcomes
    return float(np.maximum(level * late, (level - 1.0) * late).mean())
