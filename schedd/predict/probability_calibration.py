"""Calibration of predicted probabilities by outcomes.

The logit of a predicted probability is corrected by a line (Platt 1999), fitted to the latest outcomes with
a prior for no correction, so that few outcomes change little. An outcome counts when its deadline passes,
also if the job ended long before: misses would come later than hits otherwise.

Jobs that wait through the same events are early or late together, as the hundreds of a user who submits all
at once. Outcomes are therefore grouped in periods, which are independent, and each period counts as one
outcome.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from operator import index
from typing import Any, Final

import numpy as np

from schedd.predict.halts import NO_HALTS, Halts
from schedd.predict.predictions import Floats

_WINDOW: Final = 500
"""Latest outcomes by which the accuracy is measured."""
_PERIODS: Final = 200
"""Latest periods that the correction is fitted to."""
_ENOUGH: Final = 20
"""Outcomes before the first correction."""
_RENEWED: Final = 10
"""Outcomes between two corrections."""
_LEAST: Final = 1e-4
"""Bound of the certainty of forecasts: probabilities lie between this and one minus this."""
_PRIOR_OFFSET: Final = 0.5
_PRIOR_SLOPE: Final = 0.3
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
    """A forecast, made at ``issued_at``, whose deadline has not passed."""

    issued_at: int
    deadline: int
    raw: float
    probability: float
    met: bool = False


@dataclass(frozen=True, slots=True)
class OutcomeSum:
    """Outcomes with similar raw probabilities: their number, the sum of the logits, and how many were met."""

    count: int = 0
    logits: float = 0.0
    met: int = 0


@dataclass(frozen=True, slots=True)
class OutcomePeriod:
    """Outcomes of a period, by tenths of the raw probability."""

    bins: tuple[OutcomeSum, ...] = (OutcomeSum(),) * BINS

    @property
    def count(self) -> int:
        """Number of outcomes."""
        return sum(one.count for one in self.bins)

    def with_outcome(self, raw: float, met: bool) -> "OutcomePeriod":
        """Return the period with one more outcome."""
        k = min(int(raw * BINS), BINS - 1)
        old = self.bins[k]
        new = OutcomeSum(old.count + 1, old.logits + _logit(raw), old.met + met)
        return OutcomePeriod((*self.bins[:k], new, *self.bins[k + 1 :]))

    def save(self) -> list[list[Any]]:
        """Return the bins with outcomes as JSON values."""
        return [[k, one.count, one.logits, one.met] for k, one in enumerate(self.bins) if one.count]

    @classmethod
    def load(cls, plain: Iterable[Sequence[Any]]) -> "OutcomePeriod":
        """Restore from the result of ``save``. Raises IndexError, TypeError or ValueError for other input."""
        bins = [OutcomeSum()] * BINS
        for k, count, logits, met in plain:
            bins[index(k)] = OutcomeSum(index(count), float(logits), index(met))
        return cls(tuple(bins))


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
    periods: deque[OutcomePeriod] = field(default_factory=lambda: deque(maxlen=_PERIODS))
    """The latest periods. A period begins with the first outcome of a forecast that was made after the begin
    of the one before.
    """
    period_since: int = 0
    count: int = 0
    """Outcomes learned from."""
    correction: Correction = Correction()
    _due: list[tuple[int, str]] = field(default_factory=list)
    """Heap of (deadline, job); entries of replaced forecasts are skipped."""

    def __bool__(self) -> bool:
        """Whether there may be open forecasts."""
        return bool(self._due)

    def issue(self, job: str, now: int, deadline: int, raw: float, probability: float) -> None:
        """Record a forecast made at ``now``, to learn from its outcome."""
        self.open[job] = OpenForecast(now, deadline, raw, probability)
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

    def advance_clock(self, now: int, halts: Halts = NO_HALTS) -> bool:
        """Count the forecasts with a deadline before ``now``; return whether there was one.

        A forecast before one of the ``halts`` of starts and with a later deadline counts neither as met nor
        as missed.
        """
        counted, learned = False, None
        while self._due and self._due[0][0] < now:
            deadline, job = heapq.heappop(self._due)
            known = self.open.get(job)
            if known is None or known.deadline != deadline:
                continue
            del self.open[job]
            if halts.affect(known.issued_at, deadline, deadline):
                continue
            self._learn(known)
            counted = True
            if self.count >= _ENOUGH and self.count % _RENEWED == 0:
                learned = tuple(self.periods)
        if learned is not None:
            self.correction = fit_correction(learned)  # once: hundreds of deadlines may pass together
        return counted

    def _learn(self, known: OpenForecast) -> None:
        """Learn from a forecast whose deadline has passed."""
        self.outcomes.append(ProbabilityOutcome(known.raw, known.probability, known.met))
        self.count += 1
        if not self.periods or known.issued_at >= self.period_since:
            self.periods.append(OutcomePeriod())
            self.period_since = known.deadline
        self.periods[-1] = self.periods[-1].with_outcome(known.raw, known.met)

    # ---- saved ----------------------------------------------------------------------------------

    def copy(self) -> "ProbabilityCalibration":
        """Return an independent copy."""
        return replace(
            self,
            open=dict(self.open),
            outcomes=self.outcomes.copy(),
            periods=self.periods.copy(),
            _due=list(self._due),
        )

    def without_open(self) -> "ProbabilityCalibration":
        """Return a copy without the open forecasts."""
        return replace(self.copy(), open={}, _due=[])

    def save(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "open": [
                [job, one.deadline, one.raw, one.probability, one.met, one.issued_at]
                for job, one in self.open.items()
            ],
            "outcomes": [[one.raw, one.probability, one.met] for one in self.outcomes],
            "periods": [self.period_since, *(one.save() for one in self.periods)],
            "count": self.count,
            "correction": [self.correction.offset, self.correction.slope],
        }

    @classmethod
    def load(cls, plain: Mapping[str, Any]) -> "ProbabilityCalibration":
        """Restore from the result of ``save``. Raises KeyError, TypeError or ValueError for other input.

        A state without periods has no correction: it was learned for other forecasts.
        """
        since, *periods = plain.get("periods", (0,))
        offset, slope = plain["correction"] if periods else (0.0, 1.0)
        new = cls(
            outcomes=deque(
                (
                    ProbabilityOutcome(float(raw), float(shown), bool(met))
                    for raw, shown, met in plain["outcomes"]
                ),
                _WINDOW,
            ),
            periods=deque((OutcomePeriod.load(one) for one in periods), _PERIODS),
            period_since=index(since),
            count=index(plain["count"]),
            correction=Correction(float(offset), float(slope)),
        )
        for job, deadline, raw, shown, met, *issued_at in plain["open"]:
            issued = index(issued_at[0]) if issued_at else 0
            new.open[job] = OpenForecast(issued, index(deadline), float(raw), float(shown), bool(met))
            new._due.append((deadline, job))
        heapq.heapify(new._due)
        return new


def fit_correction(periods: Iterable[OutcomePeriod]) -> Correction:
    """Return the most probable correction after these periods, each as one outcome (Newton's method)."""
    sums = [
        (one.logits / one.count, one.met / one.count, one.count / period.count)
        for period in periods
        for one in period.bins
        if one.count
    ]
    x, met, weight = np.array(sums, np.float64).reshape(-1, 3).T
    precision = np.array([_PRIOR_OFFSET**-2, _PRIOR_SLOPE**-2])
    prior = np.array([0.0, 1.0])
    rows = np.stack([np.ones_like(x), x])
    line = prior.copy()
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-(line @ rows)))
        gradient = rows @ (weight * (p - met)) + precision * (line - prior)
        curvature = (rows * (weight * p * (1 - p))) @ rows.T + np.diag(precision)
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
