"""Runs that the server lists and no node has, and jobs that a restarted server brings back."""

from dataclasses import replace

import pytest

from schedd.engine import Engine
from schedd.engine.facts.texts import STARTED_BY_SOMEBODY_ELSE
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.wire import JobAltered, JobFacts, ShareFacts
from tests.engine.cluster import Cluster, T


def _lose(cluster: Cluster, job: str, *, lost: bool = True) -> None:
    cluster.server.jobs[job] = facts = replace(cluster.server.jobs[job], run_lost=lost)
    cluster.send(JobAltered(id=cluster.server.event_id(), time=cluster.server.now, job=facts))


def _open_alerts(cluster: Cluster) -> list[tuple[str, str]]:
    return [(one.kind, one.about) for one in publish_snapshot(cluster.engine.state).alerts]


@pytest.mark.parametrize("started", [-300, 4990])
def test_jobs_that_a_restarted_server_brings_back_are_no_starts_by_another_scheduler(started: int) -> None:
    cluster = Cluster(nodes=6, alone_starts=3)
    cluster.at(5000)
    for number in "123":
        facts = JobFacts(id=number, owner="ann", queue="batch", submitted=T, started=T + started, state="R")
        resources, shares = {"nodes": "1:ppn=4", "walltime": "100"}, (ShareFacts(f"n{number}", 4),)
        cluster.server.jobs[number] = replace(facts, resources=resources, shares=shares, starts=1)
        cluster.server.runtime[number] = 10_000
    cluster.send(cluster.server.snapshot(age=5))
    assert cluster.alerts("by_hand") == cluster.alerts("foreign") == []
    cluster.submit("4", "n4:ppn=4")
    assert cluster.runs("4") == [5000]


def test_starts_after_the_servers_restart_still_indicate_another_scheduler() -> None:
    cluster = Cluster(nodes=2, alone_starts=1)
    cluster.engine.pause("so that nothing is decided here")
    cluster.submit("1", "n1:ppn=4")
    cluster.at(100)
    cluster.send(cluster.server.snapshot(age=50))
    cluster.send(*cluster.server.start("1", (ShareFacts("n2", 4),)))
    assert cluster.engine.state.foreign == f"job 1 {STARTED_BY_SOMEBODY_ELSE}"


def test_a_lost_run_holds_no_cores_and_is_reported_until_a_node_has_it_again() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1", walltime=1000, runtime=10_000)
    cluster.submit("2", walltime=100)
    cluster.at(200)
    assert (cluster.start("2"), cluster.runs("2")) == (1000, [])
    _lose(cluster, "1")
    assert cluster.runs("2") == [200]
    words = "the server lists job 1 as running on n1, where it is not; it holds no cores in the plan"
    assert cluster.alerts("lost_run") == [words]
    assert cluster.view("1").state == "running"
    cluster.submit("3", walltime=100)
    _lose(cluster, "1", lost=False)
    assert _open_alerts(cluster) == []
    assert cluster.start("3") == 1000


def test_a_lost_run_far_past_its_walltime_blocks_no_node_and_its_end_counts_for_nothing() -> None:
    cluster = Cluster(nodes=1, end_allowance=0, overrun_blocked=100)
    cluster.submit("1", walltime=100, runtime=100_000)
    cluster.at(50)
    _lose(cluster, "1")
    cluster.at(5000)
    assert _open_alerts(cluster) == [("lost_run", "1")]
    cluster.submit("2")
    assert cluster.runs("2") == [5000]
    use = cluster.engine.state.walltime_use
    cluster.server.runtime["1"] = 5010
    cluster.at(5010)
    assert "1" not in cluster.engine.state.records
    assert (_open_alerts(cluster), cluster.engine.state.walltime_use) == ([], use)


def test_a_restored_engine_knows_which_runs_are_lost() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1", walltime=1000, runtime=10_000)
    _lose(cluster, "1")
    again = Engine.restore(cluster.engine.checkpoint())
    assert again.state.records["1"].facts.run_lost
    assert again.state.records == cluster.engine.state.records
