"""Metrics agree with examples worked by hand."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.replay.metrics import measure, series

# Three jobs on 4 processors; alice's second job waits for both others.
#   job  user   submit start end procs | wait run response slowdown area
#   1    alice  0      0     100 2     | 0    100 100      1        200
#   2    bob    0      0     5   2     | 0    5   5        1        10
#   3    alice  10     100   104 4     | 90   4   94       23.5     16
HAND: dict[str, Any] = {
    "submit": [0, 0, 10],
    "start": [0, 0, 100],
    "end": [100, 5, 104],
    "procs": [2, 2, 4],
    "user": ["alice", "bob", "alice"],
    "capacity": 4,
}


def test_waits_and_response_are_means_over_jobs() -> None:
    found = measure(**HAND)
    assert found.avg_wait_s == 30
    assert found.max_wait_s == 90
    assert found.avg_response_s == pytest.approx(199 / 3)


def test_percentiles_are_linear_between_ranks() -> None:
    # Sorted waits 0, 0, 90; rank 0.95 * 2 = 1.9 lies nine tenths of the way from 0 to 90.
    assert measure(**HAND).p95_wait_s == pytest.approx(81)
    assert measure(**HAND).p999_wait_s == pytest.approx(0.998 * 90)


def test_slowdown_is_response_over_run_time() -> None:
    found = measure(**HAND)
    assert found.avg_slowdown == pytest.approx((1 + 1 + 23.5) / 3)
    assert found.avg_bounded_slowdown == found.avg_slowdown


def test_bounded_slowdown_spares_short_jobs_and_is_at_least_unity() -> None:
    # Job 2: 5 / 10 counts as 1; job 3: 94 / 10.
    assert measure(**HAND).avg_bounded_slowdown_10s == pytest.approx((1 + 1 + 9.4) / 3)


def test_utilisation_is_work_over_capacity() -> None:
    found = measure(**HAND)
    assert found.makespan_s == 104
    assert found.utilisation == found.weighted_utilisation == pytest.approx(226 / (4 * 104))


def test_weighted_utilisation_counts_each_processor_by_its_speed() -> None:
    # Two processors of speed 3, two of speed 1. Job 1 has the fast ones, job 2 the slow ones, job 3 all.
    found = measure(**HAND, weighted=([6, 2, 8], 8))
    assert found.weighted_utilisation == pytest.approx((600 + 10 + 32) / (8 * 104))


def test_fairness_is_the_user_spread_in_wait_per_work() -> None:
    # alice 90 / 216, bob 0 / 10; the deviation of two values from their mean is half their difference.
    assert measure(**HAND).fairness_nuwt_stddev == pytest.approx(90 / 216 / 2)


def test_users_may_be_numbers() -> None:
    assert measure(**(HAND | {"user": [7, 3, 7]})) == measure(**HAND)


def test_large_work_does_not_overflow() -> None:
    n, year = 1000, 365 * 86400
    found = measure([0] * n, [0] * n, [600 * year] * n, [2**23] * n, [1] * n, n * 2**23)
    assert found.utilisation == pytest.approx(1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"start": [0, 0, 9]}, "position 2: submitted 10, started 9"),
        ({"end": [100, 0, 104]}, "position 1: .* ended 0"),
        ({"procs": [0, 2, 4]}, "position 0: .* on 0 processors"),
        (dict.fromkeys(("submit", "start", "end", "procs", "user"), ()), "no job has run"),
    ],
)
def test_a_schedule_that_cannot_be_is_not_measured(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure(**(HAND | wrong))


def test_series_has_interval_means() -> None:
    # Intervals of 26 s. Processors busy: 2 for 100 s, 2 more for 5 s, 4 for the last 4 s.
    # Waiting: job 3 from 10 to 100.
    course = series(HAND["submit"], HAND["start"], HAND["end"], HAND["procs"], 4, intervals=4)
    assert course.width == 26
    assert course.time.tolist() == [0, 26, 52, 78]
    assert course.utilisation.tolist() == pytest.approx([(52 + 10) / 104, 0.5, 0.5, (44 + 16) / 104])
    assert course.queued.tolist() == pytest.approx([16 / 26, 1, 1, 22 / 26])


JOBS = st.lists(
    st.tuples(
        st.integers(-50, 500), st.integers(0, 300), st.integers(1, 300), st.integers(1, 9), st.integers(0, 3)
    ),
    min_size=1,
    max_size=30,
)


@given(JOBS, st.integers(1, 50))
def test_course_and_metrics_account_for_the_same_work_and_waiting(
    jobs: list[tuple[int, int, int, int, int]], intervals: int
) -> None:
    submit, wait, run, procs, user = (np.array(column) for column in zip(*jobs, strict=True))
    start, end = submit + wait, submit + wait + run
    found = measure(submit, start, end, procs, user, 10)
    course = series(submit, start, end, procs, 10, intervals)
    assert course.utilisation.mean() == pytest.approx(found.utilisation)
    assert course.queued.sum() * course.width == pytest.approx(wait.sum(), abs=1e-6)
    assert course.queued.min() >= -1e-9


@given(JOBS)
def test_bounds_that_hold_for_every_schedule(jobs: list[tuple[int, int, int, int, int]]) -> None:
    submit, wait, run, procs, user = (np.array(column) for column in zip(*jobs, strict=True))
    found = measure(submit, submit + wait, submit + wait + run, procs, user, 10)
    assert found.avg_response_s == pytest.approx(found.avg_wait_s + run.mean())
    assert found.p95_wait_s <= found.p999_wait_s <= found.max_wait_s
    assert 1 <= found.avg_bounded_slowdown_10s <= found.avg_bounded_slowdown + 1e-9
    assert found.fairness_nuwt_stddev >= 0
    assert math.isfinite(found.fairness_nuwt_stddev)
