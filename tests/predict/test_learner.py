"""Learning from the events of jobs."""

from schedd.predict import JobFeatures, Learner

HOUR = 3600


def run_one(learner: Learner, job: str, ask: JobFeatures, submit: int, run: int) -> None:
    learner.predict_job(job, ask, submit)
    learner.record_start(job, submit)
    learner.record_end(job, submit + run)


def habit(learner: Learner, jobs: int = 30) -> int:
    """A user whose jobs ask for an hour and take a minute; returns the time after them."""
    for i in range(jobs):
        run_one(learner, str(i), JobFeatures("ann", HOUR, 1), i * HOUR, 60)
    return jobs * HOUR


def test_an_end_is_learned_from() -> None:
    learner = Learner()
    now = habit(learner)
    assert learner.predict_job("x", JobFeatures("ann", HOUR, 1), now).p50 <= 70
    assert learner.run_times.ends == 30


def test_who_runs_longer_than_its_p90_is_a_miss_at_that_moment_and_only_once() -> None:
    told = Learner(), Learner()
    now = habit(told[0])
    habit(told[1])
    ask = JobFeatures("ann", HOUR, 1)
    for learner in told:
        learner.predict_job("long", ask, now)
        learner.record_start("long", now)
    shifts = []
    for moment in (now + 1, now + HOUR // 2):
        told[0].advance_clock(moment)
        shifts.append(told[0].run_times.save()[0]["shift"])
    assert shifts[1] > shifts[0]
    told[0].record_end("long", now + HOUR - 1)
    told[1].record_end("long", now + HOUR - 1)
    after = [learner.predict_job("c", ask, now + HOUR).quantiles.tolist() for learner in told]
    assert after[0] == after[1]


def test_who_is_killed_at_the_walltime_did_not_run_longer_than_that() -> None:
    learner = Learner()
    for i in range(100):
        run_one(learner, str(i), JobFeatures("ann", HOUR, 1), i * 2 * HOUR, HOUR + 20)
    assert learner.predict_job("x", JobFeatures("ann", HOUR, 1), 200 * HOUR).p90 == HOUR


def test_from_a_job_that_is_deleted_or_runs_again_nothing_is_learned() -> None:
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


def test_a_run_begun_anew_counts_from_its_own_start() -> None:
    learner = Learner()
    now = habit(learner)
    learner.predict_job("x", JobFeatures("ann", HOUR, 1), now)
    learner.record_start("x", now)
    learner.record_requeue("x", now + 30)
    learner.record_start("x", now + 1000)
    shift = learner.run_times.save()[0]["shift"]
    learner.advance_clock(now + 1030)
    assert learner.run_times.save()[0]["shift"] == shift
