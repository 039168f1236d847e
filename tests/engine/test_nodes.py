"""Nodes that go down, return, are set offline, change or fail jobs; reservations on them."""

from dataclasses import replace

import pytest

from schedd.engine import Cause
from schedd.engine.facts.state import EngineState
from schedd.engine.place import missing_starts
from schedd.engine.place.missing_starts import describe_closed_node
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.reservations.state import reservation_records
from schedd.wire import JobEnded, JobStarted, NodeChanged, NodeFacts, ShareFacts
from tests.engine.cluster import Cluster, T


def test_planned_jobs_leave_a_down_node_after_the_grace() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", "n1:ppn=4", 1000)
    cluster.submit("2", "n2:ppn=4", 1000)
    cluster.submit("3", "1:ppn=4", 100)
    cluster.submit("4", "1:ppn=4", 100)
    here, there = cluster.planned_node_names("3")[0], cluster.planned_node_names("4")[0]
    assert {here, there} == {"n1", "n2"}
    cluster.node(here, state="down")
    cluster.at(299)
    assert cluster.planned_node_names("3") == [here]
    cluster.at(300)
    assert cluster.planned_node_names("3") == [there]
    assert cluster.planned_node_names("4") == [there]
    assert cluster.start("4") == 1000
    assert cluster.at_risk("3") == Cause.NODE_LOST
    assert cluster.breaches("4") == []


def test_node_that_returns_within_the_grace_moves_no_job() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", "n1:ppn=4", 1000)
    cluster.submit("2", "n1:ppn=4", 100)
    cluster.node("n1", state="down")
    cluster.at(200)
    cluster.node("n1", state="up")
    cluster.at(400)
    assert (cluster.start("2"), cluster.breaches("2")) == (1000, [])


def test_nothing_is_started_on_a_node_that_is_down() -> None:
    cluster = Cluster()
    cluster.submit("1")
    cluster.node("n1", state="down")
    cluster.submit("2")
    cluster.at(150)
    assert cluster.runs("2") == []
    cluster.node("n1", state="up")
    assert cluster.runs("2") == [150]


def test_running_jobs_hold_a_down_node_until_the_server_reports_their_end() -> None:
    cluster = Cluster()
    cluster.submit("1", walltime=1000)
    cluster.node("n1", state="down")
    cluster.at(500)
    assert (cluster.view("1").state, cluster.planned_node_names("1")) == ("running", ["n1"])


def test_job_waits_for_its_only_node_by_name_while_it_is_down() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", "n1:ppn=4", 5000)
    cluster.submit("2", "n1:ppn=4")
    cluster.node("n1", state="down")
    cluster.at(301)
    assert cluster.view("2").why == "waiting for node n1, which is down"
    cluster.node("n1", state="up")
    assert cluster.start("2") == 5000
    assert cluster.breaches("2") == []


def test_offline_drains_a_node_at_once() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", "n1:ppn=4")
    cluster.submit("2", "n2:ppn=4", 500)
    cluster.submit("3", "1:ppn=4")
    assert cluster.planned_node_names("3") == ["n1"]
    cluster.node("n1", state="drain")
    assert (cluster.planned_node_names("3"), cluster.start("3")) == (["n2"], 500)
    assert cluster.at_risk("3") == Cause.ADMIN
    assert cluster.view("1").state == "running"


def test_smaller_node_keeps_fitting_jobs_and_larger_node_starts_more() -> None:
    cluster = Cluster(cpus=4)
    cluster.submit("1", "1:ppn=4", 100)
    cluster.submit("2", "1:ppn=2", 100)
    cluster.submit("3", "1:ppn=2", 100)
    assert (cluster.start("2"), cluster.start("3")) == (100, 100)
    cluster.node("n1", cpus=2)
    assert (cluster.start("2"), cluster.start("3")) == (100, 200)
    assert cluster.at_risk("3") == Cause.ADMIN
    cluster.node("n1", cpus=8)
    assert cluster.runs("2") == cluster.runs("3") == [0]


