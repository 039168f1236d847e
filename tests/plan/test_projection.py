"""A plan run on by one kernel is the plan run on by its own operations, event by event."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.model import Chunk, Node, Request
from schedd.plan.columns import FIXED, PLANNED, Ints
from schedd.plan.job_order import NO_ORDER, ArrayEnds
from schedd.plan.kernels import layout as at
from schedd.plan.kernels import projection as on
from schedd.plan.plan import Plan
from schedd.plan.projection import project_plan
from tests.plan import reference_projection
from tests.property_examples import examples

MUCH = 1 << 40

Job = tuple[int, int, int, float, int, int]
JOBS = st.lists(
    st.tuples(
        st.integers(1, 3),  # units
        st.integers(1, 4),  # cpus of each
        st.integers(10, 2_000),  # walltime
        st.floats(0.0, 1.0),  # the share of it that the job runs
        st.integers(0, 2),  # licences
        st.integers(0, 300),  # the earliest start allowed
    ),
    min_size=1,
    max_size=18,
)


def planned(jobs: list[Job], ended: int | None) -> tuple[Plan, Ints, int]:
    """A plan at a moment, and how long its jobs last; one may have ended just then: nothing is repaired."""
    plan = Plan([Node("a", cpus=4), Node("b", cpus=4), Node("c", cpus=2)], 0)
    plan.set_pool("licences", 2, 0)
    for units, cpus, walltime, _, licences, ready in jobs:
        request = Request((Chunk(units, min(cpus, 2 if units == 3 else 4)),))
        plan.place(plan.add_job(request, walltime, ready, {"licences": licences}), 0)
    for slot in plan.due_jobs(0).tolist():
        plan.fix_in_place(slot)
    lasts = plan.jobs.durations.copy()
    lasts[: len(jobs)] = [max(1, round(walltime * share)) for _, _, walltime, share, _, _ in jobs]
    running = np.flatnonzero(plan.jobs.states == FIXED)
    if ended is None or not running.shape[0]:
        return plan, lasts, 0
    slot = int(running[ended % running.shape[0]])
    now = max(1, plan.end(slot) // 3)
    for other in plan.due_jobs(now).tolist():
        plan.fix_in_place(other)
    plan.set_duration(slot, now, now)
    return plan, lasts, now


def cut(plan: Plan) -> None:
    """Leave no room in the slabs."""
    tb = plan.slabs.tb
    top = int(tb.ctl[at.SLAB_TOP])
    plan.slabs.tb = tb._replace(T=tb.T[:top].copy(), F=tb.F[:, :top].copy())


def same(
    plan: Plan,
    lasts: Ints,
    now: int,
    work: int,
    until: list[int],
    arrays: ArrayEnds | None = None,
    arrivals: Ints = NO_ORDER,
) -> None:
    mine, reference = plan.fork(), plan.fork()
    found = project_plan(mine, lasts, now, work, until, arrays, arrivals=arrivals)
    plain = reference_projection.run_on(reference, lasts, now, work, until, arrays, arrivals.tolist())
    assert (found.started.tolist(), found.now) == (plain.started.tolist(), plain.now)
    assert mine.work == reference.work
    for field in (at.START, at.DUR, at.STATE, at.SEEN):
        assert mine.tables.jobs[field].tolist() == reference.tables.jobs[field].tolist()
    for row in range(mine.tables.rows.shape[0]):
        a, b = mine.timeline(row), reference.timeline(row)
        assert a.times.tolist() == b.times.tolist()
        assert a.free.tolist() == b.free.tolist()


@settings(deadline=None, max_examples=examples(150))
@given(
    JOBS,
    st.none() | st.integers(0, 20),
    st.sampled_from([MUCH, 0, 4_000, 20_000]),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_projection_kernel_matches_the_plan_operations(
    jobs: list[Job], ended: int | None, work: int, full: bool, some: bool, data: st.DataObject
) -> None:
    plan, lasts, now = planned(jobs, ended)
    if full:
        cut(plan)
    waiting = np.flatnonzero(plan.jobs.states == PLANNED).tolist()
    until = data.draw(st.lists(st.sampled_from(waiting), unique=True)) if some and waiting else []
    same(plan, lasts, now, work, until)


@settings(deadline=None, max_examples=examples(40))
@given(JOBS, st.none() | st.integers(0, 20), st.lists(st.integers(0, 2), min_size=18, max_size=18))
def test_coordinated_arrays_are_ordered_by_their_ends(
    jobs: list[Job], ended: int | None, of: list[int]
) -> None:
    plan, lasts, now = planned(jobs, ended)
    number = np.zeros(lasts.shape[0], np.int64)
    number[: len(of)] = of
    same(plan, lasts, now, MUCH, [], ArrayEnds(number, np.zeros_like(number)))


@settings(deadline=None, max_examples=examples(80))
@given(
    JOBS,
    JOBS,
    st.none() | st.integers(0, 20),
    st.sampled_from([MUCH, 4_000, 20_000]),
    st.booleans(),
)
def test_jobs_that_arrive_get_their_gaps_when_they_come(
    jobs: list[Job], later: list[Job], ended: int | None, work: int, ranked: bool
) -> None:
    plan, lasts, now = planned(jobs, ended)
    waiting = np.flatnonzero(plan.jobs.states == PLANNED).tolist()
    arrivals = []
    for units, cpus, walltime, share, licences, ready in sorted(later, key=lambda one: one[-1]):
        request = Request((Chunk(units, min(cpus, 2 if units == 3 else 4)),))
        slot = plan.add_job(request, walltime, now + 5 * ready, {"licences": licences})
        lasts = np.concatenate((lasts, np.ones(plan.jobs.starts.shape[0] - lasts.shape[0], np.int64)))
        lasts[slot] = max(1, round(walltime * share))
        arrivals.append(slot)
    if ranked:
        ranks = np.zeros(lasts.shape[0], np.int64)
        ranks[waiting] = 1 + np.arange(len(waiting)) % 3
        plan.order_repairs(ranks)
    plan.slabs.grow_segments(wanted=1 << 14)  # one of both would find a full slab earlier than the other
    same(plan, lasts, now, work, waiting, arrivals=np.array(arrivals, np.int64))


def test_arrivals_that_find_full_slabs_are_placed_after_these_have_grown() -> None:
    plan, lasts = busy()
    waiting = np.flatnonzero(plan.jobs.states == PLANNED).tolist()
    arrivals = [plan.add_job(Request((Chunk(1, 1 + i % 2),)), 500, 20 * i) for i in range(30)]
    lasts = np.concatenate((lasts, np.zeros(plan.jobs.starts.shape[0] - lasts.shape[0], np.int64)))
    lasts[arrivals] = 100
    cut(plan)
    found = project_plan(plan, lasts, 0, MUCH, waiting + arrivals, arrivals=np.array(arrivals, np.int64))
    assert (found.started[waiting + arrivals] >= 0).all()
    assert not plan.overcommitted_rows(np.arange(3), 0, 1 << 30).shape[0]


def busy() -> tuple[Plan, Ints]:
    """Many jobs of all sizes with early ends, without pending repair."""
    jobs: list[Job] = [
        (1 + i % 3, 1 + i % 4, 300 + 37 * (i * i % 29), 0.2 + 0.02 * (i % 17), 0, 0) for i in range(60)
    ]
    plan, lasts, _ = planned(jobs, None)
    plan.repair(0)
    return plan, lasts


@pytest.mark.parametrize("how", [on.NEEDS_ROOM, on.REPAIR_BY_CALLER, on.BY_CALLER])
def test_caller_completes_what_the_projection_kernel_leaves(
    how: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its ways out is taken, and makes no difference."""
    plan, lasts = busy()
    if how == on.REPAIR_BY_CALLER:  # the first end fits its row; jobs that move there leave full rows
        plan.slabs.tidy(1 << 15)
        cut(plan)
        rows = plan.tables.rows
        rows[1:3, at.ROOM] = rows[1:3, at.LEN]
        running = np.flatnonzero(plan.jobs.states == FIXED).tolist()
        lasts[next(slot for slot in running if {take.row for take in plan.takes(slot)} == {0})] = 1
    if how == on.NEEDS_ROOM:
        plan.slabs.tb = plan.slabs.tb._replace(
            alloc=plan.slabs.tb.alloc[: int(plan.slabs.tb.ctl[at.ALLOC_TOP])]
        )
    if how == on.BY_CALLER:
        plan.mark_all_for_search()
    ways = set()
    kernel: Any = on.project_events

    def record_way(*args: Any) -> int:
        way = kernel(*args)
        ways.add(way)
        return int(way)

    monkeypatch.setattr(on, "project_events", record_way)
    same(plan, lasts, 0, MUCH, [])
    assert {how, on.ENDED} <= ways
