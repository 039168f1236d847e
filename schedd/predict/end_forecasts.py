"""Forecast of a job's end: the probability that it ends by a given time.

The end is the start plus the run time, which are taken as independent. If one of the job's nodes fails while
the job runs, the run ends too early; nodes fail at a constant rate.

The logarithm of the wait has a logistic distribution with one scale before its median and another one after
it: the P90 after it is the calibrated one, the P10 before it comes from the sampled starts. The samples draw
the run times of the jobs independently, so a long queue averages them out, and the calibration of P90 is the
same for jobs with samples that agree: both scales have a minimum.
"""

from collections.abc import Callable
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
        latest = deadline - self.run_times
        started = self.start.probability_by(latest) if self.start is not None else latest >= self.begun
        survives = np.exp(-failure_rate * (self.run_times - self.elapsed))
        return float((started * survives).mean())

    def earliest_deadline(
        self, wanted: float, failure_rate: float, calibrate: Callable[[float], float] = lambda found: found
    ) -> int | None:
        """Return the earliest deadline that the job meets with the probability ``wanted``; None: none, since
        its nodes may fail.

        ``calibrate`` corrects a probability and must not decrease.
        """
        begin = self.start.now if self.start is not None else self.begun

        def suffices(deadline: int) -> bool:
            return calibrate(self.probability(deadline, failure_rate)) >= wanted

        if not suffices(begin + _LONGEST_S):
            return None
        low, length = begin, int(self.run_times[-1]) + 1
        while length < _LONGEST_S and not suffices(begin + length):
            low, length = begin + length, 2 * length
        high = begin + min(length, _LONGEST_S)
        while high - low > 1:
            middle = (low + high) // 2
            if suffices(middle):
                high = middle
            else:
                low = middle
        return high


def _equally_probable(run_time: Prediction, elapsed: int, risk: DelayRisk | None) -> Ints:
    found = sample_run_times([run_time], np.array([elapsed], np.int64), _LEVELS)[0]
    # A run ends at its walltime; one that exceeds it may end at any moment.
    ordered: Ints = np.sort(np.minimum(found, max(run_time.walltime, elapsed + 1)))
    if risk is None:
        return ordered
    return np.array(delayed_quantiles(ordered, risk, 0, elapsed, tuple(_LEVELS[0].tolist())), np.int64)
