"""Run-time predictions: quantile levels, the features of a job, and its predicted quantiles."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from schedd.plan.columns import Ints
from schedd.wire.quick_init import quick_init

Floats = npt.NDArray[np.float64]

LEVELS: Final[Floats] = np.array(
    [0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98], np.float64
)
"""Probabilities of the predicted quantiles."""
P50_INDEX: Final = 6
P90_INDEX: Final = 10  # indices of 0.5 and 0.9 in `LEVELS`
_ROUNDING: Final = 1e-6  # keeps whole seconds from being rounded up


@quick_init
@dataclass(frozen=True, slots=True)
class JobFeatures:
    """Features of a job, known at its submission, that its prediction depends on.

    ``walltime`` is in seconds, at least 1; ``procs`` is the number of processors; ``name`` may be empty. Only
    digests of the names are stored. ``fastest`` is the speed of the cluster's fastest node. Raises ValueError
    for a walltime below 1.
    """

    user: str
    walltime: int
    procs: int
    name: str = ""
    fastest: float = 1.0

    def __post_init__(self) -> None:
        if self.walltime < 1:
            raise ValueError(f"walltime {self.walltime}: at least 1 second")

    @property
    def most_work(self) -> int:
        """Largest work that the walltime allows, in seconds of a node of speed 1."""
        return max(1, round(self.walltime * self.fastest))


@quick_init
@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Predicted run time of a job: at most ``quantiles[i]`` seconds with probability ``LEVELS[i]``,
    ascending.

    With ``elapsed`` > 0 the quantiles are conditional: the job has already run for ``elapsed`` seconds. No
    value exceeds the walltime. ``uncalibrated`` (logarithms of work / ``most_work``) and ``template_keys``
    are kept to learn from the outcome.

    The prediction made at submission is an amount of work: its seconds are on a node of speed 1, at most
    ``most_work``. ``at_speed`` converts it to seconds on the job's nodes.
    """

    walltime: int
    quantiles: Ints
    uncalibrated: Floats
    template_keys: Ints
    elapsed: int = 0
    most_work: int = 0
    """Largest work that the walltime allows on the fastest node; 0: the walltime, all nodes have speed 1."""

    @property
    def work_limit(self) -> int:
        """Upper bound of the work, in seconds of a node of speed 1."""
        return self.most_work or self.walltime

    def at_speed(self, speed: float) -> "Prediction":
        """Return this prediction of work in seconds at ``speed``, at most the walltime."""
        if speed == 1.0 and self.work_limit <= self.walltime:
            return self
        seconds = np.ceil(self.quantiles / speed - _ROUNDING)
        quantiles = np.clip(seconds, 1, self.walltime).astype(np.int64)
        return replace(self, quantiles=quantiles, most_work=0)

    def share_beyond(self, seconds: int) -> float:
        """Return the probability that the job runs longer than ``seconds``, within the known levels."""
        return 1.0 - float(np.interp(seconds, self.quantiles, LEVELS))

    @property
    def p50(self) -> int:
        """Median run time in seconds."""
        return int(self.quantiles[P50_INDEX])

    @property
    def p90(self) -> int:
        """90th percentile of the run time in seconds."""
        return int(self.quantiles[P90_INDEX])
