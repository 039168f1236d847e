"""Run times on nodes of different speed: learned as work, predicted in seconds on the job's nodes."""

from random import Random

import pytest

from schedd.predict import JobFeatures, Learner, RunTimes

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0)
WALLTIME = 20_000


def learn_work(learner: Learner, random: Random, speeds: tuple[float, ...], jobs: int = 400) -> int:
    """Run jobs of 1,000 to 1,500 s of work, each at one of the speeds; return the time after them."""
    now = 0
    features = JobFeatures("ann", WALLTIME, 1, fastest=max(SPEEDS))
    for i in range(jobs):
        speed = random.choice(speeds)
        learner.predict_job(str(i), features, now)
        learner.record_start(str(i), now, speed=speed)
        now += round(random.uniform(1_000, 1_500) / speed)
        learner.record_end(str(i), now)
    return now


@pytest.mark.parametrize("learned", [(0.25,), (4.0,), SPEEDS])
@pytest.mark.parametrize("speed", SPEEDS)
def test_run_time_is_the_work_over_the_speed_whatever_speeds_it_was_learned_on(
    learned: tuple[float, ...], speed: float
) -> None:
    learner = Learner()
    now = learn_work(learner, Random(f"{learned}"), learned)
    features = JobFeatures("ann", WALLTIME, 1, fastest=max(SPEEDS))
    found = learner.predict_job("next", features, now).at_speed(speed)
    assert 1_150 <= found.p50 * speed <= 1_350
    assert 1_350 <= found.p90 * speed <= 1_600
    renewed = learner.renew_predictions(now, lambda _: speed)["next"]
    assert abs(renewed.p50 - found.p50) * speed <= 50


@pytest.mark.parametrize("speed", SPEEDS)
def test_a_running_job_keeps_the_speed_of_its_start(speed: float) -> None:
    learner = Learner()
    now = learn_work(learner, Random(1), SPEEDS)
    learner.predict_job("next", JobFeatures("ann", WALLTIME, 1, fastest=max(SPEEDS)), now)
    learner.record_start("next", now, speed=speed)
    later = now + round(1_250 / speed)
    restored = Learner.load(*learner.save())
    for one in (learner, restored, learner.copy()):
        found = one.renew_predictions(later, lambda _: 1.0)["next"]
        assert found.elapsed == later - now
        assert 1_250 <= found.p50 * speed <= 1_550, "it has done the work of at least 1,250 s"


@pytest.mark.parametrize("speed", SPEEDS)
def test_a_job_that_ends_after_its_p90_is_one_miss_at_any_speed(speed: float) -> None:
    learner = Learner()
    now = learn_work(learner, Random(2), SPEEDS)
    prediction = learner.predict_job("next", JobFeatures("ann", WALLTIME, 1, fastest=max(SPEEDS)), now)
    learner.record_start("next", now, speed=speed)
    p90 = prediction.at_speed(speed).p90
    before = learner.run_times.save()[0]["shift"]
    learner.advance_clock(now + p90)
    assert learner.run_times.save()[0]["shift"] == before
    learner.advance_clock(now + p90 + 1)
    missed = learner.run_times.save()[0]["shift"]
    assert missed > before
    learner.record_end("next", now + p90 + 2)
    assert learner.run_times.save()[0]["shift"] == missed


@pytest.mark.parametrize("speed", SPEEDS)
def test_no_run_time_exceeds_the_walltime(speed: float) -> None:
    random = Random(3)
    for _ in range(200):
        walltime = random.randint(1, 100_000)
        features = JobFeatures("ann", walltime, 1, fastest=max(SPEEDS))
        found = RunTimes().predict(features).at_speed(speed)
        assert found.quantiles.min() >= 1
        assert found.quantiles.max() <= walltime
        assert (found.quantiles[1:] >= found.quantiles[:-1]).all()
    unknown = RunTimes().predict(JobFeatures("ann", WALLTIME, 1, fastest=max(SPEEDS)))
    assert unknown.at_speed(speed).p90 == WALLTIME, "without knowledge, the walltime"


def test_predictions_without_speeds_are_the_same_objects() -> None:
    prediction = RunTimes().predict(JobFeatures("ann", 100, 1))
    assert prediction.at_speed(1.0) is prediction