def test_jobs_leave_a_node_that_lost_their_feature() -> None:
    cluster = Cluster(nodes=2)
    for name in ("n1", "n2"):
        cluster.node(name, properties=("ib",))
    cluster.submit("1", "n1:ppn=4", 100)
    cluster.submit("2", "n2:ppn=4", 200)
    cluster.submit("3", "1:ppn=4:ib", 100)
    assert (cluster.start("3"), cluster.planned_node_names("3")) == (100, ["n1"])
    cluster.node("n1", properties=())
    assert (cluster.start("3"), cluster.planned_node_names("3")) == (200, ["n2"])


def test_a_silent_node_keeps_its_last_good_memory() -> None:
    cluster = Cluster()
    cluster.node("n1", mem=8 << 20)
    cluster.node("n1", state="down", mem=0)
    cluster.submit("1", "1:ppn=1", resources={"mem": "16gb"})
    assert "the largest has 8gb" in cluster.view("1").why


# ---- reservations ---------------------------------------------------------------------------------


def test_a_reservation_moves_planned_jobs_with_its_own_cause() -> None:
    cluster = Cluster()
    cluster.submit("1", walltime=100)
    cluster.submit("2", walltime=100)
    cluster.reserve("fix", "n1", start=150, end=400)
    assert (cluster.start("2"), cluster.at_risk("2")) == (400, Cause.RESERVATION)
    cluster.submit("3", walltime=50)
    assert cluster.start("3") == 100
    cluster.submit("4", walltime=51)
    assert cluster.start("4") == 500


def test_lifting_a_reservation_lets_jobs_return() -> None:
    cluster = Cluster()
    cluster.submit("1", walltime=100)
    cluster.reserve("fix", "n1", start=100, end=1000)
    cluster.submit("2", walltime=100)
    assert cluster.start("2") == 1000
    cluster.unreserve("fix")
    assert cluster.start("2") == 100


def test_after_an_open_end_there_is_no_start_until_it_is_lifted() -> None:
    cluster = Cluster()
    cluster.reserve("fix", "n1", start=100)
    cluster.submit("1", walltime=100)
    cluster.submit("2", walltime=100)
    assert (cluster.start("1"), cluster.start("2")) == (0, None)
    assert cluster.view("2").why == "waiting for reservation fix, which has no end"
    cluster.at(5000)
    assert cluster.start("2") is None
    cluster.unreserve("fix")
    assert cluster.runs("2") == [5000]


def test_a_reservation_ends_by_itself_and_a_job_starts_on_its_edge() -> None:
    cluster = Cluster()
    cluster.reserve("fix", "n1", start=0, end=300)
    cluster.submit("1")
    cluster.at(1000)
    assert cluster.runs("1") == [300]
    assert reservation_records(cluster.engine.state) == {}


def test_a_reservation_changed_later_replaces_the_first() -> None:
    cluster = Cluster()
    cluster.reserve("fix", "n1", start=0, end=300)
    cluster.submit("1")
    cluster.reserve("fix", "n1", start=0, end=200)
    assert cluster.start("1") == 200
    cluster.reserve("fix", "n1", start=0, end=250)
    assert cluster.start("1") == 250


def test_a_node_down_within_a_reservation_returns_at_its_end() -> None:
    cluster = Cluster()
    cluster.reserve("fix", "n1", start=0, end=2000)
    cluster.node("n1", state="down")
    cluster.submit("1")
    cluster.at(1000)
    assert cluster.start("1") == 2000


@pytest.mark.parametrize(("start", "end", "alerts"), [(-100, -50, 0), (10, 10, 1), (10, 5, 1)])
def test_empty_reservation_raises_an_alert_and_a_past_one_does_not(start: int, end: int, alerts: int) -> None:
    cluster = Cluster()
    cluster.reserve("fix", "n1", start=start, end=end)
    assert reservation_records(cluster.engine.state) == {}
    assert len(cluster.alerts("reservation")) == alerts


def test_alert_about_many_unknown_nodes_names_a_few() -> None:
    cluster = Cluster()
    cluster.reserve("fix", *(f"n{i}" for i in range(500, 1_000)), start=0, end=500)
    left_out = "n500, n501, n502, n503, n504 and 495 more"
    assert cluster.alerts("reservation") == [f"reservation fix: unknown nodes are left out: {left_out}"]


