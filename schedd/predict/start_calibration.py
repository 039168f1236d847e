"""Calibration of expected starts.

The samples know later jobs only by the latest ones, and no higher priority that these may have. P90 is
therefore the 90th percentile of the samples, corrected by conformal prediction over the latest outcomes and
by small steps after each hit and miss (Gibbs and Candès 2021). Both are factors on the wait, and are learned
apart for short and long waits: where near jobs start minutes late, the factor of these would move P90 of long
waits by days; that of waits of hours makes P90 of a day ahead as early as P50. Until there are enough
outcomes for a correction, the wait is a quarter longer, but not after the planned start by walltimes.

P50 is the median of the samples. Where it covers fewer than 48 or more than 56 % of the jobs, it is moved as
far as these bounds. In both corrections, jobs that still wait count with their wait so far (Kaplan and Meier
1958): the started jobs are a biased sample of early ones. For the same reason the small step after a hit
waits until P90 has passed. Outcomes of few periods get a margin for the error that the jobs of one period
share.

Nothing is learned from a wait during which all starts were halted, and it does not count in the accuracy: the
estimate could not know it, and the next ones are no later because of it.

The delay of starts is added to all of these times: no estimate is earlier than a start that was due now.
"""

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, comb, exp, floor, log, sqrt
from typing import Any, Final, NamedTuple

import numpy as np

from schedd.plan.columns import Ints
from schedd.predict.delays import NO_DELAY, Delay
from schedd.predict.halts import Halts
from schedd.predict.predictions import Floats

_WINDOW: Final = 300
_ENOUGH: Final = 20  # outcomes before the first correction
_PRIOR_P90: Final = log(1.25)
"""Correction of P90 before that. On new simulated clusters of 20 to 1,000 nodes 90 % of the waits were over
after 0.8 to 1.9 times P90 of the samples, the latter without known run times.
"""
_FLOOR: Final = 60
"""Seconds added to a wait before its logarithm is taken; limits the resolution to about a minute."""
_MOST_DOWN, _MOST_UP = 5.0, 3.0  # bounds of the correction, needed for bases near zero
_STEP: Final = 0.03
_SHIFT_MOST: Final = 1.0
"""Bound of the sum of small steps, together with the part of the correction that comes from jobs that still
wait. Without it thousands of jobs that wait through one outage, each a miss, would move P90 to another
century, and as many hits would be needed to move it back (integrator windup)."""
_P50_BOUNDS: Final = (0.48, 0.56)
"""P50 is corrected as far as needed to cover this share of the jobs. A correction of smaller errors follows
chance: on logs it made the median error larger."""
_P50_MOST: Final = 1.0  # bound of the correction of P50, for jobs that wait through an outage
_P50_DOUBT: Final = 10  # outcomes with which half of the correction of P50 counts
_PERIODS: Final = 100
_LONGEST_WAIT_S: Final = 10 * 366 * 86_400
_MISSES: Final = 0.1
_NORMAL_P90: Final = 1.2816  # 90 % quantile of the normal distribution, 80 % quantile of its absolute value
_PRIOR_SHARED: Final = 0.2
"""Standard deviation of the error that the jobs of one period share, before periods are known."""
_PRIOR_PERIODS: Final = 2  # weight of this prior: as much as two observed periods
_CHANCE: Final = 0.01  # probability below which a deviation of P90's coverage is not attributed to chance
_BAND_ENDS: Final = tuple(log(seconds + _FLOOR) for seconds in (600, 3_600, 6 * 3_600, 24 * 3_600))
"""Upper bases of the bands of waits: 10 minutes, an hour, 6 hours, a day."""
_LAST_P50_BAND: Final = 3
"""The correction of P50 has one band for all waits of more than 6 hours: with fewer outcomes in each it comes
later, and P50 a day ahead is too early meanwhile.
"""


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
    p50_base: float | None = None
    """Logarithm of the wait behind P50; None: P50 of the samples was not recorded."""


class EarlyHit(NamedTuple):
    """Estimate of a job that has started before its P90, which is ahead."""

    p90: int
    band: int  # index of the band
    issued_at: int
    by_p50: bool


