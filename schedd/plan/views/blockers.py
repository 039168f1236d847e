"""Blockers of a job: a sufficient and minimal set of placed jobs and unusable nodes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from schedd.plan.kernels import layout as at
from schedd.plan.placements import PlanAttempt
from schedd.plan.plan import Plan
from schedd.plan.views.usable_rows import usable_rows


@dataclass(frozen=True, slots=True)
class LackingRow:
    """A row on which a blocker holds what the job lacks: the columns of these resources."""

    row: int
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlanBlocker:
    """One blocker: a placed ``slot`` with the rows it ``holds``, or (slot -1) the unusable node of ``row``.

    ``sooner``: it also prevents any start earlier than the present one.
    """

    slot: int
    row: int
    holds: tuple[LackingRow, ...]
    sooner: bool


@dataclass(frozen=True, slots=True)
class Blockers:
    """Why a job does not start at ``earliest``, its first possible start in an empty plan.

    Without all ``items`` it would start then, and only then. Without all ``sooner`` items it would start at
    ``without``, before its ``start``, and only then. -1: no start.
    """

    earliest: int
    start: int
    without: int
    items: tuple[PlanBlocker, ...]


_BlockerKey = tuple[int, int]  # a slot and -1, or -1 and a row


class _RemovalTrial:
    """Removes blockers from the plan, and restores them."""

    def __init__(self, plan: Plan, slot: int, now: int, attempt: PlanAttempt) -> None:
        self.plan, self.slot, self.now = plan, slot, now
        self.out: dict[_BlockerKey, None] = {}
        self._attempt = attempt

    def remove(self, item: _BlockerKey) -> None:
        slot, row = item
        self.out[item] = None
        if slot < 0:
            self._attempt.open_node(row)
        else:
            self._attempt.remove(slot)

    def restore(self, item: _BlockerKey) -> None:
        slot, row = item
        del self.out[item]
        if slot < 0:
            self._attempt.close_node(row)
        else:
            self._attempt.restore(slot)

    def remove_exactly(self, items: Sequence[_BlockerKey]) -> None:
        wanted = dict.fromkeys(items)
        for item in [item for item in self.out if item not in wanted]:
            self.restore(item)
        for item in items:
            if item not in self.out:
                self.remove(item)

    def starts(self, bound: int) -> int:
        """Return the job's start before ``bound``; -1: none."""
        return self.plan.probe(self.slot, self.now, bound)


def find_blockers(fork: Plan, slot: int, now: int, horizon: int) -> Blockers:
    """Return the blockers that keep the unplaced job of ``slot`` from starting as early as it may.

    Pass a fork of the plan, which is changed meanwhile and then restored. Of several sufficient sets, one on
    the nodes with the fewest conflicting jobs is returned; an unusable node only if jobs do not suffice.
    Starts lie before ``horizon``.
    """
    with PlanAttempt(fork, now) as attempt:
        trial = _RemovalTrial(fork, slot, now, attempt)
        found = _find_blockers(trial, horizon)
        trial.remove_exactly(())
        attempt.commit()
    return found


def _find_blockers(trial: _RemovalTrial, horizon: int) -> Blockers:
    fork, slot, now = trial.plan, trial.slot, trial.now
    start = trial.starts(horizon)
    begin = max(now, int(fork.tables.jobs[at.READY, slot]))
    if start == begin:
        return Blockers(start, start, start, ())
    found = _candidates(fork, slot, begin)
    trial.remove_exactly(found)
    earliest = trial.starts(begin + 1)
    if earliest < 0:  # a pool has reduced capacity for a while
        trial.remove_exactly(())  # removed jobs are no candidates
        found = _candidates(fork, slot, begin, horizon)
        trial.remove_exactly(found)
        earliest = trial.starts(horizon)
    if earliest < 0 or earliest == start:
        trial.remove_exactly(())
        return Blockers(earliest, start, start, ())
    binding = _minimal(trial, _shortest(trial, found, earliest), lambda: trial.starts(earliest + 1) >= 0)
    bound = start if start >= 0 else horizon
    sooner = set(_minimal(trial, binding, lambda: trial.starts(bound) >= 0))
    without = trial.starts(bound)
    trial.remove_exactly(())
    lacking = _Lacking(fork, slot, earliest)
    items = tuple(PlanBlocker(*one, lacking.held_by(one[0]), one in sooner) for one in binding)
    return Blockers(earliest, start, without, items)


def _shortest(trial: _RemovalTrial, ordered: Sequence[_BlockerKey], earliest: int) -> list[_BlockerKey]:
    """Return the shortest prefix of ``ordered`` that must be removed to let the job start at ``earliest``."""
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) // 2
        trial.remove_exactly(ordered[:middle])
        if trial.starts(earliest + 1) >= 0:
            high = middle
        else:
            low = middle + 1
    return list(ordered[:high])


def _minimal(
    trial: _RemovalTrial, items: Sequence[_BlockerKey], enough: Callable[[], bool]
) -> list[_BlockerKey]:
    """Return a minimal subset of ``items`` that is ``enough`` when removed, given that all are; exactly this
    subset is removed.

    Repeated until no blocker can be restored: several chunks are placed by first fit, where fewer conflicts
    do not always help.
    """
    kept = list(items)
    trial.remove_exactly(kept)
    while True:
        before = len(kept)
        for item in reversed(list(kept)):
            trial.restore(item)
            if enough():
                kept.remove(item)
            else:
                trial.remove(item)
        if len(kept) == before:
            return kept


