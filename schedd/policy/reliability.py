"""How often nodes fail, by their own history, and what a run is expected to lose by that.

Failures of a node are taken to come at a constant rate; D. Paul (2013) names mean times to failure as future
work and gives no formula. Rates are those of a gamma prior with the weight of one failure at the
cluster's mean rate, so that a node that was seen for an hour is not told to be perfect.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["Life", "Reliability", "expected_loss", "failure_rates"]

_LN2: Final = log(2)
_SMALL: Final = 1e-5
"""Below so many failures expected within a run a series is exact, and the formula is not."""
_RARE: Final = 1e-30

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Jobs of at least ``avoid`` seconds of walltime go to nodes that fail less; 0: none does. What was
    seen of a node counts half after ``half_life`` seconds.
    """

    avoid: int = 0
    half_life: int = 90 * 86_400


@dataclass(frozen=True, slots=True)
class Life:
    """What was seen of a node up to ``as_of`` (seconds since the epoch): for how many seconds it was ``up``,
    and how many ``failures`` it had; the older the less of both. ``fell``: it was up when it went down.
    """

    as_of: int
    up: float = 0.0
    failures: float = 0.0
    is_up: bool = False
    fell: bool = False

    def aged(self, now: int, half_life: int) -> "Life":
        """The same as it counts at ``now``; an earlier moment changes nothing."""
        seconds = max(0, now - self.as_of)
        left = 0.5 ** (seconds / half_life)
        # The integral of what is left of each second that it was up since.
        more = half_life / _LN2 * (1 - left) if self.is_up else 0.0
        return replace(
            self, as_of=self.as_of + seconds, up=self.up * left + more, failures=self.failures * left
        )


def failure_rates(lives: Mapping[str, Life], now: int, half_life: int) -> dict[str, float]:
    """Failures per second of each node; all 0 where none has ever failed."""
    aged = {name: life.aged(now, half_life) for name, life in lives.items()}
    failures = sum(life.failures for life in aged.values())
    up = sum(life.up for life in aged.values())
    if failures <= _RARE or up <= 0:
        return dict.fromkeys(aged, 0.0)
    mean = failures / up
    return {name: (life.failures + 1) / (life.up + 1 / mean) for name, life in aged.items()}


def expected_loss(rates: Floats, begun: Floats, left: Floats) -> Floats:
    """Seconds of work that runs are expected to lose, since their nodes fail ``rates`` times a second.

    They have run for ``begun`` seconds and are to run for ``left`` more; the first failure loses all that was
    done. By element: the integral over t of (begun + t) rate exp(-rate t), from 0 to left.
    """
    x = rates * left
    few = x < _SMALL
    safe = np.where(few, 1.0, rates)
    whole = -np.expm1(-x) / safe - left * np.exp(-x)
    found: Floats = np.where(few, left * x / 2, whole) + begun * -np.expm1(-x)
    return found
