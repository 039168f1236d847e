"""Reservations on nodes, features and all nodes; access lists."""

from dataclasses import replace
from typing import Any

import pytest

from schedd.engine import Cause, Engine
from schedd.engine.preview import preview_moves
from schedd.features.reservations.state import reservation_records
from schedd.plan.evaluate import Evaluation
from schedd.wire import Reserve
from tests.engine.cluster import Cluster, T


def make_reservation(cluster: Cluster, name: str, start: int, end: int | None, **more: object) -> None:
    until = T + end if end is not None else None
    event = Reserve(
        id=cluster.server.event_id(),
        time=cluster.server.now,
        name=name,
        start=T + start,
        end=until,
        **more,  # type: ignore[arg-type]
    )
    cluster.send(event)


def cluster_with_features() -> Cluster:
    """Return a cluster of three nodes; n1 and n2 have the feature big."""
    cluster = Cluster(nodes=3)
    for name in ("n1", "n2"):
        cluster.node(name, properties=("big",))
    return cluster


def test_reservations_do_not_change_plan_metrics() -> None:
    cluster = cluster_with_features()
    cluster.submit("1", "1:ppn=4")
    before = plan_values(cluster.engine)
    make_reservation(cluster, "r", 10_000, None, everywhere=True)
    make_reservation(cluster, "s", 20_000, 30_000, features=("big",))
    assert plan_values(cluster.engine) == before
    assert plan_values(Engine.restore(cluster.engine.checkpoint())) == before


def plan_values(engine: Engine) -> dict[str, float]:
    state = engine.state
    return Evaluation(state.plan, state.columns, state.now).values().as_dict()


def test_feature_reservation_covers_all_nodes_with_the_feature() -> None:
    cluster = cluster_with_features()
    make_reservation(cluster, "r", 0, 500, features=("big",))
    cluster.submit("1", "1:ppn=4:big")
    cluster.submit("2", "1:ppn=4")
    assert (cluster.start("1"), cluster.start("2"), cluster.planned_node_names("2")) == (500, 0, ["n3"])


def test_reservation_includes_new_nodes_and_nodes_that_get_the_feature() -> None:
    cluster = cluster_with_features()
    make_reservation(cluster, "r", 0, 500, features=("big",))
    make_reservation(cluster, "s", 1000, 2000, everywhere=True)
    cluster.node("n4", properties=("big",))
    cluster.submit("1", "n4:ppn=4")
    cluster.submit("2", "n4:ppn=4", 501)
    assert (cluster.start("1"), cluster.start("2")) == (500, 2000)
    cluster.node("n3", properties=("big",))
    cluster.submit("3", "n3:ppn=4")
    assert cluster.start("3") == 500
    cluster.node("n3", properties=())
    assert cluster.start("3") == 0


def test_reservation_everywhere_blocks_starts_but_not_running_jobs() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", walltime=300)
    cluster.submit("2", "2:ppn=4")
    make_reservation(cluster, "r", 100, 400, everywhere=True)
    assert (cluster.view("1").state, cluster.start("2")) == ("running", 400)
    assert cluster.at_risk("2") == Cause.RESERVATION
    change = cluster.view("2").last_change
    assert change is not None
    late = "that is later than its promise of 2023-11-14 22:18:20 UTC"
    assert change.words == f"reservation r was made; {late}"


WHO: list[tuple[dict[str, object], dict[str, Any]]] = [
    ({"users": ("ann",)}, {"owner": "ann@login"}),
    ({"groups": ("staff",)}, {"owner": "bob", "group": "staff"}),
    ({"accounts": ("a1", "a2")}, {"owner": "bob", "account": "a2"}),
    ({"queues": ("batch",)}, {"owner": "bob"}),
]


@pytest.mark.parametrize(("access", "who"), WHO)
def test_only_jobs_on_the_access_list_use_reserved_nodes(
    access: dict[str, object], who: dict[str, Any]
) -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("early", "1:ppn=4", 50, owner="eve", queue="other")
    make_reservation(cluster, "r", 0, 1000, nodes=("n1", "n2"), **access)
    cluster.submit("1", **who)
    cluster.submit("2", owner="eve", queue="other")
    cluster.submit("3", "2:ppn=1", **who)
    assert (cluster.start("early"), cluster.start("1"), cluster.start("2"), cluster.start("3")) == (
        0,
        0,
        1000,
        100,
    )


def test_planned_jobs_on_the_access_list_stay_in_place() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1", walltime=500)
    cluster.submit("2")
    cluster.submit("3", owner="eve")
    make_reservation(cluster, "r", 0, 1000, nodes=("n1",), users=("ann",))
    assert (cluster.start("2"), cluster.start("3")) == (500, 1000)
    cluster.at(500)
    assert cluster.runs("2") == [500]
    cluster.at(1000)
    assert cluster.runs("3") == [1000]


