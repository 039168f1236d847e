"""Run-time predictions: quantile levels, the features of a job, and its predicted quantiles."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from schedd.plan.columns import Ints

__all__ = ["LEVELS", "P50_INDEX", "P90_INDEX", "Floats", "JobFeatures", "Prediction"]

Floats = npt.NDArray[np.float64]

LEVELS: Final[Floats] = np.array(
    [0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98], np.float64
)
"""Probabilities of the predicted quantiles."""
P50_INDEX: Final = 6
P90_INDEX: Final = 10
"""Indices of 0.5 and 0.9 in ``LEVELS``."""


@dataclass(frozen=True, slots=True)
class JobFeatures:
    """Features of a job, known at its submission, on which its prediction depends.

    ``walltime`` is in seconds, at least 1; ``procs`` is the number of processors; ``name`` may be empty. Only
    digests of the names are stored. Raises ValueError for a walltime below 1.
    """

    user: str
    walltime: int
    procs: int
    name: str = ""

    def __post_init__(self) -> None:
        if self.walltime < 1:
            raise ValueError(f"walltime {self.walltime}: at least 1 second")


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Predicted run time of a job: at most ``quantiles[i]`` seconds with probability ``LEVELS[i]``,
    ascending.

    With ``elapsed`` > 0 the quantiles are conditional: the job has already run for ``elapsed`` seconds. No
    value exceeds the walltime. ``uncalibrated`` (logarithms of run time / walltime) and ``template_keys`` are
    kept to learn from the outcome.
    """

    walltime: int
    quantiles: Ints
    uncalibrated: Floats
    template_keys: Ints
    elapsed: int = 0

    @property
    def p50(self) -> int:
        """Median run time in seconds."""
        return int(self.quantiles[P50_INDEX])

    @property
    def p90(self) -> int:
        """90th percentile of the run time in seconds."""
        return int(self.quantiles[P90_INDEX])
