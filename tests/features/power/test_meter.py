"""What nodes draw, learned from readings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.features.power.meter import HALF_LIFE, Meter
from schedd.policy.economy import Draw

T = 1_760_000_000


def read(readings: list[tuple[int, float]], gpu_watts: float = 0.0) -> Meter:
    meter = Meter(as_of=T, last=0.0)
    for i, (cores, watts) in enumerate(readings):
        meter = meter.read(watts, T + 60 * i, cores, gpu_watts)
    return meter


@given(
    idle=st.floats(20, 500),
    core=st.floats(0.5, 20),
    cores=st.lists(st.integers(0, 64), min_size=6, max_size=40).filter(lambda found: len(set(found)) > 2),
)
def test_a_node_that_draws_by_a_line_is_told_by_that_line(idle: float, core: float, cores: list[int]) -> None:
    found = read([(busy, idle + core * busy) for busy in cores]).told(None)
    assert found is not None
    assert found.idle == pytest.approx(idle, abs=0.2)
    assert found.core == pytest.approx(core, abs=0.05)


def test_too_few_readings_tell_nothing() -> None:
    assert read([(0, 100.0), (8, 180.0), (0, 100.0), (8, 180.0)]).told(Draw(90, 5)) is None


def test_a_node_that_was_always_as_busy_draws_for_a_core_what_is_set() -> None:
    always = read([(8, 180.0)] * 9)
    assert always.told(None) is None
    assert always.told(Draw(idle=50, core=10, gpu=200, off=7)) == Draw(idle=100, core=10, gpu=200, off=7)


def test_what_gpus_draw_is_not_the_cores() -> None:
    found = read([(busy, 300 + 100 + 5 * busy) for busy in (0, 4, 8, 2, 6, 1)], gpu_watts=300).told(
        Draw(1, gpu=300)
    )
    assert found == Draw(idle=100, core=5, gpu=300)


def test_what_was_read_long_ago_counts_less() -> None:
    meter = read([(busy, 200.0 + 5 * busy) for busy in (0, 8) * 10])
    for i, busy in enumerate((0, 8) * 10):
        meter = meter.read(100.0 + 5 * busy, T + 10 * HALF_LIFE + i, busy, 0.0)
    found = meter.told(None)
    assert found is not None
    assert found.idle == pytest.approx(100, abs=0.2)


def test_a_clock_that_was_set_back_hurts_nobody() -> None:
    meter = read([(0, 100.0), (8, 140.0)] * 4).read(100.0, T - 10**6, 0, 0.0)
    assert meter.as_of == T + 60 * 7
    assert meter.told(None) == Draw(idle=100, core=5)
    assert meter.read_off(9.0, T - 10**6).as_of == T + 60 * 7


def test_while_off_it_draws_the_mean_of_late_and_never_more_than_idle() -> None:
    meter = read([(0, 100.0), (8, 140.0)] * 4).read_off(12.0, T + 999)
    assert meter.told(None) == Draw(idle=100, core=5, off=12)
    assert meter.read_off(20.0, T + 1999).off == 14.0
    assert read([(0, 100.0), (8, 140.0)] * 4).read_off(900.0, T + 999).told(None) == Draw(100, 5, off=100)


def test_what_is_in_force_moves_only_when_it_is_wrong() -> None:
    meter = read([(0, 100.0), (8, 140.0)] * 4).settled(Draw(100, 5), 8)
    assert meter.draw is None  # the settings were right
    meter = read([(0, 110.0), (8, 150.0)] * 4).settled(Draw(100, 5), 8)
    assert meter.draw == Draw(110, 5)
    assert meter.settled(Draw(100, 5), 8) is meter


def test_watts_are_told_in_tenths_and_those_of_a_core_in_hundredths() -> None:
    meter = read([(0, 100.26), (8, 140.36)] * 4).read_off(12.26, T + 999)
    assert meter.told(None) == Draw(idle=100.3, core=5.01, off=12.3)


def test_a_little_wrong_is_a_twentieth_of_what_the_node_draws_at_most() -> None:
    meter = read([(0, 100.0), (8, 140.0)] * 4)  # with 8 cores 140 W, a twentieth of which is 7
    assert meter.settled(Draw(107, 5), 8).draw is None
    assert meter.settled(Draw(107.1, 5), 8).draw == Draw(100, 5)
    assert meter.settled(Draw(100, 5.88), 8).draw == Draw(100, 5)
    cold = meter.read_off(10.0, T + 999)
    assert cold.settled(Draw(100, 5, off=17), 8).draw is None
    assert cold.settled(Draw(100, 5, off=17.1), 8).draw == Draw(100, 5, off=10)
    learned = meter.settled(Draw(110, 5), 8)
    assert learned.draw == Draw(100, 5)
    assert learned.settled(Draw(110, 5, gpu=7), 8) is learned
    assert learned.settled(Draw(110, 5, gpu=7.1), 8).draw == Draw(100, 5, gpu=7.1)
