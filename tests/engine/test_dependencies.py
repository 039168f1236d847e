"""Jobs that wait for others: planned behind them, moved with them, promised when released."""

from typing import Any

import pytest

from schedd.engine import Cause, Engine
from schedd.wire import JobDeleted, ShareFacts
from tests.engine.cluster import Cluster, T


def chained(cluster: Cluster, job: str, depend: str, nodes: str = "1:ppn=4", **more: Any) -> None:
    """A job that the server holds for its dependency."""
    cluster.submit(job, nodes, depend=depend, state="H", holds="s", **more)


def lift(cluster: Cluster, job: str) -> None:
    """Release a job as the server does when its dependency is met."""
    cluster.server.jobs[job] = cluster.server.jobs[job]
    cluster.send(*cluster.server.release(job))


def test_dependent_job_is_planned_and_promised_only_after_release() -> None:
    cluster = Cluster(nodes=3)
    cluster.submit("1", walltime=100)
    chained(cluster, "2", "afterok:1@server", walltime=50)
    chained(cluster, "3", "afterany:2@server")
    assert (cluster.start("2"), cluster.start("3")) == (100, 150)
    view = cluster.view("2")
    assert (view.state, view.conditional, view.promised_start) == ("planned", ("afterok:1",), None)
    assert view.why.endswith("; if afterok:1")
    cluster.at(100)
    assert cluster.runs("2") == []
    lift(cluster, "2")
    assert (cluster.runs("2"), cluster.view("2").conditional) == ([100], ())
    assert cluster.start("3") == 150
    cluster.at(152)
    lift(cluster, "3")
    assert (cluster.runs("3"), cluster.breaches("3")) == ([152], [])


def test_a_chain_moves_with_its_head() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("0", "2:ppn=4", 100)
    cluster.submit("1", "1:ppn=4", 100)
    chained(cluster, "2", "afterok:1", "n1:ppn=1")
    chained(cluster, "3", "after:2", "n2:ppn=1")
    assert [cluster.start(job) for job in "123"] == [100, 200, 200]
    cluster.alter_request("1", walltime="300")
    assert [cluster.start(job) for job in "123"] == [100, 400, 400]
    change = cluster.view("3").last_change
    assert change is not None
    assert (change.cause, change.words) == (Cause.CHAIN, "job 1 was planned anew")
    cluster.alter_request("1", walltime="10")
    cluster.at(1)
    assert [cluster.start(job) for job in "123"] == [100, 110, 110]


def test_overrun_moves_dependent_jobs() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", walltime=100, runtime=250)
    chained(cluster, "2", "afterany:1", "n2:ppn=1")
    cluster.at(100)
    assert cluster.start("2") == 160
    cluster.at(255)
    lift(cluster, "2")
    assert cluster.runs("2") == [255]


def test_dependent_job_is_planned_when_its_dependency_gets_a_start() -> None:
    cluster = Cluster(nodes=2)
    chained(cluster, "2", "afterok:1")
    assert (
        cluster.view("2").why == "waiting for its dependency afterok:1; job 1 is over or not of this cluster"
    )
    cluster.submit("1", state="H", holds="u")
    assert cluster.view("2").why == "waiting for job 1 (afterok), which waits for a user hold"
    cluster.send(*cluster.server.release("1"))
    assert (cluster.start("1"), cluster.start("2")) == (0, 100)


def test_a_job_waits_for_all_jobs_of_an_array() -> None:
    cluster = Cluster(nodes=2)
    for i in range(4):
        cluster.submit(f"9[{i}].s", array="9[].s", walltime=100 + i)
    chained(cluster, "2", "afterokarray:9[].s@server")
    assert cluster.start("2") == max(cluster.view(f"9[{i}].s").planned_end or 0 for i in range(4)) - T


@pytest.mark.parametrize(
    ("depend", "words"),
    [
        ("afternotok:1", "waiting for its dependency afternotok:1"),
        ("on:2", "waiting for its dependency on:2"),
        ("synccount:2", "waiting for its dependency synccount, which is not supported"),
        ("syncwith:1", "waiting for its dependency syncwith, which is not supported"),
        ("afterok:7", "waiting for its dependency afterok:7; job 7 is over or not of this cluster"),
    ],
)
def test_unplannable_dependency_is_named(depend: str, words: str) -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1")
    chained(cluster, "2", depend)
    assert cluster.view("2").why == words


def test_job_does_not_wait_for_jobs_it_precedes() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1")
    cluster.submit("2", walltime=500)
    chained(cluster, "3", "afterok:1,beforeany:2,beforeok:9")
    assert [cluster.start(job) for job in "123"] == [0, 0, 100]


def test_a_circle_is_named_and_not_planned() -> None:
    cluster = Cluster(nodes=2)
    chained(cluster, "1", "afterok:3")
    chained(cluster, "2", "afterok:1")
    chained(cluster, "3", "afterok:2")
    assert cluster.view("3").why == "waiting for a circle of dependencies: 3 -> 2 -> 1 -> 3"
    chained(cluster, "4", "afterok:4")
    assert cluster.view("4").why == "waiting for a circle of dependencies: 4 -> 4"


