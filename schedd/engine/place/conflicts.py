"""Planned jobs in conflict with others on their nodes and pools, and their delay by as much as needed."""

from bisect import bisect_right
from collections.abc import Sequence
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

_MANY_ROWS: Final = 16
_MOST_FOLLOWERS: Final = 200
"""Maximum number of jobs that are replanned behind a displaced job."""
_MOST_FOLLOWER_UNITS: Final = 10_000  # maximum number of units of these jobs in total
_LONGEST_DELAY_S: Final = 3_600
_MOST_DELAYED: Final = 20_000  # jobs
Removed = tuple[Ints, Ints]
"""Slots removed from the plan, and their previous starts: place them again with `replan_displaced`."""
_NOTHING_REMOVED: Final[Removed] = (np.zeros(0, np.int64), np.zeros(0, np.int64))


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
    rows = plan.overcommitted_rows(_held_rows(state, stay), begin, end)
    starts = plan.starts(slots)
    slots = slots[(starts < end) & (starts + plan.jobs.durations[slots] > begin)]
    held = plan.held(slots)
    found: Ints = slots[np.unique(held.owner[np.isin(held.rows, rows)])]
    return found


def _held_rows(state: EngineState, slots: Sequence[int]) -> Ints:
    return np.unique(state.plan.held(np.array(slots, np.int64)).rows)


def _first_conflict(state: EngineState, stay: Sequence[int], crowd: Ints) -> int:
    """Return the start of the first job of ``crowd`` that over-commits the nodes of ``stay``, perhaps before
    these start; -1 if the nodes are over-committed without it.
    """
    plan, rows = state.plan, _held_rows(state, stay)
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
    first = _jobs_in_conflict(state, stay, since)
    return _delay_all(state, first, delay, event, cause, words) if first.shape[0] else None


def delay_late_jobs(state: EngineState, late: Ints, event: str, cause: Cause, words: str) -> Removed:
    """Move due jobs that could not be started in time to now, and delay the jobs in conflict with them.

    The delay is the time since the earliest planned start among them. A late job that has no room now, since
    another one goes first, is delayed by that time, too. Return the jobs to place again: see `_delay_all`.
    """
    delay = state.now - int(state.plan.starts(late).min())
    return _delay_all(state, late, delay, event, cause, words, state.now)


def _jobs_in_conflict(state: EngineState, stay: Sequence[int], since: int) -> Ints:
    """Return the planned jobs, without ``stay``, that start at ``since`` or later, but before the end of one
    of the slots ``stay``, and hold part of a row of it that is over-committed then.
    """
    plan = state.plan
    slots = plan.planned()
    starts = plan.starts(slots)
    found = [np.zeros(0, np.int64)]
    for slot in stay:
        part = slice(*np.searchsorted(starts, (since, plan.end(slot))))
        found.append(plan.jobs_in_conflict(slot, since, plan.end(slot), slots[part]))
    return np.setdiff1d(np.concatenate(found), stay)


def _delay_all(
    state: EngineState,
    first: Ints,
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
    slots, before, *gone = _delay_in_order(state, first, delay)
    plan.advance(slots[(before < earliest) & (plan.starts(slots) > earliest)], earliest, state.now)
    for slot in slots.tolist():
        record = state.by_slot[slot]
        if record is not None and record.behind:
            plan.set_ready(slot, max(plan.ready(slot), ready_after(state, record.behind)))
    plan.mark_several_for_search(slots)
    record_moves(state, event, cause, words, slots, before, plan.starts(slots))
    return gone[0], gone[1]


def _delay_in_order(state: EngineState, first: Ints, delay: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Delay the jobs ``first`` and then the jobs in conflict with them, next start first. Return the delayed
    jobs and the removed ones, each with their previous starts.
    """
    plan = state.plan
    done = plan.delay(
        first, delay, state.now, most=_MOST_DELAYED, may_be_delayed=lambda slot: may_be_delayed(state, slot)
    )
    slots, before, rows = done.delayed, done.starts, done.rows
    gone = [(done.removed, done.removed_starts)]
    if slots.shape[0]:
        begin, end = int(before.min()) + delay, int((plan.starts(slots) + plan.jobs.durations[slots]).max())
        over = plan.overcommitted_rows(np.unique(plan.held(slots).rows), begin, end)
        if over.shape[0]:
            rows = np.union1d(rows, over)
            latest_first = slots[np.argsort(-plan.starts(slots), kind="stable")]
            lost = np.isin(slots, plan.remove_overcommitted(latest_first))
            gone.append((slots[lost], before[lost]))
            slots, before = slots[~lost], before[~lost]
    if any(jobs.shape[0] for jobs, _ in gone):
        starts = plan.jobs.starts.copy()
        since = min(int(moments.min()) for _, moments in gone if moments.shape[0])
        behind = remove_followers(state, plan.jobs_on_rows(rows.tolist()), since, starts)
        starts[slots] = before
        gone.append((behind, starts[behind]))
        stay = ~np.isin(slots, behind)
        slots, before = slots[stay], before[stay]
    removed = np.concatenate([jobs for jobs, _ in gone])
    return slots, before, removed, np.concatenate([moments for _, moments in gone])


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
    if plan.overcommitted_rows(_held_rows(state, [slot]), start, plan.end(slot)).shape[0]:
        if gone is None:
            plan.move(slot, before, state.now)  # a job that runs, or a reservation, is in the way
            return None
        plan.remove(slot, state.now)
        return np.append(gone[0], slot), np.append(gone[1], before)
    return gone if gone is not None else _NOTHING_REMOVED


def may_be_delayed(state: EngineState, slot: int) -> bool:
    """Return whether only free capacity decides when this job can start."""
    record = state.by_slot[slot]
    return (
        state.plan.state(slot) == PLANNED
        and record is not None
        and record.id not in state.capped
        and component_confinement(state, record) is None
    )
