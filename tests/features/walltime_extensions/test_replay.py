"""Extensions of walltimes in a replay."""

import pytest

from schedd.policy.slack import Slack
from schedd.replay.driver import replay
from schedd.replay.prepared import prepare
from schedd.replay.site import single_node_site
from schedd.replay.workload import Trace, TraceJob, select

SITE = {
    "walltime_extensions": {"jobs": {"users": ["ann"]}, "step": 400, "before": 60, "delay": 600, "times": 2}
}


@pytest.mark.parametrize(("kill", "ends"), [(False, (1_500, 1_500)), (True, (1_000, 1_500))])
def test_a_replay_extends_runs_without_a_broken_promise(kill: bool, ends: tuple[int, int]) -> None:
    jobs = [TraceJob(id=0, submit=0, run=1_500, procs=2, estimate=1_000, queue="batch", user="ann")]
    jobs += [
        TraceJob(id=i, submit=i, run=500, procs=4, estimate=600, queue="batch", user="bob") for i in (1, 2)
    ]
    chosen = select(Trace("t", tuple(jobs)), estimates="user", procs=4, kill=kill)
    ready = prepare(chosen, single_node_site(4))
    found = [
        replay(ready, "conservative", site=site, slack=Slack(1_000, 0), validate=True) for site in ({}, SITE)
    ]
    assert [one.promise_breaches for one in found] == [0, 0]
    # the two jobs of bob follow
    spans = [one.metrics.makespan_s for one in found]
    assert spans == [end + 1_000 for end in ends]