def test_access_lists_do_not_admit_each_others_users() -> None:
    cluster = Cluster(nodes=2)
    make_reservation(cluster, "a", 0, 1000, nodes=("n1",), users=("ann",))
    make_reservation(cluster, "b", 0, 2000, nodes=("n2",), users=("bob",))
    for job, owner in (("1", "ann"), ("2", "bob"), ("3", "eve"), ("4", "ann"), ("5", "bob")):
        cluster.submit(job, owner=owner)
    assert [cluster.planned_node_names(job) for job in "12345"] == [["n1"], ["n2"], ["n1"], ["n1"], ["n2"]]
    assert [cluster.start(job) for job in "12345"] == [0, 0, 1000, 100, 100]
    cluster.unreserve("a")
    cluster.at(1)
    assert cluster.start("3") == 200


def test_gate_is_reused_for_another_access_list() -> None:
    cluster = Cluster(nodes=1)
    for i, user in enumerate(("ann", "bob", "eve")):
        make_reservation(cluster, "r", 0, 1000, nodes=("n1",), users=(user,))
        assert len(cluster.engine.state.gates) == 1
        job = str(i)
        for other in ("ann", "bob", "eve"):
            cluster.submit(f"{job}{other}", owner=other, walltime=10)
        starts = {other: cluster.start(f"{job}{other}") for other in ("ann", "bob", "eve")}
        assert [other for other, start in starts.items() if start is not None and start < 1000] == [user]
        for other in ("ann", "bob", "eve"):
            if f"{job}{other}" in cluster.server.jobs:
                cluster.send(*cluster.server.delete(f"{job}{other}"))


def test_nodes_reserved_for_short_jobs_refuse_longer_jobs() -> None:
    cluster = Cluster(nodes=2)
    make_reservation(cluster, "quick", 0, None, nodes=("n1",), shorter=300, queues=("urgent",))
    for job, walltime in (("1", 301), ("2", 300), ("3", 20)):
        cluster.submit(job, walltime=walltime)
    cluster.submit("4", walltime=None)  # its length is not known to be short
    cluster.submit("5", walltime=9_999, queue="urgent")
    assert [cluster.planned_node_names(job) for job in "12345"] == [["n2"], ["n1"], ["n1"], ["n2"], ["n1"]]
    assert [cluster.start(job) for job in "12345"] == [0, 0, 300, 301, 320]


def test_lengthened_job_leaves_nodes_reserved_for_short_jobs() -> None:
    cluster = Cluster(nodes=2)
    make_reservation(cluster, "quick", 100, None, nodes=("n1",), shorter=300)
    cluster.submit("1", walltime=100)
    cluster.submit("2", walltime=400)
    cluster.submit("3", walltime=300)
    assert (cluster.start("3"), cluster.planned_node_names("3")) == (100, ["n1"])
    cluster.alter_request("3", walltime="301")
    assert (cluster.start("3"), cluster.planned_node_names("3")) == (400, ["n2"])
    again = Engine.restore(cluster.engine.checkpoint())
    (gate,) = again.state.gates.values()
    assert gate.shorter == 300


WHOLE = {"naccesspolicy": "singlejob"}


def test_exclusive_jobs_on_the_access_list_get_reserved_nodes() -> None:
    cluster = Cluster(nodes=2)
    make_reservation(cluster, "r", 0, 1000, nodes=("n1",), users=("ann",))
    cluster.submit("1", "1:ppn=1", resources=WHOLE)
    cluster.submit("2", "1:ppn=1", resources=WHOLE, owner="bob")
    cluster.submit("3", "1:ppn=1", resources=WHOLE, owner="bob")
    cluster.submit("4", "1:ppn=1")
    cluster.submit("5", "2:ppn=1", resources=WHOLE)
    where = {job: (cluster.start(job), cluster.planned_node_names(job)) for job in "12345"}
    assert where["1"] == (0, ["n1"])
    assert where["2"] == (0, ["n2"])
    assert where["3"] == (100, ["n2"])
    assert where["4"] == (100, ["n1"])
    assert where["5"] == (200, ["n1", "n2"])


@pytest.mark.parametrize("owner", ["ann", "bob"])
def test_planned_exclusive_jobs_on_the_access_list_stay_on_their_nodes(owner: str) -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("0", walltime=50)
    cluster.submit("1", "1:ppn=2", resources=WHOLE, owner=owner)
    cluster.submit("2", "1:ppn=2", resources=WHOLE, owner=owner)
    make_reservation(cluster, "r", 100, 1000, nodes=("n1",), users=("ann",))
    kept = (50, 150) if owner == "ann" else (1000, 1100)
    assert (cluster.start("1"), cluster.start("2")) == kept
    # The list may change while jobs run or are planned; running jobs continue.
    cluster.at(60)
    make_reservation(cluster, "r", 100, 1000, nodes=("n1",), users=("eve",))
    assert cluster.start("2") == (1000 if owner == "ann" else 1100)
    cluster.unreserve("r")
    assert cluster.start("2") == (150 if owner == "ann" else 160)
    assert cluster.engine.checkpoint() == Engine.restore(cluster.engine.checkpoint()).checkpoint()


