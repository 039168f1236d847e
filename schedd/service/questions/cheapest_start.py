"""Cheapest start of a job with an end by a given time: tries all starts where the price may change."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from schedd.alternatives.node_economics import NodeEconomics
from schedd.plan.plan import Plan
from schedd.plan.views import StartWindow

_MOST: Final = 200  # maximum number of starts to try, evenly spread


@dataclass(frozen=True, slots=True)
class CheapestStart:
    """The cheapest placement, the earliest of several: start, cost, and nodes."""

    start: int
    cost: float
    nodes: tuple[str, ...]


def candidate_starts(windows: Iterable[StartWindow], edges: Sequence[int], walltime: int) -> list[int]:
    """Return the starts within ``windows`` that can have the minimum cost.

    Prices are constant between ``edges``, so the cost on given nodes is a linear function of the start,
    except where the job's start or end passes an edge. The minimum is at such a start, or at an end of a
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
    """Return the cheapest of ``starts`` for an unplaced job, on the nodes that the plan would choose.

    Raises WorkSpent.
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
