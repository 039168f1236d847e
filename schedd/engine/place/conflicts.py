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
from schedd.plan.columns import PLANNED, Ints

_MANY_ROWS: Final = 16
_LONGEST_DELAY_S: Final = 3_600
_MOST_DELAYED: Final = 5_000  # jobs


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
    old: dict[int, int] = {}
    if not _delay_in_order(state, _starting_in_conflict(state, stay, since), delay, old):
        for slot, start in old.items():
            plan.move(slot, start, state.now)
        return False
    for slot in old:
        record = state.by_slot[slot]
        if record is not None and record.behind:
            plan.set_ready(slot, max(plan.ready(slot), ready_after(state, record.behind)))
        plan.mark_for_search(slot)
    slots, before = np.fromiter(old, np.int64, len(old)), np.fromiter(old.values(), np.int64, len(old))
    record_moves(state, event, cause, words, slots, before, plan.starts(slots))
    return True


def _delay_in_order(state: EngineState, first: Iterable[int], delay: int, old: dict[int, int]) -> bool:
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
        for other in _starting_in_conflict(state, [slot], end):
            if other not in old:
                heapq.heappush(waiting, (plan.start(other), other))
    if not old:
        return False  # the conflict begins at the start of a reservation, not of a job
    rows = _rows_of(state, list(old))
    last = max(map(plan.end, old))
    return not plan.overcommitted_rows(rows, min(old.values()) + delay, last).shape[0]


def _starting_in_conflict(state: EngineState, stay: Sequence[int], since: int) -> list[int]:
    """Return the planned jobs that start at ``since`` or later on rows of ``stay`` that are over-committed
    from then on while ``stay`` hold them.
    """
    plan, end = state.plan, max(map(state.plan.end, stay))
    rows = plan.overcommitted_rows(_rows_of(state, stay), since, end)
    if not rows.shape[0]:
        return []
    slots = plan.jobs_on_rows(rows.tolist())
    starts = plan.starts(slots)
    found: list[int] = slots[(starts >= since) & (starts < end) & ~np.isin(slots, stay)].tolist()
    return found


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