def test_too_many_access_lists_are_refused_by_name() -> None:
    cluster = Cluster(nodes=1)
    for i in range(17):
        make_reservation(cluster, f"r{i}", 10 * i, 10 * i + 5, nodes=("n1",), users=(f"u{i}",))
    assert cluster.alerts("reservation") == [
        "reservation r16 was not made: at most 16 different access lists are allowed"
    ]
    assert len(reservation_records(cluster.engine.state)) == 16


def test_a_reservation_that_cannot_be_changed_stays_as_it_was() -> None:
    cluster = Cluster(nodes=1)
    for i in range(16):
        make_reservation(cluster, f"r{i}", 1000 * i, 1000 * i + 900, nodes=("n1",), users=(f"u{i}",))
    make_reservation(cluster, "last", 50_000, 60_000, nodes=("n1",), users=("u0",))
    make_reservation(cluster, "last", 50_000, 60_000, nodes=("n1",), users=("eve",))
    assert cluster.alerts("reservation") == [
        "reservation last was not changed: at most 16 different access lists are allowed"
    ]
    assert reservation_records(cluster.engine.state)["last"].event.users == ("u0",)
    cluster.submit("1", walltime=40_000, owner="eve")
    assert cluster.start("1") == 60_000
    assert cluster.engine.checkpoint() == Engine.restore(cluster.engine.checkpoint()).checkpoint()


def test_reservations_and_access_survive_a_checkpoint() -> None:
    cluster = cluster_with_features()
    make_reservation(cluster, "r", 100, 1000, features=("big",), users=("ann",), reason="course")
    cluster.submit("1", owner="eve", walltime=200)
    engine = Engine.restore(cluster.engine.checkpoint())
    assert engine.checkpoint() == cluster.engine.checkpoint()
    cluster.engine = engine
    cluster.submit("2", "1:ppn=4:big", walltime=200)
    cluster.submit("3", "1:ppn=4:big", walltime=200, owner="eve")
    assert (cluster.start("2"), cluster.start("3")) == (0, 1000)
    cluster.node("n5", properties=("big",))
    assert reservation_records(cluster.engine.state)["r"].nodes == ("n1", "n2", "n5")


def test_altered_reservation_may_use_its_own_nodes_but_not_those_reserved_by_others() -> None:
    cluster = Cluster(nodes=3)
    both = ("R7", "R8")
    make_reservation(cluster, "R7.s", 100, 600, nodes=("n1",), queues=(*both, "R7:anew"))
    make_reservation(cluster, "R8.s", 500, 560, nodes=("n2",), queues=(*both, "R8:anew"))
    asked = {"nodes": "", "select": "2:ncpus=4", "place": "scatter"}
    more: dict[str, Any] = {"family": "openpbs", "walltime": 50, "not_before": T + 500, "resources": asked}
    cluster.submit("1", queue="R7:anew", **more)
    assert cluster.view("1").planned_start == T + 500
    assert {share.node for share in cluster.view("1").planned_nodes} == {"n1", "n3"}
    cluster.submit("2", queue="R7:anew", **more | {"resources": asked | {"select": "3:ncpus=4"}})
    assert cluster.view("2").planned_start == T + 560, "n2 is another's until then"


def test_job_that_ends_at_the_start_does_not_block_a_reservation() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1", walltime=100)
    view = cluster.view("1")
    assert (view.state, view.planned_start) == ("running", view.started)
    end = cluster.engine.state.plan.end(cluster.record("1").slot)
    found = []
    for start in (end - 1, end):
        event = Reserve(id=f"r:{start}", time=T, name="repair", nodes=("n1",), start=start)
        engine = Engine.restore(cluster.engine.checkpoint())
        found.append([one.job for one in preview_moves(engine, [event], cluster.server.now).running])
    assert found == [["1"], []]


def test_repeated_reservation_event_moves_nothing() -> None:
    cluster = Cluster(nodes=2)
    once = Reserve(id="r:1", time=T, name="R1", nodes=("n1",), start=T + 100, end=T + 200, reason="")
    cluster.send(once)
    slot = reservation_records(cluster.engine.state)["R1"].slot
    cluster.at(10)
    cluster.send(replace(once, id="r:2", time=T + 10))
    assert reservation_records(cluster.engine.state)["R1"].slot == slot
    cluster.send(replace(once, id="r:3", time=T + 10, end=T + 300))
    assert reservation_records(cluster.engine.state)["R1"].event.end == T + 300
