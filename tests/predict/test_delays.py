"""Delays of starts: learned from the latest starts, bounded, and part of every start estimate."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.predict import NO_DELAY, Delay, RecentDelays, RunTimePredictor, StartCalibration


@settings(deadline=None)
@given(st.lists(st.integers(-100, 10_000), max_size=250))
def test_delay_matches_sorted_latest_starts(seconds: list[int]) -> None:
    delays = RecentDelays()
    for one in seconds:
        delays.record(one)
    latest = sorted(min(max(one, 0), 1_800) for one in seconds[-200:])
    if len(latest) < 5:
        assert delays.current == NO_DELAY
        return
    p50, p90 = delays.current
    for level, found in ((0.5, p50), (0.9, p90)):
        assert sum(one <= found for one in latest) >= level * len(latest)
        assert found in latest
    assert RecentDelays.load(delays.save()).current == delays.current


def test_damaged_delays_are_refused() -> None:
    with pytest.raises(TypeError):
        RecentDelays.load([1, "2"])  # type: ignore[list-item]


def test_ends_are_expected_as_late_as_starts_until_their_own_delays_are_known() -> None:
    """The first jobs of a fresh daemon start minutes before the first one ends; without its delay the first
    forecasts were too early.
    """
    predictor = RunTimePredictor()
    for number in range(10):
        predictor.record_dispatch(str(number), 1_000)
        predictor.record_start_delay(str(number), 1_090)
    assert predictor.end_delay == predictor.start_delays.current == Delay(90, 90)
    for _ in range(5):
        predictor.record_end_delay(2_000, 2_000)
    assert predictor.end_delay == NO_DELAY, "known ones count even if there is no delay"


def test_estimate_of_a_due_job_includes_the_delay_at_once() -> None:
    calibration = StartCalibration()
    now = 10**8
    found = calibration.estimate(now, now, now, now, Delay(200, 300))
    assert found.p50 == now + 200
    assert found.p90 == now + 300
    later = calibration.estimate(now, now + 900, now + 900, now + 900, Delay(200, 300))
    assert later.p50 == now + 1_100
    assert later.p90 == now + 1_200


def test_delays_outlast_a_restart_and_a_rebuild_and_are_absent_in_older_states() -> None:
    predictor = RunTimePredictor()
    for i in range(10):
        predictor.record_dispatch(str(i), 1_000 * i)
        predictor.record_start_delay(str(i), 1_000 * i + 40 + i)
        predictor.record_end_delay(1_000, 1_030 + i)
    predictor.record_end_delay(1_000, 2_801)
    predictor.record_dispatch("late", 19_970)
    plain, arrays = predictor.save()
    again = RunTimePredictor.load(plain, arrays)
    again.record_start_delay("late", 20_010)
    assert again.start_delays.save() == [*range(40, 50), 40]
    assert again.save()[0] != plain
    assert again.end_delays.save() == [*range(30, 40)]
    assert predictor.without_jobs().start_delays.current == predictor.start_delays.current
    assert predictor.without_jobs().end_delays.current == predictor.end_delays.current


def test_start_without_a_run_decision_teaches_no_delay() -> None:
    predictor = RunTimePredictor()
    predictor.record_start_delay("by hand", 50)
    predictor.record_dispatch("refused", 0)
    predictor.withdraw_dispatch("refused")
    predictor.record_start_delay("refused", 500)
    assert predictor.start_delays.save() == []
