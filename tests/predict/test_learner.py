"""Learning from the events of jobs."""

from schedd.predict import Ask, Learner

HOUR = 3600


def run_one(learner: Learner, job: str, ask: Ask, submit: int, run: int) -> None:
    learner.queued(job, ask, submit)
    learner.started(job, submit)
    learner.ended(job, submit + run)


def habit(learner: Learner, jobs: int = 30) -> int:
    """A user whose jobs ask for an hour and take a minute; returns the time after them."""
    for i in range(jobs):
        run_one(learner, str(i), Ask("ann", HOUR, 1), i * HOUR, 60)
    return jobs * HOUR


def test_an_end_is_learned_from() -> None:
    learner = Learner()
    now = habit(learner)
    assert learner.queued("x", Ask("ann", HOUR, 1), now).p50 <= 70
    assert learner.run_times.ends == 30


def test_who_runs_longer_than_its_p90_is_a_miss_at_that_moment_and_only_once() -> None:
    told = Learner(), Learner()
    now = habit(told[0])
    habit(told[1])
    ask = Ask("ann", HOUR, 1)
    for learner in told:
        learner.queued("long", ask, now)
        learner.started("long", now)
    shifts = []
    for moment in (now + 1, now + HOUR // 2):
        told[0].advance(moment)
        shifts.append(told[0].run_times.save()[0]["shift"])
    assert shifts[1] > shifts[0]
    told[0].ended("long", now + HOUR - 1)
    told[1].ended("long", now + HOUR - 1)
    after = [learner.queued("c", ask, now + HOUR).told.tolist() for learner in told]
    assert after[0] == after[1]


def test_who_is_killed_at_the_walltime_did_not_run_longer_than_that() -> None:
    learner = Learner()
    for i in range(100):
        run_one(learner, str(i), Ask("ann", HOUR, 1), i * 2 * HOUR, HOUR + 20)
    assert learner.queued("x", Ask("ann", HOUR, 1), 200 * HOUR).p90 == HOUR


def test_from_a_job_that_is_deleted_or_runs_again_nothing_is_learned() -> None:
    learner = Learner()
    ask = Ask("ann", HOUR, 1)
    learner.queued("deleted", ask, 0)
    learner.started("deleted", 0)
    learner.forget("deleted", 10)
    learner.queued("back", ask, 20)
    learner.started("back", 20)
    learner.back("back", 30)
    learner.ended("back", 40)
    learner.ended("unknown", 50)
    assert learner.run_times.ends == 0
    assert "back" not in learner


def test_a_run_begun_anew_counts_from_its_own_start() -> None:
    learner = Learner()
    now = habit(learner)
    learner.queued("x", Ask("ann", HOUR, 1), now)
    learner.started("x", now)
    learner.back("x", now + 30)
    learner.started("x", now + 1000)
    shift = learner.run_times.save()[0]["shift"]
    learner.advance(now + 1030)
    assert learner.run_times.save()[0]["shift"] == shift
