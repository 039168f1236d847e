"""Predicted run times: comparison with the plain reference, save and load, and invariants."""

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.predict import LEVELS, P50_INDEX, P90_INDEX, JobFeatures, RunTimes
from tests.predict.run_time_reference import RunTimeReference
from tests.property_examples import examples

asks = st.builds(
    JobFeatures,
    user=st.sampled_from(["ann", "bob", "eve"]),
    walltime=st.sampled_from([1, 60, 3600, 86_400]),
    procs=st.integers(1, 3),
    name=st.sampled_from(["", "relax", "mesh"]),
)


def draw_jobs(seed: int, n: int) -> list[tuple[JobFeatures, int]]:
    """Draw jobs with a run time distribution that depends on the user."""
    draw = random.Random(seed)
    jobs = []
    for _ in range(n):
        user = draw.randrange(6)
        walltime = draw.choice((600, 3600, 43_200))
        ask = JobFeatures(f"u{user}", walltime, draw.choice((1, 4)), draw.choice(("", "a", "b")))
        run = int(walltime * min(1.5, draw.lognormvariate(-1 - user / 3, 0.1 + user / 5)))
        jobs.append((ask, max(run, 1)))
    return jobs


def learn_jobs(run_times: RunTimes, jobs: list[tuple[JobFeatures, int]]) -> RunTimes:
    for ask, run in jobs:
        run_times.record_end(run_times.predict(ask), run, outlived=False)
    return run_times


@given(st.lists(st.tuples(asks, st.integers(0, 100_000)), max_size=160))
@settings(max_examples=examples(60), deadline=None)
def test_predictions_match_the_reference(jobs: list[tuple[JobFeatures, int]]) -> None:
    run_times, oracle = RunTimes(), RunTimeReference()
    for ask, run in jobs:
        mine, (raw, told) = run_times.predict(ask), oracle.predict(ask)
        np.testing.assert_allclose(mine.uncalibrated, raw, atol=1e-6)
        # Ends are stored in 32 bits: precise to a second, or a millionth of the walltime.
        np.testing.assert_allclose(mine.quantiles, told, rtol=1e-5, atol=1)
        run_times.record_end(mine, run, outlived=False)
        oracle.record_outcome(ask, mine.quantiles.tolist(), raw, run)


def test_calibration_and_shifts_match_the_reference() -> None:
    run_times, oracle = RunTimes(), RunTimeReference()
    for ask, run in draw_jobs(1, 2_500):
        mine, (raw, told) = run_times.predict(ask), oracle.predict(ask)
        np.testing.assert_allclose(mine.quantiles, told, rtol=1e-5, atol=1)
        run_times.record_end(mine, run, outlived=False)
        oracle.record_outcome(ask, mine.quantiles.tolist(), raw, run)


@given(st.lists(st.tuples(asks, st.integers(0, 100_000)), max_size=60), asks)
@settings(max_examples=examples(60), deadline=None)
def test_quantiles_rise_from_a_second_to_the_walltime(
    jobs: list[tuple[JobFeatures, int]], ask: JobFeatures
) -> None:
    prediction = learn_jobs(RunTimes(), jobs).predict(ask)
    assert (np.diff(prediction.quantiles) >= 0).all()
    assert (
        1
        <= prediction.quantiles[0]
        <= prediction.p50
        <= prediction.p90
        <= prediction.quantiles[-1]
        <= ask.walltime
    )
    assert (prediction.p50, prediction.p90) == (
        prediction.quantiles[P50_INDEX],
        prediction.quantiles[P90_INDEX],
    )
    assert (LEVELS[P50_INDEX], LEVELS[P90_INDEX]) == (0.5, 0.9)


def test_prediction_without_history_is_the_walltime() -> None:
    assert RunTimes().predict(JobFeatures("ann", 7200, 4)).quantiles.tolist() == [7200] * len(LEVELS)


def test_zero_walltime_is_refused() -> None:
    with pytest.raises(ValueError, match="walltime 0: at least 1 second"):
        JobFeatures("ann", 0, 1)


