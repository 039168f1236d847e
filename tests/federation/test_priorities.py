"""Load and Ordering: the worked table of the paper's heuristics, and how clusters are chosen by them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.federation.routing.priorities import (
    LEVELS,
    Backlog,
    deadline_value,
    least_loaded_cluster,
    licence_value,
    priority,
    user_value,
)


@pytest.mark.parametrize(
    ("margin", "estimate", "value"),
    [
        (100, 50, 3),
        (100, 9000, 5),
        (1500, 9000, 5),
        (3500, 9000, 2),
        (5500, 9000, 1),
        (5500, 1000, 0),
        (7500, 100_000, 3),
    ],
)
def test_deadline_values_match_the_worked_table(margin: int, estimate: int, value: int) -> None:
    assert deadline_value(margin, estimate, 3500, levels=5) == value


def test_margin_bounds_match_the_paper() -> None:
    """Before the ratio counts, which an estimate as long as the margin leaves alone but for one."""
    bounds = [0, 225.8, 677.4, 1580.6, 3387.1, 7000]
    for value, (low, high) in zip((5, 4, 3, 2, 1), pairwise(bounds), strict=True):
        for margin in (low + 1, high - 1):
            assert deadline_value(margin, margin, 3500, levels=5) == max(0, value - 1)


def test_hopeless_job_has_highest_priority() -> None:
    assert deadline_value(-1, 100, 3500) == LEVELS
    assert deadline_value(0, 100, 0) == LEVELS - 1


def test_licence_terms_and_priorities_stay_in_range() -> None:
    assert [licence_value(kinds, 4, levels=8) for kinds in range(5)] == [0, 2, 4, 6, 7]
    assert licence_value(3, 0) == 0
    assert priority(8, 7, 8) == 8
    assert priority() == 0


def backlog(*jobs: tuple[float, int]) -> Backlog:
    found = Backlog()
    for work, level in jobs:
        found.add(work, level)
    return found


def test_lower_priority_work_is_ignored() -> None:
    both = [("a", 10, backlog((100, 1))), ("b", 10, backlog((10, 5)))]
    assert least_loaded_cluster(both, 3, 0) == "a"
    assert least_loaded_cluster(both, 0, 0) == "b"


def test_ties_go_to_fewest_jobs_then_the_draw() -> None:
    assert (
        least_loaded_cluster([("a", 1, backlog((5, 1), (5, 1))), ("b", 1, backlog((10.05, 1)))], 1, 0) == "b"
    )
    assert {
        least_loaded_cluster([("a", 1, Backlog()), ("b", 1, Backlog())], 0, draw) for draw in range(4)
    } == {"a", "b"}


def test_load_is_per_cpu() -> None:
    assert (
        least_loaded_cluster([("large", 100, backlog((100, 0))), ("small", 10, backlog((50, 0)))], 0, 0)
        == "large"
    )


def test_removed_work_is_subtracted() -> None:
    found = backlog((100, 4), (7, 8))
    found.add(-100, 4, -1)
    assert found == backlog((7, 8))


def test_users_have_three_classes() -> None:
    assert [user_value(kind) for kind in ("gold", "silver", "")] == [LEVELS, LEVELS // 2, 0]


@given(st.floats(0, 1e6), st.floats(1, 1e6), st.floats(0, 1e6))
def test_values_stay_within_the_levels(margin: float, estimate: float, mean: float) -> None:
    assert 0 <= deadline_value(margin, estimate, mean) <= LEVELS
