"""Load and Ordering: cluster choice by the waiting work of equal or higher priority.

After Pasquali, Baraglia, Capannini, Ricci and Laforenza, *A Multilevel Scheduler for Batch Jobs on Grids*
(the meta-scheduler). Parameters that the paper leaves open are noted next to their constants.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import floor, log2
from typing import Final

LEVELS: Final = 8  # highest priority; the paper gives none
_EQUAL: Final = 0.01  # loads within this relative difference are equal


def deadline_value(margin: float, estimate: float, mean: float, levels: int = LEVELS) -> int:
    """Return the deadline term. All times are in seconds.

    ``margin`` is the time from submission to the latest start, ``mean`` the mean margin of other jobs. Each
    higher value covers half the margins of the next lower value. A long job with little slack is raised, a
    short job with much slack is lowered. A job that cannot meet its deadline gets the highest value.
    """
    if margin < 0:
        return levels
    value = 0
    if mean > 0 and margin < 2 * mean:
        value = levels - floor(log2(1 + margin * (2**levels - 1) / (2 * mean)))
    ratio = margin / estimate
    if ratio >= 1:
        return max(0, value - floor(ratio))
    more = levels - 1 if ratio == 0 else min(levels - 1, floor(-log2(ratio)))
    return min(levels, value + more)


def licence_value(kinds: int, of: int, levels: int = LEVELS) -> int:
    """Return the licence term for a job that requests ``kinds`` of the ``of`` licence kinds."""
    return min(levels - 1, floor(kinds * levels / of)) if of else 0


def priority(*terms: int, levels: int = LEVELS) -> int:
    """Return the mean of the terms, within ``0 … levels``: the printed sum would exceed that."""
    return min(levels, max(0, round(sum(terms) / len(terms)))) if terms else 0


def user_value(kind: str, levels: int = LEVELS) -> int:
    """Return the term of a user class, ``gold``, ``silver`` or other. The paper gives no values."""
    return {"gold": levels, "silver": levels // 2}.get(kind, 0)


@dataclass(slots=True)
class Backlog:
    """Waiting work at a cluster by priority: LOAD and COUNT of the paper.

    ``load[p]`` is the work in cpu-seconds of jobs with priority ``p`` or higher, ``count[p]`` their number.
    """

    load: list[float] = field(default_factory=lambda: [0.0] * (LEVELS + 1))
    count: list[int] = field(default_factory=lambda: [0] * (LEVELS + 1))

    def add(self, work: float, priority: int, jobs: int = 1) -> None:
        """Add jobs with this total work; negative values remove them."""
        for level in range(priority + 1):
            self.load[level] += work
            self.count[level] += jobs


def least_loaded_cluster(places: Sequence[tuple[str, float, Backlog]], level: int, draw: int) -> str:
    """Return the cluster for a job of priority ``level``. ``places`` is not empty: name, power in
    cpus of speed 1 (0 if unknown), and backlog.

    Criteria in order: least work per power of this or a higher priority, then fewest such jobs, then
    ``draw``.
    """
    loads = {name: backlog.load[level] / (power or 1) for name, power, backlog in places}
    lowest = min(loads.values())
    left = {name: backlog.count[level] for name, _, backlog in places if loads[name] <= lowest * (1 + _EQUAL)}
    fewest = min(left.values())
    last = sorted(name for name, count in left.items() if count == fewest)
    return last[draw % len(last)]
