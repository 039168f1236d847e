"""Orders of queue policies and overtaking, on queues computed by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from schedd.policy.queue_policies import QUEUE_POLICIES, Waiting, _flexible

NOW = 100_000
NEVER = 1 << 40
HOUR = 3600


def waiting(
    waited: Sequence[int],
    duration: Sequence[int],
    due: Sequence[int] = (),
    cpus: Sequence[int] = (),
    priority: Sequence[float] = (),
    used: Sequence[float] = (),
) -> Waiting:
    """Return the queue of jobs with these waits, walltimes and deadlines."""
    return Waiting(
        now=NOW,
        since=NOW - np.array(waited, np.int64),
        duration=np.array(duration, np.int64),
        due=NOW + np.array(due or [NEVER] * len(waited), np.int64),
        cpus=lambda: np.array(cpus, np.int64),
        queue_priority=lambda: np.array(priority, np.float64),
        time_used=lambda: np.array(used, np.float64),
    )


def order(policy: str, queue: Waiting) -> list[int]:
    return [int(position) for position in QUEUE_POLICIES[policy].order(queue)]


def test_strict_orders_and_their_ties() -> None:
    queue = waiting([50, 40, 30, 20], [300, 100, 200, 100], [500, 400, 400, 900])
    assert order("fcfs", queue) == [0, 1, 2, 3]
    assert order("sjf", queue) == [1, 3, 2, 0]
    assert order("edf", queue) == [1, 2, 0, 3]


def test_by_area_counts_cpus_times_seconds() -> None:
    queue = waiting([3, 2, 1], [100, 50, 300], cpus=[4, 9, 1])
    assert order("easy-area-12h", queue) == [2, 0, 1]


def test_expansion_order_prefers_the_largest_wait_share() -> None:
    queue = waiting([300, 200, 100], [300, 100, 100])
    assert order("easy-xf-12h", queue) == [1, 0, 2]  # 3 before 2, which came before another 2


def test_multi_queue_orders_by_queue_then_by_use_then_by_arrival() -> None:
    queue = waiting([5, 4, 3, 2, 1], [1] * 5, priority=[0, 7, 0, 7, 7], used=[10, 60, 0, 50, 50])
    assert order("multi-queue", queue) == [3, 4, 1, 2, 0]


@pytest.mark.parametrize("hours", [12, 24, 48])
def test_jobs_above_the_age_cap_precede_younger_jobs(hours: int) -> None:
    cap = hours * HOUR
    queue = waiting([cap + 5, cap, cap - 1, 7], [900, 500, 700, 100])
    assert order(f"easy-sjf-{hours}h", queue) == [0, 1, 3, 2]


def test_flexible_sums_aging_deadline_and_shortness() -> None:
    late = 100 - 1
    queue = waiting(
        [0, 0, 300, 0, 0, 0, 0],
        [100, 50, 100, 100, 100, 100, 100],
        [NEVER, NEVER, NEVER, 100, 200, 300, late],
    )
    # aging 0.01 a second; 0.1, or up to 20 from two lengths before the latest start; 2 for the shortest
    assert (-_flexible(queue)).tolist() == pytest.approx([1.1, 2.1, 4.1, 21.0, 11.05, 1.1, 1.1])
    assert order("flexible", queue) == [3, 4, 2, 1, 0, 5, 6]


def test_flexible_sums_that_differ_by_the_last_bits_are_ties() -> None:
    # 0.03 + 0.1 + 1.0 and 0.23 + 0.1 + 0.8, which is more by one bit
    assert order("flexible", waiting([3, 23, 0], [200, 250, 100])) == [2, 0, 1]


@pytest.mark.parametrize(
    ("policy", "starts", "reserves"),
    [
        ("fcfs", [True, False, False], [False, False, False]),
        ("sjf", [True, False, False], [False, False, False]),
        ("edf", [True, False, False], [False, False, False]),
        ("easy", [True, True, True], [True, False, False]),
        ("aggressive", [True, True, True], [False, False, False]),
        ("flexible", [True, True, True], [True, False, False]),
        ("easy-xf-24h", [True, True, True], [True, False, False]),
    ],
)
def test_hooks_decide_starts_and_reservations_by_blocked_count(
    policy: str, starts: list[bool], reserves: list[bool]
) -> None:
    found = QUEUE_POLICIES[policy]
    assert [found.may_start(blocked) for blocked in range(3)] == starts
    assert [found.reserves(blocked) for blocked in range(3)] == reserves