def test_reservation_of_an_unknown_node_applies_once_the_node_appears() -> None:
    cluster = Cluster()
    cluster.reserve("fix", "n9", start=0, end=500)
    assert cluster.alerts("reservation") == ["reservation fix: unknown nodes are left out: n9"]
    assert "reservation fix" in cluster.engine.state.alerts
    cluster.node("n9", cpus=16)
    assert "reservation fix" not in cluster.engine.state.alerts, "it is reserved now"
    cluster.submit("1", "1:ppn=16")
    assert cluster.start("1") == 500


# ---- the black hole guard -------------------------------------------------------------------------


def _fail(cluster: Cluster, job: str, owner: str, after: int = 5, status: int = 1) -> None:
    """A job starts on n1 and ends after this number of seconds."""
    cluster.submit(job, "n1:ppn=4", 1000, owner=owner)
    cluster.server.now += after
    cluster.server.jobs.pop(job, None)
    cluster.send(JobEnded(id=f"end:{job}", time=cluster.server.now, job_id=job, exit_status=status))


def test_node_with_failing_jobs_of_two_users_gets_no_new_jobs() -> None:
    cluster = Cluster(nodes=2)
    for i in range(4):
        _fail(cluster, f"a{i}", "ann@x")
    assert cluster.engine.state.black_holes == {}
    _fail(cluster, "b", "bob@x")
    assert list(cluster.engine.state.black_holes) == ["n1"]
    assert len(cluster.alerts("black_hole")) == 1
    shown = publish_snapshot(cluster.engine.state)
    assert list(shown.closed) == ["n1"]
    assert shown.closed["n1"].startswith("not used, since jobs fail on it")
    assert (shown.nodes["n1"].state, shown.nodes["n2"].state) == ("drain", "up")
    cluster.submit("next", "n1:ppn=4")
    waits = "waiting for node n1, which is not used, since jobs fail on it"
    assert cluster.view("next").why.startswith(waits)
    cluster.submit("other", "1:ppn=4")
    assert cluster.planned_node_names("other") == ["n2"]
    cluster.node("n1", state="drain")
    cluster.node("n1", state="up")
    assert cluster.planned_node_names("next") == ["n1"]
    assert publish_snapshot(cluster.engine.state).closed == {}


def test_a_success_of_an_earlier_start_does_not_clear_later_failures() -> None:
    cluster = Cluster(cpus=8)
    cluster.submit("long", "n1:ppn=4", 30)
    for i, owner in enumerate(["ann", "bob", "ann", "bob"]):
        _fail(cluster, f"a{i}", owner)
    cluster.at(30)
    assert cluster.engine.state.black_holes == {}
    _fail(cluster, "b", "bob")
    assert list(cluster.engine.state.black_holes) == ["n1"]


def test_failures_of_one_user_do_not_close_a_node() -> None:
    cluster = Cluster()
    for i in range(9):
        _fail(cluster, f"a{i}", "ann@x")
    assert cluster.engine.state.black_holes == {}


@pytest.mark.parametrize(("after", "status"), [(5, 0), (61, 1), (5, 271), (20, -11)])
def test_a_success_a_long_run_a_deletion_or_an_exceeded_limit_clears_the_count(
    after: int, status: int
) -> None:
    cluster = Cluster()
    for i, owner in enumerate(["ann", "bob", "ann", "bob"]):
        _fail(cluster, f"a{i}", owner)
    _fail(cluster, "good", "bob", after, status)
    for i, owner in enumerate(["ann", "bob", "ann", "bob"]):
        _fail(cluster, f"c{i}", owner)
    assert cluster.engine.state.black_holes == {}


def test_job_on_an_unknown_node_is_accepted() -> None:
    cluster = Cluster(alone=False)
    cluster.submit("1", walltime=500)
    cluster.submit("2", walltime=500)
    cluster.send(JobStarted(id="x", time=T, job_id="2", shares=(ShareFacts("ghost", 4),)))
    assert cluster.view("2").state == "running"
    cluster.submit("3")
    cluster.node("ghost", cpus=4)
    cluster.submit("4")
    assert (cluster.start("3"), cluster.start("4")) == (500, 500)


