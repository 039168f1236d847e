"""Failure rates by history, and what runs are expected to lose: against sums and integrals done by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.policy.reliability import Life, expected_loss, failure_rates

DAY = 86_400
LONG = 10**9
"""A half-life that makes days negligible."""


def test_failing_node_has_a_higher_rate_and_new_node_the_mean() -> None:
    lives = {
        "good": Life(0, 100 * DAY, 0),
        "bad": Life(0, 100 * DAY, 4),
        "new": Life(0, 0, 0),
    }
    mean = 4 / (200 * DAY)
    rates = failure_rates(lives, 0, LONG)
    assert rates["good"] == pytest.approx(1 / (150 * DAY))
    assert rates["bad"] == pytest.approx(5 / (150 * DAY))
    assert rates["new"] == pytest.approx(mean), "nothing was seen of it"


def test_assumed_rate_counts_as_one_failure_until_others_are_seen() -> None:
    prior = 1 / (365 * DAY)
    new = failure_rates({"n1": Life(0)}, 0, LONG, prior)
    assert new["n1"] == pytest.approx(prior)
    calm = failure_rates({"n1": Life(0, 365 * DAY, 0)}, 0, LONG, prior)
    assert calm["n1"] == pytest.approx(prior / 3)
    worse = failure_rates({"n1": Life(0, DAY, 100), "n2": Life(0, DAY, 0)}, 0, LONG, prior)
    assert worse["n1"] > worse["n2"] > prior


def test_rates_are_zero_without_failures() -> None:
    assert failure_rates({"n1": Life(0, DAY, 0), "n2": Life(0)}, 0, LONG) == {"n1": 0.0, "n2": 0.0}
    assert failure_rates({}, 0, LONG) == {}


def test_old_observations_count_less() -> None:
    old = Life(0, 10 * DAY, 2).aged(90 * DAY, 90 * DAY)
    assert [old.up, old.failures, old.as_of] == pytest.approx([5 * DAY, 1, 90 * DAY])
    up = Life(0, is_up=True).aged(3600, LONG)
    assert up.up == pytest.approx(3600, rel=1e-5)
    assert Life(100, 5, 1, True).aged(50, DAY) == Life(100, 5, 1, True), "time does not go back"


@given(
    steps=st.lists(st.integers(0, 40 * DAY), min_size=1, max_size=6),
    half_life=st.integers(3600, 400 * DAY),
)
def test_result_does_not_depend_on_the_number_of_examinations(steps: list[int], half_life: int) -> None:
    often, now = Life(0, 7.0 * DAY, 3.0, True), 0
    for step in steps:
        now += step
        often = often.aged(now, half_life)
    once = Life(0, 7.0 * DAY, 3.0, True).aged(now, half_life)
    assert [often.up, often.failures] == pytest.approx([once.up, once.failures])


@pytest.mark.parametrize(
    ("rate", "begun", "left"),
    [(1e-5, 0, 3600), (1e-5, 7200, 86_400), (1e-3, 100, 10_000), (1e-12, 50, 3600), (1e-8, 0, 900)],
)
def test_the_expected_loss_is_the_integral(rate: float, begun: float, left: float) -> None:
    edges = np.linspace(0, left, 400_001)
    middle = (edges[1:] + edges[:-1]) / 2
    whole = float(((begun + middle) * rate * np.exp(-rate * middle)).sum() * left / 400_000)
    found = expected_loss(np.array([rate]), np.array([begun]), np.array([left]))
    assert found[0] == pytest.approx(whole, rel=1e-5)


def test_without_failures_nothing_is_lost_and_a_node_that_always_fails_costs_no_more_than_the_run() -> None:
    none = expected_loss(np.zeros(2), np.array([0.0, 5000.0]), np.array([3600.0, 0.0]))
    assert none.tolist() == [0.0, 0.0]
    sure = expected_loss(np.array([10.0]), np.array([500.0]), np.array([3600.0]))
    assert sure[0] == pytest.approx(500.1)
