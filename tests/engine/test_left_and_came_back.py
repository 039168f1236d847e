"""Jobs that leave the scheduler after their run decision and come back before its outcome."""

from dataclasses import replace

from schedd.wire import JobDeleted, JobQueued, JobStarted, Run, ShareFacts
from tests.engine.cluster import Cluster


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
