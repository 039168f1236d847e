"""Failure rates of nodes from their history, and the expected loss of a run.

Failures of a node are assumed to occur at a constant rate; D. Paul (2013) names mean times to failure as
future work without a formula. Rates use a gamma prior with the weight of one failure at the cluster's mean
rate, so that a node observed for an hour is not considered perfect.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Final

import numpy as np
import numpy.typing as npt
from pydantic import Field

from schedd.wire.quick_init import quick_init
from schedd.wire.section import Section
from schedd.wire.times import Whole

_LN2: Final = log(2)
_SMALL: Final = 1e-5
"""Below this number of expected failures a series is exact, and the closed formula is not."""
_RARE: Final = 1e-30

Floats = npt.NDArray[np.float64]


class Reliability(Section):
    """Long jobs avoid nodes that fail often, by observed failures. See
    docs/administrators/alternatives.md.
    """

    avoid: Whole = Field(default=0, ge=0, le=3650 * 86_400)
    """Jobs with at least this walltime take, of the nodes free at their start, the most reliable ones; 0:
    none do."""
    half_life: Whole = Field(default=90 * 86_400, ge=3600, le=3650 * 86_400)
    """Half-life of the observations of a node."""


@quick_init
@dataclass(frozen=True, slots=True)
class Life:
    """Observations of a node up to ``as_of`` (seconds since the epoch): decayed uptime ``up`` in seconds and
    number of ``failures``. ``fell``: it was up when it went down.
    """

    as_of: int
    up: float = 0.0
    failures: float = 0.0
    is_up: bool = False
    fell: bool = False

    def aged(self, now: int, half_life: int) -> "Life":
        """Return the observations decayed to ``now``; an earlier time changes nothing."""
        seconds = max(0, now - self.as_of)
        left = 0.5 ** (seconds / half_life)
        # integrate the decay weight over the uptime since the last change
        more = half_life / _LN2 * (1 - left) if self.is_up else 0.0
        return Life(self.as_of + seconds, self.up * left + more, self.failures * left, self.is_up, self.fell)


def failure_rates(
    lives: Mapping[str, Life], now: int, half_life: int, prior_rate: float = 0.0
) -> dict[str, float]:
    """Return failures per second of each node.

    ``prior_rate`` is assumed of a cluster before anything was observed, with the weight of one failure.
    Without it all rates are 0 until there is a failure.
    """
    aged = {name: life.aged(now, half_life) for name, life in lives.items()}
    failures = sum(life.failures for life in aged.values())
    up = sum(life.up for life in aged.values())
    if prior_rate > 0:
        failures, up = failures + 1, up + 1 / prior_rate
    if failures <= _RARE or up <= 0:
        return dict.fromkeys(aged, 0.0)
    mean = failures / up
    return {name: (life.failures + 1) / (life.up + 1 / mean) for name, life in aged.items()}


def expected_loss(rates: Floats, begun: Floats, left: Floats) -> Floats:
    """Return the expected lost seconds of work of runs on nodes with failure rates ``rates``.

    The runs have run for ``begun`` seconds and will run for ``left`` more; the first failure loses all work.
    Elementwise ``integral from 0 to left of (begun + t) * rate * exp(-rate * t) dt``.
    """
    x = rates * left
    few = x < _SMALL
    safe = np.where(few, 1.0, rates)
    whole = -np.expm1(-x) / safe - left * np.exp(-x)
    found: Floats = np.where(few, left * x / 2, whole) + begun * -np.expm1(-x)
    return found
