"""Jobs on one node set, by the site's policy or by request, and their views."""

from dataclasses import replace
from typing import Any

import pytest

from schedd.engine import Cause, Engine, publish_snapshot, render_job
from schedd.model import NodeSets
from schedd.wire import PolicyChanged
from tests.engine.cluster import Cluster

EAST_WEST = {"east": ["left"], "west": ["n3", "n4"]}


def cluster_of(site: dict[str, Any]) -> Cluster:
    """n1 and n2 are in the east, n3 and n4 in the west; n5 is nowhere."""
    cluster = Cluster(nodes=5, site=site)
    for name in ("n1", "n2"):
        cluster.node(name, properties=("left", "switch=a"))
    for name in ("n3", "n4"):
        cluster.node(name, properties=("switch=b",))
    return cluster


@pytest.mark.parametrize("sets", [{"sets": EAST_WEST}, {"by": "switch"}])
def test_jobs_are_placed_on_one_node_set_of_the_site(sets: dict[str, Any]) -> None:
    cluster = cluster_of({"node_sets": sets})
    cluster.submit("0", "n1:ppn=4", walltime=50)
    cluster.submit("1", "2:ppn=4")
    assert (cluster.start("1"), cluster.planned_node_names("1")) == (0, ["n3", "n4"])
    assert cluster.view("1").node_sets == (("west",) if "sets" in sets else ("switch=b",))
    # Only n2 and n5 are left; n5 is in no set.
    cluster.submit("2", "2:ppn=4")
    assert (cluster.start("2"), cluster.planned_node_names("2")) == (0, ["n2", "n5"])
    cluster.submit("3", "3:ppn=4")
    assert cluster.start("3") == 100
    assert len(cluster.view("3").node_sets) == 2
    assert "on 2 sets of nodes (" in cluster.view("3").why
    cluster.submit("4", "1:ppn=2")
    assert cluster.view("4").node_sets == ()


def test_site_sets_the_maximum_wait_for_one_node_set() -> None:
    for wait, start, where in ((99, 0, ["n2", "n5"]), (100, 100, ["n3", "n4"])):
        cluster = cluster_of({"node_sets": {"sets": EAST_WEST, "wait": wait}})
        cluster.submit("0", "n1:ppn=4", walltime=500)
        cluster.submit("1", "2:ppn=4")
        cluster.submit("2", "2:ppn=4")
        assert (cluster.start("2"), cluster.planned_node_names("2")) == (start, where)
        cluster.at(start)
        assert cluster.runs("2") == [start]


def test_job_that_requests_one_switch_waits_for_it() -> None:
    cluster = cluster_of({})
    cluster.submit("0", "n1:ppn=4", walltime=500)
    resources = {"select": "2:ncpus=4", "place": "scatter:group=switch", "nodes": ""}
    for job in ("1", "2"):
        cluster.submit(job, resources=resources, family="openpbs")
    assert [cluster.planned_node_names(job) for job in "12"] == [["n3", "n4"]] * 2
    assert [cluster.start(job) for job in "12"] == [0, 100]
    # No switch has three nodes: then on as few as there can be.
    cluster.submit("3", resources=resources | {"select": "3:ncpus=4"}, family="openpbs")
    assert cluster.start("3") == 200


def test_another_policy_moves_only_jobs_that_must_not_stay() -> None:
    cluster = cluster_of({})
    cluster.submit("0", "5:ppn=4", walltime=50)
    cluster.submit("1", "n2:ppn=4", walltime=500)
    cluster.submit("2", "2:ppn=4")
    cluster.submit("3", "2:ppn=4")
    assert [(cluster.start(job), cluster.planned_node_names(job)) for job in "23"] == [
        (50, ["n1", "n3"]),
        (50, ["n4", "n5"]),
    ]
    site = {"node_sets": {"by": "switch", "strict": True}}
    cluster.send(PolicyChanged(id="p1", time=cluster.server.now, version=1, site=site))
    assert (cluster.start("1"), cluster.planned_node_names("1")) == (50, ["n2"])
    assert [(cluster.start(job), cluster.planned_node_names(job)) for job in "23"] == [
        (50, ["n3", "n4"]),
        (150, ["n3", "n4"]),
    ]
    assert cluster.at_risk("3") == Cause.ADMIN
    engine = Engine.restore(cluster.engine.checkpoint())
    assert engine.checkpoint() == cluster.engine.checkpoint()
    cluster.engine = engine
    cluster.submit("4", "2:ppn=4")
    assert cluster.start("4") == 250
    cluster.node("n5", properties=("switch=a",))
    # Repair goes by start: the third job is the first to gain, the fourth takes its place.
    assert [(cluster.start(job), cluster.planned_node_names(job)) for job in "34"] == [
        (50, ["n1", "n5"]),
        (150, ["n3", "n4"]),
    ]


def test_a_job_may_use_several_sets_that_count_as_one() -> None:
    cluster = Cluster(nodes=3)
    for name in ("n1", "n2", "n3"):
        cluster.node(name, properties=(f"Switch={name}",))
    request = NodeSets(by="Switch", most=2)
    views = {}
    for nodes in (2, 3):
        cluster.submit(str(nodes), f"{nodes}:ppn=4")
        record = cluster.record(str(nodes))
        assert record.understood.request is not None
        asked = replace(record.understood.request, together=request)
        record = replace(record, understood=replace(record.understood, request=asked))
        views[nodes] = render_job(publish_snapshot(cluster.engine.state), record)
    assert views[2].node_sets == ("Switch=n1", "Switch=n2")
    assert "sets of nodes" not in views[2].why
    assert "on 3 sets of nodes (Switch=n1, Switch=n2, Switch=n3)" in views[3].why
