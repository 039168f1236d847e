"""Order of jobs in repair: by age, or by the end of their arrays."""

import random

import numpy as np
import pytest

from schedd.model import Chunk, Node, Request
from schedd.plan.job_order import ArrayEnds, by_age, by_completion, by_start
from schedd.plan.kernels import layout as at
from schedd.plan.plan import Plan

ONE = Request((Chunk(1, 4),))


def _planned(*jobs: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Planned jobs of (start, duration, ready)."""
    table = np.zeros((11, len(jobs)), np.int64)
    for slot, (start, duration, ready) in enumerate(jobs):
        table[[at.START, at.DUR, at.READY, at.STATE], slot] = start, duration, ready, at.PLANNED
    return table, np.arange(len(jobs))


def wholes(numbers: list[int], ends: list[int] | None = None) -> ArrayEnds:
    return ArrayEnds(np.array(numbers), np.array(ends or [0] * len(numbers)))


def test_job_of_an_array_counts_with_the_end_of_its_array() -> None:
    jobs, slots = _planned((10, 10, 0), (500, 10, 1), (20, 100, 2), (15, 100, 3), (20, 100, 2))
    none = wholes([0] * 5)
    assert by_age(jobs, slots).tolist() == [0, 1, 2, 4, 3]
    assert by_start(jobs).tolist() == [0, 3, 2, 4, 1]
    assert by_completion(jobs, slots, none).tolist() == [0, 3, 2, 4, 1]
    one = wholes([7, 7, 0, 0, 0])
    assert by_completion(jobs, slots, one).tolist() == [3, 2, 4, 0, 1]
    two = wholes([7, 7, 9, 9, 0])  # 9 ends at 120, as the last job does: then the start counts
    assert by_completion(jobs, slots, two).tolist() == [3, 2, 4, 0, 1]
    assert by_completion(jobs, slots[2:4], two).tolist() == [3, 2]


def test_jobs_of_higher_rank_go_first_and_equal_ones_by_age_or_end() -> None:
    jobs, slots = _planned((10, 10, 3), (20, 10, 0), (30, 10, 1), (40, 10, 2))
    ranks = np.array([5, -1, 5, 7])
    assert by_age(jobs, slots, ranks).tolist() == [3, 2, 0, 1]
    assert by_age(jobs, slots[1:3], ranks).tolist() == [2, 1]
    assert by_age(jobs, slots, ranks[:3]).tolist() == [2, 0, 3, 1], "beyond its end the rank is 0"
    assert by_completion(jobs, slots, wholes([0] * 4), ranks).tolist() == [3, 0, 2, 1]
    assert by_start(jobs, ranks).tolist() == [3, 0, 2, 1]


@pytest.mark.parametrize("start_now", [False, True])
def test_repair_moves_jobs_of_higher_rank_first_also_in_a_fork(start_now: bool) -> None:
    plan = Plan([Node("n", 4)], 0)
    slots = [plan.add_job(ONE, duration, 0) for duration in (100, 30, 40, 50)]
    for slot in slots:
        plan.place(slot, 0)
    plan.order_repairs(np.array([0, 1, 3, 2]))
    fork = plan.fork()
    for one in (plan, fork):
        one.remove(slots[0], 0)
        if start_now:
            one.repair_now(0)
        one.repair(0)
        assert [one.start(slot) for slot in slots[1:]] == [90, 0, 40]


def test_second_pass_by_arrays_moves_jobs_of_higher_rank_first() -> None:
    """A job that moves leaves a hole; the job of rank 3 gets it, though one of rank 2 is planned before."""
    plan = Plan([Node("n", 4)], 0)
    running, between, moves, low, high = (plan.add_job(ONE, length, 0) for length in (50, 100, 50, 50, 50))
    for slot in (running, between, moves, low, high):
        plan.place(slot, 0)
    plan.set_ready(low, 100)
    plan.set_ready(high, 100)
    plan.set_ready(between, 50)
    ranks = np.zeros(plan.jobs.size, np.int64)
    ranks[[moves, low, high]] = 1, 2, 3
    plan.order_repairs(ranks)
    arrays = ArrayEnds(np.zeros_like(ranks), np.zeros_like(ranks))
    plan.drop_job(running, 0)
    plan.repair(0, arrays=arrays)
    assert [plan.start(slot) for slot in (between, moves, high, low)] == [50, 0, 150, 200]


def test_array_ends_no_earlier_than_in_other_plans() -> None:
    jobs, slots = _planned((10, 10, 0), (30, 10, 1), (20, 100, 2), (15, 50, 3))
    assert by_completion(jobs, slots, wholes([7, 7, 0, 0])).tolist() == [0, 1, 3, 2]
    assert by_completion(jobs, slots, wholes([7, 7, 0, 0], [100, 100, 0, 0])).tolist() == [3, 0, 1, 2]
    assert by_completion(jobs, slots, wholes([7, 7, 0, 0], [20, 20, 0, 0])).tolist() == [0, 1, 3, 2]
    assert by_completion(jobs, slots, wholes([7, 7, 0, 0], [0, 0, 900, 0])).tolist() == [0, 1, 3, 2]


def test_running_jobs_count_for_their_array_and_unplaced_ones_do_not() -> None:
    jobs, slots = _planned((10, 10, 0), (0, 900, 0), (20, 100, 0), (-1, 5000, 0))
    jobs[at.STATE, 1], jobs[at.STATE, 3] = at.FIXED, at.UNPLACED
    assert by_completion(jobs, slots[[0, 2]], wholes([7, 7, 0, 0])).tolist() == [2, 0]
    assert by_completion(jobs, slots[[0, 2]], wholes([7, 0, 0, 7])).tolist() == [0, 2]


@pytest.mark.parametrize("seed", range(4))
def test_repair_by_arrays_delays_no_job_and_is_complete(seed: int) -> None:
    rng = random.Random(seed)
    plan = Plan([Node(f"n{i}", 4) for i in range(5)], 0)
    jobs: dict[int, int] = {}
    for _ in range(60):
        slot = plan.add_job(Request((Chunk(rng.randint(1, 3), rng.randint(1, 4)),)), rng.randint(20, 400), 0)
        plan.place(slot, 0)
        jobs[slot] = rng.choice([0, 0, 1, 2, 3])
    numbers = np.zeros(plan.jobs.size, np.int64)
    for slot, array in jobs.items():
        numbers[slot] = array
    arrays = ArrayEnds(numbers, np.zeros_like(numbers))
    for _ in range(12):
        plan.drop_job(int(rng.choice(plan.planned())), 0)
        slots = plan.planned()
        before = plan.starts(slots)
        done = False
        while not done:
            plan.repair_now(0, arrays)
            _, done = plan.repair(0, 40, arrays)
            assert (plan.starts(slots) <= before).all()
        plan.mark_all_for_search()
        assert len(plan.repair(0)[0]) == 0  # a full search finds nothing earlier


def test_the_hole_goes_to_the_job_that_ends_before_the_array() -> None:
    """A hole of 400 s: the array's first job is older, but the array as a whole ends later for all that."""

    def after(numbers: np.ndarray | None) -> list[int]:
        plan = Plan([Node("n1", 4), Node("n2", 4)], 0)
        begun, other = plan.add_job(ONE, 400, 0), plan.add_job(ONE, 2000, 0)
        first, last = plan.add_job(ONE, 400, 0), plan.add_job(ONE, 1700, 0)
        small = plan.add_job(ONE, 300, 1)
        for slot in (begun, other, first, last, small):
            plan.place(slot, 0)
        assert plan.starts(np.array([first, last, small])).tolist() == [400, 800, 2000]
        plan.drop_job(begun, 10)
        arrays = None
        if numbers is not None:
            known = np.zeros(plan.jobs.size, np.int64)
            known[[first, last]] = numbers
            arrays = ArrayEnds(known, np.zeros_like(known))
        plan.repair_now(10, arrays)
        plan.repair(10, arrays=arrays)
        return [plan.start(slot) for slot in (first, last, small)]

    assert after(None) == [10, 410, 2000]
    assert after(np.array([0, 0])) == [10, 710, 410]  # by ends, but each by itself
    assert after(np.array([7, 7])) == [310, 710, 10]


@pytest.mark.parametrize("seed", range(20))
def test_order_by_age_does_not_depend_on_the_former_one(seed: int) -> None:
    rng = random.Random(seed)
    times = [1, 5, 1 << 30, 1 << 61]  # the last ones are too far apart for one number of moment and slot
    jobs, slots = _planned(*((0, 10, rng.choice(times[: 2 + seed % 3])) for _ in range(60)))
    former = by_age(jobs, np.flatnonzero([rng.random() < 0.7 for _ in range(50)]))
    jobs[at.READY, rng.sample(range(60), 10)] = 3
    now = np.flatnonzero([rng.random() < 0.8 for _ in range(60)])
    expected = sorted(now.tolist(), key=lambda slot: (int(jobs[at.READY, slot]), slot))
    assert by_age(jobs, now, former=former).tolist() == expected
    assert by_age(jobs, now, former=slots[::-1]).tolist() == expected
    ranks = np.array([slot % 3 for slot in range(60)])
    expected.sort(key=lambda slot: -ranks[slot])
    assert by_age(jobs, now, ranks, former).tolist() == expected
