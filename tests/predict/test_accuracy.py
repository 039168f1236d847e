"""Published accuracy of start estimates."""

import numpy as np
import pytest

from schedd.predict import (
    AccuracyFigures,
    CalibratedStart,
    EstimateOutcomes,
    StartCalibration,
    measure_accuracy,
)
from schedd.predict.accuracy import NOT_YET


def outcome_table(*rows: tuple[int, int, int, int, int]) -> EstimateOutcomes:
    table = np.array(rows, np.int64).reshape(-1, 5)
    return EstimateOutcomes(*(table[:, i] for i in range(5)))


def test_accuracy_figures_match_their_definitions() -> None:
    found = measure_accuracy(
        outcome_table((0, 100, 200, 1000, 50), (0, 200, 300, 1000, 250), (0, 300, 400, 1000, 500))
    )
    assert (found.count, found.median_error, found.plan_median_error) == (3, 50, 750)
    assert (found.error_ratio, found.sharpness) == (50 / 750, 1.5)
    assert (found.p90_coverage, found.p50_coverage) == pytest.approx((2 / 3, 1 / 3))
    losses = ((25 + 25 + 100) / 3, (0.1 * 150 + 0.1 * 50 + 0.9 * 100) / 3)
    assert (found.pinball_50, found.pinball_90) == pytest.approx(losses)


def test_job_that_has_not_started_is_a_miss_without_an_error() -> None:
    found = measure_accuracy(outcome_table((0, 100, 200, 1000, 100), (0, 100, 200, 1000, NOT_YET)))
    assert (found.count, found.p90_coverage, found.p50_coverage, found.median_error) == (2, 0.5, 0.5, 0)
    assert measure_accuracy(outcome_table((0, 100, 200, 1000, NOT_YET))) == AccuracyFigures(1, 0.0, 0.0)
    assert measure_accuracy(outcome_table()) == AccuracyFigures(0)


def test_coverage_is_the_hit_rate_over_the_latest_300_outcomes() -> None:
    assert StartCalibration().coverage == (0, 0)
    one, p90 = StartCalibration(), 0
    for i in range(400):
        one.issue_estimate(str(i), 1000 * i, 1000 * i + 100, 1000 * i + 200, -1)
        p90 = one.estimates[str(i)].expected.p90
        one.record_start(str(i), p90 + 50 if i % 4 == 0 else 1000 * i + 100)
    one.advance_clock(p90 + 1)
    assert len(one.recent_hits) == 300
    assert one.coverage == (0.75, 0.75)
    assert one.coverage == tuple(sum(part) / 300 for part in zip(*one.recent_hits, strict=True))
    assert len(one.period_hits) == 100, "each estimate is issued after the outcome of the one before"
    again = StartCalibration.load(one.save())
    for name in ("coverage", "recent_hits", "period_hits", "period_since"):
        assert getattr(again, name) == getattr(one, name)
    assert one.copy().coverage == one.coverage


def test_hits_and_misses_count_when_their_p90_has_passed() -> None:
    """Counted at their start, the first 60 of 100 jobs were hits: a coverage of 100 % that became 60 %."""
    one = StartCalibration()
    for i in range(100):
        one.record_estimate(str(i), 0, CalibratedStart(100, 1000 + i), 1000, -1)
    for i in range(60):
        one.record_start(str(i), 50 + i)
    one.advance_clock(900)
    assert not any(one.coverage)
    again = StartCalibration.load(one.save())
    again.advance_clock(1100)
    assert (len(again.recent_hits), again.coverage) == (100, (0.51, 0.6))
    assert list(again.period_hits) == [(60, 100)]


@pytest.mark.parametrize(
    ("periods", "hits", "biased"),
    [(10, 5, True), (10, 6, False), (30, 21, True), (30, 23, False), (43, 43, False), (44, 44, True)],
)
def test_a_bias_is_told_from_chance_by_independent_periods(periods: int, hits: int, biased: bool) -> None:
    one = StartCalibration()
    for period in range(periods):
        at = 1000 * period
        for job in range(7):
            name = f"{period}.{job}"
            one.record_estimate(name, at, CalibratedStart(at, at + (9 if period < hits else 3)), at, -1)
        for job in range(7):
            one.record_start(f"{period}.{job}", at + 5 + job % 3)
    one.advance_clock(1000 * periods)
    assert list(one.period_hits) == [(7, 7)] * hits + [(0, 7)] * (periods - hits)
    assert one.find_p90_bias(0.8, 0.97) == (hits / periods if biased else None)


def test_start_before_its_estimate_teaches_nothing() -> None:
    """The clock was set back by a day between the two."""
    one = StartCalibration()
    before = one.save()
    one.issue_estimate("1", 100_000, 100_600, 101_000, -1)
    one.record_start("1", 13_600)
    after = one.save()
    assert (after["bands"], after["estimates"]) == (before["bands"], [])
    assert one.coverage == (0, 0)