def test_running_job_altered_to_exclusive_also_holds_added_resources() -> None:
    cluster = Cluster()
    cluster.submit("1", "1:ppn=2", walltime=1000)
    cluster.alter_request("1", naccesspolicy="singlejob", walltime="2000")
    cluster.submit("2", "1:ppn=2")
    cluster.node("n1", cpus=8)
    assert cluster.start("2") == 2000
    cluster.node("n1", cpus=8, resources={"scratch": 5})
    cluster.submit("3", "1:ppn=1", resources={"scratch": "1"})
    assert cluster.start("3") == 2000


def test_of_thousands_of_nodes_in_the_way_some_are_named_and_the_others_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def counted(state: EngineState, name: str) -> str:
        asked.append(name)
        return describe_closed_node(state, name)

    monkeypatch.setattr(missing_starts, "describe_closed_node", counted)
    cluster = Cluster(nodes=40)
    changes = [
        NodeChanged(id=f"n:{i}", time=T, node=NodeFacts(name=f"n{i}", cpus=4, state="drain"))
        for i in range(1, 41)
    ]
    cluster.send(*changes)
    cluster.submit("1", "2:ppn=4", 100)
    offline = ", or ".join(f"node n{i}, which is offline" for i in (1, 2, 3))
    assert cluster.view("1").why == f"waiting for {offline} and 37 more"
    assert len(asked) <= 6


def test_a_job_that_needs_an_offline_part_of_a_node_waits_for_it() -> None:
    cluster = Cluster(nodes=2)
    cluster.node("n1", cpus=8)
    cluster.submit("1", "1:ppn=4")
    cluster.node("n1", cpus=4, unusable={"cpus": 4})
    cluster.submit("2", "1:ppn=8")
    cluster.submit("3", "1:ppn=12")
    waiting = "node n1, of which 4 cpus cannot be used now"
    assert (cluster.view("2").state, cluster.view("3").state) == ("waiting", "never")
    assert waiting in cluster.view("2").why
    assert "the largest has 8" in cluster.view("3").why
    cluster.send(cluster.server.snapshot())
    cluster.at(300)
    assert waiting in cluster.view("2").why
    cluster.node("n1", cpus=4, unusable={})
    assert cluster.view("2").state == "never", "the vnode was removed"
    cluster.node("n1", cpus=4, unusable={"cpus": 4})
    assert cluster.view("2").state == "waiting"
    cluster.node("n1", cpus=8, unusable={})
    assert cluster.runs("2") == [300]


def test_a_planned_job_waits_when_a_part_of_its_node_is_set_offline() -> None:
    cluster = Cluster()
    cluster.node("n1", cpus=8)
    cluster.submit("1", "1:ppn=8", 1000)
    cluster.submit("2", "1:ppn=6", 100)
    cluster.node("n1", cpus=4, unusable={"cpus": 4})
    assert cluster.view("2").state == "waiting"
    cluster.node("n1", cpus=8, unusable={})
    assert cluster.start("2") == 1000


def test_scattered_units_count_nodes_with_offline_parts() -> None:
    cluster = Cluster(nodes=2, cpus=8)
    cluster.node("n1", cpus=4, unusable={"cpus": 4})
    cluster.submit("1", "2:ppn=8")
    cluster.submit("2", "3:ppn=8")
    assert (cluster.view("1").state, cluster.view("2").state) == ("waiting", "never")


def test_a_node_that_was_offline_is_open_again_though_it_is_up_by_the_end_of_the_batch() -> None:
    cluster = Cluster(nodes=2)
    cluster.engine.state.black_holes["n1"] = "jobs fail on node n1"
    up = cluster.server.nodes["n1"]
    offline = NodeChanged(id="e:1", time=T, node=replace(up, state="drain"))
    cluster.send(offline, NodeChanged(id="e:2", time=T, node=up))
    assert cluster.engine.state.black_holes == {}