def test_table_size_must_be_a_binary_power() -> None:
    with pytest.raises(ValueError, match="12 templates: a power of two"):
        RunTimes(12)


def test_predict_changes_nothing() -> None:
    run_times = learn_jobs(RunTimes(), draw_jobs(2, 300))
    before = run_times.save()
    for ask, _ in draw_jobs(3, 100):
        run_times.predict(ask)
    after = run_times.save()
    assert before[0] == after[0]
    assert all((before[1][name] == after[1][name]).all() for name in before[1])


def test_recent_own_jobs_outweigh_other_users_jobs() -> None:
    run_times = RunTimes()
    learn_jobs(run_times, [(JobFeatures(f"u{i % 5}", 3600, 1), 3000) for i in range(200)])
    learn_jobs(run_times, [(JobFeatures("ann", 3600, 1), 60) for _ in range(20)])
    assert run_times.predict(JobFeatures("ann", 3600, 1)).p50 <= 90
    assert run_times.predict(JobFeatures("u1", 3600, 1)).p50 >= 2500


@pytest.mark.parametrize("seed", [4, 5])
def test_ninety_percent_run_no_longer_than_their_p90(seed: int) -> None:
    """The same holds for each user, after a first tenth of the jobs as training."""
    run_times = RunTimes()
    covered: dict[str, list[bool]] = {}
    for i, (ask, run) in enumerate(draw_jobs(seed, 4_000)):
        prediction = run_times.predict(ask)
        if i >= 400:
            covered.setdefault(ask.user, []).append(min(run, ask.walltime) <= prediction.p90)
        run_times.record_end(prediction, run, outlived=False)
    every = [one for user in covered.values() for one in user]
    assert 0.89 <= sum(every) / len(every) <= 0.91
    for user in covered.values():
        assert 0.88 <= sum(user) / len(user) <= 0.93


def test_loaded_state_continues_with_the_same_predictions() -> None:
    first, rest = draw_jobs(6, 1_500), draw_jobs(7, 300)
    run_times = learn_jobs(RunTimes(), first)
    plain, arrays = run_times.save()
    again = RunTimes.load(
        json.loads(json.dumps(plain)), {name: array.copy() for name, array in arrays.items()}
    )
    for ask, run in rest:
        one, other = run_times.predict(ask), again.predict(ask)
        assert one.quantiles.tolist() == other.quantiles.tolist()
        run_times.record_end(one, run, outlived=False)
        again.record_end(other, run, outlived=False)
    assert all(array.dtype == np.int64 for array in arrays.values())


def test_malformed_saved_table_is_refused() -> None:
    plain, arrays = learn_jobs(RunTimes(), draw_jobs(8, 20)).save()
    with pytest.raises(ValueError, match="a table of 24 templates"):
        RunTimes.load(plain | {"size": 24}, arrays)
    with pytest.raises(ValueError, match="outside of the table"):
        RunTimes.load(plain, arrays | {"at": arrays["at"] + plain["size"]})


def test_memory_is_bounded_and_the_oldest_templates_are_evicted() -> None:
    run_times = RunTimes(most=64)
    learn_jobs(run_times, [(JobFeatures(f"u{i}", 100 + i, 1), 50) for i in range(2_000)])
    assert run_times.save()[1]["at"].shape[0] <= 64
    # The template of all jobs is learned from at each end, and stays.
    assert run_times.predict(JobFeatures("nobody", 1, 1)).walltime == 1
    assert run_times.predict(JobFeatures("nobody", 86_400, 1)).p50 < 86_400


@pytest.mark.soak
def test_full_table_takes_less_than_200_mib() -> None:
    run_times = RunTimes()
    draw = random.Random(9)
    jobs = [
        (JobFeatures(f"u{draw.randrange(10_000)}", draw.randrange(1, 90_000), 1, str(i)), 50)
        for i in range(150_000)
    ]
    learn_jobs(run_times, jobs)
    entries = run_times.save()[1]["at"].shape[0]
    assert entries > 1 << 18
    assert run_times.nbytes < 200 << 20
