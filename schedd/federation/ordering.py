"""Load and Ordering: choosing a cluster by the work of equal or higher priority that waits there.

After Pasquali, Baraglia, Capannini, Ricci and Laforenza, *A Multilevel Scheduler for Batch Jobs on Grids*,
the meta-scheduler. Where the text leaves a number open, the choice made here is said beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log2
from typing import Final

__all__ = ["LEVELS", "Waiting", "deadline_value", "least", "licence_value", "priority"]

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


@dataclass(frozen=True, slots=True)
class Waiting:
    """Work that waits at a cluster: cpu-seconds, and its priority."""

    cluster: str
    work: float
    priority: int


def least(
    clusters: Sequence[tuple[str, int]], waiting: Sequence[Waiting], level: int, draw: int
) -> str | None:
    """The cluster for a job of priority ``level``, of ``clusters`` with their cpus (0: not known).

    The least work of this or a higher priority, per cpu; among equals the fewest such jobs, then ``draw``.
    """
    if not clusters:
        return None
    loads = {
        name: sum(one.work for one in waiting if one.cluster == name and one.priority >= level) / max(1, cpus)
        for name, cpus in clusters
    }
    counts = {
        name: sum(one.cluster == name and one.priority >= level for one in waiting) for name, _ in clusters
    }
    lowest = min(loads.values())
    equal = sorted(name for name, load in loads.items() if load <= lowest * (1 + _EQUAL))
    fewest = min(counts[name] for name in equal)
    left = [name for name in equal if counts[name] == fewest]
    return left[draw % len(left)]
