"""Planned jobs in conflict with others on their nodes and pools, and their delay by as much as needed."""

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from schedd.engine.component.placement_hooks import component_confinement
from schedd.engine.facts.records import Cause
from schedd.engine.facts.state import EngineState
from schedd.engine.place.dependencies import ready_after
from schedd.engine.rank.promises import record_moves
from schedd.model import FOREVER
from schedd.plan.columns import PLANNED, Ints
from schedd.plan.plan import Plan

_MANY_ROWS: Final = 16
_LONGEST_DELAY_S: Final = 3_600
_MOST_DELAYED: Final = 20_000  # jobs


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
    """Return when the nodes of ``stay`` begin to be over-committed, at the start of a job of ``crowd``; -1 if
    they are so before.
    """
    plan, rows = state.plan, _rows_of(state, stay)
    begin = min(map(plan.start, stay))
    for start in np.unique(plan.starts(crowd)).tolist():
        if plan.overcommitted_rows(rows, begin, max(begin, start)).shape[0]:
            break
        if plan.overcommitted_rows(rows, start, start + 1).shape[0]:
            return int(start)
    return -1


def delay_conflicting(
    state: EngineState, stay: Sequence[int], crowd: Ints, event: str, cause: Cause, words: str
) -> bool:
    """Delay the planned jobs of ``crowd`` that conflict with the end of ``stay``, and then the jobs that
    conflict with these, each on its nodes and by the length of the first conflict.

    No job starts later by more than that, and repairs move a job forward where there is a gap. If these jobs
    were placed again one after the other, a wide job would lose its place to jobs before it. Return False,
    with nothing changed, if ``stay`` has a slot without a job, the conflict is long or has many jobs, or a
    reservation, a window of a limit or a running job prevents the delay.
    """
    plan = state.plan
    if any(state.by_slot[slot] is None for slot in stay):
        return False  # jobs need not wait for the end of a reservation of some nodes
    since = _first_conflict(state, stay, crowd)
    delay = max(map(plan.end, stay)) - since
    if since < 0 or delay > _LONGEST_DELAY_S:
        return False
    starting = _StartOrder(plan)
    first = {one for slot in stay for one in starting.in_conflict(slot, since, plan.end(slot))}
    return _delay_all(state, starting, first - {*stay}, delay, event, cause, words)


def delay_late_jobs(state: EngineState, late: Ints, event: str, words: str) -> bool:
    """Move due jobs that could not be started in time to now, and delay the jobs in conflict with them by the
    time by which the latest of them is late, as `delay_conflicting` does.

    A job that has no room now, since another late job goes first, is delayed by that time, too.
    """
    plan, now = state.plan, state.now
    delay = now - int(plan.starts(late).min())
    return _delay_all(state, _StartOrder(plan), late.tolist(), delay, event, Cause.OUTAGE, words, now)


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
) -> bool:
    """Delay the jobs ``first`` and those behind them, and record it. Those that were to start before
    ``earliest`` start then where they have room. Return False, with nothing changed, if a conflict remains.
    """
    plan = state.plan
    old: dict[int, int] = {}
    if not _delay_in_order(state, starting, first, delay, old):
        for slot, start in old.items():
            plan.move(slot, start, state.now)
        return False
    for slot, start in old.items():
        if start < earliest < plan.start(slot):
            later, rows = plan.start(slot), _rows_of(state, [slot])
            plan.move(slot, earliest, state.now)
            if plan.overcommitted_rows(rows, earliest, later).shape[0]:
                plan.move(slot, later, state.now)
    for slot in old:
        record = state.by_slot[slot]
        if record is not None and record.behind:
            plan.set_ready(slot, max(plan.ready(slot), ready_after(state, record.behind)))
        plan.mark_for_search(slot)
    slots, before = np.fromiter(old, np.int64, len(old)), np.fromiter(old.values(), np.int64, len(old))
    record_moves(state, event, cause, words, slots, before, plan.starts(slots))
    return True


def _delay_in_order(
    state: EngineState, starting: _StartOrder, first: Iterable[int], delay: int, old: dict[int, int]
) -> bool:
    """Delay the jobs ``first`` and then the jobs in conflict with them, next start first, and note their
    ``old`` starts. Return whether no conflict remains; if one does, the caller moves the jobs back.
    """
    plan = state.plan
    waiting = [(plan.start(slot), slot) for slot in first]
    heapq.heapify(waiting)
    while waiting:
        start, slot = heapq.heappop(waiting)
        if slot in old:
            continue
        if len(old) == _MOST_DELAYED or not _may_be_delayed(state, slot):
            return False
        end = plan.end(slot)
        plan.move(slot, start + delay, state.now)
        old[slot] = start
        for other in starting.in_conflict(slot, end, end + delay):
            if other not in old:
                heapq.heappush(waiting, (plan.start(other), other))
    if not old:
        return False  # the conflict begins at the start of a reservation, not of a job
    rows = _rows_of(state, list(old))
    last = max(map(plan.end, old))
    return not plan.overcommitted_rows(rows, min(old.values()) + delay, last).shape[0]


def start_later(state: EngineState, slot: int, start: int, event: str, cause: Cause, words: str) -> bool:
    """Move a planned job to a later ``start`` on its nodes and delay those in conflict, as
    `delay_conflicting` does. Return False, with the job where it was, if that is not possible.
    """
    plan = state.plan
    before = plan.start(slot)
    plan.move(slot, start, state.now)
    crowd = conflicting_jobs(state, [slot], jobs_on_same_rows(state, [slot]))
    if crowd.shape[0] and not delay_conflicting(state, [slot], crowd, event, cause, words):
        plan.move(slot, before, state.now)
        return False
    if plan.overcommitted_rows(_rows_of(state, [slot]), start, plan.end(slot)).shape[0]:
        plan.move(slot, before, state.now)  # a job that runs, or a reservation, is in the way
        return False
    return True


def _may_be_delayed(state: EngineState, slot: int) -> bool:
    """Return whether only free capacity decides when this job can start."""
    record = state.by_slot[slot]
    return (
        state.plan.state(slot) == PLANNED
        and record is not None
        and record.id not in state.capped
        and component_confinement(state, record) is None
    )