@dataclass(slots=True)
class WaitBand:
    """Calibration from estimates of similar waits."""

    errors: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    outcomes: int = 0
    shift: float = 0.0
    p50_errors: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    periods: deque[int] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    """Number of the period of each error. Estimates issued after the first outcome of a period belong to the
    next one, so that errors of different periods are independent.
    """
    period_since: int = 0  # time of the first outcome of the latest period
    _quantiles: tuple[float, float] | None = field(default=None, compare=False, repr=False)
    """P90 of the errors, and its margin; None: they have changed since."""

    def add_error(self, error: float, issued_at: int, now: int) -> None:
        """Learn from the outcome, at ``now``, of an estimate issued at ``issued_at``."""
        period = self.periods[-1] if self.periods else 0
        if issued_at >= self.period_since:
            period, self.period_since = period + 1, now
        self.errors.append(error)
        self.periods.append(period)
        self.outcomes += 1
        self._quantiles = None

    def error_quantiles(self) -> tuple[float, float]:
        """Return P90 of the errors, and what it needs in addition since they are of few periods."""
        if self._quantiles is None:
            errors = np.array(self.errors)
            quantile = float(np.quantile(errors, 1.0 - _MISSES))
            self._quantiles = quantile, _period_margin(errors, np.array(self.periods))
        return self._quantiles

    def move(self, step: float) -> None:
        """Make the next estimates later, or earlier."""
        self.shift = min(max(self.shift + step, -_SHIFT_MOST), _SHIFT_MOST)

    def copy(self) -> "WaitBand":
        """Return an independent copy."""
        return replace(
            self,
            errors=self.errors.copy(),
            p50_errors=self.p50_errors.copy(),
            periods=self.periods.copy(),
        )

    def save(self) -> list[Any]:
        """Return the state as JSON values."""
        return [list(self.errors), self.outcomes, self.shift, list(self.periods), self.period_since]

    @classmethod
    def load(cls, plain: Sequence[Any]) -> "WaitBand":
        """Restore from the result of ``save``. Raises TypeError or ValueError for other input."""
        errors, outcomes, shift, periods, since = plain
        new = cls(
            deque(errors, _WINDOW), outcomes, shift, periods=deque(periods, _WINDOW), period_since=since
        )
        if len(new.errors) != len(new.periods):
            raise ValueError(f"{len(new.errors)} errors of {len(new.periods)} periods")
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
    early_hits: list[EarlyHit] = field(default_factory=list)
    """Heap by P90: hits that are not counted yet."""
    estimates: dict[str, StartEstimate] = field(default_factory=dict)
    recent_hits: deque[tuple[bool, bool]] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    """For each of the latest outcomes: started by P50, started by P90. All of them are known when P90 has
    passed: counted at their start, the hits of a new site would come hours before its misses.
    """
    hit_counts: tuple[int, int] = (0, 0)  # numbers of true values in `recent_hits`
    period_hits: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_PERIODS))
    """For each of the latest periods: outcomes covered by P90, and all. Each period has the outcomes of
    estimates that were issued after the first outcome of the one before: periods are independent, while jobs
    that wait through the same events are early or late together.
    """
    period_since: int = 0  # time of the first outcome of the latest period
    halted: int = 0  # outcomes that did not count, since starts were halted during the wait
    halts: Halts = field(default_factory=Halts, compare=False, repr=False)
    """Of the cluster: shared by its calibrations."""
    _waiting: tuple[tuple[list[float], list[float]], ...] | None = field(
        default=None, compare=False, repr=False
    )
    """Errors of P50 and P90, so far, of the jobs that still wait, by band; None: something has changed since
    they were computed."""
    _corrections: dict[tuple[int, bool], float] = field(default_factory=dict, compare=False, repr=False)
    """By band, of P90 or else of P50: those that were computed since then."""

    @property
    def outcomes(self) -> int:
        """Number of outcomes that were learned from."""
        return sum(band.outcomes for band in self.bands)

    @property
    def coverage(self) -> tuple[float, float]:
        """Shares of the latest outcomes covered by P50 and P90; 0 before the first outcome."""
        n = max(1, len(self.recent_hits))
        return self.hit_counts[0] / n, self.hit_counts[1] / n

    def find_p90_bias(self, low: float, high: float) -> float | None:
        """Return the coverage of P90 if it is outside these bounds and no chance; None otherwise.

        Each period counts as one outcome. The bounds are crossed by chance with a probability below one
        percent.
        """
        share, count = self.coverage[1], len(self.period_hits)
        if low <= share <= high or not count:
            return None
        hits = sum(hit / among for hit, among in self.period_hits)
        right = 1.0 - _MISSES
        if share < low:
            by_chance = _binomial_tail(count, _MISSES, count - ceil(hits))
        else:
            by_chance = _binomial_tail(count, right, floor(hits))
        return share if by_chance < _CHANCE else None

    def _record_outcome(self, held: tuple[bool, bool], issued_at: int, at: int) -> None:
        """Count an outcome, known since ``at``, of an estimate issued at ``issued_at``."""
        if issued_at >= self.period_since or not self.period_hits:
            self.period_hits.append((0, 0))
            self.period_since = at
        hits, among = self.period_hits[-1]
        self.period_hits[-1] = (hits + held[1], among + 1)
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
        self.record_estimate(job, now, expected, planned, late, predicted=predicted)
        return expected

    def estimate(
        self, now: int, predicted: int, planned: int, late: int, delay: Delay = NO_DELAY
    ) -> CalibratedStart:
        """Return the expected start without recording it; ``delay``: of starts of due jobs."""
        due = max(predicted, now)
        p50_base = _p50_base(now, predicted, delay)
        corrected = now + round(exp(p50_base + self._find_correction(p50_base, now, p90=False))) - _FLOOR
        p50 = max(corrected, now + delay.p50, now + 1)
        base = _base(now, planned, late, delay)
        band = self.band(base)
        correction, shift = self._find_correction(base, now, p90=True), band.shift
        if band.outcomes < _ENOUGH:
            by_plan = _base(now, planned, -1, delay) - base
            correction = max(correction, min(by_plan, _PRIOR_P90))
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
        delay: Delay = NO_DELAY,
        predicted: int | None = None,
    ) -> None:
        """Record an estimate, to learn from its outcome. P50 is not learned from without ``predicted``."""
        p50_base = _p50_base(at, predicted, delay) if predicted is not None else None
        self.estimates[job] = StartEstimate(at, expected, _base(at, planned, late, delay), p50_base)
        self._drop_corrections()
        heapq.heappush(self.pending_p90, (expected.p90, job))

    def record_start(self, job: str, now: int) -> None:
        """Learn from the start of a job. Ignore jobs without an estimate. Ignore an estimate of a later time,
        too: the clock was set back after it.
        """
        self.advance_clock(now)
        issued = self.estimates.pop(job, None)
        if issued is None or issued.issued_at > now:
            return
        if self.halts.affect(issued.issued_at, issued.expected.p90, now):
            self.halted += now <= issued.expected.p90
            return
        band = self.band(issued.base)
        waited = log(now - issued.issued_at + _FLOOR)
        band.add_error(waited - issued.base, issued.issued_at, now)
        if issued.p50_base is not None:
            self.bands[_p50_band_index(issued.p50_base)].p50_errors.append(waited - issued.p50_base)
        if now <= issued.expected.p90:
            hit = EarlyHit(
                issued.expected.p90, _band_index(issued.base), issued.issued_at, now <= issued.expected.p50
            )
            heapq.heappush(self.early_hits, hit)

    def band(self, base: float) -> WaitBand:
        """Return the calibration of estimates with such a base."""
        return self.bands[_band_index(base)]

    def _find_correction(self, base: float, now: int, *, p90: bool) -> float:
        """Return the correction of P90, or else of P50: of the logarithm of a wait with such a base."""
        index = _band_index(base) if p90 else _p50_band_index(base)
        found = self._corrections.get((index, p90))
        if found is None:
            waiting = self._waiting_errors(now)[index][p90]
            band = self.bands[index]
            found = _p90_correction(band, waiting) if p90 else _p50_correction(band.p50_errors, waiting)
            self._corrections[index, p90] = found
        return found

    def _waiting_errors(self, now: int) -> tuple[tuple[list[float], list[float]], ...]:
        if self._waiting is None:
            still: tuple[tuple[list[float], list[float]], ...] = tuple(([], []) for _ in self.bands)
            for one in self.estimates.values():
                if self.halts.affect(one.issued_at, one.expected.p90, now):
                    continue
                waited = log(max(now - one.issued_at, 0) + _FLOOR)
                still[_band_index(one.base)][1].append(waited - one.base)
                if one.p50_base is not None:
                    still[_p50_band_index(one.p50_base)][0].append(waited - one.p50_base)
            self._waiting = still
        return self._waiting

    def _drop_corrections(self) -> None:
        """Compute the corrections again when they are needed."""
        self._waiting = None
        self._corrections.clear()

    def without_estimates(self) -> "StartCalibration":
        return replace(self.copy(), pending_p90=[], early_hits=[], estimates={})

    def forget(self, job: str) -> None:
        """Discard the estimate of a job that will not start."""
        self.estimates.pop(job, None)

    def advance_clock(self, now: int) -> None:
        """Count each estimate with a P90 before ``now`` as a hit or a miss, unless starts were halted
        meanwhile.

        Coverage and small steps follow when P90 has passed, for hits as for misses. At the starts, the hits
        of a long queue would come hours before its misses, and make P90 earlier meanwhile.
        """
        self._drop_corrections()
        while self.early_hits and self.early_hits[0].p90 < now:
            hit = heapq.heappop(self.early_hits)
            self.bands[hit.band].move(-_STEP * _MISSES)
            self._record_outcome((hit.by_p50, True), hit.issued_at, hit.p90)
        while self.pending_p90 and self.pending_p90[0][0] < now:
            moment, job = heapq.heappop(self.pending_p90)
            issued = self.estimates.get(job)
            if issued is None or issued.expected.p90 != moment:
                continue
            if self.halts.affect(issued.issued_at, moment, moment):
                self.halted += 1
            else:
                self.band(issued.base).move(_STEP * (1.0 - _MISSES))
                self._record_outcome((False, False), issued.issued_at, moment)

    # ---- saved ----------------------------------------------------------------------------------

    def copy(self) -> "StartCalibration":
        """Return an independent copy."""
        return replace(
            self,
            bands=tuple(band.copy() for band in self.bands),
            pending_p90=list(self.pending_p90),
            early_hits=list(self.early_hits),
            estimates=dict(self.estimates),
            recent_hits=self.recent_hits.copy(),
            period_hits=self.period_hits.copy(),
            _waiting=None,
            _corrections={},
        )

    def save(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        estimates = [
            [job, t.issued_at, t.expected.p50, t.expected.p90, t.base] for job, t in self.estimates.items()
        ]
        return {
            "bands": [band.save() for band in self.bands],
            "pending_p90": sorted(self.pending_p90),
            "early_hits": sorted(self.early_hits),
            "estimates": estimates,
            "recent_hits": [[p50, p90] for p50, p90 in self.recent_hits],
            "periods": [self.period_since, *self.period_hits],
            "halted": self.halted,
            "p50_errors": [list(band.p50_errors) for band in self.bands],
            "p50_bases": {job: t.p50_base for job, t in self.estimates.items() if t.p50_base is not None},
        }

    @classmethod
    def load(cls, plain: Mapping[str, Any]) -> "StartCalibration":
        """Restore from the result of ``save``. Raises KeyError, TypeError or ValueError for other input."""
        bases = plain["p50_bases"]
        new = cls(
            tuple(WaitBand.load(band) for band in plain["bands"]),
            [(moment, job) for moment, job in plain["pending_p90"]],
            [EarlyHit(*hit) for hit in plain["early_hits"]],
            {
                job: StartEstimate(at, CalibratedStart(p50, p90), base, bases.get(job))
                for job, at, p50, p90, base in plain["estimates"]
            },
            deque(((bool(p50), bool(p90)) for p50, p90 in plain["recent_hits"]), _WINDOW),
            (sum(p50 for p50, _ in plain["recent_hits"]), sum(p90 for _, p90 in plain["recent_hits"])),
        )  # fmt: skip
        heapq.heapify(new.pending_p90)
        heapq.heapify(new.early_hits)
        new.period_since, *periods = plain["periods"]
        new.halted = plain["halted"]
        new.period_hits.extend((hits, among) for hits, among in periods)
        if len(new.bands) != len(_BAND_ENDS) + 1:
            raise ValueError(f"{len(new.bands)} bands of waits, {len(_BAND_ENDS) + 1} are expected")
        if not all(hit.band in range(len(new.bands)) for hit in new.early_hits):
            raise ValueError("hits of unknown bands of waits")
        for band, errors in zip(new.bands, plain["p50_errors"], strict=True):
            band.p50_errors.extend(errors)
        return new


def _band_index(base: float) -> int:
    return bisect_left(_BAND_ENDS, base)


def _p50_band_index(base: float) -> int:
    return min(_band_index(base), _LAST_P50_BAND)


def _binomial_tail(count: int, share: float, least: int) -> float:
    """Return the probability of at least ``least`` hits among ``count`` independent trials."""
    return sum(comb(count, k) * share**k * (1.0 - share) ** (count - k) for k in range(least, count + 1))


def _p50_correction(started: Sequence[float], waiting: Sequence[float]) -> float:
    """Return the correction of P50 from the errors of jobs that have started and of jobs that still wait."""
    known = len(started) + sum(one > 0 for one in waiting)
    if not known:
        return 0.0
    low, high = _censored_quantiles(np.array(started), np.array(waiting), _P50_BOUNDS)
    part = known / (known + _P50_DOUBT)
    return min(max(part * (max(low, 0.0) + min(high, 0.0)), -_P50_MOST), _P50_MOST)


def _p90_correction(band: WaitBand, waiting: Sequence[float]) -> float:
    """Return the correction of P90 from the errors of jobs that have started and of jobs that still wait."""
    if band.outcomes < _ENOUGH:
        return 0.0
    started, margin = band.error_quantiles()
    (likely,) = _censored_quantiles(np.array(band.errors), np.array(waiting), (1.0 - _MISSES,))
    most = started + _SHIFT_MOST - max(band.shift, 0.0)
    found = max(started, min(likely, most)) + margin
    return min(max(found, -_MOST_DOWN), _MOST_UP)


def _period_margin(errors: Floats, periods: Ints) -> float:
    """Return what P90 needs in addition to the quantile of the ``errors``, since they are of few periods.

    Random effects: an error is the sum of one that all jobs of the period share and of the job's own. With
    ``K`` periods the errors show only ``(K - 1) / K`` of the variance of the shared one, and the next period
    has ``(K + 1) / K`` of it: the mean of the known ones is uncertain, too.
    """
    ordered = errors[np.lexsort((errors, periods))]
    _, begin, sizes = np.unique(np.sort(periods), return_index=True, return_counts=True)
    medians = (ordered[begin + (sizes - 1) // 2] + ordered[begin + sizes // 2]) / 2
    own = float(np.quantile(np.abs(ordered - np.repeat(medians, sizes)), 0.8)) / _NORMAL_P90
    count = medians.shape[0]
    spread = float(np.square(medians - medians.mean()).sum())
    shared = (_PRIOR_PERIODS * _PRIOR_SHARED**2 + spread) / (_PRIOR_PERIODS + count - 1)
    shown, next_one = (own**2 + shared * (count + step) / count for step in (-1, 1))
    return _NORMAL_P90 * (sqrt(next_one) - sqrt(shown))


def _censored_quantiles(seen: Floats, beyond: Floats, levels: Sequence[float]) -> list[float]:
    """Return Kaplan-Meier quantiles: ``seen`` are exact values, ``beyond`` lower bounds of censored ones. A
    quantile above all values is 0 or the largest value.
    """
    values = np.concatenate((seen, beyond))
    is_seen = np.arange(values.shape[0]) < seen.shape[0]
    order = np.lexsort((~is_seen, values))  # at ties, the seen ones come first
    survival = np.cumprod(1.0 - is_seen[order] / np.arange(values.shape[0], 0, -1))
    ascending = np.append(values[order], max(0.0, float(values.max())))
    return [float(ascending[(survival > 1.0 - level + 1e-9).sum()]) for level in levels]


def _p50_base(now: int, predicted: int, delay: Delay) -> float:
    return log(max(predicted - now, 0) + delay.p50 + _FLOOR)


def _base(now: int, planned: int, late: int, delay: Delay) -> float:
    start = late if late >= 0 else planned
    return log(max(start - now, 0) + _FLOOR + delay.p90)
