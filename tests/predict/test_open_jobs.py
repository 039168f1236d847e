"""Renewed predictions of waiting and running jobs, from ended and still running jobs."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.predict import LEVELS, JobFeatures, Learner, RunTimes, sample_run_times
from tests.predict.run_time_reference import RunTimeReference
from tests.property_examples import examples

HOUR = 3600
ASKS = st.builds(
    JobFeatures,
    user=st.sampled_from(["ann", "bob"]),
    walltime=st.sampled_from([600, HOUR]),
    procs=st.sampled_from([1, 4]),
    name=st.sampled_from(["", "relax"]),
)


@settings(deadline=None, max_examples=examples(80))
@given(
    st.lists(st.tuples(ASKS, st.integers(1, HOUR)), max_size=70),
    st.lists(st.tuples(ASKS, st.integers(0, HOUR)), max_size=45),
    st.lists(ASKS, max_size=4),
)
def test_open_job_predictions_match_the_reference(
    ended: list[tuple[JobFeatures, int]], running: list[tuple[JobFeatures, int]], waiting: list[JobFeatures]
) -> None:
    run_times, oracle = RunTimes(), RunTimeReference()
    for ask, run in ended:
        told = run_times.predict(ask)
        run_times.record_end(told, run, outlived=False)
        oracle.record_outcome(ask, told.quantiles.tolist(), told.uncalibrated.tolist(), run)
    jobs = [ask for ask, _ in running] + waiting
    keys = np.array([run_times.predict(ask).template_keys for ask in jobs], np.int64).reshape(-1, 6)
    ran = np.array([math.log(max(ran, 1) / ask.walltime) for ask, ran in running])
    walltimes = np.array([ask.walltime for ask in jobs], np.int64)
    known = run_times.snapshot(keys)
    for other in jobs:  # the snapshot does not include later ends
        run_times.record_end(run_times.predict(other), 1, outlived=False)
    found = known.predict(np.arange(len(jobs)), walltimes, np.arange(len(running)), ran)
    for i, ask in enumerate(jobs):
        others = [one for j, one in enumerate(running) if j != i]
        own = running[i][1] if i < len(running) else None
        np.testing.assert_allclose(found[i], oracle.predict_open(ask, others, own), rtol=1e-5, atol=1)


def submit_bag(runs: list[int]) -> tuple[Learner, JobFeatures]:
    """Submit 30 jobs of a new user and start 20; end the first ones after ``runs`` seconds each."""
    learner, ask = Learner(), JobFeatures("ann", 10 * HOUR, 1)
    for i in range(30):
        learner.predict_job(str(i), ask, 0)
    for i in range(20):
        learner.record_start(str(i), 0)
    for i, run in enumerate(runs):
        learner.record_end(str(i), run)
    return learner, ask


def test_first_ended_jobs_in_a_bag_predict_the_rest() -> None:
    learner, ask = submit_bag([600] * 20)
    assert learner.prediction("29").p50 == ask.walltime, "nothing was known at the submission"
    assert learner.renew_predictions(700)["29"].p50 == 600
    assert learner.prediction("29").p50 == ask.walltime, "the learner keeps the prediction of the submission"


def test_many_running_jobs_outweigh_a_few_early_ends() -> None:
    few, ask = submit_bag([60, 60])
    all_of_them, _ = submit_bag([60] * 20)
    assert few.renew_predictions(5 * HOUR)["29"].p90 == ask.walltime
    assert all_of_them.renew_predictions(5 * HOUR)["29"].p90 == 60


def test_no_open_jobs_means_no_predictions() -> None:
    assert Learner().renew_predictions(0) == {}


def test_running_job_is_predicted_from_jobs_that_ran_longer() -> None:
    learner, ask = Learner(), JobFeatures("ann", 10 * HOUR, 1)
    for run in [60] * 25 + [4 * HOUR] * 6:  # four of five fail at once
        learner.predict_job("past", ask, 0)
        learner.record_start("past", 0)
        learner.record_end("past", 0, run)
    learner.predict_job("runs", ask, 0)
    learner.predict_job("waits", ask, 0)
    learner.record_start("runs", 0)
    now = learner.renew_predictions(HOUR)
    assert now["runs"].elapsed == HOUR
    assert now["runs"].quantiles[LEVELS <= 0.4].tolist() == [4 * HOUR] * 6, "none of them has failed by now"
    assert now["waits"].quantiles[0] == 60
    assert now["waits"].elapsed == 0
    assert learner.prediction("runs").elapsed == 0, "the learner keeps the prediction of the submission"


def test_renewed_prediction_is_truncated_only_by_later_elapsed_time() -> None:
    learner, _ = submit_bag([HOUR + 600 * i for i in range(16)])
    told = learner.renew_predictions(90 * 60)["16"]  # it began at 0
    half, nearly = sample_run_times([told], np.array([90 * 60]), np.array([[0.5, 0.9]]))[0].tolist()
    assert half == told.p50
    assert nearly == told.p90
    later = sample_run_times([told], np.array([3 * HOUR]), np.array([[0.5]]))[0, 0]
    assert later > 3 * HOUR, "the sample lies after the elapsed time"
