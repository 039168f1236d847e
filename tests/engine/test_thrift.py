"""Jobs go to nodes that draw less for their work, where they start no later for it."""

from typing import Any

import pytest

from schedd.plan.plan import Plan
from schedd.plan.work_limits import WorkSpent
from schedd.policy.economy import Draw
from schedd.policy.energy_placement import joules_for_work
from schedd.wire import PolicyChanged
from tests.engine.cluster import Cluster, T

POWER = {
    "n1": {"idle": 100.0, "core": 9.0},
    "n2": {"idle": 100.0, "core": 3.0},
    "*": {"idle": 100.0, "core": 5.0},
}


def cluster_of(nodes: int = 3, site: dict[str, Any] | None = None, **more: Any) -> Cluster:
    wanted = {"power": POWER, "thrift": {"prefer": True}, **(site or {})}
    return Cluster(nodes=nodes, site=wanted, **more)


def test_thriftiest_free_node_is_chosen() -> None:
    cluster = cluster_of()
    for job in "123":
        cluster.submit(job)
    assert [cluster.planned_node_names(job) for job in "123"] == [["n2"], ["n3"], ["n1"]]
    assert [cluster.runs(job) for job in "123"] == [[0]] * 3


def test_without_the_setting_it_is_not() -> None:
    cluster = Cluster(nodes=3, site={"power": POWER})
    cluster.submit("1")
    assert cluster.planned_node_names("1") == ["n1"]


def test_no_job_waits_for_a_thriftier_node() -> None:
    cluster = cluster_of(nodes=2)
    cluster.submit("1", "n2:ppn=4", walltime=100)
    cluster.submit("2")
    assert (cluster.planned_node_names("2"), cluster.runs("2")) == (["n1"], [0])


@pytest.mark.parametrize(
    ("search", "site"),
    [("fits_at_start", {}), ("place_at_start", {"node_choice": {"arrange": "contiguous"}, "thrift": {}})],
)
def test_job_keeps_its_nodes_if_the_search_for_better_ones_is_too_hard(
    monkeypatch: pytest.MonkeyPatch, search: str, site: dict[str, Any]
) -> None:
    def stop_search(*_: object) -> bool:
        raise WorkSpent("too hard")

    monkeypatch.setattr(Plan, search, stop_search)
    cluster = cluster_of(site=site)
    cluster.submit("1")
    assert (cluster.planned_node_names("1"), cluster.runs("1")) == (["n1"], [0])
    assert cluster.alerts("quarantine") == []


def test_planned_job_moves_to_a_thriftier_node_that_is_free_at_its_start() -> None:
    cluster = cluster_of(nodes=2)
    cluster.submit("1", "n1:ppn=4", walltime=100)
    cluster.submit("2", "n2:ppn=4", walltime=200, runtime=50)
    cluster.submit("3", walltime=300)
    assert (cluster.planned_node_names("3"), cluster.start("3")) == (["n1"], 100)
    cluster.at(101)
    assert (cluster.planned_node_names("3"), cluster.runs("3")) == (["n2"], [50])


def test_job_near_its_deadline_gets_the_fastest_node_others_the_thriftiest() -> None:
    power = {"n1": {"idle": 100.0, "core": 8.0}, "*": {"idle": 100.0, "core": 5.0}}
    cluster = cluster_of(nodes=2, site={"power": power, "speeds": {"n1": 1.5}})
    due = {"deadline": f"{T + 3000}"}
    cluster.submit("later", "1:ppn=1", 100, resources={"deadline": f"{T + 9000}"})
    cluster.submit("soon", "1:ppn=1", 100, resources=due)
    cluster.submit("whenever", "1:ppn=1", 100)
    assert [cluster.planned_node_names(job) for job in ("later", "soon", "whenever")] == [
        ["n2"],
        ["n1"],
        ["n2"],
    ]


def test_a_change_of_watts_counts_from_the_next_job_on() -> None:
    cluster = cluster_of()
    cluster.submit("1", "1:ppn=1")
    assert cluster.planned_node_names("1") == ["n2"]
    power = {**POWER, "n3": {"idle": 100.0, "core": 1.0}}
    site = {"power": power, "thrift": {"prefer": True}}
    now = cluster.server.now
    cluster.send(PolicyChanged(id=cluster.server.event_id(), time=now, version=2, site=site, by="root"))
    cluster.submit("2", "1:ppn=1")
    assert cluster.planned_node_names("2") == ["n3"]


@pytest.mark.parametrize(("gpus", "best"), [(0.0, "few"), (0.5, "none")])
def test_draw_of_a_job_includes_its_gpus(gpus: float, best: str) -> None:
    draws = {"few": Draw(idle=100, core=2, gpu=300), "none": Draw(idle=100, core=5, gpu=250), "unknown": None}
    found = joules_for_work(draws, dict.fromkeys(draws, 1.0), gpus)
    assert min(found, key=found.__getitem__) == best
    assert found["unknown"] == max(found.values())
