"""The synthetic workload has the statistics that its authors published."""

from math import exp

import numpy as np
import pytest

from schedd.replay import lublin
from schedd.replay.lublin import generate
from schedd.replay.workload import Trace, select

N = 20_000


@pytest.fixture(scope="module")
def model() -> Trace:
    return generate(N, 128, seed=1)


def column(trace: Trace, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([getattr(job, name) for job in trace.jobs], dtype=np.int64)


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    assert generate(50, 16, seed=3) == generate(50, 16, seed=3)
    assert generate(50, 16, seed=3).jobs != generate(50, 16, seed=4).jobs


def test_serial_and_power_shares_match_the_publication(model: Trace) -> None:
    procs = column(model, "procs")
    assert (procs == 1).mean() == pytest.approx(0.2927, abs=0.01)
    powers = (procs & (procs - 1)) == 0
    # The 3.9 % that are neither serial nor rounded hit a power of two by chance now and then.
    assert 0.2927 + 0.6686 - 0.01 < powers.mean() < 0.2927 + 0.6686 + 0.02


def test_parallel_sizes_are_mostly_below_a_quarter_machine(model: Trace) -> None:
    procs = column(model, "procs")
    parallel = procs[procs > 1]
    # First stage: powers up to 5 of 7, those above 4.5 rounding to 32, so below 45 in any case.
    assert (parallel < 46).mean() == pytest.approx(0.875 + 0.125 * 0.25, abs=0.01)


@pytest.mark.parametrize("machine", [1, 2, 3, 5, 100, 1000])
def test_no_job_is_wider_than_the_machine(machine: int) -> None:
    procs = column(generate(3000, machine, seed=2), "procs")
    assert procs.min() == 1
    assert procs.max() <= machine
    assert len(set(procs.tolist())) == min(machine, 3) or machine > 3


def test_run_time_logarithms_follow_two_gammas(model: Trace) -> None:
    run, procs = column(model, "run"), column(model, "procs")
    assert run.min() >= 1
    assert run.max() <= exp(12)
    p = 0.6986 - 0.003 * procs
    expected = (p * 6.57 * 0.823 + (1 - p) * 639.1 * 0.0156).mean()
    assert np.log(run).mean() == pytest.approx(expected, abs=0.15)  # cut off at 12, whole seconds


def test_larger_jobs_run_longer(model: Trace) -> None:
    run, procs = column(model, "run"), column(model, "procs")
    assert np.median(run[procs >= 64]) > 1.5 * np.median(run[procs == 1])


def test_arrivals_peak_in_the_afternoon_and_ebb_before_dawn(model: Trace) -> None:
    submit = column(model, "submit")
    assert (np.diff(submit) >= 0).all()
    hour = submit % 86400 // 3600
    share = np.bincount(hour, minlength=24) / N * 24
    assert share[12:16].min() > 1.25
    assert share[2:5].max() < 0.5


def test_daily_cycle_has_unit_mean_and_period_a_day() -> None:
    assert lublin._daily_weights().mean() == pytest.approx(1)
    whole_days = lublin._moments(np.array([48.0, 96.0, 4800.0]))
    assert whole_days == pytest.approx([86400, 2 * 86400, 100 * 86400])


def test_moments_agree_with_paying_half_hour_by_half_hour() -> None:
    weights = lublin._daily_weights()
    spent = np.cumsum(np.random.default_rng(5).exponential(2.0, 300))
    slow = []
    for work in spent:
        bucket = 0
        while work > weights[bucket % 48]:
            work -= weights[bucket % 48]
            bucket += 1
        slow.append(1800 * (bucket + work / weights[bucket % 48]))
    assert lublin._moments(spent) == pytest.approx(slow)


def test_gaps_at_mean_pace_have_the_published_mean_logarithm() -> None:
    rng = np.random.default_rng(1)
    moments = lublin._arrivals(rng, N)
    weights = lublin._daily_weights()
    pace = np.concatenate(([0.0], np.cumsum(weights)))
    days, rest = np.divmod(moments, 86400)
    work = (days * 48 + np.interp(rest, np.arange(49) * 1800, pace)) * 1800
    logs = np.log(np.diff(work))
    assert logs.mean() == pytest.approx(6.0415 * 1.0519 * 0.8531, abs=0.1)  # cut off at 13
    assert logs.max() <= 13 + 1e-6


def test_limits_are_round_and_never_below_the_run_time(model: Trace) -> None:
    run, limit = column(model, "run"), column(model, "estimate")
    assert (limit >= run).all()
    assert len(set(limit.tolist())) <= 16
    long = run > 3600
    assert 0.3 < (run[long] / limit[long]).mean() < 0.6, "accuracy is about uniform"


def test_requested_load_is_offered() -> None:
    trace = generate(2000, 64, seed=1, load=0.9)
    offered = (column(trace, "procs") * column(trace, "run")).sum() / (64 * column(trace, "submit")[-1])
    assert offered == pytest.approx(0.9, rel=1e-4)


def test_few_users_submit_most_jobs(model: Trace) -> None:
    users = [job.user for job in model.jobs]
    assert len(set(users)) == 40
    assert users.count("user1") == pytest.approx(20 * users.count("user20"), rel=0.3)


def test_a_generated_trace_is_ready_for_selection(model: Trace) -> None:
    chosen = select(model, estimates="user")
    assert (len(chosen.jobs), chosen.procs, chosen.skipped, chosen.without_estimate) == (N, 128, 0, 0)


@pytest.mark.parametrize(
    "wrong", [{"n": 0}, {"max_procs": 0}, {"users": 0}, {"load": 0.0}, {"load": float("nan")}]
)
def test_arguments_without_meaning_are_refused(wrong: dict[str, float]) -> None:
    arguments = {"n": 5, "max_procs": 4, "seed": 1} | wrong
    with pytest.raises(ValueError, match="must be above 0"):
        generate(**arguments)  # type: ignore[arg-type]
