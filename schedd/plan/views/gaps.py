"""The gap list: how many nodes and cpus are free from when until when, in all and node by node."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from schedd.plan.kernels import layout as at
from schedd.plan.kernels.layout import Ints
from schedd.plan.plan import Plan
from schedd.plan.shapes import UNLIMITED

__all__ = ["Gap", "Step", "free_over_time", "gaps"]


@dataclass(frozen=True, slots=True)
class Step:
    """Over ``[start, end)`` so much is free on all usable nodes together; ``nodes`` are those nobody uses."""

    start: int
    end: int
    cpus: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Over ``[start, end)`` so much is free on one node; ``mem`` in KiB, None where it is not known."""

    node: str
    start: int
    end: int
    cpus: int
    mem: int | None
    gpus: int


def free_over_time(plan: Plan, begin: int, end: int) -> tuple[Step, ...]:
    """What is free in ``[begin, end)`` on all usable nodes together; neighbouring steps differ."""
    moments: list[Ints] = []
    gains: list[Ints] = []
    for name in plan.nodes:
        row = plan.row_of[name]
        if not plan.tables.rows[row, at.USABLE]:
            continue
        starts, _, free = _pieces(plan, row, begin, end)
        both = np.stack([np.maximum(free[at.CPUS], 0), free[at.SHARE] >= at.WHOLE])
        moments.append(starts)
        gains.append(np.diff(both, axis=1, prepend=0))
    if not moments:
        return (Step(begin, end, 0, 0),) if begin < end else ()
    times, place = np.unique(np.concatenate(moments), return_inverse=True)
    totals = np.zeros((2, times.shape[0]), np.int64)
    for total, gain in zip(totals, np.concatenate(gains, axis=1), strict=True):
        np.add.at(total, place, gain)
    totals = np.cumsum(totals, axis=1)
    kept = np.append(True, (np.diff(totals, axis=1) != 0).any(axis=0))
    edges = [*times[kept].tolist(), end]
    return tuple(
        Step(edges[i], edges[i + 1], cpus, nodes)
        for i, (cpus, nodes) in enumerate(totals[:, kept].T.tolist())
    )


def gaps(
    plan: Plan, begin: int, end: int, *, cpus: int = 1, nodes: Iterable[str] | None = None
) -> Iterator[Gap]:
    """The gaps of at least ``cpus`` cpus in ``[begin, end)``, node by node (all usable ones unless named)."""
    for name in plan.nodes if nodes is None else nodes:
        row = plan.row_of[name]
        if not plan.tables.rows[row, at.USABLE]:
            continue
        starts, ends, free = _pieces(plan, row, begin, end)
        known = int(plan.tables.cap[row, at.MEM]) < UNLIMITED
        for i in np.flatnonzero(free[at.CPUS] >= cpus).tolist():
            mem = max(int(free[at.MEM, i]), 0) if known else None
            yield Gap(
                name, int(starts[i]), int(ends[i]), int(free[at.CPUS, i]), mem, max(int(free[at.GPUS, i]), 0)
            )


def _pieces(plan: Plan, row: int, begin: int, end: int) -> tuple[Ints, Ints, Ints]:
    """Starts, ends and free amounts (resources, pieces) of a row's segments, cut to ``[begin, end)``."""
    tb = plan.tables
    first, n = int(tb.rows[row, at.OFF]), int(tb.rows[row, at.LEN])
    starts = tb.T[first : first + n].copy()
    starts[0] = min(int(starts[0]), begin)
    ends = np.append(starts[1:], max(end, begin))
    ends[-1] = max(end, int(starts[-1]))
    inside = (starts < end) & (ends > begin)
    free: Ints = tb.F[:, first : first + n][:, inside]
    return np.maximum(starts[inside], begin), np.minimum(ends[inside], end), free
