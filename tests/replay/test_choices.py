"""What replays follow of reservations, ranges of walltimes, alternatives and suspensions."""

import random

import pytest

from schedd.policy.site import site_policy
from schedd.policy.slack import Slack
from schedd.replay.accounting import parse_ended
from schedd.replay.driver import replay, run
from schedd.replay.limits import jobs_within_limits
from schedd.replay.prepared import prepare
from schedd.replay.reservations import follow_reservations
from schedd.replay.site import equal_node_site, single_node_site
from schedd.replay.workload import Estimates, Trace, TraceError, TraceJob, select

HOUR = 3600


def ended(fields: str) -> TraceJob:
    line = f"04/14/2024 12:00:03;E;1.s;user=a queue=b etime=100 start=100 {fields}"
    job = parse_ended(line)
    assert job is not None
    return job


def test_the_range_of_a_shrinkable_job_is_read() -> None:
    job = ended(
        "end=4000 Resource_List.walltime=01:30:00 Resource_List.min_walltime=00:30:00 "
        "Resource_List.max_walltime=10:00:00 Resource_List.ncpus=2"
    )
    assert (job.min_walltime, job.estimate, job.run, job.ignored) == (1_800, 36_000, 3_900, ())
    cut = ended(
        "end=5500 Resource_List.walltime=01:30:00 Resource_List.min_walltime=00:30:00 "
        "Resource_List.max_walltime=10:00:00"
    )
    assert cut.run == 36_000, "it used up its walltime, so it would have used all that it got"
    torque = ended("end=700 Resource_List.walltime=02:00:00 x=MINWCLIMIT:600")
    assert (torque.min_walltime, torque.estimate, torque.run) == (600, 7_200, 600)


def test_alternatives_of_tasks_are_read_if_the_run_had_one_of_them() -> None:
    job = ended("end=3700 exec_host=n1/0-1 x=TRL:2@7200:4@3600")
    assert (job.procs, job.alternatives, job.ignored) == (2, ((2, 7_200), (4, 3_600)), ())
    other = ended("end=3700 exec_host=n1/0-2 Resource_List.trl=2@7200:4@3600")
    assert (other.procs, other.alternatives, other.ignored) == (3, (), ("trl",))


@pytest.mark.parametrize(("estimates", "end"), [("user", 2_000), ("exact", 2_000)])
def test_a_range_of_walltimes_fills_a_gap_in_a_replay(estimates: Estimates, end: int) -> None:
    """Two of four cores are free until a job of all four starts at 2000."""
    jobs = [
        TraceJob(id=0, submit=0, run=2_000, procs=2, estimate=2_000),
        TraceJob(id=1, submit=1, run=1_000, procs=4, estimate=1_000),
        TraceJob(id=2, submit=2, run=5_000, procs=2, estimate=8_000, min_walltime=600),
    ]
    for site in (single_node_site(4), equal_node_site(2, 2)):
        ready = prepare(select(Trace("t", tuple(jobs)), estimates=estimates, procs=4), site)
        found = run(ready, "conservative", validate=True)
        assert found.start.tolist() == [0, 2_000, 2]
        assert found.end.tolist() == [2_000, 3_000, end]
        assert found.jobs(ready.jobs)[2].estimate == end - 2
        assert replay(ready, "conservative").metrics.makespan_s == 3_000
        queued = run(ready, "fcfs", validate=True)  # no plan, so the longest walltime
        assert queued.end[2] - queued.start[2] == 5_000


def test_the_alternative_that_ends_first_runs_in_a_replay() -> None:
    jobs = [
        TraceJob(id=0, submit=0, run=10_000, procs=2, estimate=10_000),
        TraceJob(id=1, submit=1, run=3_000, procs=4, estimate=3_600, alternatives=((4, 3_600), (2, 7_200))),
    ]
    ready = prepare(select(Trace("t", tuple(jobs)), estimates="user", procs=4), equal_node_site(2, 2))
    found = run(ready, "conservative", validate=True)
    assert (int(found.start[1]), int(found.end[1])) == (1, 6_001)
    assert found.jobs(ready.jobs)[1].procs == 2
    assert replay(ready, "conservative").metrics.utilisation == pytest.approx((20_000 + 12_000) / 40_000)


SUSPEND = {
    "preemption": {
        "preemptors": {"queues": ["urgent"]},
        "targets": {"queues": ["batch"]},
        "methods": ["suspend"],
        "min_run": 0,
        "release_time": 1,
    }
}


def test_suspended_jobs_go_on_in_a_replay_and_lose_no_work() -> None:
    jobs = [
        TraceJob(id=0, submit=0, run=4_000, procs=4, estimate=5_000, queue="batch", user="ann"),
        TraceJob(id=1, submit=1_000, run=100, procs=2, estimate=200, queue="urgent", user="bob"),
    ]
    ready = prepare(select(Trace("t", tuple(jobs)), estimates="user", procs=4), single_node_site(4))
    slack = Slack(10_000, 0)
    found = run(ready, "conservative", site=SUSPEND, slack=slack, validate=True)
    assert found.start.tolist() == [0, 1_000]
    assert found.end.tolist() == [4_100, 1_100]
    assert found.pauses == ((0, 1_000, 1_100),)
    result = replay(ready, "conservative", site=SUSPEND, slack=slack)
    assert (result.preempted_runs, result.lost_core_s) == (1, 0)
    assert result.metrics.utilisation == pytest.approx((4 * 4_000 + 2 * 100) / (4 * 4_100))
    assert result.series is not None
    assert result.series.utilisation.max() <= 1.0 + 1e-9


