"""Calibration of probabilities: corrections approach the observed shares, and are saved."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.predict import Correction, ProbabilityCalibration, probability_bins
from schedd.predict.probability_calibration import ProbabilityOutcome


def calibrated(true: float, raw: float = 0.9, jobs: int = 400) -> ProbabilityCalibration:
    """After ``jobs`` forecasts of probability ``raw`` of which the share ``true`` was met."""
    dice, one = random.Random(1), ProbabilityCalibration()
    for i in range(jobs):
        one.issue(str(i), 10 * i + 5, raw, one.correction.apply(raw))
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
        one.issue(job, deadline, 0.5, 0.5)
    one.record_end("late", 5)
    one.forget("deleted")
    one.forget("late")
    assert not one.advance_clock(10)
    assert one.advance_clock(50)
    assert [outcome.met for outcome in one.outcomes] == [False, True]
    assert list(one.open) == ["open"]


def test_replaced_forecast_counts_once_by_its_later_deadline() -> None:
    one = ProbabilityCalibration()
    one.issue("1", 10, 0.5, 0.5)
    one.issue("1", 20, 0.8, 0.8)
    one.record_end("1", 15)
    one.advance_clock(100)
    assert [(outcome.raw, outcome.met) for outcome in one.outcomes] == [(0.8, True)]


def test_state_is_saved_and_copied() -> None:
    one = calibrated(0.7)
    one.issue("a", 10**6, 0.3, 0.2)
    one.issue("b", 10**5, 0.4, 0.3)
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
