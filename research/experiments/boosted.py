"""Run times predicted by gradient-boosted trees (LightGBM), for comparison with templates.

Two models, of the median and of the 90 % quantile, fitted repeatedly to the latest jobs that ended,
and calibrated as templates are (Romano, Patterson and Candès 2019).
"""

from collections import defaultdict, deque
from math import log, log1p
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from schedd.replay.workload import TraceJob

_QUANTILES: Final = (0.5, 0.9)
_FIRST: Final = 200  # ended jobs before the first fit; until then walltimes are predicted
_FITTED: Final = 1_000  # ended jobs between two fits, at first half of all ended jobs; each fit is ...
_LATEST: Final = 10_000  # ... to this number of the latest jobs
_TREES: Final = 60
_CALIBRATED: Final = 1_000
_RENEWED: Final = 50
_KEPT: Final = 8  # ends of a user, and of jobs that are alike, that are looked at
_DAY: Final = 86_400

Floats = npt.NDArray[np.float64]


def is_installed() -> bool:
    """Whether LightGBM is there; it is optional."""
    try:
        import lightgbm  # noqa: F401, PLC0415
    except (ImportError, OSError):
        return False
    return True


class Boosted:
    """A ``Predictor`` of run times; it learns from jobs that ended. Raises ImportError."""

    def __init__(self) -> None:
        import lightgbm  # noqa: PLC0415  (optional, and slow to import)

        self._lightgbm = lightgbm
        self._models: list[Any] = []
        self._rows: deque[Floats] = deque(maxlen=_LATEST)
        self._shares: deque[float] = deque(maxlen=_LATEST)
        self._ended, self._fit_at = 0, _FIRST
        self._of_user: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self._alike: dict[tuple[str, int, int], deque[float]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self._last_submit: dict[str, int] = {}
        self._open: dict[int, tuple[Floats, Floats]] = {}
        """Of jobs that have not ended: their row, and what the models said, as logarithms of shares."""
        self._errors: deque[Floats] = deque(maxlen=_CALIBRATED)
        self._offset: Floats = np.zeros(len(_QUANTILES))

    def queued(self, i: int, job: TraceJob, now: int) -> tuple[float, float | None]:
        """P50 and P90 in seconds."""
        row = self._row(job, now)
        self._last_submit[job.user] = now
        said = np.zeros(len(_QUANTILES))
        if self._models:
            said = np.array([model.predict(row[None, :], num_threads=1)[0] for model in self._models])
        self._open[i] = (row, said)
        told = np.minimum(np.exp(said + self._offset), 1.0) * job.estimate
        return float(told[0]), float(max(told))

    def started(self, _i: int, _job: TraceJob, _now: int) -> None:
        """Nothing is learned."""

    def ended(self, i: int, job: TraceJob, _now: int) -> None:
        """Learn from the job; fit the models again when enough jobs have ended."""
        row, said = self._open.pop(i)
        share = log(max(1, job.run) / job.estimate)
        self._ended += 1
        self._rows.append(row)
        self._shares.append(share)
        for kept in (self._of_user[job.user], self._alike[job.user, job.estimate, job.procs]):
            kept.append(share)
        if self._models:
            self._errors.append(share - said)
            if self._ended % _RENEWED == 0:
                errors = np.array(self._errors)
                self._offset = np.array(
                    [np.quantile(errors[:, k], level) for k, level in enumerate(_QUANTILES)]
                )
        if self._ended >= self._fit_at:
            self._fit()
            self._fit_at = self._ended + min(_FITTED, max(_FIRST, self._ended // 2))

    def _row(self, job: TraceJob, now: int) -> Floats:
        """Features known at the submission; nan where unknown."""
        user, alike = self._of_user[job.user], self._alike[job.user, job.estimate, job.procs]
        last = self._last_submit.get(job.user)
        found = [
            log(job.estimate),
            log(job.procs),
            log1p(now - last) if last is not None else np.nan,
            now % _DAY,
            now // _DAY % 7,
        ]
        for kept in (user, alike):
            latest = list(kept)
            found += [
                len(latest),
                latest[-1] if latest else np.nan,
                latest[-2] if len(latest) > 1 else np.nan,
                sum(latest) / len(latest) if latest else np.nan,
                max(latest) if latest else np.nan,
            ]
        return np.array(found, np.float64)

    def _fit(self) -> None:
        rows, shares = np.array(self._rows), np.array(self._shares)
        common = {
            "objective": "quantile",
            "num_leaves": 15,
            "learning_rate": 0.1,
            "num_threads": 1,
            "deterministic": True,
            "seed": 1,
            "verbose": -1,
        }
        self._models = [
            self._lightgbm.train(
                {**common, "alpha": level}, self._lightgbm.Dataset(rows, shares), num_boost_round=_TREES
            )
            for level in _QUANTILES
        ]
