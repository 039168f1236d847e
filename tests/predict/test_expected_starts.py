"""Expected starts: decoding of the plan with predicted run times, and calibration."""

import json
import random
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.model import Chunk, Node, Request
from schedd.plan.kernels.layout import DUR
from schedd.plan.plan import Plan
from schedd.predict import (
    LEVELS,
    CalibratedStart,
    Prediction,
    StartCalibration,
    WaitBand,
    decode_starts,
    draw_levels,
    is_unchanged,
    running_slots,
    sample_run_times,
    start_quantiles,
    waiting_slots,
)

ONE = Request((Chunk(1, 1),))


def make_prediction(*quantiles: int, walltime: int = 3600) -> Prediction:
    values = list(quantiles) + [quantiles[-1]] * (len(LEVELS) - len(quantiles))
    return Prediction(walltime, np.array(values, np.int64), np.zeros(len(LEVELS)), np.ones(6, np.int64))


def plan_in_order(*durations: int) -> Plan:
    """Plan jobs of one cpu in this order on a node of two cpus."""
    plan = Plan([Node("n", cpus=2)], 0)
    for duration in durations:
        plan.place(plan.add_job(ONE, duration, 0), 0)
    return plan


def test_shorter_run_times_advance_starts_without_changing_the_plan() -> None:
    plan = plan_in_order(100, 100, 100, 100)
    for slot in (0, 1):
        plan.fix_in_place(slot)
    order = waiting_slots(plan, np.zeros(64, np.int64))
    assert order.tolist() == [2, 3]
    assert running_slots(plan).tolist() == [0, 1]
    before = plan.tables.jobs.copy()
    duration = plan.tables.jobs[DUR].copy()
    duration[[0, 1]] = 30, 50
    assert decode_starts(plan.fork(), order, duration, 10).tolist() == [30, 50]
    assert (plan.tables.jobs == before).all()


def test_job_past_its_expected_end_ends_in_a_second() -> None:
    plan = plan_in_order(100, 100, 100)
    for slot in (0, 1):
        plan.fix_in_place(slot)
    duration = plan.tables.jobs[DUR].copy()
    duration[0] = 20
    assert decode_starts(plan, waiting_slots(plan, np.zeros(64, np.int64)), duration, 60).tolist() == [61]


def test_aborted_search_gives_no_expected_start() -> None:
    plan = plan_in_order(100, 100, 100)
    plan.abort_searches()
    order = waiting_slots(plan, np.zeros(64, np.int64))
    assert decode_starts(plan.fork(), order, plan.jobs.durations, 0).tolist() == [-1, -1, -1]
    assert plan.starts(order).tolist() == [0, 0, 100]


def test_unplanned_jobs_follow_planned_jobs_by_age() -> None:
    plan = plan_in_order(100, 100, 100)
    for slot in (0, 1):
        plan.fix_in_place(slot)
    young, old = plan.add_job(ONE, 10, 0), plan.add_job(ONE, 10, 0)
    since = np.zeros(64, np.int64)
    since[[2, young, old]] = 7, 9, 5
    assert waiting_slots(plan, since).tolist() == [2, old, young]


def sample_total(one: Prediction, elapsed: int, level: float = 0.5) -> int:
    return int(sample_run_times([one], np.array([elapsed]), np.array([[level]]))[0, 0])


@given(
    st.lists(st.integers(1, 5000), min_size=len(LEVELS), max_size=len(LEVELS)),
    st.integers(0, 6000),
    st.floats(0.01, 0.99),
)
def test_sampled_run_time_is_longer_than_elapsed_and_within_the_walltime(
    quantiles: list[int], elapsed: int, level: float
) -> None:
    one = make_prediction(*sorted(quantiles), walltime=5000)
    total = sample_total(one, elapsed, level)
    assert total > elapsed
    assert total <= max(5000, elapsed + 1)
    assert total <= sample_total(one, elapsed, 0.99)


def test_samples_match_the_quantiles_conditional_on_elapsed_time() -> None:
    quantiles = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130]
    assert sample_total(make_prediction(*quantiles), 0) == 70
    assert sample_total(make_prediction(*quantiles), 0, 0.9) == 110
    # Half of the runs longer than 70 end by the 75 % quantile.
    assert sample_total(make_prediction(*quantiles), 70) == 95
    # Jobs in one call are sampled independently.
    many = sample_run_times([make_prediction(*quantiles)] * 2, np.array([0, 70]), np.array([[0.5, 0.9]]))
    assert many.tolist() == [[70, 110], [95, sample_total(make_prediction(*quantiles), 70, 0.9)]]
    assert sample_run_times([], np.zeros(0, np.int64), np.array([[0.5]])).shape == (0, 1)


