"""Whole orders in which a small plan may be placed anew."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schedd.model import FOREVER
from schedd.optimize.orders import JobFacts, foremost, orders, sooner


def facts(**columns: list[float]) -> JobFacts:
    n = len(next(iter(columns.values())))
    plain = {"duration": [1.0] * n, "cpus": [1.0] * n, "waited": [0.0] * n, "slope": [1.0] * n} | columns
    due = np.array(plain.pop("due", [FOREVER] * n), np.int64)
    return JobFacts(due=due, **{name: np.array(column, float) for name, column in plain.items()})


def listed(jobs: JobFacts, seed: int = 0) -> list[list[int]]:
    return [order.tolist() for order in orders(jobs, seed)]


def test_the_rules_come_first() -> None:
    jobs = facts(duration=[10, 20, 30], cpus=[9, 1, 1], waited=[100, 50, 600])
    shortest, smallest, expanded = listed(jobs)[:3]
    assert shortest == [0, 1, 2]
    assert smallest == [1, 2, 0]
    assert expanded == [2, 0, 1]


def test_deadlines_count_where_there_are_any() -> None:
    without = listed(facts(duration=[10, 20, 30]))
    found = listed(facts(duration=[10, 20, 30], due=[FOREVER, 90, 50]))
    assert len(found) == len(without) + 1
    assert found[3] == [2, 1, 0]


def test_smiths_rule_gives_the_least_weighted_sum_of_ends() -> None:
    jobs = facts(duration=[7, 3, 5, 2], slope=[1.0, 2.0, 8.0, 0.5])

    def cost(order: list[int]) -> float:
        ends = np.cumsum(jobs.duration[order])
        return float((ends * jobs.slope[order]).sum())

    best = min(listed(jobs), key=cost)
    assert listed(jobs)[3] == best == [2, 1, 3, 0]


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=9), st.integers())
def test_every_order_has_every_job_once_and_the_seed_decides(sizes: list[int], seed: int) -> None:
    jobs = facts(duration=[float(size) for size in sizes], slope=[0.0] * len(sizes))
    found = listed(jobs, seed)
    assert found == listed(jobs, seed)
    assert len(found) == 28
    assert all(sorted(order) == list(range(len(sizes))) for order in found)


def test_who_would_start_too_late_goes_half_as_far_from_the_front() -> None:
    order = np.array([4, 3, 2, 1, 0])
    assert sooner(order, 4).tolist() == [4, 3, 0, 2, 1]
    assert sooner(order, 1).tolist() == [3, 4, 2, 1, 0]
    assert sooner(order, 0).tolist() == [4, 3, 2, 1, 0]


def test_of_a_long_order_stay_those_in_front_there_and_in_the_plan() -> None:
    order = np.array([5, 4, 3, 2, 1, 0])
    planned = np.arange(6)  # the other way round
    assert foremost(order, planned, 4).tolist() == [5, 4, 1, 0]
    assert foremost(order, planned, 6).tolist() == order.tolist()


@given(st.permutations(range(12)), st.permutations(range(12)), st.integers(2, 11))
def test_half_of_those_who_stay_are_in_front_in_the_plan(
    order: list[int], planned: list[int], most: int
) -> None:
    found = foremost(np.array(order), np.array(planned), most).tolist()
    assert len(found) == len(set(found)) == most
    assert found == [job for job in order if job in found]
    half = most // 2
    assert set(order[:half]) <= set(found)
    assert {job for job in range(12) if planned[job] < half} <= set(found)
