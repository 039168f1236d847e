"""Probability that a job ends by a deadline: bounds, monotony, and a plain reference by sampling."""

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.model import FOREVER
from schedd.predict import (
    LEVELS,
    CalibratedStart,
    Correction,
    DelayRisk,
    EndForecast,
    Prediction,
    StartDistribution,
    uncorrected,
)

T = 1_700_000_000
NONE = np.zeros(0, np.int64)
NODES = ("n1", "n2")
rates = st.floats(0, 1e-3)


def prediction(walltime: int, shares: list[float]) -> Prediction:
    """A prediction with these quantiles, as shares of the walltime."""
    quantiles = np.maximum(1, np.rint(np.sort(shares) * walltime)).astype(np.int64)
    return Prediction(walltime, quantiles, np.zeros(LEVELS.shape[0]), NONE)


predictions = st.builds(
    prediction,
    st.integers(1, 500_000),
    st.lists(st.floats(0, 1), min_size=LEVELS.shape[0], max_size=LEVELS.shape[0]),
)


@st.composite
def starts(draw: st.DrawFn) -> StartDistribution:
    early, p50, p90 = sorted(draw(st.lists(st.integers(0, 500_000), min_size=3, max_size=3)))
    latest = draw(st.one_of(st.just(FOREVER), st.integers(T + p90, T + p90 + 100_000)))
    return StartDistribution(T, T + early, T + p50, T + p90, latest)


@st.composite
def forecasts(draw: st.DrawFn) -> EndForecast:
    run_time = draw(predictions)
    if draw(st.booleans()):
        return EndForecast.for_running_job(T - draw(st.integers(0, 600_000)), T, run_time, NODES)
    return EndForecast.for_waiting_job(draw(starts()), run_time, NODES)


@given(forecasts(), st.lists(st.integers(-10_000, 2_000_000), min_size=2, max_size=2), rates, rates)
def test_probability_grows_with_the_deadline_and_falls_with_the_failure_rate(
    forecast: EndForecast, deadlines: list[int], rate: float, other: float
) -> None:
    early, late = sorted(deadlines)
    low, high = sorted((rate, other))
    found = [forecast.probability(T + early, low), forecast.probability(T + late, low)]
    assert 0 <= found[0] <= found[1] <= 1
    assert forecast.probability(T + late, high) <= found[1]
    assert forecast.probability(T - 1, low) == 0


@given(forecasts(), st.floats(0.01, 0.99), rates)
def test_no_earlier_deadline_has_the_wanted_probability(
    forecast: EndForecast, wanted: float, rate: float
) -> None:
    found = forecast.earliest_deadline(wanted, rate)
    if found is None:
        assert forecast.probability(T + 10**9, rate) < wanted
    else:
        assert forecast.probability(found, rate) >= wanted > forecast.probability(found - 1, rate)


@given(forecasts(), st.lists(st.floats(0.01, 0.99), max_size=5), rates)
def test_deadlines_searched_together_are_those_searched_alone(
    forecast: EndForecast, wanted: list[float], rate: float
) -> None:
    searches = [(one, calibrate) for one in wanted for calibrate in (uncorrected, Correction(0.4, 0.7).apply)]
    alone = [forecast.earliest_deadline(one, rate, calibrate) for one, calibrate in searches]
    assert forecast.earliest_deadlines(searches, rate) == alone


def test_quantiles_of_the_start_are_met_and_no_start_comes_after_the_promise() -> None:
    start = StartDistribution(T, T + 600, T + 3_600, T + 9_000, T + 10_000)
    moments = np.array([T - 1, T + 600, T + 3_600, T + 9_000, T + 9_999, T + 10_000])
    found = start.probability_by(moments)
    assert found[:4] == pytest.approx([0, 0.1, 0.5, 0.9])
    assert 0.9 < found[4] < found[5] == 1


def test_start_distribution_keeps_the_spread_of_the_samples_below_the_median() -> None:
    samples = np.array([T + 100, T + 1_000, T + 2_000, T + 3_000, -1])
    found = StartDistribution.from_samples(T, samples, CalibratedStart(T + 5_000, T + 9_000), FOREVER)
    spread = int(1_500 - np.quantile([100, 1_000, 2_000, 3_000], 0.1))
    assert found == StartDistribution(T, T + 5_000 - spread, T + 5_000, T + 9_000)
    unknown = StartDistribution.from_samples(T, np.array([-1]), CalibratedStart(T + 5, T + 9), FOREVER)
    assert unknown.early == T + 5


