"""Replays of a log with urgent jobs."""

from schedd.policy.slack import Slack
from schedd.replay.driver import replay
from schedd.replay.prepared import prepare
from schedd.replay.site import single_node_site
from schedd.replay.workload import Trace, TraceJob, select

SITE = {
    "preemption": {
        "preemptors": {"queues": ["urgent"]},
        "targets": {"queues": ["batch"]},
        "min_run": 0,
        "release_time": 1,
    }
}


def test_urgent_job_of_a_replay_starts_at_once_and_the_lost_work_is_counted() -> None:
    jobs = [
        TraceJob(id=i, submit=i, run=4_000, procs=2, estimate=5_000, queue="batch", user="ann")
        for i in range(8)
    ]
    jobs.append(TraceJob(id=8, submit=1_000, run=100, procs=2, estimate=200, queue="urgent", user="bob"))
    ready = prepare(select(Trace("t", tuple(jobs)), estimates="user", procs=4), single_node_site(4))
    slack = Slack(1_000, 0)
    without = replay(ready, "conservative", site={}, slack=slack, validate=True)
    found = replay(ready, "conservative", site=SITE, slack=slack, validate=True)
    assert (without.preempted_runs, without.lost_core_s) == (0, 0)
    assert (found.preempted_runs, found.lost_core_s) == (1, 2 * (1_000 - 1))
    assert found.as_row()["lost_core_s"] == 2 * (1_000 - 1)
    assert found.promise_breaches == 0
