"""Inputs of priority terms."""

from typing import Any

import pytest

from schedd.engine.component.ranking_hooks import present_shares
from schedd.engine.rank.priorities import current_demand, make_applicant, priority_breakdown
from schedd.wire import QueueFacts
from tests.engine.cluster import Cluster, T


def points(cluster: Cluster, job_id: str) -> dict[str, float]:
    state = cluster.engine.state
    found = priority_breakdown(state, state.records[job_id], current_demand(state, present_shares(state)))
    return {term.name: term.points for term in found.terms}


def test_applicant_has_the_servers_facts_of_a_job() -> None:
    cluster = Cluster(nodes=2)
    cluster.server.queues["urgent"] = QueueFacts(name="urgent", priority=70)
    cluster.send(cluster.server.snapshot())
    cluster.submit(
        "1",
        "2:ppn=2",
        walltime=600,
        queue="urgent",
        group="phys",
        account="a1",
        priority=-5,
        resources={"mem": "8gb", "x.deadline": "+1:00:00"},
    )
    state = cluster.engine.state
    one = make_applicant(state, state.records["1"])
    assert (one.owner, one.group, one.account, one.queue) == ("ann@login", "phys", "a1", "urgent")
    assert (one.queue_priority, one.priority) == (70, -5)
    assert (one.cpus, one.nodes, one.mem, one.walltime) == (4, 2, 8 << 20, 600)
    assert (one.submitted, one.deadline) == (T, T + 3600)


def test_applicant_follows_alterations_of_the_job() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("0", walltime=100)
    cluster.submit("1", "1:ppn=2", walltime=100, priority=1)
    state = cluster.engine.state

    def describe_applicant() -> tuple[int, int, int, int, str]:
        one = make_applicant(state, state.records["1"])
        assert make_applicant(state, state.records["1"]) is one
        return one.priority, one.queue_priority, one.cpus, one.walltime, one.queue

    assert describe_applicant() == (1, 0, 2, 100, "batch")
    cluster.alter("1", priority=7)
    assert describe_applicant() == (7, 0, 2, 100, "batch")
    cluster.alter_request("1", nodes="1:ppn=1", walltime="50")
    assert describe_applicant() == (7, 0, 1, 50, "batch")
    cluster.server.queues["batch"] = QueueFacts(name="batch", priority=9)
    cluster.send(cluster.server.snapshot())
    assert describe_applicant() == (7, 9, 1, 50, "batch")
    cluster.server.queues["other"] = QueueFacts(name="other", priority=3)
    cluster.send(cluster.server.snapshot())
    cluster.alter("1", queue="other")
    assert describe_applicant() == (7, 3, 1, 50, "other")
    cluster.at(1000)
    assert state.applicants == {}


def test_waiting_counts_from_the_release_and_not_while_held() -> None:
    cluster = Cluster(nodes=1, site={"priority": {"waiting": 3600.0}})
    cluster.submit("0", walltime=10_000)
    cluster.submit("1")
    cluster.submit("2", eligible=T + 40)
    cluster.submit("3", state="H", holds="u")
    cluster.at(100)
    assert [points(cluster, job)["waiting"] for job in "123"] == [100.0, 60.0, 0.0]


def test_licences_are_cluster_wide_limits_of_server_and_site() -> None:
    site: dict[str, Any] = {
        "priority": {"licences": 1.0},
        "limits": [{"amount": 4, "what": "matlab"}, {"amount": 1, "what": "matlab", "who": "user"}],
    }
    cluster = Cluster(nodes=1, site=site)
    cluster.submit("0", "1:ppn=1", walltime=10_000, resources={"matlab": "1"})
    cluster.submit("1", "1:ppn=1", walltime=10_000, owner="bob", resources={"matlab": "4"})
    cluster.submit("2", "1:ppn=4", walltime=10_000, owner="eve")
    assert cluster.engine.state.limits.copies == {"matlab": 4}
    # 0 runs; 1 asks for more than its user may have, so it waits for the limit and does not count.
    assert current_demand(cluster.engine.state, None).pressures == {"matlab": 0.25}


def test_user_with_more_usage_has_fewer_fair_share_points() -> None:
    site = {"priority": {"fair_share": 100.0}, "fair_share": {"levels": ["user"]}}
    cluster = Cluster(nodes=1, site=site)
    cluster.submit("0", walltime=100)
    cluster.at(100)
    cluster.submit("1", walltime=10)
    cluster.submit("2", walltime=10)
    cluster.submit("3", walltime=10, owner="bob")
    assert points(cluster, "2")["fair_share"] == pytest.approx(100 * 2**-2)
    assert points(cluster, "3")["fair_share"] == 100.0