def test_jobs_may_start_early_or_late_where_all_samples_agree() -> None:
    """Samples draw run times independently, so a long queue averages them out."""
    start = StartDistribution.from_samples(
        T, np.full(9, T + 36_000), CalibratedStart(T + 36_000, T + 36_000), FOREVER
    )
    found = start.probability_by(np.array([T + 9_000, T + 18_000, T + 35_999, T + 38_000, T + 43_000]))
    assert 0 < found[0] < 0.02
    assert 0.05 < found[1] < 0.15
    assert found[2] == pytest.approx(0.5, abs=0.01)
    assert 0.6 < found[3] < 0.8
    assert 0.9 < found[4] < 0.95


def test_no_start_comes_before_the_requested_one() -> None:
    start = StartDistribution(T, T + 3_600, T + 3_600, T + 9_000, not_before=T + 3_600)
    assert start.probability_by(np.array([T + 3_599, T + 3_600])).tolist() == pytest.approx([0, 0.5])


def sampled_probability(
    start: StartDistribution, run_time: Prediction, deadline: int, rate: float, draws: int
) -> float:
    """The share of simulated jobs that end in time, by another way than the code."""
    dice = np.random.default_rng(1)
    chance = dice.random(draws)
    middle, low, high = (log(one - T + 60) for one in (start.p50, start.early, start.p90))
    scale = np.where(chance < 0.5, (middle - low) / log(9), (high - middle) / log(9))
    begins = T + np.exp(middle + scale * np.log(chance / (1 - chance))) - 60
    begins = np.clip(begins, T, start.latest)
    levels = [0, *LEVELS, 1]
    lasts = np.interp(dice.random(draws), levels, [0, *run_time.quantiles, run_time.walltime])
    survives = dice.random(draws) < np.exp(-rate * lasts)
    return float(((begins + lasts <= deadline) & survives).mean())


@pytest.mark.parametrize("rate", [0.0, 2e-5, 1e-4])
@pytest.mark.parametrize("latest", [FOREVER, T + 14_000])
def test_probability_is_that_of_simulated_jobs(rate: float, latest: int) -> None:
    start = StartDistribution(T, T + 1_000, T + 4_000, T + 12_000, latest)
    run_time = prediction(7_200, np.linspace(0.1, 0.9, LEVELS.shape[0]).tolist())
    forecast = EndForecast.for_waiting_job(start, run_time, NODES)
    for deadline in (T + 2_000, T + 6_000, T + 9_000, T + 15_000, T + 60_000):
        wanted = sampled_probability(start, run_time, deadline, rate, 200_000)
        assert forecast.probability(deadline, rate) == pytest.approx(wanted, abs=0.01)


def test_no_run_exceeds_its_walltime_and_a_running_job_has_run_already() -> None:
    run_time = prediction(1_000, [1.0] * LEVELS.shape[0])
    waiting = EndForecast.for_waiting_job(StartDistribution(T, T, T, T, T + 10), run_time, NODES)
    assert waiting.probability(T + 1_010, 0) == 1
    running = EndForecast.for_running_job(T - 900, T, run_time, NODES)
    assert running.probability(T + 100, 0) == 1
    assert running.probability(T + 100, 1e-3) == pytest.approx(exp(-0.1), abs=0.01), "900 s are over"


def test_a_preemption_delays_the_end_by_its_probability() -> None:
    run_time = prediction(1_000, [1.0] * LEVELS.shape[0])
    running = EndForecast.for_running_job(T, T, run_time, NODES, DelayRisk(1e-3, 500))
    # 2 of the 100 equally probable run times are below the lowest quantile: 250 and 750 s.
    assert running.probability(T + 1_000, 0) == pytest.approx(exp(-1), abs=0.02)
    assert running.probability(T + 1_500, 0) == 1
    start = StartDistribution(T, T, T, T, T + 10)
    again = EndForecast.for_waiting_job(start, run_time, NODES, DelayRisk(1e-3, 500, repeats=True))
    assert again.probability(T + 1_010, 0) == pytest.approx(exp(-1), abs=0.02)
    assert again.probability(T + 1_510, 0) < 1, "the work until the preemption is done again"
    assert again.probability(T + 2_010, 0) == 1
