"""How right expected starts were: told against what came true, with a measure that cannot be had cheaply."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from schedd.plan.columns import Ints

__all__ = ["NOT_YET", "Figures", "Outcomes", "figures"]

NOT_YET: Final = 1 << 60
"""Stands for the start of a job that has not started though its P90 has passed."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What was told at moments ``at``: arrays of equal length, in seconds since the epoch.

    The jobs started at ``actual``; ``planned`` is where the plan had them then.
    """

    at: Ints
    p50: Ints
    p90: Ints
    planned: Ints
    actual: Ints

    def of(self, which: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> "Outcomes":
        """Some of them."""
        return Outcomes(
            *(column[which] for column in (self.at, self.p50, self.p90, self.planned, self.actual))
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """How good told starts were. Seconds, and shares between 0 and 1; None: there is nothing to tell of."""

    count: int
    """How many were told whose outcome is known."""
    p90_coverage: float | None = None
    """The share that had started by the moment told for nine of ten cases."""
    p50_coverage: float | None = None
    """The share that had started by the moment told for half of them."""
    median_error: float | None = None
    """Median of what the expected start was wrong by, either way."""
    plan_median_error: float | None = None
    """The same of the planned start at that moment, by walltimes."""
    error_ratio: float | None = None
    """The former over the latter."""
    pinball_50: float | None = None
    """Mean loss of the expected start (pinball, at 0.5)."""
    pinball_90: float | None = None
    """Mean loss of the moment told for nine of ten cases (pinball, at 0.9)."""
    sharpness: float | None = None
    """Median wait told for nine of ten cases over the median wait expected: coverage alone is easily had."""


def figures(told: Outcomes) -> Figures:
    """All of it. Jobs that have not started count for the coverage alone."""
    n = told.at.shape[0]
    if not n:
        return Figures(0)
    covered = Figures(n, float((told.actual <= told.p90).mean()), float((told.actual <= told.p50).mean()))
    known = told.of(told.actual < NOT_YET)
    if not known.at.shape[0]:
        return covered
    error = float(np.median(np.abs(known.actual - known.p50)))
    of_plan = float(np.median(np.abs(known.actual - known.planned)))
    expected = float(np.median(known.p50 - known.at))
    return Figures(
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


def _pinball(actual: Ints, told: Ints, level: float) -> float:
    late = actual - told
    return float(np.maximum(level * late, (level - 1.0) * late).mean())
