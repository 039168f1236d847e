"""Calibration of probabilities: corrections approach the observed shares, and are saved."""

import random
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.predict import Correction, Halts, ProbabilityCalibration, probability_bins
from schedd.predict.probability_calibration import ProbabilityOutcome


def calibrated(true: float, raw: float = 0.9, jobs: int = 400) -> ProbabilityCalibration:
    """After ``jobs`` forecasts of probability ``raw`` of which the share ``true`` was met."""
    dice, one = random.Random(1), ProbabilityCalibration()
    for i in range(jobs):
        one.issue(str(i), 10 * i, 10 * i + 5, raw, one.correction.apply(raw))
        if dice.random() < true:
            one.record_end(str(i), 10 * i + 4)
        one.advance_clock(10 * i + 9)
    return one


@pytest.mark.parametrize("true", [0.5, 0.75, 0.97])
def test_correction_approaches_the_observed_share(true: float) -> None:
    assert calibrated(true).correction.apply(0.9) == pytest.approx(true, abs=0.04)


def test_few_outcomes_correct_nothing() -> None:
    assert calibrated(0.0, jobs=19).correction == Correction()
    assert calibrated(0.0, jobs=20).correction.apply(0.9) < 0.7


@given(st.floats(-5, 5), st.floats(0.1, 5), st.floats(0, 1), st.floats(0, 1))
def test_correction_never_decreases_and_stays_a_probability(
    offset: float, slope: float, one: float, other: float
) -> None:
    low, high = (Correction(offset, slope).apply(raw) for raw in sorted((one, other)))
    assert 0 <= low <= high < 1


def test_outcomes_count_when_the_deadline_passes_in_the_order_of_deadlines() -> None:
    one = ProbabilityCalibration()
    for job, deadline in (("late", 30), ("early", 10), ("deleted", 20), ("open", 99)):
        one.issue(job, 0, deadline, 0.5, 0.5)
    one.record_end("late", 5)
    one.forget("deleted")
    one.forget("late")
    assert not one.advance_clock(10)
    assert one.advance_clock(50)
    assert [outcome.met for outcome in one.outcomes] == [False, True]
    assert list(one.open) == ["open"]


def test_a_deadline_behind_a_halt_of_all_starts_teaches_nothing() -> None:
    one = ProbabilityCalibration()
    for job, deadline in (("before", 900), ("behind", 5_000), ("long", 100_000)):
        one.issue(job, 0, deadline, 0.5, 0.5)
    assert one.advance_clock(10**6, Halts(((1_000, 4_000),)))
    assert (one.count, len(one.outcomes), one.open) == (2, 2, {})


def test_replaced_forecast_counts_once_by_its_later_deadline() -> None:
    one = ProbabilityCalibration()
    one.issue("1", 0, 10, 0.5, 0.5)
    one.issue("1", 5, 20, 0.8, 0.8)
    one.record_end("1", 15)
    one.advance_clock(100)
    assert [(outcome.raw, outcome.met) for outcome in one.outcomes] == [(0.8, True)]


def test_state_is_saved_and_copied() -> None:
    one = calibrated(0.7)
    one.issue("a", 5_000, 10**6, 0.3, 0.2)
    one.issue("b", 5_000, 10**5, 0.4, 0.3)
    one.record_end("a", 10**5)
    again, copy = ProbabilityCalibration.load(one.save()), one.copy()
    for other in (again, copy):
        assert other.save() == one.save()
        other.advance_clock(10**7)
        assert not other.open
    assert len(one.open) == 2
    assert again.save() == copy.save()
    assert one.without_open().save() == {**one.save(), "open": []}
    with pytest.raises((KeyError, TypeError, ValueError)):
        ProbabilityCalibration.load({**one.save(), "outcomes": [[0.1]]})


def test_bins_have_predicted_and_observed_shares() -> None:
    shares = ((0.91, True), (0.99, False), (0.3, True))
    outcomes = [ProbabilityOutcome(0.5, shown, met) for shown, met in shares]
    found = probability_bins(outcomes)
    assert [(one.low, one.high, one.count, one.observed) for one in found] == [
        (0.3, 0.4, 1, 1.0),
        (0.9, 1.0, 2, 0.5),
    ]
    assert found[1].predicted == pytest.approx(0.95)
    assert probability_bins(()) == ()


def run_bursts(
    one: ProbabilityCalibration,
    dice: random.Random,
    bursts: int,
    jobs: int,
    late: float = 0.0,
    first: int = 0,
) -> list[tuple[float, float, float]]:
    """Forecast ``bursts`` of up to ``jobs`` jobs with a common delay, whose logits are ``late`` too high;
    return the raw, the published and the true probability of each.
    """
    found = []
    for burst in range(first, first + bursts):
        now, delay = 1_000 * burst, dice.random()
        for i in range(dice.randint(1, jobs)):
            raw = dice.random()
            true = 1 / (1 + (1 - raw) / raw * exp(late))
            shown = one.correction.apply(raw)
            found.append((raw, shown, true))
            job = f"{burst}.{i}"
            one.issue(job, now, now + 500, raw, shown)
            if delay <= true:  # the whole burst is early, or late
                one.record_end(job, now + 499)
        one.advance_clock(now + 999)
    return found


def mean_error(forecasts: list[tuple[float, float, float]]) -> float:
    """Mean difference between published and true probability."""
    return sum(abs(shown - true) for _, shown, true in forecasts) / len(forecasts)


def test_jobs_that_are_late_together_count_as_one_outcome() -> None:
    one = ProbabilityCalibration()
    for i in range(400):
        one.issue(str(i), 0, 10 + i, 0.9, 0.9)
    one.advance_clock(1_000)
    assert one.count == 400
    assert 0.75 < one.correction.apply(0.9) < 0.9


@pytest.mark.parametrize("jobs", [1, 30, 100])
def test_right_forecasts_of_jobs_that_are_late_together_stay_nearly_right(jobs: int) -> None:
    forecasts = [
        one
        for seed in range(2)
        for one in run_bursts(ProbabilityCalibration(), random.Random(seed), 40, jobs)
    ]
    assert mean_error(forecasts) < 0.05, "0.13 of bursts of 30 when each job counted"


@pytest.mark.parametrize("late", [-1.5, 1.5])
@pytest.mark.parametrize("jobs", [1, 10])
def test_correction_follows_a_drift_of_jobs_that_are_late_together(jobs: int, late: float) -> None:
    one, dice = ProbabilityCalibration(), random.Random(1)
    run_bursts(one, dice, 100, jobs, -late)
    run_bursts(one, dice, 200, jobs, late, first=100)
    assert mean_error(run_bursts(one, dice, 20, jobs, late, first=300)) < 0.08


def test_correction_does_not_depend_on_how_often_the_clock_is_told() -> None:
    found = []
    for steps in ([1_000], range(0, 1_001, 7)):
        one = ProbabilityCalibration()
        for i in range(95):
            one.issue(str(i), i, 100 + 9 * i, 0.8, 0.8)
        for now in steps:
            one.advance_clock(now)
        found.append(one.save())
    assert found[0] == found[1]
    assert found[0]["correction"] != [0, 1]


def test_state_without_periods_has_no_correction() -> None:
    saved = calibrated(0.5).save()
    del saved["periods"]
    saved["open"] = [["1", 10**6, 0.5, 0.5, False]]
    found = ProbabilityCalibration.load(saved)
    assert (found.correction, len(found.outcomes)) == (Correction(), len(saved["outcomes"]))
    found.advance_clock(10**7)
    assert [one.count for one in found.periods] == [1]
