"""Halts of starts: an estimate with a wait that overlaps a halt neither counts nor changes later ones."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.predict import CalibratedStart, StartCalibration
from schedd.predict.halts import Halts


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 90), st.booleans()), max_size=30),
    st.integers(0, 1_000),
    st.integers(0, 1_000),
)
def test_an_interval_is_compared_with_all_halts(
    steps: list[tuple[int, bool]], since: int, until: int
) -> None:
    halts, now, before, seconds = Halts(), 0, False, set[int]()
    for step, halted in steps:
        if before:
            seconds |= set(range(now, now + step))
        now, before = now + step, halted
        halts.note(now, halted=halted)
    overlap = sum(since <= second < until for second in seconds) >= 60
    again = Halts.load(halts.save())
    for one in (halts, halts.copy(), again):
        assert one.overlap(since, until) is overlap
    halts.note(now + 100, halted=False)
    again.note(now + 100, halted=False)
    assert again.save() == halts.save()


def test_damaged_halts_are_refused_and_older_states_have_none() -> None:
    assert not Halts.load(()).overlap(0, 1_000)
    with pytest.raises((TypeError, ValueError)):
        Halts.load([False, [1, "two"]])


def test_misses_during_a_halt_do_not_count_and_move_no_estimate() -> None:
    one = StartCalibration()
    fresh = one.estimate(5_000, 5_600, 5_600, -1)
    for job in range(100):
        one.record_estimate(str(job), 100, CalibratedStart(200, 300 + job), 200, -1, predicted=200)
    one.halts.note(150, halted=True)
    one.halts.note(4_000, halted=False)
    one.advance_clock(4_000)
    assert (one.halted, one.coverage, len(one.recent_hits)) == (100, (0, 0), 0)
    assert one.estimate(5_000, 5_600, 5_600, -1) == fresh
    for job in range(100):
        one.record_start(str(job), 4_010)
    assert (one.halted, one.outcomes, one.estimates) == (100, 0, {})
    assert one.estimate(5_000, 5_600, 5_600, -1) == fresh
    assert StartCalibration.load(one.save()).halted == 100


def test_a_miss_before_the_halt_counts() -> None:
    one = StartCalibration()
    one.record_estimate("1", 100, CalibratedStart(200, 300), 200, -1)
    one.halts.note(300, halted=True)
    one.halts.note(4_000, halted=False)
    one.advance_clock(4_000)
    assert (one.halted, list(one.recent_hits)) == (0, [(False, False)])
    one.record_start("1", 4_000)
    assert (one.halted, one.outcomes) == (0, 0)


def test_a_short_halt_spoils_no_forecast_of_a_long_wait() -> None:
    """A pause of two minutes each day would leave waits of days without outcomes."""
    halts = Halts(((1_000, 1_120),))
    assert halts.affect(900, 900 + 20 * 120, 10_000)
    assert not halts.affect(900, 900 + 20 * 121, 10_000)
    assert not halts.affect(900, 1_500, 1_050), "the job started before it was halted for a minute"
    assert not halts.affect(1_120, 1_500, 10_000)


def test_a_halt_that_shows_later_begins_where_it_began_but_not_within_the_one_before() -> None:
    halts = Halts()
    halts.note(500, halted=True, since=300)
    halts.note(600, halted=False)
    halts.note(700, halted=True, since=550)
    halts.note(800, halted=True)
    halts.note(900, halted=True, since=0)
    assert halts.times == ((300, 600), (600, 900))
