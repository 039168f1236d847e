"""Forecast of a job's end: the probability that it ends by a given time.

The end is the start plus the run time, which are taken as independent. If one of the job's nodes fails while
the job runs, the run ends too early; nodes fail at a constant rate.

The logarithm of the wait has a logistic distribution with one scale before its median and another one after
it: the P90 after it is the calibrated one, the P10 before it comes from the sampled starts. The samples draw
the run times of the jobs independently, so a long queue averages them out, and the calibration of P90 is the
same for jobs with samples that agree: both scales have a minimum.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Final

import numpy as np

from schedd.model import FOREVER
from schedd.plan.columns import Ints
from schedd.predict.delay_risks import DelayRisk, delayed_quantiles
from schedd.predict.predictions import Floats, Prediction
from schedd.predict.sampling import sample_run_times
from schedd.predict.start_calibration import CalibratedStart

_RUN_TIMES: Final = 100
"""Equally probable run times of a forecast."""
_LEVELS: Final[Floats] = ((np.arange(_RUN_TIMES) + 0.5) / _RUN_TIMES).reshape(1, -1)
_EARLY: Final = 0.1
_FLOOR_S: Final = 60
"""Seconds added to a wait before its logarithm is taken, as in the calibration of starts."""
_LN9: Final = log(9)
"""Logit of 0.9."""
_LEAST_EARLY_SCALE: Final = 0.3
"""Smallest scale of the logarithm of the wait before its median: a tenth of the jobs wait at most half as
long. On ten windows of five logs a tenth waited at most 0.16 to 0.7 of the median, most of these without a
sample as early."""
_LEAST_LATE_SCALE: Final = 0.07
"""Smallest scale after the median: a tenth of the jobs wait at least a sixth longer. Where P90 was nearer to
P50, for 10 to 27 % of the jobs, it covered 44 to 85 % of the starts."""
_FAR: Final = 50.0
"""Scaled distance from the median beyond which the probability is 0 or 1."""
_LONGEST_S: Final = 10 * 366 * 86_400
_PARTS: Final = 8  # parts of an interval of deadlines that a search compares at once

Calibrate = Callable[[float], float]
"""Corrects a probability; does not decrease."""


def uncorrected(probability: float) -> float:
    """Return the probability."""
    return probability


@dataclass(frozen=True, slots=True)
class StartDistribution:
    """Distribution of the start of a waiting job at ``now``; times in seconds since the epoch.

    ``early``, ``p50`` and ``p90`` are its quantiles, ascending. It does not start before ``not_before``, its
    requested start (0: none), nor after ``latest``, the promised start (FOREVER: none).
    """

    now: int
    early: int
    p50: int
    p90: int
    latest: int = FOREVER
    not_before: int = 0

    @classmethod
    def from_samples(
        cls, now: int, starts: Ints, expected: CalibratedStart, latest: int, not_before: int = 0
    ) -> "StartDistribution":
        """Return the distribution of a job with these sampled ``starts`` (-1: none)."""
        known = starts[starts >= 0]
        early = expected.p50
        if known.shape[0]:
            early -= int(np.median(known) - np.quantile(known, _EARLY))
        return cls(now, early, expected.p50, expected.p90, latest, not_before)

    def probability_by(self, times: Ints) -> Floats:
        """Return the probability that the job starts no later than each of ``times``."""
        wait = np.maximum(times - self.now, 0) + _FLOOR_S
        early, middle, late = (
            log(max(one - self.now, 0) + _FLOOR_S) for one in (self.early, self.p50, self.p90)
        )
        before = max((middle - early) / _LN9, _LEAST_EARLY_SCALE)
        after = max((late - middle) / _LN9, _LEAST_LATE_SCALE)
        distance = np.log(wait) - middle
        scaled = np.clip(distance / np.where(distance < 0, before, after), -_FAR, _FAR)
        found: Floats = 1 / (1 + np.exp(-scaled))
        if self.latest > self.now:
            found = np.where(times >= self.latest, 1.0, found)
        return np.where(times < max(self.now, self.not_before), 0.0, found)


@dataclass(frozen=True, slots=True)
class EndForecast:
    """Distribution of the end of a job. ``nodes`` are where it is planned or runs.

    ``run_times`` are equally probable times from start to end in seconds, ascending, with the delays of
    preemptions. A running job began at ``begun``
    and has run for ``elapsed`` seconds; a waiting one has a distribution of its ``start``.
    """

    start: StartDistribution | None
    run_times: Ints
    nodes: tuple[str, ...]
    begun: int = -1
    elapsed: int = 0

    @classmethod
    def for_waiting_job(
        cls,
        start: StartDistribution,
        run_time: Prediction,
        nodes: tuple[str, ...],
        risk: DelayRisk | None = None,
    ) -> "EndForecast":
        """Return the forecast of a job that has not started; ``risk``: of delays while it runs."""
        return cls(start, _equally_probable(run_time, 0, risk), nodes)

    @classmethod
    def for_running_job(
        cls,
        begun: int,
        now: int,
        run_time: Prediction,
        nodes: tuple[str, ...],
        risk: DelayRisk | None = None,
    ) -> "EndForecast":
        """Return the forecast of a job that runs since ``begun``."""
        elapsed = max(now - begun, 0)
        return cls(None, _equally_probable(run_time, elapsed, risk), nodes, begun, elapsed)

    def probability(self, deadline: int, failure_rate: float) -> float:
        """Return the probability that the job ends by ``deadline``.

        ``failure_rate`` is the sum of the failures per second of its nodes. The result grows with the
        deadline and falls with the rate.
        """
        return float(self._probabilities([deadline], failure_rate)[0])

    def _probabilities(self, deadlines: Sequence[int], failure_rate: float) -> Floats:
        """Return ``probability`` of each deadline."""
        latest = np.array(deadlines, np.int64)[:, np.newaxis] - self.run_times
        started = self.start.probability_by(latest) if self.start is not None else latest >= self.begun
        survives = np.exp(-failure_rate * (self.run_times - self.elapsed))
        found: Floats = (started * survives).mean(axis=1)
        return found

    def earliest_deadline(
        self, wanted: float, failure_rate: float, calibrate: Calibrate = uncorrected
    ) -> int | None:
        """Return the earliest deadline that the job meets with the probability ``wanted``; None: none, since
        its nodes may fail.

        ``calibrate`` corrects a probability and must not decrease.
        """
        return self.earliest_deadlines([(wanted, calibrate)], failure_rate)[0]

    def earliest_deadlines(
        self, wanted: Sequence[tuple[float, Calibrate]], failure_rate: float
    ) -> list[int | None]:
        """Return ``earliest_deadline`` for each probability, with the function that corrects it.

        All are searched together: the probabilities of 50 deadlines cost little more than that of one.
        """
        begin = self.start.now if self.start is not None else self.begun
        lengths = [int(self.run_times[-1]) + 1]
        while lengths[-1] < _LONGEST_S:
            lengths.append(2 * lengths[-1])
        steps = [begin, *(begin + min(length, _LONGEST_S) for length in lengths)]
        found = self._probabilities(steps[1:], failure_rate).tolist()
        bounds: list[tuple[int, int] | None] = []
        """Of each search: a deadline that is too early, and one that suffices; None: none does."""
        for least, calibrate in wanted:
            at = next((k for k, one in enumerate(found, 1) if calibrate(one) >= least), None)
            bounds.append((steps[at - 1], steps[at]) if at is not None else None)
        while True:
            tried = {
                (low * (_PARTS - k) + high * k) // _PARTS
                for low, high in filter(None, bounds)
                for k in range(1, _PARTS)
                if high - low > 1
            }
            if not tried:
                return [one[1] if one is not None else None for one in bounds]
            ordered = sorted(tried)
            found = self._probabilities(ordered, failure_rate).tolist()
            for number, (least, calibrate) in enumerate(wanted):
                if (one := bounds[number]) is not None:
                    bounds[number] = _narrow(*one, ordered, found, lambda raw: calibrate(raw) >= least)  # noqa: B023


def _narrow(
    low: int, high: int, deadlines: Sequence[int], found: Sequence[float], suffices: Callable[[float], bool]
) -> tuple[int, int]:
    """Return the bounds of a search that follow from the probabilities ``found`` of ascending deadlines."""
    for deadline, one in zip(deadlines, found, strict=True):
        if low < deadline < high:
            if suffices(one):
                return low, deadline
            low = deadline
    return low, high


def _equally_probable(run_time: Prediction, elapsed: int, risk: DelayRisk | None) -> Ints:
    found = sample_run_times([run_time], np.array([elapsed], np.int64), _LEVELS)[0]
    # A run ends at its walltime; one that exceeds it may end at any moment.
    ordered: Ints = np.sort(np.minimum(found, max(run_time.walltime, elapsed + 1)))
    if risk is None:
        return ordered
    return np.array(delayed_quantiles(ordered, risk, 0, elapsed, tuple(_LEVELS[0].tolist())), np.int64)
