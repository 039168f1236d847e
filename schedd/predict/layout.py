"""What a prediction consists of: its levels, and what is known of a job before it runs."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from schedd.plan.columns import Ints

__all__ = ["LEVELS", "P50", "P90", "Ask", "Floats", "Prediction"]

Floats = npt.NDArray[np.float64]

LEVELS: Final[Floats] = np.array(
    [0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98], np.float64
)
"""The probabilities for which a run time is told."""
P50: Final = 6
P90: Final = 10
"""Where these two stand in ``LEVELS``."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is known of a job when it is submitted: all that a prediction depends on, besides the past.

    ``walltime`` is seconds, at least 1; ``procs`` how many processors. An empty ``name`` says that there is
    none. Of the names only digests are kept.
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
    """How long a job runs: ``told[i]`` seconds or less with probability ``LEVELS[i]``, in order of size.

    Of a job that has run for ``ran`` seconds it tells of those alone that run longer; 0: of all.
    No value exceeds the walltime. To learn from the outcome it takes ``raw``, logarithms of the shares of the
    walltime before calibration, and ``keys``, the templates of the job.
    """

    walltime: int
    told: Ints
    raw: Floats
    keys: Ints
    ran: int = 0

    @property
    def p50(self) -> int:
        """Seconds: half of such jobs run no longer."""
        return int(self.told[P50])

    @property
    def p90(self) -> int:
        """Seconds: nine of ten such jobs run no longer."""
        return int(self.told[P90])
