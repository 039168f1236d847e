"""Reservations on nodes, features and all nodes; access lists."""

from dataclasses import replace
from typing import Any

import pytest

from schedd.engine import Engine
from schedd.engine.preview import preview
from schedd.features.reservations.state import reservations_of
from schedd.plan.evaluate import Evaluation
from schedd.wire import Reserve
from tests.engine.cluster import Cluster, T


def reserve(cluster: Cluster, name: str, start: int, end: int | None, **more: object) -> None:
    until = T + end if end is not None else None
    event = Reserve(
        id=cluster.server.event_id(),
        time=cluster.server.now,
        name=name,
        start=T + start,
        end=until,
        **more,  # type: ignore[arg-type]
    )
    cluster.tell(event)


def featured() -> Cluster:
    """n1 and n2 are big, n3 is not."""
    cluster = Cluster(nodes=3)
    for name in ("n1", "n2"):
        cluster.node(name, properties=("big",))
    return cluster


def test_a_reservation_is_no_part_of_what_the_plan_is_worth() -> None:
    cluster = featured()
    cluster.submit("1", "1:ppn=4")
    before = worth(cluster.engine)
    reserve(cluster, "r", 10_000, None, everywhere=True)
    reserve(cluster, "s", 20_000, 30_000, features=("big",))
    assert worth(cluster.engine) == before
    assert worth(Engine.restore(cluster.engine.checkpoint())) == before


def worth(engine: Engine) -> dict[str, float]:
    state = engine.state
    return Evaluation(state.plan, state.columns, state.now).values().as_dict()


def test_a_reservation_of_a_feature_is_of_all_nodes_that_have_it() -> None:
    cluster = featured()
    reserve(cluster, "r", 0, 500, features=("big",))
    cluster.submit("1", "1:ppn=4:big")
    cluster.submit("2", "1:ppn=4")
    assert (cluster.start("1"), cluster.start("2"), cluster.where("2")) == (500, 0, ["n3"])


def test_a_node_that_comes_later_or_gets_the_feature_is_taken_in() -> None:
    cluster = featured()
    reserve(cluster, "r", 0, 500, features=("big",))
    reserve(cluster, "s", 1000, 2000, everywhere=True)
    cluster.node("n4", properties=("big",))
    cluster.submit("1", "n4:ppn=4")
    cluster.submit("2", "n4:ppn=4", 501)
    assert (cluster.start("1"), cluster.start("2")) == (500, 2000)
    cluster.node("n3", properties=("big",))
    cluster.submit("3", "n3:ppn=4")
    assert cluster.start("3") == 500
    cluster.node("n3", properties=())
    assert cluster.start("3") == 0


def test_a_reservation_everywhere_stops_all_but_moves_nobody_who_runs() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", walltime=300)
    cluster.submit("2", "2:ppn=4")
    reserve(cluster, "r", 100, 400, everywhere=True)
    assert (cluster.view("1").state, cluster.start("2")) == ("running", 400)
    assert cluster.at_risk("2") == "reservation made by an admin"
    change = cluster.view("2").last_change
    assert change is not None
    assert change.words == "reservation r was made"


WHO: list[tuple[dict[str, object], dict[str, Any]]] = [
    ({"users": ("ann",)}, {"owner": "ann@login"}),
    ({"groups": ("staff",)}, {"owner": "bob", "group": "staff"}),
    ({"accounts": ("a1", "a2")}, {"owner": "bob", "account": "a2"}),
    ({"queues": ("batch",)}, {"owner": "bob"}),
]


@pytest.mark.parametrize(("access", "who"), WHO)
def test_only_those_on_the_access_list_use_reserved_nodes(
    access: dict[str, object], who: dict[str, Any]
) -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("early", "1:ppn=4", 50, owner="eve", queue="other")
    reserve(cluster, "r", 0, 1000, nodes=("n1", "n2"), **access)
    cluster.submit("1", **who)
    cluster.submit("2", owner="eve", queue="other")
    cluster.submit("3", "2:ppn=1", **who)
    assert (cluster.start("early"), cluster.start("1"), cluster.start("2"), cluster.start("3")) == (
        0,
        0,
        1000,
        100,
    )


def test_jobs_planned_before_the_reservation_keep_their_places_if_they_are_on_its_list() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1", walltime=500)
    cluster.submit("2")
    cluster.submit("3", owner="eve")
    reserve(cluster, "r", 0, 1000, nodes=("n1",), users=("ann",))
    assert (cluster.start("2"), cluster.start("3")) == (500, 1000)
    cluster.at(500)
    assert cluster.runs("2") == [500]
    cluster.at(1000)
    assert cluster.runs("3") == [1000]


