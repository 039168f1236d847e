"""Where a job would cost least that ends by a moment: tried at every moment at which its price may change."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from schedd.alternatives.node_economics import NodeEconomics
from schedd.plan.plan import Plan
from schedd.plan.views import StartWindow

__all__ = ["CheapestStart", "candidate_starts", "cheapest_start"]

_MOST: Final = 200
"""Starts that are tried at most, evenly spread where there are more."""


@dataclass(frozen=True, slots=True)
class CheapestStart:
    """The place that costs least, of several the first: a start, what it costs, and the nodes."""

    start: int
    cost: float
    nodes: tuple[str, ...]


def candidate_starts(windows: Iterable[StartWindow], edges: Sequence[int], walltime: int) -> list[int]:
    """The starts within ``windows`` at which what the job costs may be least.

    Prices are constant between ``edges``, so what a job costs on given nodes is linear in its start between
    the moments at which its begin or its end passes an edge: it is least at one of these, or at an end of a
    window.
    """
    found: set[int] = set()
    for window in windows:
        inner = (moment for edge in edges for moment in (edge, edge - walltime))
        found |= {window.first, window.last, *(m for m in inner if window.first < m < window.last)}
    ordered = sorted(found)
    step = -(-len(ordered) // _MOST)
    return ordered[::step] if step > 1 else ordered


def cheapest_start(
    plan: Plan, slot: int, walltime: int, starts: Sequence[int], books: NodeEconomics, now: int
) -> CheapestStart | None:
    """The best of ``starts`` for an unplaced job, on the nodes that the plan would take then. Raises
    WorkSpent.
    """
    return min(_try_starts(plan, slot, walltime, starts, books, now), key=lambda one: one.cost, default=None)


def _try_starts(
    plan: Plan, slot: int, walltime: int, starts: Sequence[int], books: NodeEconomics, now: int
) -> Iterator[CheapestStart]:
    for start in starts:
        plan.set_ready(slot, start)
        if plan.place(slot, now, start + 1) != start:
            continue
        held = plan.held(np.array([slot], np.int64))
        held = held.select(~held.are_pools)
        n = len(held)
        costs = books.entry_costs(held, np.full(n, start, np.int64), np.full(n, start + walltime, np.int64))
        names = tuple(dict.fromkeys(plan.node_names[row] for row in held.rows.tolist()))
        plan.remove(slot, now)
        yield CheapestStart(start, float(costs.sum()), names)