def test_levels_are_evenly_spread_and_depend_only_on_the_job() -> None:
    found = draw_levels([f"{i}.server" for i in range(200)], 5)
    assert np.allclose(np.sort(found, axis=1), [0.1, 0.3, 0.5, 0.7, 0.9])
    assert np.allclose(found.mean(axis=0), 0.5, atol=0.06), "the first draw is no shorter than the others"
    assert (draw_levels(["7.server"], 5)[0] == found[7]).all()
    assert len({tuple(row) for row in found.tolist()}) > 60, "jobs do not go together"


def test_p50_and_p90_are_quantiles_over_the_drawn_starts() -> None:
    starts = np.array([[10, 10, -1], [20, 20, -1], [30, 30, 5], [40, -1, -1], [50, 50, 5]])
    found = start_quantiles(starts)
    assert found.p50.tolist() == [30, 30, -1]
    assert found.p90.tolist() == [50, -1, -1]
    assert start_quantiles(np.arange(20).reshape(-1, 1)).p90.tolist() == [17]
    assert start_quantiles(np.array([[10], [20]])).p50.tolist() == [15]


def issue_and_start(
    calibration: StartCalibration, n: int, factor: float, seed: int = 1
) -> list[tuple[bool, bool]]:
    """Start jobs after about ``factor`` times the planned wait; return whether each P50 and P90 held."""
    draw = random.Random(seed)
    held = []
    for i in range(n):
        now, plan = i * 100_000, draw.randrange(600, 20_000)
        quantiles = calibration.issue_estimate(str(i), now, now + plan, now + 3 * plan, now + 2 * plan)
        start = now + round(plan * factor * draw.lognormvariate(0, 0.5))
        held.append((start <= quantiles.p50, start <= quantiles.p90))
        calibration.record_start(str(i), start)
    return held


@pytest.mark.parametrize("factor", [1.0, 2.5])
def test_calibration_learns_a_systematic_plan_error(factor: float) -> None:
    held = issue_and_start(StartCalibration(), 2_000, factor)[200:]
    assert 0.88 <= sum(p90 for _, p90 in held) / len(held) <= 0.92
    assert 0.43 <= sum(p50 for p50, _ in held) / len(held) <= 0.6


def test_jobs_that_wait_count_in_p50_as_soon_as_it_has_passed() -> None:
    calibration = StartCalibration()
    for number in range(100):
        calibration.issue_estimate(str(number), 0, 1_140, 1_140, 1_140)
    assert calibration.estimate(900, 2_040, 2_040, 2_040).p50 == 2_040, "none is late"
    for number in range(30):
        calibration.record_start(str(number), 900)
    assert calibration.estimate(900, 2_040, 2_040, 2_040).p50 == 2_040, "the others may be in time"
    calibration.advance_clock(2_940)
    later = calibration.estimate(2_940, 4_080, 4_080, 4_080).p50 - 2_940
    assert 2_000 < later <= 2_940, "at least 70 of 100 wait for more than twice the time"
    for number in range(30, 100):
        calibration.record_start(str(number), 2_940)
    again = StartCalibration.load(calibration.save())
    assert later <= again.estimate(2_940, 4_080, 4_080, 4_080).p50 - 2_940 <= 2_940


def test_jobs_that_wait_count_in_p90_as_soon_as_they_are_late() -> None:
    calibration = StartCalibration()
    for number in range(100):
        calibration.issue_estimate(str(number), 0, 1_140, 1_140, 1_140)
    for number in range(80):
        calibration.record_start(str(number), 900)
    soon = calibration.estimate(900, 2_040, 2_040, 2_040).p90 - 900
    assert 1_140 <= soon < 1_700, "the others may be in time"
    calibration.advance_clock(3_000)
    later = calibration.estimate(3_000, 4_140, 4_140, 4_140).p90 - 3_000
    assert 2_400 < later < 3_800, "20 of 100 wait for 3,000 s; from the others alone it was 1,250 s"
    restored = StartCalibration.load(calibration.save())
    assert restored.estimate(3_000, 4_140, 4_140, 4_140).p90 - 3_000 == later


def test_p50_within_its_bounds_is_not_corrected() -> None:
    calibration = StartCalibration()
    for number in range(100):
        calibration.issue_estimate(str(number), 0, 1_140, 1_140, 1_140)
    for number in range(100):
        calibration.record_start(str(number), 2 * 10 * number + 130)
    assert calibration.estimate(10_000, 11_140, 11_140, 11_140).p50 == 11_140
    assert calibration.estimate(10_000, 10_300, 10_300, 10_300).p50 == 10_300, "another band"


def test_p90_is_no_earlier_than_p50_and_both_are_after_now() -> None:
    calibration = StartCalibration()
    issue_and_start(calibration, 100, 0.01)
    quantiles = calibration.issue_estimate("x", 10**8, 10**8, 10**8, -1)
    assert 10**8 < quantiles.p50 <= quantiles.p90


