"""Planning holds of nodes and queues."""

from typing import Literal

from schedd.engine import Cause, Engine
from schedd.engine.preview import preview_moves
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.wire import JobReleased, PlanningHeld, PlanningReleased
from tests.engine.cluster import Cluster, T


def hold(cluster: Cluster, kind: Literal["node", "queue"], name: str, reason: str = "repair") -> PlanningHeld:
    server = cluster.server
    return PlanningHeld(id=server.event_id(), time=server.now, kind=kind, name=name, reason=reason, by="root")


def release(cluster: Cluster, kind: Literal["node", "queue"], name: str) -> PlanningReleased:
    return PlanningReleased(id=cluster.server.event_id(), time=cluster.server.now, kind=kind, name=name)


def test_on_a_held_node_running_jobs_go_on_and_nothing_new_is_planned_until_it_is_released() -> None:
    cluster = Cluster(nodes=2)
    for job in "1234":
        cluster.submit(job)
    assert [cluster.planned_node_names(job) for job in "1234"] == [["n1"], ["n2"], ["n1"], ["n2"]]
    cluster.send(hold(cluster, "node", "n1"))
    assert [cluster.view(job).state for job in "12"] == ["running", "running"]
    assert [cluster.start(job) for job in "34"] == [200, 100]
    assert cluster.planned_node_names("3") == cluster.planned_node_names("4") == ["n2"]
    assert cluster.at_risk("3") == Cause.ADMIN
    assert publish_snapshot(cluster.engine.state).nodes["n1"].state == "drain"
    cluster.at(150)
    assert cluster.server.jobs["4"].shares[0].node == "n2"
    assert cluster.start("3") == 200
    cluster.send(release(cluster, "node", "n1"))
    cluster.at(151)
    assert (cluster.view("3").state, cluster.planned_node_names("3"), cluster.start("3")) == (
        "running",
        ["n1"],
        150,
    )
    assert publish_snapshot(cluster.engine.state).nodes["n1"].state == "up"


def test_job_that_needs_a_held_node_waits_with_the_reason() -> None:
    cluster = Cluster(nodes=1)
    cluster.send(hold(cluster, "node", "n1", "new memory"))
    cluster.submit("1")
    assert cluster.view("1").why == "waiting for node n1, which is held: new memory"
    assert cluster.promise("1") is None
    cluster.send(release(cluster, "node", "n1"))
    assert cluster.start("1") == 0


def test_held_node_stays_held_when_it_goes_down_and_returns() -> None:
    cluster = Cluster(nodes=1)
    cluster.send(hold(cluster, "node", "n1"))
    cluster.node("n1", state="down")
    assert publish_snapshot(cluster.engine.state).nodes["n1"].state == "down"
    cluster.node("n1", state="up")
    cluster.submit("1")
    assert cluster.start("1") is None
    cluster.send(release(cluster, "node", "n1"))
    assert cluster.start("1") == 0


def test_jobs_of_a_held_queue_lose_and_regain_their_starts() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1")
    cluster.submit("2", queue="long")
    cluster.submit("3")
    assert [cluster.start(job) for job in "123"] == [0, 100, 200]
    cluster.send(hold(cluster, "queue", "long", "the course has them"))
    assert [cluster.start(job) for job in "123"] == [0, None, 100]
    said = cluster.view("2")
    assert said.why == "waiting for queue long, which is held: the course has them"
    assert said.waiting_for == "queue"
    cluster.send(release(cluster, "queue", "long"))
    assert [cluster.start(job) for job in "123"] == [0, 200, 100]


def test_holds_are_in_the_checkpoint() -> None:
    cluster = Cluster(nodes=2)
    cluster.send(hold(cluster, "node", "n1"), hold(cluster, "queue", "long"))
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    assert list(cluster.engine.state.holds) == [("node", "n1"), ("queue", "long")]
    cluster.submit("1")
    cluster.submit("2", queue="long")
    assert (cluster.planned_node_names("1"), cluster.start("2")) == (["n2"], None)


def test_unknown_nodes_may_be_held_and_unheld_ones_released() -> None:
    cluster = Cluster(nodes=1)
    cluster.send(release(cluster, "node", "n1"), release(cluster, "queue", "batch"))
    cluster.send(hold(cluster, "node", "n7"))
    cluster.submit("1")
    assert cluster.start("1") == 0
    cluster.node("n7")
    cluster.submit("2")
    assert cluster.planned_node_names("2") == ["n1"]


def test_preview_lists_displaced_and_running_jobs() -> None:
    cluster = Cluster(nodes=2)
    for job in "123":
        cluster.submit(job)
    found = preview_moves(Engine.restore(cluster.engine.checkpoint()), [hold(cluster, "node", "n1")], T)
    assert [(one.job, one.nodes) for one in found.running] == [("1", ("n1",))]
    assert [(one.job, one.before, one.after) for one in found.moved] == []
    cluster.submit("4")
    found = preview_moves(Engine.restore(cluster.engine.checkpoint()), [hold(cluster, "node", "n1")], T)
    assert [(one.job, one.broken) for one in found.moved] == [("3", True)]
    found = preview_moves(Engine.restore(cluster.engine.checkpoint()), [hold(cluster, "queue", "batch")], T)
    assert [(one.job, one.after) for one in found.moved] == [("3", None), ("4", None)]


def test_preview_of_several_nodes_lists_a_running_job_once() -> None:
    cluster = Cluster(nodes=3)
    cluster.submit("1", "3:ppn=4")
    assert cluster.view("1").state == "running"
    holds = [hold(cluster, "node", name) for name in ("n1", "n2")]
    found = preview_moves(Engine.restore(cluster.engine.checkpoint()), holds, T)
    assert [(one.job, one.nodes) for one in found.running] == [("1", ("n1", "n2"))]


def test_a_planned_job_that_is_released_again_keeps_its_age() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("A", "n1:ppn=4", walltime=1000)
    cluster.submit("B", "n2:ppn=4", walltime=5000)
    cluster.submit("1", walltime=1000)
    cluster.at(50)
    cluster.submit("2", walltime=500)
    cluster.at(60)
    cluster.send(JobReleased(id=cluster.server.event_id(), time=cluster.server.now, job_id="1"))
    assert [cluster.start(job) for job in "12"] == [1000, 2000]
    cluster.at(100)
    cluster.send(*cluster.server.delete("B"))
    assert [cluster.start(job) for job in "12"] == [100, 1000]
