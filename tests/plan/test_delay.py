"""Delays of jobs and of those behind them are the same as by a queue of single moves."""

import heapq
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schedd.plan.kernels import layout as at
from schedd.plan.plan import Plan
from tests.plan.test_futility import NOW, full_plan


def delay_plainly(
    plan: Plan, first: list[int], delay: int, most: int, stays: set[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """Delay jobs as ``Plan.delay``, one by one. Return the previous starts of delayed and of removed ones."""
    delayed: dict[int, int] = {}
    removed: dict[int, int] = {}
    slots = plan.planned()
    starts = plan.starts(slots)
    waiting = [(plan.start(slot), slot) for slot in first]
    heapq.heapify(waiting)
    while waiting:
        start, slot = heapq.heappop(waiting)
        if slot in delayed or slot in removed:
            continue
        if len(delayed) == most or slot in stays:
            removed[slot] = start
            plan.remove(slot, NOW)
            continue
        end = plan.end(slot)
        plan.move(slot, start + delay, NOW)
        delayed[slot] = start
        part = slice(*np.searchsorted(starts, (end, end + delay)))
        for other in plan.jobs_in_conflict(slot, end, end + delay, slots[part]).tolist():
            if other not in delayed and other not in removed:
                heapq.heappush(waiting, (plan.start(other), other))
    return delayed, removed


def _content(plan: Plan) -> tuple[object, ...]:
    """Return all timelines, jobs, and the log of freed intervals."""
    tb, log = plan.tables, plan.slabs.freed
    rows = [
        (tb.T[first : first + n].tolist(), tb.F[:, first : first + n].tolist())
        for first, n in tb.rows[:, [at.OFF, at.LEN]].tolist()
    ]
    freed = int(tb.ctl[at.FREED])
    kept = [f for f in range(at.T_FIELDS) if f != at.T_VERSION]
    entries = [
        log.entries[kept, :freed].tolist(),
        log.length[:, :freed].tolist(),
        log.since[:, :freed].tolist(),
    ]
    return rows, tb.jobs[: at.ALLOC].tolist(), tb.jobs[at.SEEN].tolist(), entries, tb.bounds.tolist()


def _full(plan: Plan) -> None:
    """Leave no unused segment in the slab of the rows."""
    tb = plan.tables
    tb.rows[:, at.ROOM] = tb.rows[:, at.LEN]
    tb.ctl[at.SLAB_TOP] = tb.T.shape[0]


@given(seed=st.integers(0, 1 << 32))
def test_all_jobs_behind_are_delayed_as_by_single_moves(seed: int) -> None:
    rng = Random(seed)
    plan = full_plan(rng, pools=rng.random() < 0.5)
    planned = plan.planned().tolist()
    if not planned:
        return
    first = rng.sample(planned, rng.randint(1, min(4, len(planned))))
    stays = {slot for slot in planned if rng.random() < rng.choice([0, 0, 0.2])}
    delay, most = rng.choice([1, 7, 60, 300, 2_000]), rng.choice([2, 1_000])
    expected = plan.fork()
    if rng.random() < 0.5:
        _full(plan)
    delayed, removed = delay_plainly(expected, first, delay, most, stays)
    asked: list[int] = []

    def may_be_delayed(slot: int) -> bool:
        asked.append(slot)
        return slot not in stays

    done = plan.delay(np.array(first), delay, NOW, most=most, may_be_delayed=may_be_delayed)
    assert dict(zip(done.delayed.tolist(), done.starts.tolist(), strict=True)) == delayed
    assert dict(zip(done.removed.tolist(), done.removed_starts.tolist(), strict=True)) == removed
    assert list(delayed) == done.delayed.tolist()
    assert len(asked) == len(set(asked))
    assert _content(plan) == _content(expected)


@given(seed=st.integers(0, 1 << 32))
def test_delayed_jobs_are_advanced_to_where_they_have_room(seed: int) -> None:
    rng = Random(seed)
    plan = full_plan(rng, pools=rng.random() < 0.5)
    planned = plan.planned().tolist()
    slots = [slot for slot in rng.sample(planned, min(12, len(planned))) if plan.start(slot) > NOW]
    start = NOW + rng.choice([0, 5, 40])
    slots = [slot for slot in slots if plan.start(slot) > start]
    expected = plan.fork()
    if rng.random() < 0.5:
        _full(plan)
    for slot in slots:
        later = expected.start(slot)
        expected.move(slot, start, NOW)
        rows = np.unique(expected.held(np.array([slot])).rows)
        if expected.overcommitted_rows(rows, start, later).shape[0]:
            expected.move(slot, later, NOW)
    plan.advance(np.array(slots, np.int64), start, NOW)
    assert _content(plan) == _content(expected)