def test_waiting_job_past_its_p90_is_a_single_miss() -> None:
    calibration = StartCalibration()
    quantiles = calibration.issue_estimate("x", 0, 1000, 1000, -1)
    calibration.advance_clock(quantiles.p90)
    band = calibration.band(log(1060))
    assert band.shift == 0
    calibration.advance_clock(quantiles.p90 + 1)
    assert band.shift > 0
    shift = band.shift
    calibration.record_start("x", quantiles.p90 + 5000)
    assert band.shift == shift


def known_band(error: float, count: int, shift: float = 0.0) -> WaitBand:
    """Return a band with equal errors, each of a period of its own."""
    band = WaitBand(shift=shift)
    for number in range(count):
        band.add_error(error, number, number)
    return band


@given(st.lists(st.tuples(st.integers(60, 10**5), st.booleans()), max_size=30), st.integers(0, 10**5))
def test_small_steps_follow_when_p90_has_passed_whether_the_job_started_or_not(
    estimates: list[tuple[int, bool]], later: int
) -> None:
    """With steps at the starts, the hits of a long queue came hours before its misses: P90 covered 85 % of
    the waits over six hours with 1,000 nodes.
    """
    calibration = StartCalibration()
    passed = {}
    for number, (wait, starts) in enumerate(estimates):
        p90 = calibration.issue_estimate(str(number), 0, wait, wait, wait).p90
        passed[number] = p90 < later
        if starts:
            calibration.record_start(str(number), 0)
    calibration.advance_clock(later)
    steps = sum(
        0.03 * (-0.1 if starts else 0.9) for number, (_, starts) in enumerate(estimates) if passed[number]
    )
    assert abs(sum(band.shift for band in calibration.bands) - steps) < 1e-9
    calibration = StartCalibration.load(json.loads(json.dumps(calibration.save())))
    calibration.advance_clock(10**7)
    steps = sum(0.03 * (-0.1 if starts else 0.9) for _, starts in estimates)
    assert abs(sum(band.shift for band in calibration.bands) - steps) < 1e-9, "the later ones are saved"


@given(st.integers(1, 13), st.integers(20, 23), st.floats(0, 0.3))
@settings(max_examples=20)
def test_p90_has_a_margin_for_errors_that_jobs_share_which_shrinks_with_the_periods(
    periods: int, jobs: int, spread: float
) -> None:
    """Jobs of one period start equally late. With 1,000 nodes the draws hardly differ, so that only other
    periods show by how much.
    """
    hours = 5 * 3_600

    def margin(count: int) -> float:
        calibration = StartCalibration()
        band = calibration.band(log(hours))
        for period in range(count):
            for job in range(jobs):
                band.add_error(spread * job / jobs, 1_000 * period, 1_000 * period + 1)
        assert len(set(band.periods)) == count
        p90 = calibration.estimate(0, hours, hours, hours).p90
        return log((p90 + 60) / (hours + 60)) - float(np.quantile(band.errors, 0.9))

    assert margin(periods) > margin(periods + 1) > 0
    assert margin(1) < 0.4


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_what_a_calibration_remembers_is_what_a_restored_one_computes(seed: int) -> None:
    drawn = random.Random(seed)
    calibration, now = StartCalibration(), 0
    waiting: list[str] = []
    for number in range(150):
        now += drawn.randrange(0, 2_000)
        predicted, planned, late = (now + drawn.choice((60, 2_000, 9_000, 90_000)) for _ in range(3))
        restored = StartCalibration.load(json.loads(json.dumps(calibration.save())))
        expected = calibration.issue_estimate(str(number), now, predicted, planned, late)
        assert restored.issue_estimate(str(number), now, predicted, planned, late) == expected
        waiting.append(str(number))
        drawn.shuffle(waiting)
        while waiting and drawn.random() < 0.5:
            now += drawn.randrange(0, 500)
            calibration.record_start(waiting.pop(), now)


def test_deleted_job_changes_no_calibration() -> None:
    calibration = StartCalibration()
    calibration.issue_estimate("x", 0, 1000, 1000, -1)
    calibration.forget("x")
    calibration.record_start("x", 10)
    calibration.advance_clock(10**9)
    assert (calibration.outcomes, {band.shift for band in calibration.bands}) == (0, {0})


def test_p90_is_the_90_percent_draw_whatever_the_plan_by_walltimes_says() -> None:
    """P90 was the geometric mean of both. In a queue of a day most plans end three times as late as the draws
    after six hours, and twice as late after a day: corrected by the first ones, P90 covered 48 % of the last.
    """
    one = StartCalibration(tuple(known_band(0.0, 300) for _ in range(5)))
    for planned in (900, 5_940, 90_000):
        assert abs(one.estimate(0, 100, planned, 940).p90 - 940) < 2
    assert abs(one.estimate(0, 100, 5_940, -1).p90 - 5_940) < 2, "without draws, only the plan counts"