def test_two_access_lists_do_not_let_each_other_in() -> None:
    cluster = Cluster(nodes=2)
    reserve(cluster, "a", 0, 1000, nodes=("n1",), users=("ann",))
    reserve(cluster, "b", 0, 2000, nodes=("n2",), users=("bob",))
    for job, owner in (("1", "ann"), ("2", "bob"), ("3", "eve"), ("4", "ann"), ("5", "bob")):
        cluster.submit(job, owner=owner)
    assert [cluster.where(job) for job in "12345"] == [["n1"], ["n2"], ["n1"], ["n1"], ["n2"]]
    assert [cluster.start(job) for job in "12345"] == [0, 0, 1000, 100, 100]
    cluster.unreserve("a")
    cluster.at(1)
    assert cluster.start("3") == 200


def test_a_gate_is_used_again_by_another_list() -> None:
    cluster = Cluster(nodes=1)
    for i, user in enumerate(("ann", "bob", "eve")):
        reserve(cluster, "r", 0, 1000, nodes=("n1",), users=(user,))
        assert len(cluster.engine.state.gates) == 1
        job = str(i)
        for other in ("ann", "bob", "eve"):
            cluster.submit(f"{job}{other}", owner=other, walltime=10)
        starts = {other: cluster.start(f"{job}{other}") for other in ("ann", "bob", "eve")}
        assert [other for other, start in starts.items() if start is not None and start < 1000] == [user]
        for other in ("ann", "bob", "eve"):
            if f"{job}{other}" in cluster.server.jobs:
                cluster.tell(*cluster.server.delete(f"{job}{other}"))


def test_nodes_kept_for_short_jobs_take_no_longer_ones() -> None:
    cluster = Cluster(nodes=2)
    reserve(cluster, "quick", 0, None, nodes=("n1",), shorter=300, queues=("urgent",))
    for job, walltime in (("1", 301), ("2", 300), ("3", 20)):
        cluster.submit(job, walltime=walltime)
    cluster.submit("4", walltime=None)  # its length is not known to be short
    cluster.submit("5", walltime=9_999, queue="urgent")
    assert [cluster.where(job) for job in "12345"] == [["n2"], ["n1"], ["n1"], ["n2"], ["n1"]]
    assert [cluster.start(job) for job in "12345"] == [0, 0, 300, 301, 320]


def test_a_job_that_is_made_longer_leaves_what_is_kept_for_short_ones() -> None:
    cluster = Cluster(nodes=2)
    reserve(cluster, "quick", 100, None, nodes=("n1",), shorter=300)
    cluster.submit("1", walltime=100)
    cluster.submit("2", walltime=400)
    cluster.submit("3", walltime=300)
    assert (cluster.start("3"), cluster.where("3")) == (100, ["n1"])
    cluster.ask("3", walltime="301")
    assert (cluster.start("3"), cluster.where("3")) == (400, ["n2"])
    again = Engine.restore(cluster.engine.checkpoint())
    (gate,) = again.state.gates.values()
    assert gate.shorter == 300


WHOLE = {"naccesspolicy": "singlejob"}


def test_whole_nodes_are_given_to_those_on_the_access_list() -> None:
    cluster = Cluster(nodes=2)
    reserve(cluster, "r", 0, 1000, nodes=("n1",), users=("ann",))
    cluster.submit("1", "1:ppn=1", resources=WHOLE)
    cluster.submit("2", "1:ppn=1", resources=WHOLE, owner="bob")
    cluster.submit("3", "1:ppn=1", resources=WHOLE, owner="bob")
    cluster.submit("4", "1:ppn=1")
    cluster.submit("5", "2:ppn=1", resources=WHOLE)
    where = {job: (cluster.start(job), cluster.where(job)) for job in "12345"}
    assert where["1"] == (0, ["n1"])
    assert where["2"] == (0, ["n2"])
    assert where["3"] == (100, ["n2"])
    assert where["4"] == (100, ["n1"])
    assert where["5"] == (200, ["n1", "n2"])


