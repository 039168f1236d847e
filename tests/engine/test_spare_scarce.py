"""Nodes with gpus come first in the server's list: jobs without gpus leave these nodes to others."""

from typing import Any

import pytest

from schedd.engine import Engine
from schedd.plan.scarcity import NodeChoice
from schedd.wire import NodeFacts, PolicyChanged
from tests.engine.cluster import Cluster, T


def with_gpus(**settings: Any) -> Cluster:
    """Two nodes with gpus, then six without."""
    cluster = Cluster(nodes=0, **settings)
    for number in range(8):
        cluster.server.nodes[f"n{number}"] = NodeFacts(name=f"n{number}", cpus=4, gpus=2 if number < 2 else 0)
    cluster.send(cluster.server.snapshot())
    return cluster


@pytest.mark.parametrize(("spare", "start"), [(True, 0), (False, 1_000)])
def test_a_job_that_needs_gpus_finds_them_though_others_came_before(spare: bool, start: int) -> None:
    cluster = with_gpus(site={"spare_scarce": spare})
    for number in range(6):
        cluster.submit(f"{number}", "1:ppn=4", walltime=1_000)
    cluster.submit("gpu", "1:ppn=1:gpus=1", walltime=100)
    assert cluster.start("gpu") == start


def test_a_site_may_change_its_mind() -> None:
    cluster = with_gpus()
    cluster.submit("1", "1:ppn=1")
    assert cluster.planned_node_names("1") == ["n2"]
    event = PolicyChanged(id="p", time=T, version=1, site={"spare_scarce": False}, by="root")
    cluster.send(event)
    cluster.submit("2", "1:ppn=4")
    assert cluster.planned_node_names("2") == ["n0"]


def test_demand_that_was_counted_survives_a_checkpoint() -> None:
    cluster = Cluster(nodes=0)
    for number in range(6):
        properties = ("ib",) if number == 0 else ()
        cluster.server.nodes[f"n{number}"] = NodeFacts(name=f"n{number}", cpus=4, properties=properties)
    cluster.send(cluster.server.snapshot())
    cluster.submit("0", "1:ppn=4:ib", walltime=100)
    cluster.submit("1", "1:ppn=4:ib", walltime=100)
    cluster.at(250)
    again = Engine.restore(cluster.engine.checkpoint())
    cluster.submit("2", "1:ppn=4", walltime=100)
    assert cluster.planned_node_names("2") == ["n1"], "though nobody asks for n0 now"
    assert again.state.plan.shapes.weights == cluster.engine.state.plan.shapes.weights != {}


def test_a_fork_chooses_the_same_nodes() -> None:
    cluster = with_gpus()
    cluster.submit("1", "1:ppn=4:gpus=2", walltime=100)
    fork = cluster.engine.state.plan.fork()
    slot = cluster.record("1").slot
    assert fork.takes(slot) == cluster.engine.state.plan.takes(slot)
    request = cluster.engine.state.plan.request(slot)
    for plan in (fork, cluster.engine.state.plan):
        new = plan.add_job(request, 100, T)
        plan.place(new, T)
        assert plan.node_names[plan.takes(new)[0].row] == "n1"
        plan.drop_job(new, T)


def node_choice(cluster: Cluster, job: str) -> NodeChoice:
    return cluster.engine.state.plan.node_choice(cluster.record(job).slot)


def test_node_choice_reports_spared_and_wasted_resources() -> None:
    cluster = with_gpus()
    cluster.obeys = False
    cluster.submit("plain", "1:ppn=4")
    cluster.submit("gpu", "1:ppn=4:gpus=2")
    for number in range(5):
        cluster.submit(f"{number}", "1:ppn=4")
    cluster.submit("last", "1:ppn=4")
    assert node_choice(cluster, "plain") == NodeChoice(True, (), (("gpus", 2),))
    assert node_choice(cluster, "gpu") == NodeChoice(True, (), ())
    assert cluster.planned_node_names("last") == ["n1"]
    assert node_choice(cluster, "last") == NodeChoice(True, (("gpus", 2),), ())
    cluster.send(PolicyChanged(id="p", time=T, version=1, site={"spare_scarce": False}, by="root"))
    assert not node_choice(cluster, "plain").spares_scarce


def test_tightest_fit_is_chosen_on_equal_nodes() -> None:
    cluster = Cluster(nodes=3)
    cluster.obeys = False
    cluster.submit("1", "1:ppn=2")
    assert node_choice(cluster, "1") == NodeChoice(True, (), ())
