"""The lower bound of the mean wait: by hand, and against the best of all schedules of a few jobs."""

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.experiments.wait_bound import mean_wait_bound
from tests.property_examples import examples

Jobs = Sequence[tuple[int, int, int]]


def bound(jobs: Jobs, capacity: int) -> float:
    submit, run, procs = zip(*jobs, strict=True)
    return mean_wait_bound(submit, run, procs, capacity)


def best(jobs: Jobs, capacity: int) -> float:
    """The least mean wait: some order of starts, each job at its earliest moment in it, is best."""
    return min(_in_order(order, capacity) for order in permutations(jobs)) / len(jobs)


def _in_order(order: Jobs, capacity: int) -> int:
    placed: list[tuple[int, int, int]] = []
    waited = 0
    for submit, run, procs in order:
        moments = sorted({submit, *(end for _, end, _ in placed if end > submit)})
        start = next(t for t in moments if _fits(placed, t, run, procs, capacity))
        placed.append((start, start + run, procs))
        waited += start - submit
    return waited


def _fits(placed: Jobs, at: int, run: int, procs: int, capacity: int) -> bool:
    moments = [at, *(start for start, _, _ in placed if at < start < at + run)]
    return all(
        sum(width for start, end, width in placed if start <= t < end) + procs <= capacity for t in moments
    )


JOBS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12), st.integers(1, 3)), min_size=1, max_size=5)


@given(jobs=JOBS)
@settings(max_examples=examples(60))
def test_no_schedule_is_better_than_the_bound(jobs: Jobs) -> None:
    assert 0 <= bound(jobs, 3) <= best(jobs, 3) + 1e-9


def test_bound_is_optimal_on_a_single_processor() -> None:
    # 2, 3, 5 s, shortest first: waits of 0, 2 and 5.
    assert bound([(0, 5, 1), (0, 2, 1), (0, 3, 1)], 1) == pytest.approx(7 / 3)


def test_two_wide_jobs_cannot_run_together() -> None:
    assert bound([(0, 10, 4), (0, 10, 4)], 4) == pytest.approx(5)


def test_each_busy_period_is_bounded_by_itself() -> None:
    # The second pair meets an empty machine, and waits as the first does.
    assert bound([(0, 10, 4), (0, 10, 4), (100, 10, 4), (100, 10, 4)], 4) == pytest.approx(5)
    # A separate job, long after the others, does not wait.
    assert bound([(0, 10, 4), (0, 10, 4), (100, 10, 1)], 4) == pytest.approx(10 / 3)


def test_mean_busy_dates_give_a_better_bound_for_narrow_jobs() -> None:
    # Six jobs of one processor and 10 s on two: three pairs, which wait for 0, 10 and 20 s. The fast machine
    # ends the k-th at 5 k, 17.5 in the mean; its mean busy date is 5 k - 2.5, and half a run time after that
    # the real one ends at the earliest: 20 in the mean, 10 s late.
    found = bound([(0, 10, 1)] * 6, 2)
    assert found == pytest.approx(10)
    assert found <= best([(0, 10, 1)] * 6, 2) + 1e-9


def test_nothing_cannot_be_bounded() -> None:
    with pytest.raises(ValueError, match="no jobs"):
        mean_wait_bound([], [], [], 4)
