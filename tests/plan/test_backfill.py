"""Backfilling: no job passes its bound, no node is over-committed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schedd.model import FOREVER, Chunk, Node, Request
from schedd.plan.backfill import BackfillQueue, backfill
from schedd.plan.columns import PLANNED
from schedd.plan.kernels.layout import Ints
from schedd.plan.plan import Plan
from tests.plan.strategies import DURATIONS, clusters, requests

NOW = 1_000
DAY = 86_400


def planned(plan: Plan) -> Ints:
    slots: Ints = np.flatnonzero(plan.jobs.states == PLANNED)
    return slots


def waiting(plan: Plan, **columns: list[int]) -> BackfillQueue:
    """Of all planned jobs; columns that are shorter begin again."""
    slots = planned(plan)
    found = {name: np.resize(np.array(values, np.int64), slots.shape[0]) for name, values in columns.items()}
    return BackfillQueue(slots, found["since"], found["expected"], found["latest"], found["rank"])


@given(
    nodes=clusters(),
    jobs=st.lists(st.tuples(requests(), DURATIONS), min_size=2, max_size=14),
    ended=st.integers(0, 3),
    since=st.lists(st.integers(0, NOW), min_size=1, max_size=12),
    latest=st.lists(st.integers(NOW, NOW + 3_000), min_size=1, max_size=12),
    expected=st.lists(st.integers(1, 700), min_size=1, max_size=12),
    rank=st.lists(st.integers(0, 2), min_size=1, max_size=3),
    patience=st.sampled_from([0, 300, DAY]),
)
def test_no_job_passes_its_bound_and_no_node_is_overcommitted(
    nodes: list[Node],
    jobs: list[tuple[Request, int]],
    ended: int,
    since: list[int],
    latest: list[int],
    expected: list[int],
    rank: list[int],
    patience: int,
) -> None:
    plan = Plan(nodes, NOW)
    for request, duration in jobs:
        plan.place(plan.add_job(request, duration, 0), NOW, NOW + 10**6)
    running = [slot for slot in planned(plan).tolist() if plan.start(slot) == NOW]
    for slot in running:
        plan.fix_in_place(slot)
    for slot in running[:ended]:  # long before its walltime
        plan.drop_job(slot, NOW)
    of = waiting(plan, since=since, latest=latest, expected=expected, rank=rank)
    before = plan.starts(of.slots)
    moves = backfill(plan, of, NOW, patience)
    after = plan.starts(of.slots)
    assert (after >= NOW).all()
    assert (after <= np.maximum(of.latest, before)).all()
    moved = np.flatnonzero(after != before)
    assert moves.slots.tolist() == of.slots[moved].tolist()
    assert (moves.old.tolist(), moves.new.tolist()) == (before[moved].tolist(), after[moved].tolist())
    assert not plan.misplaced().shape[0]
    rows = np.array(sorted(plan.node_names), np.int64)
    assert not plan.overcommitted_rows(rows, NOW, FOREVER).shape[0]


def busy(cpus: int, jobs: list[tuple[int, int]]) -> Plan:
    """One node; jobs of (cpus, seconds) are planned in this order after a job that just ended."""
    plan = Plan([Node("n", cpus=cpus)], NOW)
    first = plan.add_job(Request((Chunk(1, cpus),)), 10_000, 0)
    plan.place(first, NOW)
    for asked, duration in jobs:
        plan.place(plan.add_job(Request((Chunk(1, asked),)), duration, 0), NOW)
    plan.drop_job(first, NOW)
    return plan


def started(plan: Plan, of: BackfillQueue, patience: int = DAY) -> list[int]:
    """Which of them start now."""
    backfill(plan, of, NOW, patience)
    return np.flatnonzero(plan.starts(of.slots) == NOW).tolist()


def test_order_is_by_rank_then_age_beyond_patience_then_expected_run_time() -> None:
    jobs = [(4, 1000), (4, 900), (4, 800)]
    free = {"latest": [10**6], "since": [NOW], "expected": [500, 400, 300], "rank": [0]}
    plan = busy(4, jobs)
    assert started(plan, waiting(plan, **free)) == [2]
    plan = busy(4, jobs)
    assert started(plan, waiting(plan, **{**free, "since": [NOW, NOW - 800, NOW]}), 700) == [1]
    plan = busy(4, jobs)
    assert started(plan, waiting(plan, **{**free, "rank": [1, 0, 0]})) == [0]


def test_a_wide_job_needs_less_patience() -> None:
    free = {"latest": [10**6], "expected": [500, 10], "rank": [0]}
    for wide, first in ((4, 0), (1, 1)):
        plan = busy(4, [(wide, 90_000), (4, 90_000)])
        of = waiting(plan, since=[NOW - 3_000, NOW], **free)
        assert first in started(plan, of, 10_000), wide


def test_no_job_moves_without_free_capacity_or_waiting_jobs() -> None:
    plan = Plan([Node("n", cpus=4)], NOW)
    nobody = waiting(plan, since=[0], latest=[0], expected=[1], rank=[0])
    assert not len(backfill(plan, nobody, NOW, DAY))
    runs = plan.add_job(Request((Chunk(1, 4),)), 100, 0)
    plan.place(runs, NOW)
    plan.fix_in_place(runs)
    plan.place(plan.add_job(Request((Chunk(1, 4),)), 50, 0), NOW)
    work = plan.work
    one = waiting(plan, since=[0], latest=[10**6], expected=[1], rank=[0])
    assert not len(backfill(plan, one, NOW, 0))
    assert plan.work == work
