"""Quantiles of starts and ends under the risk of a delay."""

import numpy as np
import pytest

from schedd.predict import DelayRisk, delayed_quantiles


def test_without_events_the_quantiles_are_those_of_the_moments() -> None:
    moments = np.arange(100, 1_100, 100)
    assert delayed_quantiles(moments, DelayRisk(0.0, 10_000), 0, 0) == (500, 900)


def test_certain_events_delay_all_moments() -> None:
    moments = np.arange(100, 1_100, 100)
    assert delayed_quantiles(moments, DelayRisk(1.0, 10_000), 0, 0) == (10_500, 10_900)


@pytest.mark.parametrize(("chance", "late"), [(0.05, 1_000), (0.15, 5_000), (0.6, 5_000)])
def test_a_rare_delay_moves_only_the_quantile_that_it_reaches(chance: float, late: int) -> None:
    risk = DelayRisk(-np.log(1 - chance) / 1_000, 4_000)
    half, most = delayed_quantiles(np.array([1_000]), risk, 0, 0)
    assert (half, most) == (5_000 if chance > 0.5 else 1_000, late)


def test_repeated_work_costs_the_time_until_the_middle_of_the_rest() -> None:
    # It has run for 600 s and would end in 400 s: on average 800 s of work are lost.
    risk = DelayRisk(1.0, 50, repeats=True)
    assert delayed_quantiles(np.array([1_000]), risk, 0, 600) == (1_850, 1_850)


def test_moments_that_have_passed_are_not_delayed() -> None:
    assert delayed_quantiles(np.array([500]), DelayRisk(1.0, 100), 0, 600) == (500, 500)