def test_a_circle_over_an_array_is_named() -> None:
    cluster = Cluster(nodes=2)
    for i in range(2):
        chained(cluster, f"9[{i}].s", "afterok:2", array="9[].s")
    chained(cluster, "2", "afterokarray:9[].s")
    assert cluster.view("2").why == "waiting for a circle of dependencies: 2 -> 9[].s -> 2"
    cluster.alter_request("9[0].s", walltime="70")
    assert cluster.view("9[0].s").why == "waiting for a circle of dependencies: 9[0].s -> 2 -> 9[0].s"


def test_a_subjob_is_planned_anew_before_the_jobs_that_wait_for_its_array() -> None:
    cluster = Cluster()
    for i in range(2):
        cluster.submit(f"9[{i}].s", array="9[].s")
    chained(cluster, "2", "afteranyarray:9[].s")
    assert [cluster.start(job) for job in ("9[0].s", "9[1].s", "2")] == [0, 100, 200]
    cluster.alter_request("9[1].s", walltime="300")
    assert [cluster.start(job) for job in ("9[0].s", "9[1].s", "2")] == [0, 100, 400]
    change = cluster.view("2").last_change
    assert change is not None
    assert change.words == "job 9[1].s was planned anew"


def test_job_with_an_unreleased_dependency_gives_up_its_placement() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1")
    chained(cluster, "2", "afterok:1")
    cluster.submit("3")
    assert [cluster.start(job) for job in "123"] == [0, 100, 200]
    cluster.at(159)
    assert cluster.start("2") == 100
    cluster.at(170)
    assert (
        cluster.view("2").why == "waiting for its dependency afterok:1; job 1 is over or not of this cluster"
    )
    assert cluster.runs("3") == [160]


@pytest.mark.parametrize(("moved_to", "how"), [("", "was deleted"), ("workq@far", "was moved to workq@far")])
def test_job_behind_one_that_left_loses_its_start_at_once_unless_it_is_released(
    moved_to: str, how: str
) -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("0")
    cluster.submit("1")
    chained(cluster, "2", "afterany:1")
    chained(cluster, "3", "afterany:1")
    left = JobDeleted(id="left", time=T, job_id="1", moved_to=moved_to)
    cluster.send(left, *cluster.server.release("3"))
    view = cluster.view("2")
    assert (view.planned_start, cluster.start("3")) == (None, 100)
    assert view.why == "waiting for its dependency afterany:1; job 1 is over or not of this cluster"
    assert view.last_change is not None
    assert view.last_change.words == f"job 1, which it waits for, {how}"


def test_job_behind_an_array_keeps_its_start_until_the_last_subjob_left() -> None:
    cluster = Cluster(nodes=2)
    for index in (1, 2):
        cluster.submit(f"9[{index}].s", array="9[].s")
    chained(cluster, "2", "afterany:9[].s")
    cluster.send(JobDeleted(id="a", time=T, job_id="9[1].s"))
    assert cluster.start("2") == 100
    cluster.send(JobDeleted(id="b", time=T, job_id="9[2].s"))
    assert cluster.start("2") is None


def test_user_hold_precedes_the_dependency() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1")
    chained(cluster, "2", "afterok:1")
    cluster.send(*cluster.server.hold("2", "us"))
    assert cluster.start("2") is None
    cluster.send(*cluster.server.hold("2", "s"))
    assert cluster.start("2") == 100


def test_chains_survive_a_checkpoint() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1")
    chained(cluster, "2", "afterok:1")
    chained(cluster, "3", "afterok:7")
    engine = Engine.restore(cluster.engine.checkpoint())
    assert engine.checkpoint() == cluster.engine.checkpoint()
    cluster.engine = engine
    cluster.alter_request("1", walltime="200")
    assert cluster.start("2") == 200


def test_dependent_job_started_by_a_user_runs_on_regardless_of_its_prerequisite() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", "n1:ppn=4", state="H", holds="u")
    chained(cluster, "2", "afterok:1", "n2:ppn=4", walltime=500)
    assert cluster.view("2").answer == "waiting"
    cluster.send(*cluster.server.start("2", (ShareFacts("n2", 4),)))
    cluster.send(*cluster.server.release("1"))  # now it has a start
    assert cluster.view("2").state == "running"
    assert cluster.planned_node_names("2") == ["n2"]
    cluster.submit("3", "n2:ppn=4")
    assert cluster.start("3") == 500


def test_dependent_job_has_no_start_while_its_dependency_is_held() -> None:
    cluster = Cluster()
    cluster.submit("0", walltime=100)
    cluster.submit("1", walltime=100)
    chained(cluster, "2", "afterok:1", walltime=50)
    assert cluster.start("2") == 200
    cluster.send(*cluster.server.hold("1"))
    assert cluster.start("2") is None
    assert cluster.view("2").why == "waiting for job 1 (afterok), which waits for a user hold"
    cluster.send(*cluster.server.release("1"))
    assert cluster.start("2") == 200


def test_a_dependent_job_is_planned_behind_a_run_that_was_suspended() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", walltime=1_000)
    chained(cluster, "2", "afterok:1@server")
    cluster.at(10)
    cluster.alter("1", state="S")
    cluster.at(410)
    cluster.alter("1", state="R")
    assert cluster.start("2") == 1_400
