"""Nodes that fail: what counts as a failure, and long jobs that leave such nodes where that costs no time."""

from typing import Any

from schedd.engine.checkpoint import load
from tests.engine.cluster import Cluster
from tests.features.power.test_power import PoweredCluster

HOUR = 3600
GRACE = 300


def cluster_of(nodes: int = 3, **more: Any) -> Cluster:
    return Cluster(nodes=nodes, site={"reliability": {"avoid": HOUR}}, **more)


def fail(cluster: Cluster, name: str, moment: int) -> int:
    """Let a node be down for longer than the grace; returns a moment after it is back."""
    cluster.at(moment)
    cluster.node(name, state="down")
    cluster.at(moment + GRACE + 1)
    cluster.node(name, state="up")
    return moment + GRACE + 2


def failures(cluster: Cluster) -> dict[str, float]:
    return {name: round(life.failures, 2) for name, life in cluster.engine.state.lives.items()}


def test_a_node_that_goes_down_by_itself_for_longer_than_the_grace_has_failed() -> None:
    cluster = cluster_of()
    fail(cluster, "n1", 1000)
    assert failures(cluster) == {"n1": 1, "n2": 0, "n3": 0}


def test_node_that_returns_soon_or_was_drained_first_has_no_failure() -> None:
    cluster = cluster_of()
    cluster.at(1000)
    cluster.node("n1", state="down")
    cluster.at(1000 + GRACE - 10)
    cluster.node("n1", state="up")
    cluster.node("n2", state="drain")
    fail(cluster, "n2", 3000)
    assert failures(cluster) == {"n1": 0, "n2": 0, "n3": 0}


def test_a_failure_is_counted_once_however_long_the_node_is_down() -> None:
    cluster = cluster_of()
    cluster.at(1000)
    cluster.node("n1", state="down")
    cluster.at(5000)
    cluster.node("n1", state="down", mem=5)
    cluster.at(9000)
    cluster.node("n1", state="up")
    assert failures(cluster)["n1"] == 1


def test_a_long_job_goes_to_nodes_that_fail_less_and_a_short_one_to_the_first() -> None:
    cluster = cluster_of()
    fail(cluster, "n1", 1000)
    fail(cluster, "n2", 5000)
    fail(cluster, "n1", 9000)
    cluster.submit("short", walltime=HOUR - 1)
    assert cluster.planned_node_names("short") == ["n1"]
    cluster.submit("long", walltime=HOUR)
    assert cluster.planned_node_names("long") == ["n3"]
    cluster.submit("longer", walltime=2 * HOUR)
    assert cluster.planned_node_names("longer") == ["n2"], "of what is free at once"


def test_no_job_waits_for_a_more_reliable_node() -> None:
    cluster = cluster_of(nodes=2)
    moment = fail(cluster, "n1", 1000)
    cluster.submit("here", "n2:ppn=4", walltime=100)
    cluster.submit("long", walltime=5 * HOUR)
    assert (cluster.planned_node_names("long"), cluster.runs("long")) == (["n1"], [moment - 1])


def test_a_wide_job_leaves_the_worst_of_its_nodes() -> None:
    cluster = cluster_of(nodes=4)
    fail(cluster, "n1", 1000)
    fail(cluster, "n2", 5000)
    fail(cluster, "n2", 9000)
    cluster.submit("wide", "3:ppn=4", walltime=HOUR)
    assert sorted(cluster.planned_node_names("wide")) == ["n1", "n3", "n4"]
    cluster.submit("all", "4:ppn=4", walltime=HOUR)
    assert len(cluster.planned_node_names("all")) == 4, "where it needs them all it has them all"


def test_planned_job_moves_to_a_more_reliable_node_that_is_free_at_its_start() -> None:
    cluster = cluster_of(nodes=2)
    moment = fail(cluster, "n1", 1000)
    cluster.submit("1", "n1:ppn=4", walltime=5000)
    cluster.submit("2", "n2:ppn=4", walltime=9000, runtime=5000)
    cluster.submit("long", walltime=HOUR)
    cluster.at(moment + 2000)
    assert cluster.planned_node_names("long") == ["n1"]
    cluster.at(moment + 5000)
    assert cluster.runs("long") == [moment - 1 + 5000]
    assert cluster.planned_node_names("long") == ["n2"]


def test_without_the_setting_and_without_failures_all_is_as_before() -> None:
    plain = Cluster(nodes=2)
    fail(plain, "n1", 1000)
    plain.submit("long", walltime=HOUR)
    assert plain.planned_node_names("long") == ["n1"]
    assert failures(plain) == {"n1": 1, "n2": 0}, "it is counted all the same"
    calm = cluster_of(nodes=2)
    calm.submit("long", walltime=HOUR)
    assert calm.planned_node_names("long") == ["n1"]


def test_a_node_that_we_switched_off_has_not_failed() -> None:
    cluster = PoweredCluster()
    cluster.submit("1", "n1:ppn=4", walltime=5000)
    cluster.at(2000)
    assert cluster.phase("n2") == "off"
    assert failures(cluster) == {"n1": 0, "n2": 0}


def test_history_outlives_a_checkpoint() -> None:
    cluster = cluster_of()
    fail(cluster, "n1", 1000)
    before = cluster.engine.state.lives
    again, _ = load(cluster.engine.checkpoint(), None)
    assert again.lives == before


def test_a_long_job_is_planned_where_nodes_fail_less_before_its_time_has_come() -> None:
    cluster = cluster_of(nodes=2)
    fail(cluster, "n1", 1000)
    cluster.submit("1", "n1:ppn=4", walltime=5000)
    cluster.submit("2", "n2:ppn=4", walltime=5000)
    cluster.submit("long", walltime=HOUR)
    assert (cluster.runs("long"), cluster.planned_node_names("long")) == ([], ["n2"])
