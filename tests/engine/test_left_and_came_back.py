"""Jobs that leave the scheduler after their run decision and come back before its outcome."""

from dataclasses import replace

from schedd.wire import JobDeleted, JobQueued, JobStarted, Run, ShareFacts
from tests.engine.cluster import Cluster, T


def test_a_run_that_was_decided_before_the_job_left_is_no_start_by_somebody_else() -> None:
    cluster = Cluster(nodes=4)
    cluster.obeys = False
    jobs = "123"
    for job in jobs:
        cluster.submit(job, "1:ppn=4")
    runs = [one for one in cluster.decisions if isinstance(one, Run)]
    assert [run.job_id for run in runs] == list(jobs)
    new, now = cluster.server.event_id, cluster.server.now
    facts = {job: cluster.server.jobs[job] for job in jobs}
    cluster.send(*[JobDeleted(id=new(), time=now, job_id=job) for job in jobs])
    later = {job: replace(one, not_before=now + 1000) for job, one in facts.items()}
    cluster.send(*[JobQueued(id=new(), time=now, job=one) for one in later.values()])
    cluster.send(
        *[
            JobStarted(id=new(), time=now, job_id=run.job_id, shares=(ShareFacts(run.shares[0].node, 4),))
            for run in runs
        ]
    )
    assert cluster.alerts("by_hand") == []
    assert cluster.engine.state.foreign == ""


def test_a_start_told_long_after_its_decision_was_void_and_its_job_left_is_no_start_by_somebody_else() -> (
    None
):
    """The planner is far behind: other jobs are dispatched before it learns of the start."""
    cluster = Cluster(nodes=2, decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    cluster.submit("1", "n1:ppn=4", 1000)
    (run,) = [one for one in cluster.decisions if isinstance(one, Run)]
    cluster.engine.pause("test")
    cluster.at(600)  # its decision is void by now
    new, facts = cluster.server.event_id, cluster.server.jobs["1"]
    cluster.send(JobDeleted(id=new(), time=cluster.server.now, job_id="1"))
    cluster.send(JobQueued(id=new(), time=cluster.server.now, job=replace(facts, not_before=T + 5000)))
    cluster.engine.resume()
    cluster.submit("2", "n2:ppn=4", 1000)
    assert cluster.runs("2") == [600]
    cluster.at(700)
    share = ShareFacts(run.shares[0].node, 4)
    cluster.send(JobStarted(id=new(), time=T + 50, job_id="1", shares=(share,)))
    assert cluster.alerts("by_hand") == []
    assert cluster.view("1").started == T + 50
