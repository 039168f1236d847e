"""Chunks without cores: planned, dispatched, run, seen again by their shares, and ended."""

from dataclasses import replace
from typing import Any

import pytest

from schedd.engine import Engine
from schedd.engine.facts.shares import takes_for_shares
from schedd.model import Chunk, Request
from schedd.plan.columns import MEM
from schedd.wire import ResourceFacts, Run, ServerFacts, ShareFacts
from tests.engine.cluster import Cluster

GIB = 1 << 20


def cluster_of(**settings: Any) -> Cluster:
    """n1 has cores only; n2 has scratch, too."""
    cluster = Cluster(nodes=2, **settings)
    facts = ServerFacts(family="openpbs", resources={"scratch": ResourceFacts("size", "hn")})
    cluster.send(*cluster.server.change_server(facts))
    cluster.node("n1", mem=8 * GIB)
    cluster.node("n2", mem=8 * GIB, resources={"scratch": GIB})
    return cluster


def submit(cluster: Cluster, job: str, select: str) -> None:
    resources = {"select": select, "place": "free", "nodes": ""}
    cluster.submit(job, resources=resources, family="openpbs")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"policy": "easy"},
        {"site": {"priority": {"size": 5, "short": 1, "waiting": 1}}},
        {"predict": True},
    ],
    ids=str,
)
def test_a_job_without_cores_runs_and_ends(settings: dict[str, object]) -> None:
    cluster = cluster_of(**settings)
    submit(cluster, "0", "2:ncpus=4")  # no core is free
    submit(cluster, "1", "1:ncpus=0:mem=100mb")
    [run] = [one for one in cluster.decisions if isinstance(one, Run) and one.job_id == "1"]
    assert [(share.cpus, share.mem) for share in run.shares] == [(0, 102_400)]
    assert cluster.view("1").state == "running"
    cluster.at(100)
    assert "1" not in cluster.engine.state.records
    assert cluster.alerts("error") == cluster.alerts("quarantine") == []


def test_each_chunk_is_on_a_node_with_its_resources() -> None:
    cluster = cluster_of()
    submit(cluster, "0", "1:ncpus=4:scratch=1")  # on n2
    submit(cluster, "1", "1:ncpus=1+1:ncpus=0:scratch=512mb")
    [run] = [one for one in cluster.decisions if isinstance(one, Run) and one.job_id == "1"]
    assert [(share.node, share.cpus) for share in run.shares] == [("n1", 1), ("n2", 0)]
    submit(cluster, "2", "1:ncpus=0:scratch=600mb")
    assert cluster.start("2") == 100
    # A restarted daemon knows the job only by its shares.
    again = Cluster(nodes=0)
    again.server = cluster.server
    again.engine = Engine(cluster.engine.state.settings, cluster.server.now)
    again.send(again.server.snapshot())
    assert again.start("2") == 100


def test_unreported_amounts_are_those_of_the_units_on_each_node() -> None:
    cluster = cluster_of()
    plan = cluster.engine.state.plan
    scratch = plan.resource_columns["scratch"]
    request = Request((Chunk(cpus=1), Chunk(cpus=0, mem=GIB, resources=(("scratch", 1000),))))
    one, other = takes_for_shares(plan, request, [ShareFacts("n1", 1), ShareFacts("n2", 0)])
    assert (one.amounts[MEM], one.amounts[scratch]) == (0, 0)
    assert (other.amounts[MEM], other.amounts[scratch]) == (GIB, 1000)
    alone = replace(request, chunks=request.chunks[1:])
    [take] = takes_for_shares(plan, alone, [ShareFacts("n2", 0)])
    assert (take.amounts[MEM], take.amounts[scratch]) == (GIB, 1000)


@pytest.mark.parametrize("select", ["1:ncpus=2:mem=2gb+2:ncpus=1:mem=500mb", "1:ncpus=1+1:ncpus=0:mem=1gb"])
def test_different_chunks_on_one_node_are_one_share(select: str) -> None:
    """The adapter refuses a decision that names a node twice."""
    cluster = cluster_of()
    submit(cluster, "0", "1:ncpus=4:scratch=1")  # all of n2
    submit(cluster, "1", select)
    [run] = [one for one in cluster.decisions if isinstance(one, Run) and one.job_id == "1"]
    assert [share.node for share in run.shares] == ["n1"]
    view = cluster.view("1")
    assert [share.node for share in view.planned_nodes] == ["n1"]
    assert view.state == "running"
