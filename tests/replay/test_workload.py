"""Selection follows the conventions that make results comparable with published ones."""

import pytest

from schedd.replay.workload import LogFault, Trace, TraceError, TraceJob, select


def job(number: int, submit: int = 0, run: int = 100, procs: int = 1, estimate: int = 0) -> TraceJob:
    return TraceJob(id=number, submit=submit, run=run, procs=procs, estimate=estimate)


def trace(*jobs: TraceJob, max_procs: int | None = 8) -> Trace:
    return Trace(name="log", jobs=jobs, max_procs=max_procs)


def ids(chosen: tuple[TraceJob, ...]) -> list[int | str]:
    return [j.id for j in chosen]


def test_jobs_without_run_time_or_processors_are_left_out_and_counted() -> None:
    chosen = select(trace(job(1), job(2, run=0), job(3, run=-1), job(4, procs=0)))
    assert ids(chosen.jobs) == [1]
    assert chosen.never_ran == 3
    assert chosen.skipped == 0


def test_jobs_are_ordered_by_submission_with_stable_ties() -> None:
    chosen = select(trace(job(1, submit=50), job(2, submit=-7), job(3, submit=50), job(4, submit=0)))
    assert ids(chosen.jobs) == [2, 4, 1, 3]


def test_skip_and_jobs_count_only_jobs_that_ran() -> None:
    log = trace(job(1), job(2, run=0), job(3), job(4, procs=0), job(5), job(6))
    assert ids(select(log, skip=1, jobs=2).jobs) == [3, 5]


def test_jobs_wider_than_the_machine_are_skipped_after_selection() -> None:
    log = trace(job(1, procs=9), job(2, procs=8), job(3))
    chosen = select(log, jobs=2)
    assert ids(chosen.jobs) == [2]
    assert chosen.skipped == 1


def test_given_machine_size_overrides_the_header() -> None:
    log = trace(job(1, procs=9), job(2, procs=4))
    assert select(log, procs=9).skipped == 0
    assert select(log, procs=9).procs == 9
    assert select(log, procs=4).skipped == 1


def test_an_exact_estimate_is_the_run_time() -> None:
    assert select(trace(job(1, run=100, estimate=500))).jobs[0].estimate == 100


@pytest.mark.parametrize(("stated", "told"), [(500, 500), (30, 100), (0, 100)])
def test_a_users_estimate_is_never_below_the_run_time(stated: int, told: int) -> None:
    chosen = select(trace(job(1, run=100, estimate=stated)), estimates="user")
    assert (chosen.jobs[0].run, chosen.jobs[0].estimate) == (100, told)
    assert chosen.without_estimate == (stated == 0)


@pytest.mark.parametrize("estimates", ["user", "exact"])
@pytest.mark.parametrize(("stated", "runs"), [(500, 100), (30, 30), (0, 100)])
def test_with_kill_the_stated_limit_ends_the_job(stated: int, runs: int, estimates: str) -> None:
    log = trace(job(1, run=100, estimate=stated))
    chosen = select(log, estimates="exact" if estimates == "exact" else "user", kill=True).jobs[0]
    assert chosen.run == runs
    assert chosen.estimate == (stated or 100 if estimates == "user" else runs)


def test_unknown_machine_size_is_requested() -> None:
    with pytest.raises(TraceError, match="--procs"):
        select(trace(job(1), max_procs=None))


def test_empty_selection_is_explained() -> None:
    with pytest.raises(
        TraceError,
        match=r"of 2 jobs in the log 1 ran; 1 of these were selected, and 1 of these are wider than 8",
    ):
        select(trace(job(1, procs=9), job(2, run=0)))


@pytest.mark.parametrize("wrong", [{"skip": -1}, {"jobs": 0}, {"procs": 0}])
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(TraceError):
        select(trace(job(1)), **wrong)  # type: ignore[arg-type]


def test_a_fault_reads_as_a_place_and_a_reason() -> None:
    assert str(LogFault(3, "too short")) == "line 3: too short"
    assert str(LogFault(3, "too short", "20240414")) == "20240414, line 3: too short"
