"""Cores that a server lists as free and refuses as busy are left out of the plan, and tried after a pause."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from schedd.engine import Engine
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.refused_cores.state import refused_cores
from schedd.wire import ClockSet
from tests.engine.cluster import Cluster, T
from tests.engine.server import Server


@dataclass
class LosingServer(Server):
    """A server that has lost cores: its list shows them as free, and it refuses starts there."""

    lost: dict[str, int] = field(default_factory=dict)

    def free(self, node: str) -> int:
        return super().free(node) - self.lost.get(node, 0)


def losing_cluster(lost: int, nodes: int = 1, **settings: Any) -> tuple[Cluster, LosingServer]:
    """A cluster of nodes with 4 cores; n1 has lost some."""
    cluster = Cluster(nodes=nodes, **settings)
    server = cluster.server = LosingServer(**vars(cluster.server), lost={"n1": lost})
    return cluster, server


def tries(cluster: Cluster, *jobs: str) -> list[int]:
    return [len(cluster.runs(job)) for job in jobs]


def alerts(cluster: Cluster) -> list[tuple[str, str]]:
    return [(one.kind, one.about) for one in publish_snapshot(cluster.engine.state).alerts]


def test_one_job_learns_for_all_that_a_node_refuses_cores() -> None:
    cluster, _ = losing_cluster(4)
    for job in "abcd":
        cluster.submit(job, "1:ppn=1", 1000)
    cluster.at(64)
    assert sum(tries(cluster, *"abcd")) == 4 * 6, "all four were due in the same second"
    for job in "efgh":
        cluster.submit(job, "1:ppn=1", 1000)
    assert tries(cluster, *"efgh") == [0, 0, 0, 0]
    assert alerts(cluster) == [("refused_cores", "n1")]


def test_cores_that_are_not_refused_are_used() -> None:
    cluster, _ = losing_cluster(2)
    cluster.submit("a", "1:ppn=3", 1000)
    cluster.at(5)
    cluster.submit("b", "1:ppn=2", 50)
    cluster.submit("c", "1:ppn=1", 10)
    assert cluster.runs("b") == [5]
    assert cluster.start("c") == 55
    (one,) = refused_cores(cluster.engine.state).values()
    assert (one.cores, one.again_at - T) == (2, 65)
    assert (
        "it lists 4 of the 4 cores as free; the plan does not use 2 of them"
        in cluster.alerts("refused_cores")[0]
    )


def test_whole_node_job_waits_until_the_refused_cores_are_tried() -> None:
    cluster, _ = losing_cluster(2)
    cluster.submit("a", "1:ppn=3", 1000)
    cluster.at(5)
    (one,) = refused_cores(cluster.engine.state).values()
    cluster.submit("b", "1:ppn=1", 50, exclusive=True)
    start = cluster.start("b")
    assert start is not None
    assert start >= one.again_at - T


def test_a_node_with_refused_cores_is_left_for_another_one() -> None:
    cluster, _ = losing_cluster(4, nodes=2)
    cluster.submit("a", "n1:ppn=1", 1000)
    cluster.at(5)
    for job in "bcde":
        cluster.submit(job, "1:ppn=1", 1000)
    assert [cluster.runs(job) for job in "bcde"] == [[5]] * 4
    assert {share.node for job in "bcde" for share in cluster.server.jobs[job].shares} == {"n2"}


def test_each_refused_trial_doubles_the_pause_and_a_start_ends_it() -> None:
    cluster, server = losing_cluster(4)
    cluster.submit("a", "1:ppn=1", 1000)
    cluster.at(5 + 60 + 120 + 240)
    trials = [moment for moment in cluster.runs("a") if moment > 5]
    assert trials == [65, 185, 425]
    server.lost.clear()
    cluster.at(425 + 480)
    assert cluster.server.jobs["a"].state == "R"
    assert refused_cores(cluster.engine.state) == {}
    assert alerts(cluster) == []


@pytest.mark.parametrize("end", ["np", "offline", "restart"])
def test_a_changed_node_and_a_restarted_server_end_it(end: str) -> None:
    cluster, server = losing_cluster(4)
    cluster.submit("a", "1:ppn=1", 1000)
    cluster.at(10)
    server.lost.clear()
    if end == "np":
        cluster.node("n1", cpus=6)
    elif end == "offline":
        cluster.node("n1", state="drain")
        cluster.node("n1", state="up")
    else:
        cluster.send(replace(cluster.server.snapshot(), server_age=2))
    cluster.at(40)
    assert cluster.server.jobs["a"].state == "R"
    assert alerts(cluster) == []


@pytest.mark.parametrize("resources", [{"mem": "1gb"}, {"gpus": "0"}])
def test_requests_for_more_than_cores_are_no_evidence(resources: dict[str, str]) -> None:
    cluster, _ = losing_cluster(4)
    cluster.submit("a", "1:ppn=1", 1000, resources={**resources, "vmem": "2gb"})
    cluster.at(100)
    assert refused_cores(cluster.engine.state) == {}


def test_it_survives_a_restart_and_a_rebuilt_plan() -> None:
    cluster, _ = losing_cluster(3)
    cluster.submit("a", "1:ppn=2", 1000)
    cluster.at(10)
    (before,) = refused_cores(cluster.engine.state).values()
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    assert refused_cores(cluster.engine.state) == {"n1": before}
    cluster.server.now -= 5
    cluster.send(ClockSet(id=cluster.server.event_id(), time=cluster.server.now))
    cluster.send(cluster.server.snapshot())
    (after,) = refused_cores(cluster.engine.state).values()
    assert (after.again_at, after.cores) == (before.again_at - 5, before.cores)
    assert after.slot >= 0
