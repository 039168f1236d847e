"""Planned jobs in conflict with others on their nodes and pools, and their delay by as much as needed."""

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

import numpy as np

from schedd.engine.component.placement_hooks import component_confinement
from schedd.engine.facts.records import Cause
from schedd.engine.facts.reevaluation_queue import count_units
from schedd.engine.facts.state import EngineState
from schedd.engine.place.dependencies import ready_after
from schedd.engine.rank.promises import record_moves
from schedd.model import FOREVER
from schedd.plan.columns import PLANNED, Ints
from schedd.plan.plan import Plan

_MANY_ROWS: Final = 16
_MOST_FOLLOWERS: Final = 200
"""Maximum number of jobs that are replanned behind a displaced job."""
_MOST_FOLLOWER_UNITS: Final = 10_000  # maximum number of units of these jobs in total
_LONGEST_DELAY_S: Final = 3_600
_MOST_DELAYED: Final = 20_000  # jobs
Removed = tuple[Ints, Ints]
"""Slots removed from the plan, and their previous starts: place them again with `replan_displaced`."""


def jobs_on_same_rows(state: EngineState, of: Sequence[int]) -> Ints:
    """Return the planned jobs on the nodes and pools of these, without them, latest start first."""
    plan = state.plan
    rows = {take.row for slot in of for take in plan.takes(slot)}
    if len(rows) > _MANY_ROWS:
        slots = plan.planned()
    else:
        pools = {pool for slot in of for pool in plan.pool_amounts(slot) if plan.is_scarce(pool)}
        slots = plan.jobs_on_rows([*rows, *(plan.pools[pool] for pool in pools)])
    return np.ascontiguousarray(slots[~np.isin(slots, of)][::-1])


def conflicting_jobs(state: EngineState, stay: Sequence[int], slots: Ints) -> Ints:
    """Return the jobs among ``slots`` that hold part of an over-committed row of the jobs ``stay``."""
    plan = state.plan
    begin, end = min(map(plan.start, stay)), max(map(plan.end, stay))
    rows = plan.overcommitted_rows(_rows_of(state, stay), begin, end)
    starts = plan.starts(slots)
    slots = slots[(starts < end) & (starts + plan.jobs.durations[slots] > begin)]
    held = plan.held(slots)
    found: Ints = slots[np.unique(held.owner[np.isin(held.rows, rows)])]
    return found


def _rows_of(state: EngineState, slots: Sequence[int]) -> Ints:
    return np.unique(state.plan.held(np.array(slots, np.int64)).rows)


def _first_conflict(state: EngineState, stay: Sequence[int], crowd: Ints) -> int:
    """Return the start of the first job of ``crowd`` that over-commits the nodes of ``stay``, perhaps before
    these start; -1 if the nodes are over-committed without it.
    """
    plan, rows = state.plan, _rows_of(state, stay)
    begin = min(map(plan.start, stay))
    for start in np.unique(plan.starts(crowd)).tolist():
        since = max(begin, start)
        if plan.overcommitted_rows(rows, begin, since).shape[0]:
            break
        if plan.overcommitted_rows(rows, since, since + 1).shape[0]:
            return int(start)
    return -1


def delay_conflicting(
    state: EngineState, stay: Sequence[int], crowd: Ints, event: str, cause: Cause, words: str
) -> Removed | None:
    """Delay the planned jobs of ``crowd`` that conflict with the end of ``stay``, and then the jobs that
    conflict with these, each on its nodes and by the length of the first conflict.

    No job starts later by more than that, and repairs move a job forward where there is a gap. If these jobs
    were placed again one after the other, a wide job would lose its place to jobs before it. Return the few
    jobs to place again: see `_delay_all`. Return None, with nothing changed, if ``stay`` has a slot without
    a job, or the conflict is long or begins with no planned job.
    """
    plan = state.plan
    if any(state.by_slot[slot] is None for slot in stay):
        return None  # jobs need not wait for the end of a reservation of some nodes
    since = _first_conflict(state, stay, crowd)
    delay = max(map(plan.end, stay)) - since
    if since < 0 or delay > _LONGEST_DELAY_S:
        return None
    starting = _StartOrder(plan)
    first = {one for slot in stay for one in starting.in_conflict(slot, since, plan.end(slot))} - {*stay}
    return _delay_all(state, starting, first, delay, event, cause, words) if first else None


def delay_late_jobs(state: EngineState, late: Ints, event: str, cause: Cause, words: str) -> Removed:
    """Move due jobs that could not be started in time to now, and delay the jobs in conflict with them.

    The delay is the time since the earliest planned start among them. A late job that has no room now, since
    another one goes first, is delayed by that time, too. Return the jobs to place again: see `_delay_all`.
    """
    plan, now = state.plan, state.now
    delay = now - int(plan.starts(late).min())
    return _delay_all(state, _StartOrder(plan), late.tolist(), delay, event, cause, words, now)


