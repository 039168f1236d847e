"""Orders for placing all jobs of a small plan again."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.model import FOREVER
from schedd.optimize.orders import (
    OrderingColumns,
    advance_job,
    generate_orders,
    leading_jobs,
    select_rescue,
    smallest_keys,
)


def ordering_columns(**columns: Sequence[float]) -> OrderingColumns:
    n = len(next(iter(columns.values())))
    plain = {"duration": [1.0] * n, "cpus": [1.0] * n, "waited": [0.0] * n, "slope": [1.0] * n}
    moments = {"start": [0] * n, "latest": [FOREVER] * n, "due": [FOREVER] * n, "rank": [0] * n}
    found: dict[str, Any] = {}
    for kind, defaults in ((float, plain), (np.int64, moments)):
        found |= {name: np.array(columns.get(name, usual), kind) for name, usual in defaults.items()}
    return OrderingColumns(**found)


def orders_by_index(jobs: OrderingColumns, seed: int = 0) -> list[list[int]]:
    return [np.argsort(keys, kind="stable").tolist() for keys in generate_orders(jobs, seed)]


def test_orders_keep_higher_ranks_first_and_are_not_repeated() -> None:
    jobs = ordering_columns(duration=[10, 20, 30], rank=[0, 5, 5], cpus=[1, 9, 1])
    assert orders_by_index(jobs)[:2] == [[1, 2, 0], [2, 1, 0]]
    assert all(order[-1] == 0 for order in orders_by_index(jobs))
    assert orders_by_index(ordering_columns(duration=[10, 20, 30], rank=[1, 2, 3])) == [[2, 1, 0]]


def test_first_orders_are_the_dispatch_rules() -> None:
    jobs = ordering_columns(duration=[10, 20, 30], cpus=[9, 1, 1], waited=[100, 50, 600])
    shortest, smallest, expanded = orders_by_index(jobs)[:3]
    assert shortest == [0, 1, 2]
    assert smallest == [1, 2, 0]
    assert expanded == [2, 0, 1]


def test_deadline_order_exists_only_with_deadlines() -> None:
    without = orders_by_index(ordering_columns(duration=[10, 20, 30]))
    found = orders_by_index(ordering_columns(duration=[10, 20, 30], due=[FOREVER, 90, 50]))
    assert len(found) == len(without) + 1
    assert found[3] == [2, 1, 0]


def test_smiths_rule_minimises_the_weighted_end_sum() -> None:
    jobs = ordering_columns(duration=[7, 3, 5, 2], slope=[1.0, 2.0, 8.0, 0.5])

    def cost(order: list[int]) -> float:
        ends = np.cumsum(jobs.duration[order])
        return float((ends * jobs.slope[order]).sum())

    best = min(orders_by_index(jobs), key=cost)
    assert orders_by_index(jobs)[3] == best == [2, 1, 3, 0]


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=9), st.integers())
def test_every_order_is_a_permutation_determined_by_the_seed(sizes: list[int], seed: int) -> None:
    jobs = ordering_columns(duration=[float(size) for size in sizes], slope=[0.0] * len(sizes))
    found = orders_by_index(jobs, seed)
    assert found == orders_by_index(jobs, seed)
    assert len(found) == 28
    assert all(sorted(order) == list(range(len(sizes))) for order in found)


def select_rescued(
    jobs: OrderingColumns, size: int = 2, most: int = 4, seed: int | None = None
) -> tuple[list[int], list[int]]:
    random = None if seed is None else np.random.default_rng(seed)
    urgent, displaced = select_rescue(jobs, 0, size, most, random)
    return urgent.tolist(), displaced.tolist()


def test_none_of_many_late_jobs_is_rescued_at_size_zero() -> None:
    """After its fifth failure a search asks for a third of one job; all late jobs overflowed its trial."""
    late = ordering_columns(start=[10 * i for i in range(300)], duration=[10] * 300, due=[10] * 300)
    for size in (3, 1, 0):
        urgent, displaced = select_rescued(late, size, 200)
        assert len(urgent) <= size
        assert len(urgent) + len(displaced) <= 200
    assert smallest_keys(np.arange(5), 0).shape == (0,)


def test_late_job_goes_before_jobs_with_slack() -> None:
    # In sequence on one node: no deadline; a deadline without slack; one with much slack; two late jobs.
    jobs = ordering_columns(start=[0, 10, 20, 30, 40], duration=[10] * 5, due=[FOREVER, 20, 200, 35, 30])
    assert select_rescued(jobs) == ([4, 3], [2, 0])


@pytest.mark.parametrize(
    ("due", "latest", "found"),
    [
        ([FOREVER, FOREVER], [FOREVER, FOREVER], ([], [])),  # no job has a deadline
        ([FOREVER, 20], [FOREVER, FOREVER], ([], [])),  # its deadline is met
        ([FOREVER, 9], [FOREVER, FOREVER], ([], [])),  # nothing can keep it
        ([FOREVER, 19], [FOREVER, FOREVER], ([1], [0])),
        ([FOREVER, 19], [0, FOREVER], ([1], [])),  # the other may not start later
        ([10, 19], [FOREVER, FOREVER], ([1], [])),  # the other would be late
    ],
)
def test_displaced_job_keeps_its_bound_and_deadline(
    due: list[float], latest: list[float], found: tuple[list[int], list[int]]
) -> None:
    assert select_rescued(ordering_columns(start=[0, 10], duration=[10, 10], due=due, latest=latest)) == found


def test_only_as_many_jobs_are_displaced_as_urgent_jobs_need() -> None:
    jobs = ordering_columns(start=[*range(0, 500, 10), 900], duration=[10] * 51, due=[FOREVER] * 50 + [600])
    urgent, displaced = select_rescued(jobs, 10, 100)
    assert urgent == [50]
    assert len(displaced) == 3
    assert len(select_rescued(jobs, 10, 3)[1]) == 2


def test_most_urgent_or_randomly_drawn_late_jobs_are_rescued() -> None:
    jobs = ordering_columns(
        start=[0, *range(100, 120)], duration=[10] * 21, due=[FOREVER, *range(109, 89, -1)]
    )
    assert select_rescued(jobs, 3)[0] == [20, 19, 18]
    drawn = {tuple(select_rescued(jobs, 3, seed=seed)[0]) for seed in range(20)}
    assert len(drawn) > 5
    assert all(len(one) == 3 and list(one) == sorted(one, reverse=True) for one in drawn)


def test_job_that_would_start_too_late_advances_by_half() -> None:
    order = np.array([4, 3, 2, 1, 0])
    assert advance_job(order, 4).tolist() == [4, 3, 0, 2, 1]
    assert advance_job(order, 1).tolist() == [3, 4, 2, 1, 0]
    assert advance_job(order, 0).tolist() == [4, 3, 2, 1, 0]


def test_leading_jobs_are_first_in_the_order_or_the_plan() -> None:
    keys = np.array([5, 4, 3, 2, 1, 0])
    planned = np.arange(6)  # the other way round
    assert leading_jobs(keys, planned, 4).tolist() == [5, 4, 1, 0]
    assert leading_jobs(keys, planned, 6).tolist() == [5, 4, 3, 2, 1, 0]


ALIKE = st.lists(st.integers(0, 6), min_size=12, max_size=12)


@given(ALIKE, ALIKE, st.integers(2, 11))
def test_half_the_leading_jobs_lead_in_the_plan(keys: list[int], planned: list[int], most: int) -> None:
    found = leading_jobs(np.array(keys), np.array(planned), most).tolist()
    order, plan = (sorted(range(12), key=by.__getitem__) for by in (keys, planned))
    place = {job: min(order.index(job), plan.index(job)) for job in order}
    assert set(found) == set(sorted(order, key=place.__getitem__)[:most])
    assert found == [job for job in order if job in found]
    assert len(found) == len(set(found)) == most
    assert set(order[: most // 2]) | set(plan[: most // 2]) <= set(found)


@given(st.lists(st.integers(0, 6)), st.integers(0, 9))
def test_smallest_keys_come_first_in_a_stable_sort(keys: list[int], n: int) -> None:
    assert (
        smallest_keys(np.array(keys, np.int64), n).tolist()
        == sorted(range(len(keys)), key=keys.__getitem__)[:n]
    )