@pytest.mark.parametrize("owner", ["ann", "bob"])
def test_whole_nodes_planned_before_a_reservation_are_kept_by_those_on_its_list(owner: str) -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("0", walltime=50)
    cluster.submit("1", "1:ppn=2", resources=WHOLE, owner=owner)
    cluster.submit("2", "1:ppn=2", resources=WHOLE, owner=owner)
    reserve(cluster, "r", 100, 1000, nodes=("n1",), users=("ann",))
    kept = (50, 150) if owner == "ann" else (1000, 1100)
    assert (cluster.start("1"), cluster.start("2")) == kept
    # The list may change while they run, or are planned; whoever runs goes on.
    cluster.at(60)
    reserve(cluster, "r", 100, 1000, nodes=("n1",), users=("eve",))
    assert cluster.start("2") == (1000 if owner == "ann" else 1100)
    cluster.unreserve("r")
    assert cluster.start("2") == (150 if owner == "ann" else 160)
    assert cluster.engine.checkpoint() == Engine.restore(cluster.engine.checkpoint()).checkpoint()


def test_too_many_access_lists_are_refused_by_name() -> None:
    cluster = Cluster(nodes=1)
    for i in range(17):
        reserve(cluster, f"r{i}", 10 * i, 10 * i + 5, nodes=("n1",), users=(f"u{i}",))
    assert cluster.alerts("reservation") == [
        "reservation r16 was not made: at most 16 different access lists are allowed"
    ]
    assert len(reservations_of(cluster.engine.state)) == 16


def test_reservations_and_access_survive_a_checkpoint() -> None:
    cluster = featured()
    reserve(cluster, "r", 100, 1000, features=("big",), users=("ann",), reason="course")
    cluster.submit("1", owner="eve", walltime=200)
    engine = Engine.restore(cluster.engine.checkpoint())
    assert engine.checkpoint() == cluster.engine.checkpoint()
    cluster.engine = engine
    cluster.submit("2", "1:ppn=4:big", walltime=200)
    cluster.submit("3", "1:ppn=4:big", walltime=200, owner="eve")
    assert (cluster.start("2"), cluster.start("3")) == (0, 1000)
    cluster.node("n5", properties=("big",))
    assert reservations_of(cluster.engine.state)["r"].nodes == ("n1", "n2", "n5")


def test_a_reservation_that_is_asked_for_anew_has_its_own_nodes_and_none_of_anothers() -> None:
    cluster = Cluster(nodes=3)
    both = ("R7", "R8")
    reserve(cluster, "R7.s", 100, 600, nodes=("n1",), queues=(*both, "R7:anew"))
    reserve(cluster, "R8.s", 500, 560, nodes=("n2",), queues=(*both, "R8:anew"))
    asked = {"nodes": "", "select": "2:ncpus=4", "place": "scatter"}
    more: dict[str, Any] = {"family": "openpbs", "walltime": 50, "not_before": T + 500, "resources": asked}
    cluster.submit("1", queue="R7:anew", **more)
    assert cluster.view("1").planned_start == T + 500
    assert {share.node for share in cluster.view("1").planned_nodes} == {"n1", "n3"}
    cluster.submit("2", queue="R7:anew", **more | {"resources": asked | {"select": "3:ncpus=4"}})
    assert cluster.view("2").planned_start == T + 560, "n2 is another's until then"


def test_a_job_that_ends_as_a_reservation_begins_is_not_in_its_way() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1", walltime=100)
    view = cluster.view("1")
    assert (view.state, view.planned_start) == ("running", view.started)
    end = cluster.engine.state.plan.end(cluster.record("1").slot)
    found = []
    for start in (end - 1, end):
        event = Reserve(id=f"r:{start}", time=T, name="repair", nodes=("n1",), start=start)
        engine = Engine.restore(cluster.engine.checkpoint())
        found.append([one.job for one in preview(engine, [event], cluster.server.now).running])
    assert found == [["1"], []]


def test_a_reservation_that_is_told_again_moves_nothing() -> None:
    cluster = Cluster(nodes=2)
    once = Reserve(id="r:1", time=T, name="R1", nodes=("n1",), start=T + 100, end=T + 200, reason="")
    cluster.tell(once)
    slot = reservations_of(cluster.engine.state)["R1"].slot
    cluster.at(10)
    cluster.tell(replace(once, id="r:2", time=T + 10))
    assert reservations_of(cluster.engine.state)["R1"].slot == slot
    cluster.tell(replace(once, id="r:3", time=T + 10, end=T + 300))
    assert reservations_of(cluster.engine.state)["R1"].event.end == T + 300
