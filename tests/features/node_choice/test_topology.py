"""Wishes for nodes of one set of a level of the network, of at most n, or with a bounded wait."""

from typing import Any

import pytest

from schedd.dialect import canonical
from schedd.dialect.errors import RequestError
from schedd.dialect.openpbs import parse_openpbs
from schedd.dialect.torque import parse_torque
from schedd.model import NodeSets, Request
from schedd.plan.requests import load_request, save_request
from schedd.wire import NodeFacts
from tests.engine.cluster import Cluster

LEVELS = {
    "switch": {"s1": ["n1", "n2"], "s2": ["n3", "n4"], "s3": ["n5", "n6"]},
    "island": {"east": ["n1", "n2", "n3", "n4"]},
}


def busy_cluster(**choice: Any) -> Cluster:
    """Of each switch one node is in use: for 500, 300 and 900 s."""
    cluster = Cluster(nodes=6, site={"node_choice": {"levels": LEVELS, **choice}})
    for job, node, length in (("1", "n1", 500), ("2", "n3", 300), ("3", "n5", 900)):
        cluster.submit(job, node, length)
    return cluster


def test_a_job_waits_for_nodes_of_one_switch() -> None:
    cluster = busy_cluster()
    cluster.submit("4", "2:ppn=4", resources={"topology": "switch"})
    cluster.submit("5", "2:ppn=4", resources={"topology": "switch"})
    assert (cluster.start("4"), cluster.planned_node_names("4")) == (300, ["n3", "n4"])
    assert (cluster.start("5"), cluster.planned_node_names("5")) == (400, ["n3", "n4"])


def test_of_two_nodes_on_one_switch_at_most_two_and_with_a_bounded_wait() -> None:
    cluster = busy_cluster()
    cluster.submit("4", "2:ppn=4", walltime=50, resources={"topology": "switch"})
    cluster.submit("5", "2:ppn=4", walltime=50, resources={"topology": "switch:2"})
    assert (cluster.start("4"), cluster.planned_node_names("4")) == (300, ["n3", "n4"])
    assert cluster.start("5") == 0
    other = busy_cluster()
    other.submit("4", "2:ppn=4", walltime=50, resources={"x.topology": "switch@200"})
    other.submit("5", "2:ppn=4", walltime=50, resources={"topology": "switch@5:00"})
    assert (other.start("4"), len(other.planned_node_names("4"))) == (0, 2)
    assert (other.start("5"), other.planned_node_names("5")) == (300, ["n3", "n4"])


def test_larger_levels_hold_larger_jobs_and_unknown_levels_are_refused() -> None:
    cluster = busy_cluster()
    cluster.submit("4", "4:ppn=4", resources={"topology": "island"})
    cluster.submit("5", "2:ppn=4", resources={"topology": "rack"})
    cluster.submit("6", "2:ppn=4", resources={"topology": "switch:0"})
    assert (cluster.start("4"), cluster.planned_node_names("4")) == (500, ["n1", "n2", "n3", "n4"])
    assert "no node has a level rack of the network: name island or switch" in cluster.view("5").why
    assert "names no level of the network" in cluster.view("6").why


def test_the_refusal_of_an_unknown_level_names_the_text_resources_of_nodes() -> None:
    cluster = Cluster(2)
    cluster.submit("1", "2:ppn=4", resources={"topology": "rack"})
    assert cluster.view("1").why.endswith("no node has a level rack of the network: take topology out")
    properties = ("Switch=s1", "ib=True", "fast")
    cluster.server.nodes["n1"] = NodeFacts(name="n1", cpus=4, properties=properties)
    cluster.send(cluster.server.snapshot())
    cluster.submit("2", "2:ppn=4", resources={"topology": "rack"})
    assert cluster.view("2").why.endswith("network: name switch (qalter -l topology=LEVEL)")


def test_resources_of_nodes_are_levels_and_both_families_read_the_wish() -> None:
    cluster = Cluster(nodes=4)
    for i in range(1, 5):
        cluster.node(f"n{i}", properties=(f"rack=r{i % 2}",))
    cluster.submit("0", "n1", 200)
    cluster.submit("1", "2:ppn=4", resources={"topology": "rack"})
    assert (cluster.start("1"), cluster.planned_node_names("1")) == (0, ["n2", "n4"])
    wanted = NodeSets(by="switch", wait=3600, most=2)
    torque = parse_torque({"nodes": "4", "topology": "switch:2@1:00:00"})
    openpbs = parse_openpbs({"select": "4:ncpus=1", "topology": "switch:2@1:00:00"})
    assert torque.together == openpbs.together == wanted
    assert "at most 2 switch if that is at most 3600 s later" in canonical(torque)
    for request in (torque, Request(torque.chunks, together=NodeSets(by="a", wait=None))):
        assert load_request(save_request(request)) == request
    with pytest.raises(RequestError, match="names no level"):
        parse_openpbs({"select": "4:ncpus=1", "topology": "2"})
