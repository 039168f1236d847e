"""Risk that jobs which arrive later delay a job, and quantiles of a moment under this risk."""

from dataclasses import dataclass
from math import exp

import numpy as np

from schedd.plan.columns import Ints
from schedd.predict.predictions import Floats


@dataclass(frozen=True, slots=True)
class DelayRisk:
    """Risk that a job is displaced while it waits, or preempted while it runs.

    It happens ``rate`` times a second, and costs ``delay`` seconds, and with ``repeats`` also the time that
    the job has run until then: its work is done again.
    """

    rate: float
    delay: int
    repeats: bool = False

    def chance(self, seconds: int) -> float:
        """Return the probability of at least one event within this time."""
        return 1.0 - exp(-self.rate * max(0, seconds))


def delayed_quantiles(
    moments: Ints, risk: DelayRisk, since: int, now: int, levels: tuple[float, ...] = (0.5, 0.9)
) -> tuple[int, ...]:
    """Return quantiles of a start or end; (n,) equally probable ``moments`` of it are known without the risk.

    The job waits or runs ``since`` then. Each moment is late with the probability of at least one event from
    ``now`` until then, ``1 - exp(-rate * seconds)``; an event happens in the middle of that time.
    """
    left = np.maximum(moments - now, 0)
    chance: Floats = 1.0 - np.exp(-risk.rate * left)
    delays = np.full_like(moments, risk.delay)
    if risk.repeats:
        delays += np.maximum(now + left // 2 - since, 0)
    both = np.concatenate([moments, moments + delays])
    order = np.argsort(both, kind="stable")
    below = np.cumsum(np.concatenate([1.0 - chance, chance])[order]) / moments.shape[0]
    last = both.shape[0] - 1
    # A rounding error of the sum must not pass to the next moment.
    return tuple(int(both[order[min(last, int(np.searchsorted(below, one - 1e-9)))]]) for one in levels)
