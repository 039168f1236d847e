"""Load and Ordering: choosing a cluster by the work of equal or higher priority that waits there.

After Pasquali, Baraglia, Capannini, Ricci and Laforenza, *A Multilevel Scheduler for Batch Jobs on Grids*,
the meta-scheduler. Where the text leaves a number open, the choice made here is said beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import floor, log2
from typing import Final

__all__ = [
    "LEVELS",
    "Backlog",
    "deadline_value",
    "least_loaded_cluster",
    "licence_value",
    "priority",
    "user_value",
]

LEVELS: Final = 8
"""The highest priority; the paper names none."""
_EQUAL: Final = 0.01
"""Loads that differ by less than this share count as equal."""


def deadline_value(margin: float, estimate: float, mean: float, levels: int = LEVELS) -> int:
    """The term of a deadline: ``margin`` is from submission to the latest start, ``mean`` that of others.

    Seconds. Each higher value covers half the margins of the next lower one; then a long job with little
    slack for its length is raised, a short one with much is lowered. A hopeless job has the highest.
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
    """The term of licences: ``kinds`` that a job asks for, of so many kinds that there are."""
    return min(levels - 1, floor(kinds * levels / of)) if of else 0


def priority(*terms: int, levels: int = LEVELS) -> int:
    """The mean of its terms, so that it stays one of 0 … ``levels``; their sum, as printed, would not."""
    return min(levels, max(0, round(sum(terms) / len(terms)))) if terms else 0


def user_value(kind: str, levels: int = LEVELS) -> int:
    """The term of a user's class: ``gold``, ``silver`` or another; the paper names no values."""
    return {"gold": levels, "silver": levels // 2}.get(kind, 0)


@dataclass(slots=True)
class Backlog:
    """Work that waits at a cluster, by priority: the paper's LOAD and COUNT of one cluster.

    ``load[p]`` is the work, in cpu-seconds, of jobs of priority ``p`` or higher, ``count[p]`` their number.
    """

    load: list[float] = field(default_factory=lambda: [0.0] * (LEVELS + 1))
    count: list[int] = field(default_factory=lambda: [0] * (LEVELS + 1))

    def add(self, work: float, priority: int, jobs: int = 1) -> None:
        """A job comes, or goes: then both are negative."""
        for level in range(priority + 1):
            self.load[level] += work
            self.count[level] += jobs


def least_loaded_cluster(
    places: Sequence[tuple[str, int, Backlog]], level: int, draw: int, equal: float = _EQUAL
) -> str:
    """The cluster for a job of priority ``level``: of name, cpus (0: not known) and backlog of each, of which
    there is one at least_loaded_cluster.

    The least work of this or a higher priority, per cpu; among equals the fewest such jobs, then ``draw``.
    """
    loads = {name: backlog.load[level] / max(1, cpus) for name, cpus, backlog in places}
    lowest = min(loads.values())
    left = {name: backlog.count[level] for name, _, backlog in places if loads[name] <= lowest * (1 + equal)}
    fewest = min(left.values())
    last = sorted(name for name, count in left.items() if count == fewest)
    return last[draw % len(last)]