COURSE = {
    "reservations": {
        "course": {
            "first": "1970-01-01T02:00:00",
            "last": "1970-01-01T04:00:00",
            "rule": "FREQ=DAILY",
            "nodes": ["n1"],
            "users": ["ann"],
        }
    }
}


def test_jobs_run_in_the_reservation_that_they_name_if_the_policy_has_it() -> None:
    jobs = [
        TraceJob(id=i, submit=1, run=100, procs=1, estimate=200, user=user, reservation=name)
        for i, (user, name) in enumerate(
            [("ann", "course"), ("bob", "course"), ("ann", "other"), ("ann", "")]
        )
    ]
    jobs.append(
        TraceJob(id=4, submit=1, run=3 * HOUR, procs=1, estimate=3 * HOUR, user="ann", reservation="course")
    )
    ready = prepare(select(Trace("t", tuple(jobs)), estimates="user", procs=4), equal_node_site(2, 2))
    kept, dropped = follow_reservations(ready, site_policy(COURSE))
    assert [job.reservation for job in kept.jobs] == ["course", "", "", "", ""]
    assert dropped == 3
    found = run(kept, "conservative", site=COURSE, validate=True)
    assert found.start.tolist()[:4] == [2 * HOUR, 1, 1, 1]
    assert found.where[0] == ("n1",)
    assert run(ready, "conservative", validate=True).start.tolist()[0] == 1, "no policy, no reservation"
    once = {"reservations": {"course": {**COURSE["reservations"]["course"], "rule": ""}}}
    assert follow_reservations(ready, site_policy(once))[1] == 4


def test_resources_of_the_site_count_in_a_formula() -> None:
    jobs = [
        ended(f"end=1100 Resource_List.ncpus=2 Resource_List.walltime=1000 Resource_List.{own}")
        for own in ("score=1", "Score=7", "score=3", "arch=linux")
    ]
    assert [job.own_resources for job in jobs] == [
        (("score", "1"),),
        (("score", "7"),),
        (("score", "3"),),
        (),
    ]
    first = TraceJob(id=9, submit=0, run=500, procs=2, estimate=500)
    ready = prepare(select(Trace("t", (first, *jobs)), estimates="user", procs=2), single_node_site(2))
    policy = {"formula": {"expression": "score"}}
    kept, left_out = jobs_within_limits(ready, site_policy(policy))
    assert left_out == 0
    found = run(kept, "conservative", site=policy, slack=Slack(100_000, 0), validate=True)
    assert found.start.tolist()[1:] == [2_500, 500, 1_500, 3_500]


def test_limits_on_nodes_gpus_and_memory_hold_in_a_replay_with_node_shapes() -> None:
    jobs = [
        TraceJob(id=i, submit=i, run=100, procs=2, estimate=200, user="ann", nodes_spec="2:ppn=1")
        for i in range(3)
    ]
    chosen = select(Trace("t", tuple(jobs)), estimates="user", procs=8)
    ready = prepare(chosen, equal_node_site(8, 1))
    site = site_policy({"limits": [{"amount": 4, "what": "nodes", "who": "user"}]})
    kept, left_out = jobs_within_limits(ready, site)
    assert left_out == 0
    found = replay(kept, "conservative", site=site.plain, validate=True)
    (peak,) = found.limits
    assert (peak.used, peak.by) == (4, "ann")
    with pytest.raises(TraceError, match="none of its jobs"):
        jobs_within_limits(
            ready, site_policy({"limits": [{"amount": 300, "what": "node_seconds", "who": "user"}]})
        )
    plain = prepare(chosen, single_node_site(8))
    with pytest.raises(TraceError, match="logs lack the data"):
        jobs_within_limits(plain, site)


def test_many_suspensions_lose_no_work_and_no_job_ends_twice() -> None:
    draw = random.Random(3)
    jobs, now = [], 0
    for i in range(400):
        now += draw.randint(0, 400)
        urgent = draw.random() < 0.15
        jobs.append(
            TraceJob(
                id=i,
                submit=now,
                run=draw.randint(50, 3_000),
                procs=draw.randint(1, 4),
                estimate=4_000,
                queue="urgent" if urgent else "batch",
                user=draw.choice("abc"),
                mem_kib_per_proc=draw.choice([None, 1 << 18, 1 << 20]),
            )
        )
    chosen = select(Trace("t", tuple(jobs)), estimates="user", procs=16)
    ready = prepare(chosen, equal_node_site(4, 4, 4 << 20))
    found = run(ready, "conservative", site=SUSPEND, slack=Slack(100_000, 0))
    assert found.preempted_runs > 20
    assert found.lost_core_s == 0
    ran = found.end - found.start - found.paused_seconds()
    assert ran.tolist() == [job.run for job in ready.jobs]