def _candidates(plan: Plan, slot: int, begin: int, end: int | None = None) -> list[_BlockerKey]:
    """Return the jobs and nodes that conflict with the job from ``begin`` on for its duration, or until
    ``end``.

    Order: jobs on nodes with few conflicts first, then by end; unusable nodes last.
    """
    tb = plan.tables
    rows = usable_rows(plan, slot)
    if end is None:
        end = begin + int(tb.jobs[at.DUR, slot])
    starts, ends = tb.jobs[at.START], tb.jobs[at.START] + tb.jobs[at.DUR]
    slots = np.flatnonzero((starts >= 0) & (starts < end) & (ends > begin))
    counts = tb.jobs[at.ALLOCS, slots]
    owner = np.repeat(np.arange(slots.shape[0]), counts)
    first = np.cumsum(counts) - counts
    entries = tb.jobs[at.ALLOC, slots][owner] + np.arange(owner.shape[0]) - first[owner]
    on = tb.alloc[entries, at.A_ROW]
    here = np.isin(on, np.fromiter(rows, np.int64, len(rows)))
    owner, on = owner[here], on[here]
    crowd = np.bincount(on, minlength=tb.rows.shape[0])
    latest = np.zeros(tb.rows.shape[0], np.int64)
    np.maximum.at(latest, on, ends[slots[owner]])
    # order of rows: few jobs first, then by the time when the row is free again
    rank = np.empty(tb.rows.shape[0], np.int64)
    rank[np.lexsort((latest, crowd, tb.rows[:, at.USABLE] == 0))] = np.arange(tb.rows.shape[0])
    best = np.full(slots.shape[0], tb.rows.shape[0], np.int64)
    np.minimum.at(best, owner, rank[on])
    mine = np.unique(owner)
    order = mine[np.lexsort((ends[slots[mine]], best[mine]))]
    jobs = [(int(one), -1) for one in slots[order].tolist()]
    down = [(-1, row) for row in sorted(rows) if not tb.rows[row, at.USABLE]]
    return jobs + down


class _Lacking:
    """Resources that the job lacks on each row, if it started at a given time."""

    def __init__(self, plan: Plan, slot: int, start: int) -> None:
        self._plan, self._slot = plan, slot
        self._start, self._end = start, start + int(plan.tables.jobs[at.DUR, slot])
        self._rows = usable_rows(plan, slot)
        self._known: dict[int, frozenset[int]] = {}

    def held_by(self, blocker: int) -> tuple[LackingRow, ...]:
        """Return which of these the job of slot ``blocker`` (-1: none) holds."""
        if blocker < 0:
            return ()
        tb = self._plan.tables
        first, n = int(tb.jobs[at.ALLOC, blocker]), int(tb.jobs[at.ALLOCS, blocker])
        found: dict[int, set[int]] = {}
        for entry in tb.alloc[first : first + n].tolist():
            row, takes = entry[at.A_ROW], entry[at.A_TAKE :]
            if row in self._rows:
                found.setdefault(row, set()).update(c for c in self._on(row) if takes[c] > 0)
        return tuple(LackingRow(row, tuple(sorted(columns))) for row, columns in found.items() if columns)

    def _on(self, row: int) -> frozenset[int]:
        if row not in self._known:
            self._known[row] = frozenset(self._columns(row))
        return self._known[row]

    def _columns(self, row: int) -> set[int]:
        """Return the resources that limit the job's units on the row, if not all units fit."""
        tb, slot = self._plan.tables, self._slot
        segments = slice(int(tb.rows[row, at.OFF]), int(tb.rows[row, at.OFF] + tb.rows[row, at.LEN]))
        times = tb.T[segments]
        first = max(int(np.searchsorted(times, self._start, "right")) - 1, 0)
        last = max(int(np.searchsorted(times, self._end, "left")), first + 1)
        free = tb.F[:, segments][:, first:last].min(axis=1).tolist()
        pool, pools = int(tb.jobs[at.POOL, slot]), int(tb.jobs[at.POOLS, slot])
        for its, amount in tb.pools[pool : pool + pools].tolist():
            if its == row:
                return {0} if free[0] < amount else set()
        shape = int(tb.jobs[at.SHAPE, slot])
        chunk0, n = int(tb.shapes[shape, at.CHUNK]), int(tb.shapes[shape, at.CHUNKS])
        found: set[int] = set()
        for chunk in range(chunk0, chunk0 + n):
            place, length = int(tb.chunks[chunk, at.SET]), int(tb.chunks[chunk, at.SET_LEN])
            if row not in tb.sets[place : place + length]:
                continue
            need = tb.chunks[chunk, at.NEED :].tolist()
            fit = {column: free[column] // amount for column, amount in enumerate(need) if amount > 0}
            fewest = min(fit.values(), default=0)
            if fewest < int(tb.chunks[chunk, at.PER_NODE]):
                found |= {column for column, units in fit.items() if units == fewest}
        return found