class _StartOrder:
    """The planned jobs by their starts of this moment."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._slots = plan.planned()
        self._starts = plan.starts(self._slots)

    def in_conflict(self, slot: int, since: int, end: int) -> list[int]:
        """Return the jobs that started at ``since`` or later, but before ``end``, and hold part of a row of
        ``slot`` that is over-committed then.
        """
        part = slice(*np.searchsorted(self._starts, (since, end)))
        found: list[int] = self._plan.jobs_in_conflict(slot, since, end, self._slots[part]).tolist()
        return found


def _delay_all(
    state: EngineState,
    starting: _StartOrder,
    first: Iterable[int],
    delay: int,
    event: str,
    cause: Cause,
    words: str,
    earliest: int = FOREVER,
) -> Removed:
    """Delay the jobs ``first`` and the jobs behind them, and record it. A job with a start before
    ``earliest`` starts then if it has room.

    A job is removed from the plan instead if it may not be delayed, or if a reservation, a window of a limit
    or a running job is in its way; jobs behind it are removed, too. Return the removed jobs.
    """
    plan = state.plan
    old, gone = _delay_in_order(state, starting, first, delay)
    for slot in [slot for slot, start in old.items() if start < earliest < plan.start(slot)]:
        later, rows = plan.start(slot), _rows_of(state, [slot])
        plan.move(slot, earliest, state.now)
        if plan.overcommitted_rows(rows, earliest, later).shape[0]:
            plan.move(slot, later, state.now)
    for slot in old:
        record = state.by_slot[slot]
        if record is not None and record.behind:
            plan.set_ready(slot, max(plan.ready(slot), ready_after(state, record.behind)))
        plan.mark_for_search(slot)
    slots, before = _as_arrays(old)
    record_moves(state, event, cause, words, slots, before, plan.starts(slots))
    return _as_arrays(gone)


def _as_arrays(starts: Mapping[int, int]) -> Removed:
    return np.fromiter(starts, np.int64, len(starts)), np.fromiter(starts.values(), np.int64, len(starts))


def _delay_in_order(
    state: EngineState, starting: _StartOrder, first: Iterable[int], delay: int
) -> tuple[dict[int, int], dict[int, int]]:
    """Delay the jobs ``first`` and then the jobs in conflict with them, next start first. Return the previous
    starts of the delayed jobs and of the removed ones.
    """
    plan = state.plan
    old: dict[int, int] = {}
    gone: dict[int, int] = {}
    rows: set[int] = set()  # where a job is removed
    waiting = [(plan.start(slot), slot) for slot in first]
    heapq.heapify(waiting)
    while waiting:
        start, slot = heapq.heappop(waiting)
        if slot in old or slot in gone:
            continue
        if len(old) == _MOST_DELAYED or not may_be_delayed(state, slot):
            rows.update(_rows_of(state, [slot]).tolist())
            gone[slot] = start
            plan.remove(slot, state.now)
            continue
        end = plan.end(slot)
        plan.move(slot, start + delay, state.now)
        old[slot] = start
        for other in starting.in_conflict(slot, end, end + delay):
            if other not in old and other not in gone:
                heapq.heappush(waiting, (plan.start(other), other))
    if old:
        begin, end = min(old.values()) + delay, max(map(plan.end, old))
        over = plan.overcommitted_rows(_rows_of(state, list(old)), begin, end)
        if over.shape[0]:
            rows.update(over.tolist())
            latest_first = sorted(old, key=plan.start, reverse=True)
            for slot in plan.remove_overcommitted(np.array(latest_first, np.int64)).tolist():
                gone[slot] = old.pop(slot)
    if gone:
        starts = plan.jobs.starts.copy()
        behind = remove_followers(state, plan.jobs_on_rows(rows), min(gone.values()), starts)
        gone |= {slot: old.pop(slot, int(starts[slot])) for slot in behind.tolist()}
    return old, gone


def remove_followers(state: EngineState, slots: Ints, since: int, starts: Ints) -> Ints:
    """Remove the planned jobs among ``slots`` (earliest first) with ``starts`` (by slot) of at least
    ``since``. Return them.

    They are placed again behind a displaced job. At most some hundred jobs are removed, fewer if they are
    wide.
    """
    plan = state.plan
    behind = slots[(starts[slots] >= since) & (plan.jobs.states[slots] == PLANNED)]
    # Jobs on a node that is down leave it after its grace.
    behind = _limit_units(state, plan.on_usable_nodes(behind[:_MOST_FOLLOWERS]).tolist())
    for follower in behind.tolist():
        plan.remove(follower, state.now)
    return behind


def _limit_units(state: EngineState, slots: list[int]) -> Ints:
    """Return the first of these slots, fewer if the jobs are wide."""
    units = list(accumulate(count_units(record) if (record := state.by_slot[s]) else 0 for s in slots))
    return np.array(slots[: bisect_right(units, _MOST_FOLLOWER_UNITS)], np.int64)


def start_later(
    state: EngineState, slot: int, start: int, event: str, cause: Cause, words: str
) -> Removed | None:
    """Move a planned job to a later ``start`` on its nodes and delay those in conflict. Return what
    `delay_conflicting` does; it may have the job itself. None, with the job where it was, if it cannot be
    delayed so.
    """
    plan = state.plan
    before = plan.start(slot)
    plan.move(slot, start, state.now)
    crowd = conflicting_jobs(state, [slot], jobs_on_same_rows(state, [slot]))
    gone = delay_conflicting(state, [slot], crowd, event, cause, words) if crowd.shape[0] else None
    if plan.overcommitted_rows(_rows_of(state, [slot]), start, plan.end(slot)).shape[0]:
        if gone is None:
            plan.move(slot, before, state.now)  # a job that runs, or a reservation, is in the way
            return None
        plan.remove(slot, state.now)
        return np.append(gone[0], slot), np.append(gone[1], before)
    return gone if gone is not None else _as_arrays({})


def may_be_delayed(state: EngineState, slot: int) -> bool:
    """Return whether only free capacity decides when this job can start."""
    record = state.by_slot[slot]
    return (
        state.plan.state(slot) == PLANNED
        and record is not None
        and record.id not in state.capped
        and component_confinement(state, record) is None
    )