def test_p90_is_a_quarter_later_at_most_as_planned_until_twenty_outcomes_are_known() -> None:
    one = StartCalibration()
    assert one.estimate(0, 100, 5_940, 940).p90 == 1_190
    assert one.estimate(0, 100, 1_000, 940).p90 == 1_000, "by walltimes it starts then"
    assert one.estimate(0, 100, 940, 5_940).p90 == 5_940, "the draws are later"
    for number in range(19):
        one.issue_estimate(f"hit{number}", 0, 100, 5_940, 940)
        one.record_start(f"hit{number}", 0)
    assert one.estimate(0, 100, 5_940, 940).p90 == 1_190, "the steps after hits do not move it either"


def test_jobs_waiting_through_an_outage_move_p90_by_a_bounded_factor() -> None:
    calibration = StartCalibration()
    issue_and_start(calibration, 400, 1.0)
    began = 10_000_000
    usual = calibration.estimate(began, began + 600, began + 600, -1).p90 - began
    for number in range(2_000):
        calibration.issue_estimate(f"waits {number}", began, began + 600, began + 600, -1)
    calibration.advance_clock(began + 1_000_000)
    later = began + 1_000_000
    sample_total = calibration.estimate(later, later + 600, later + 600, -1).p90 - later
    assert usual < sample_total < 4 * usual
    for number in range(1_000):  # as many hits as it takes for a tenth of that many misses
        calibration.issue_estimate(f"starts {number}", later, later + 600, later + 600, -1)
        calibration.record_start(f"starts {number}", later + 1)
    calibration.advance_clock(later + 1_000_000)
    assert calibration.band(log(660)).shift < 0


def test_expected_start_is_within_ten_years() -> None:
    calibration = StartCalibration(tuple(known_band(3.0, 20, 1.0) for _ in range(5)))
    assert calibration.estimate(0, 1, 1 << 40, 1 << 40).p90 <= 10 * 366 * 86_400


def test_waits_of_hours_do_not_correct_p90_a_day_ahead() -> None:
    calibration, hours = StartCalibration(), 8 * 3_600
    for number in range(40):
        now = 100_000 * number
        calibration.issue_estimate(str(number), now, now + 7 * 3_600, now + 3 * hours, now + hours)
        calibration.record_start(str(number), now + hours // 3)
    now = 10_000_000
    assert calibration.estimate(now, now + 7 * 3_600, now + 3 * hours, now + hours).p90 < now + hours
    p90 = calibration.estimate(now, now + 4 * hours, now + 10 * hours, now + 5 * hours).p90
    assert abs(p90 - now - 1.25 * 5 * hours) < 120, "none is known"
    # P50 has one correction for both.
    assert calibration.estimate(now, now + 4 * hours, now + 10 * hours, now + 5 * hours).p50 < now + 4 * hours


def test_excessive_saved_shift_is_bounded_on_load() -> None:
    plain = StartCalibration().save()
    plain["bands"][2] = [[], 0, 27.5, [], 0]
    assert [band.shift for band in StartCalibration.load(plain).bands] == [0, 0, 1.0, 0, 0]


def test_late_starts_of_jobs_due_in_minutes_do_not_move_p90_of_long_waits() -> None:
    calibration = StartCalibration()
    hours = 8 * 3_600
    for number in range(200):
        now = number * 1_000
        calibration.issue_estimate(f"near {number}", now, now + 1, now + 1, now + 1)
        calibration.record_start(f"near {number}", now + 900)
    now = 10**6
    near = calibration.estimate(now, now + 1, now + 1, now + 1)
    assert now + 800 <= near.p90 <= now + 3_600
    assert calibration.estimate(now, now + hours, now + hours, now + hours).p90 == now + hours


@pytest.mark.parametrize(
    ("p50", "p90", "unchanged"),
    [
        (2_000, 10_000, True),
        (3_500, 10_000, True),
        (4_100, 10_000, False),
        (2_000, 8_100, False),  # P90 is much earlier than the published one
        (2_000, 3_000, False),
        (2_059, 2_060, False),
    ],
)
def test_estimate_is_published_again_when_it_moved_by_a_quarter_of_its_uncertainty(
    p50: int, p90: int, unchanged: bool
) -> None:
    old = CalibratedStart(2_000, 10_000)
    assert is_unchanged(old, CalibratedStart(p50, p90), 1_000) is unchanged
    assert not is_unchanged(old, CalibratedStart(p50, p90), 2_000), "its P50 has passed"
