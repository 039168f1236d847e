"""Learning run times from job events."""

from schedd.predict import JobFeatures, Learner

HOUR = 3600


def run_job(learner: Learner, job: str, ask: JobFeatures, submit: int, run: int) -> None:
    learner.predict_job(job, ask, submit)
    learner.record_start(job, submit)
    learner.record_end(job, submit + run)


def learn_one_minute_jobs(learner: Learner, jobs: int = 30) -> int:
    """Run jobs that request an hour and take a minute; return the time after them."""
    for i in range(jobs):
        run_job(learner, str(i), JobFeatures("ann", HOUR, 1), i * HOUR, 60)
    return jobs * HOUR


def test_learner_predicts_from_ended_jobs() -> None:
    learner = Learner()
    now = learn_one_minute_jobs(learner)
    assert learner.predict_job("x", JobFeatures("ann", HOUR, 1), now).p50 <= 70
    assert learner.run_times.ends == 30


def test_job_that_outlives_its_p90_is_a_single_miss_at_that_moment() -> None:
    learners = Learner(), Learner()
    now = learn_one_minute_jobs(learners[0])
    learn_one_minute_jobs(learners[1])
    ask = JobFeatures("ann", HOUR, 1)
    for learner in learners:
        learner.predict_job("long", ask, now)
        learner.record_start("long", now)
    shifts = []
    for moment in (now + 1, now + HOUR // 2):
        learners[0].advance_clock(moment)
        shifts.append(learners[0].run_times.save()[0]["shift"])
    assert shifts[1] > shifts[0]
    learners[0].record_end("long", now + HOUR - 1)
    learners[1].record_end("long", now + HOUR - 1)
    after = [learner.predict_job("c", ask, now + HOUR).quantiles.tolist() for learner in learners]
    assert after[0] == after[1]


def test_job_killed_at_its_walltime_counts_with_its_walltime() -> None:
    learner = Learner()
    for i in range(100):
        run_job(learner, str(i), JobFeatures("ann", HOUR, 1), i * 2 * HOUR, HOUR + 20)
    assert learner.predict_job("x", JobFeatures("ann", HOUR, 1), 200 * HOUR).p90 == HOUR


def test_deleted_or_requeued_job_is_not_learned_from() -> None:
    learner = Learner()
    ask = JobFeatures("ann", HOUR, 1)
    learner.predict_job("deleted", ask, 0)
    learner.record_start("deleted", 0)
    learner.forget("deleted", 10)
    learner.predict_job("back", ask, 20)
    learner.record_start("back", 20)
    learner.record_requeue("back", 30)
    learner.record_end("back", 40)
    learner.record_end("unknown", 50)
    assert learner.run_times.ends == 0
    assert "back" not in learner


def test_run_after_a_requeue_counts_from_its_own_start() -> None:
    learner = Learner()
    now = learn_one_minute_jobs(learner)
    learner.predict_job("x", JobFeatures("ann", HOUR, 1), now)
    learner.record_start("x", now)
    learner.record_requeue("x", now + 30)
    learner.record_start("x", now + 1000)
    shift = learner.run_times.save()[0]["shift"]
    learner.advance_clock(now + 1030)
    assert learner.run_times.save()[0]["shift"] == shift
