"""Calibration of predicted probabilities by outcomes.

The logit of a predicted probability is corrected by a line (Platt 1999), fitted to the latest outcomes with
a prior for no correction, so that few outcomes change little. An outcome counts when its deadline passes,
also if the job ended long before: misses would come later than hits otherwise.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from operator import index
from typing import Any, Final

import numpy as np

from schedd.predict.predictions import Floats

_WINDOW: Final = 500
"""Latest outcomes that count."""
_ENOUGH: Final = 20
"""Outcomes before the first correction."""
_RENEWED: Final = 10
"""Outcomes between two corrections."""
_LEAST: Final = 1e-4
"""No forecast is surer than this, or than one minus this."""
_PRIOR_OFFSET: Final = 1.0
_PRIOR_SLOPE: Final = 0.5
"""Standard deviations of the correction's offset and slope before any outcome."""
_LEAST_SLOPE, _MOST_SLOPE = 0.1, 5.0
_STEPS: Final = 20
BINS: Final = 10
"""Parts of [0, 1] by which predicted and observed shares are compared."""


@dataclass(frozen=True, slots=True)
class ProbabilityOutcome:
    """A probability as predicted (``raw``) and as corrected when it was published, and whether the job met
    the deadline.
    """

    raw: float
    probability: float
    met: bool


@dataclass(frozen=True, slots=True)
class OpenForecast:
    """A forecast whose deadline has not passed."""

    deadline: int
    raw: float
    probability: float
    met: bool = False


@dataclass(frozen=True, slots=True)
class Correction:
    """Correction of probabilities: ``logit(p) -> offset + slope * logit(p)``, which never decreases."""

    offset: float = 0.0
    slope: float = 1.0

    def apply(self, raw: float) -> float:
        """Return the corrected probability; 0 stays 0."""
        if raw <= 0.0:
            return 0.0
        corrected = self.offset + self.slope * _logit(raw)
        return min(max(1 / (1 + exp(-corrected)), _LEAST), 1 - _LEAST)


@dataclass(frozen=True, slots=True)
class ProbabilityBin:
    """Outcomes of forecasts with a probability of ``low`` to ``high``: their number, the mean predicted
    probability, and the share that met the deadline.
    """

    low: float
    high: float
    count: int
    predicted: float
    observed: float


@dataclass(slots=True)
class ProbabilityCalibration:
    """Forecasts of one kind and their correction; not thread-safe. Times never go back."""

    open: dict[str, OpenForecast] = field(default_factory=dict)
    outcomes: deque[ProbabilityOutcome] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    count: int = 0
    """Outcomes learned from."""
    correction: Correction = Correction()
    _due: list[tuple[int, str]] = field(default_factory=list)
    """Heap of (deadline, job); entries of replaced forecasts are skipped."""

    def __bool__(self) -> bool:
        """Whether there may be open forecasts."""
        return bool(self._due)

    def issue(self, job: str, deadline: int, raw: float, probability: float) -> None:
        """Record a forecast, to learn from its outcome."""
        self.open[job] = OpenForecast(deadline, raw, probability)
        heapq.heappush(self._due, (deadline, job))

    def record_end(self, job: str, at: int) -> None:
        """Record that a job ended by itself; one without a forecast is ignored."""
        known = self.open.get(job)
        if known is not None and at <= known.deadline:
            self.open[job] = replace(known, met=True)

    def forget(self, job: str) -> None:
        """Discard the forecast of a job that was deleted, held or changed, but not that of an ended job."""
        known = self.open.get(job)
        if known is not None and not known.met:
            del self.open[job]

    def advance_clock(self, now: int) -> bool:
        """Count the forecasts with a deadline before ``now``; return whether there was one."""
        counted = False
        while self._due and self._due[0][0] < now:
            deadline, job = heapq.heappop(self._due)
            known = self.open.get(job)
            if known is None or known.deadline != deadline:
                continue
            del self.open[job]
            self.outcomes.append(ProbabilityOutcome(known.raw, known.probability, known.met))
            self.count += 1
            counted = True
            if self.count >= _ENOUGH and self.count % _RENEWED == 0:
                self.correction = fit_correction(self.outcomes)
        return counted

    # ---- saved ----------------------------------------------------------------------------------

    def copy(self) -> "ProbabilityCalibration":
        """Return an independent copy."""
        return replace(self, open=dict(self.open), outcomes=self.outcomes.copy(), _due=list(self._due))

    def without_open(self) -> "ProbabilityCalibration":
        """Return a copy without the open forecasts."""
        return replace(self.copy(), open={}, _due=[])

    def save(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "open": [
                [job, one.deadline, one.raw, one.probability, one.met] for job, one in self.open.items()
            ],
            "outcomes": [[one.raw, one.probability, one.met] for one in self.outcomes],
            "count": self.count,
            "correction": [self.correction.offset, self.correction.slope],
        }

    @classmethod
    def load(cls, plain: Mapping[str, Any]) -> "ProbabilityCalibration":
        """Restore from the result of ``save``. Raises KeyError, TypeError or ValueError for other input."""
        offset, slope = plain["correction"]
        new = cls(
            outcomes=deque(
                (
                    ProbabilityOutcome(float(raw), float(shown), bool(met))
                    for raw, shown, met in plain["outcomes"]
                ),
                _WINDOW,
            ),
            count=index(plain["count"]),
            correction=Correction(float(offset), float(slope)),
        )
        for job, deadline, raw, shown, met in plain["open"]:
            new.open[job] = OpenForecast(index(deadline), float(raw), float(shown), bool(met))
            new._due.append((deadline, job))
        heapq.heapify(new._due)
        return new


def fit_correction(outcomes: Iterable[ProbabilityOutcome]) -> Correction:
    """Return the most probable correction after these outcomes (Newton's method)."""
    known = list(outcomes)
    x: Floats = np.array([_logit(one.raw) for one in known])
    met: Floats = np.array([one.met for one in known], np.float64)
    precision = np.array([_PRIOR_OFFSET**-2, _PRIOR_SLOPE**-2])
    prior = np.array([0.0, 1.0])
    rows = np.stack([np.ones_like(x), x])
    line = prior.copy()
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-(line @ rows)))
        gradient = rows @ (p - met) + precision * (line - prior)
        curvature = (rows * (p * (1 - p))) @ rows.T + np.diag(precision)
        step = np.linalg.solve(curvature, gradient)
        line -= np.clip(step, -1.0, 1.0)
        line[1] = min(max(line[1], _LEAST_SLOPE), _MOST_SLOPE)
    return Correction(float(line[0]), float(line[1]))


def probability_bins(outcomes: Sequence[ProbabilityOutcome]) -> tuple[ProbabilityBin, ...]:
    """Return predicted and observed shares by tenths of the published probability; empty ones are left
    out.
    """
    shown: Floats = np.array([one.probability for one in outcomes])
    met: Floats = np.array([one.met for one in outcomes], np.float64)
    place = np.minimum((shown * BINS).astype(np.int64), BINS - 1)
    return tuple(
        ProbabilityBin(
            k / BINS,
            (k + 1) / BINS,
            int(which.sum()),
            float(shown[which].mean()),
            float(met[which].mean()),
        )
        for k in range(BINS)
        if (which := place == k).any()
    )


def _logit(probability: float) -> float:
    inside = min(max(probability, _LEAST), 1 - _LEAST)
    return log(inside / (1 - inside))
