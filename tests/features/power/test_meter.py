"""Power draw of nodes, estimated from readings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.features.power.meter import HALF_LIFE, Meter
from schedd.policy.economy import Draw

T = 1_760_000_000


def meter_with_readings(readings: list[tuple[int, float]], gpu_watts: float = 0.0) -> Meter:
    meter = Meter(as_of=T, last=0.0)
    for i, (cores, watts) in enumerate(readings):
        meter = meter.read(watts, T + 60 * i, cores, gpu_watts)
    return meter


@given(
    idle=st.floats(20, 500),
    core=st.floats(0.5, 20),
    cores=st.lists(st.integers(0, 64), min_size=6, max_size=40).filter(lambda found: len(set(found)) > 2),
)
def test_linear_power_draw_is_estimated_exactly(idle: float, core: float, cores: list[int]) -> None:
    found = meter_with_readings([(busy, idle + core * busy) for busy in cores]).measured_draw(None)
    assert found is not None
    assert found.idle == pytest.approx(idle, abs=0.2)
    assert found.core == pytest.approx(core, abs=0.05)


def test_too_few_readings_yield_no_estimate() -> None:
    few = meter_with_readings([(0, 100.0), (8, 180.0), (0, 100.0), (8, 180.0)])
    assert few.measured_draw(Draw(idle=90, core=5)) is None


def test_constant_load_keeps_the_configured_draw_per_core() -> None:
    always = meter_with_readings([(8, 180.0)] * 9)
    assert always.measured_draw(None) is None
    assert always.measured_draw(Draw(idle=50, core=10, gpu=200, off=7)) == Draw(
        idle=100, core=10, gpu=200, off=7
    )


def test_gpu_power_is_not_counted_as_core_power() -> None:
    found = meter_with_readings(
        [(busy, 300 + 100 + 5 * busy) for busy in (0, 4, 8, 2, 6, 1)], gpu_watts=300
    ).measured_draw(Draw(idle=1, gpu=300))
    assert found == Draw(idle=100, core=5, gpu=300)


def test_old_readings_weigh_less() -> None:
    meter = meter_with_readings([(busy, 200.0 + 5 * busy) for busy in (0, 8) * 10])
    for i, busy in enumerate((0, 8) * 10):
        meter = meter.read(100.0 + 5 * busy, T + 10 * HALF_LIFE + i, busy, 0.0)
    found = meter.measured_draw(None)
    assert found is not None
    assert found.idle == pytest.approx(100, abs=0.2)


def test_clock_decrease_does_not_change_the_estimate() -> None:
    meter = meter_with_readings([(0, 100.0), (8, 140.0)] * 4).read(100.0, T - 10**6, 0, 0.0)
    assert meter.as_of == T + 60 * 7
    assert meter.measured_draw(None) == Draw(idle=100, core=5)
    assert meter.read_off(9.0, T - 10**6).as_of == T + 60 * 7


def test_off_power_is_a_recent_mean_up_to_the_idle_power() -> None:
    meter = meter_with_readings([(0, 100.0), (8, 140.0)] * 4).read_off(12.0, T + 999)
    assert meter.measured_draw(None) == Draw(idle=100, core=5, off=12)
    assert meter.read_off(20.0, T + 1999).off == 14.0
    assert meter_with_readings([(0, 100.0), (8, 140.0)] * 4).read_off(900.0, T + 999).measured_draw(
        None
    ) == Draw(idle=100, core=5, off=100)


def test_draw_in_force_changes_only_on_a_relevant_error() -> None:
    meter = meter_with_readings([(0, 100.0), (8, 140.0)] * 4).settled(Draw(idle=100, core=5), 8)
    assert meter.draw is None  # the settings were right
    meter = meter_with_readings([(0, 110.0), (8, 150.0)] * 4).settled(Draw(idle=100, core=5), 8)
    assert meter.draw == Draw(idle=110, core=5)
    assert meter.settled(Draw(idle=100, core=5), 8) is meter


def test_watts_are_rounded_to_tenths_and_per_core_to_hundredths() -> None:
    meter = meter_with_readings([(0, 100.26), (8, 140.36)] * 4).read_off(12.26, T + 999)
    assert meter.measured_draw(None) == Draw(idle=100.3, core=5.01, off=12.3)


def test_relevant_error_is_five_percent_or_more() -> None:
    meter = meter_with_readings([(0, 100.0), (8, 140.0)] * 4)  # 140 W with 8 cores; a twentieth is 7 W
    assert meter.settled(Draw(idle=107, core=5), 8).draw is None
    assert meter.settled(Draw(idle=107.1, core=5), 8).draw == Draw(idle=100, core=5)
    assert meter.settled(Draw(idle=100, core=5.88), 8).draw == Draw(idle=100, core=5)
    cold = meter.read_off(10.0, T + 999)
    assert cold.settled(Draw(idle=100, core=5, off=17), 8).draw is None
    assert cold.settled(Draw(idle=100, core=5, off=17.1), 8).draw == Draw(idle=100, core=5, off=10)
    learned = meter.settled(Draw(idle=110, core=5), 8)
    assert learned.draw == Draw(idle=100, core=5)
    assert learned.settled(Draw(idle=110, core=5, gpu=7), 8) is learned
    assert learned.settled(Draw(idle=110, core=5, gpu=7.1), 8).draw == Draw(idle=100, core=5, gpu=7.1)
