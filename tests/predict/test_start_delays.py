"""Delays of starts: learned from the latest starts, bounded, and part of every start estimate."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.predict import NO_START_DELAY, RunTimePredictor, StartCalibration, StartDelay, StartDelays


@settings(deadline=None)
@given(st.lists(st.integers(-100, 10_000), max_size=250))
def test_delay_matches_sorted_latest_starts(seconds: list[int]) -> None:
    delays = StartDelays()
    for one in seconds:
        delays.record(one)
    latest = sorted(min(max(one, 0), 1_800) for one in seconds[-200:])
    if len(latest) < 5:
        assert delays.current == NO_START_DELAY
        return
    p50, p90 = delays.current
    for level, found in ((0.5, p50), (0.9, p90)):
        assert sum(one <= found for one in latest) >= level * len(latest)
        assert found in latest
    assert StartDelays.load(delays.save()).current == delays.current


def test_damaged_delays_are_refused() -> None:
    with pytest.raises(TypeError):
        StartDelays.load([1, "2"])  # type: ignore[list-item]


def test_estimate_of_a_due_job_includes_the_delay_at_once() -> None:
    calibration = StartCalibration()
    now = 10**8
    found = calibration.estimate(now, now, now, now, StartDelay(200, 300))
    assert found.p50 == now + 200
    assert found.p90 == now + 300
    later = calibration.estimate(now, now + 900, now + 900, now + 900, StartDelay(200, 300))
    assert later.p50 == now + 1_100
    assert later.p90 == now + 1_200


def test_delays_outlast_a_restart_and_a_rebuild_and_are_absent_in_older_states() -> None:
    predictor = RunTimePredictor()
    for i in range(10):
        predictor.record_dispatch(str(i), 1_000 * i, 1_000 * i)
        predictor.record_start_delay(str(i), 1_000 * i + 40 + i)
    predictor.record_reported_end(20_000, 19_970)
    predictor.record_dispatch("late", 20_000, 20_000)
    plain, arrays = predictor.save()
    again = RunTimePredictor.load(plain, arrays)
    again.record_start_delay("late", 20_010)
    assert again.start_delays.save() == [*range(40, 50), 40], "its nodes were free 30 s before that was known"
    assert again.save()[0] != plain
    assert predictor.without_jobs().start_delays.current == predictor.start_delays.current
    older = {
        name: value for name, value in plain.items() if name not in ("start_delays", "due", "latest_end")
    }
    assert RunTimePredictor.load(older, arrays).start_delays.current == NO_START_DELAY


def test_start_without_a_run_decision_teaches_no_delay() -> None:
    predictor = RunTimePredictor()
    predictor.record_start_delay("by hand", 50)
    predictor.record_dispatch("refused", 0, 0)
    predictor.withdraw_dispatch("refused")
    predictor.record_start_delay("refused", 500)
    assert predictor.start_delays.save() == []
