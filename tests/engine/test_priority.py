"""Priorities: precedence without any effect on promises."""

from typing import Any

import pytest

from schedd.engine import Cause, Engine
from schedd.engine.facts.explanations import format_moment
from schedd.engine.rank.priorities import current_demand, priority_breakdown
from schedd.engine.rank.ranking import next_rerank
from schedd.model import FOREVER
from schedd.wire import PolicyChanged, QueueFacts
from tests.engine.cluster import Cluster, T

WISH = {"priority": {"wish": 1.0}}


def cluster_with(site: dict[str, Any], **more: Any) -> Cluster:
    return Cluster(site=site, **{"slack": 1000, **more})


def change(cluster: Cluster, site: dict[str, Any], version: int = 1) -> None:
    cluster.send(PolicyChanged(id=f"p{version}", time=cluster.server.now, version=version, site=site))


def ranks(cluster: Cluster, jobs: str) -> list[int]:
    state = cluster.engine.state
    return [int(state.rank[state.records[job].slot]) for job in jobs]


def starts(cluster: Cluster, jobs: str) -> list[int | None]:
    return [cluster.start(job) for job in jobs]


def test_higher_priority_displaces_jobs_within_their_promises() -> None:
    cluster = cluster_with(WISH)
    for job in "1234":
        cluster.submit(job)
    cluster.submit("5", priority=10)
    assert starts(cluster, "12345") == [0, 200, 300, 400, 100]
    assert cluster.promise("5") == 1100
    assert [cluster.promise(job) for job in "234"] == [1100, 1200, 1300]
    change = cluster.view("2").last_change
    assert change is not None
    assert change.cause == Cause.PRIORITY
    assert change.words == (
        "job 5 of higher priority goes before, most by wish; "
        f"its promise of {format_moment(T + 1100)} still holds"
    )
    assert cluster.view("5").last_change.cause == "arrived"  # type: ignore[union-attr]


def test_no_job_is_delayed_past_its_promise() -> None:
    cluster = cluster_with(WISH, slack=100, end_allowance=0)
    for job in "1234":
        cluster.submit(job)
    cluster.submit("5", walltime=150, priority=10)
    assert starts(cluster, "12345") == [0, 100, 200, 300, 400]  # 150 s are more than 2, 3 and 4 can spare
    cluster.send(*cluster.server.delete("5"))
    cluster.submit("6", priority=10)
    assert starts(cluster, "12346") == [0, 200, 300, 400, 100]
    cluster.submit("7", walltime=10, priority=20)
    assert starts(cluster, "12367") == [0, 200, 300, 100, 500]  # no job can yield any more


def test_a_queue_may_promise_more_or_less_or_nothing() -> None:
    cluster = cluster_with(WISH, slack=100, queue_slack={"short": "10+0.5w", "scratch": "off"})
    cluster.submit("1")
    for job, queue in (("2", "batch"), ("3", "short"), ("4", "scratch")):
        cluster.submit(job, queue=queue)
    assert starts(cluster, "1234") == [0, 100, 200, 300]
    assert [cluster.promise(job) for job in "234"] == [200, 310, None]
    assert Engine.restore(cluster.engine.checkpoint()).state.settings.queue_slack["scratch"] == "off"


def test_jobs_without_a_promise_are_displaced() -> None:
    cluster = cluster_with(WISH, slack=0, queue_slack={"scratch": "off"})
    cluster.submit("1")
    cluster.submit("2")
    cluster.submit("3", queue="scratch")
    cluster.submit("4", walltime=5000, priority=10)
    assert starts(cluster, "1234") == [0, 100, 5200, 200]
    assert cluster.breaches("3") == []
    moved = cluster.view("3").last_change
    assert moved is not None
    assert moved.words == "job 4 of higher priority goes before, most by wish"


def test_a_displaced_job_with_the_same_start_on_another_node_counts_as_changed() -> None:
    """Followers of the plan are told only jobs that changed: they would keep showing its former node."""
    cluster = cluster_with(WISH, nodes=2)
    for job in "123":
        cluster.submit(job)
    state, (node,) = cluster.engine.state, cluster.planned_node_names("3")
    before = int(state.changed[state.records["3"].slot])
    cluster.submit("4", nodes=f"{node}:ppn=4", priority=10)
    assert starts(cluster, "34") == [100, 100]
    assert cluster.planned_node_names("3") != [node]
    assert state.changed[state.records["3"].slot] > before


def test_only_conflicting_jobs_move() -> None:
    cluster = cluster_with(WISH, nodes=3)
    for job in "123":
        cluster.submit(job, f"n{job}:ppn=4", 500)
    for job in "456":
        cluster.submit(job, f"n{int(job) - 3}:ppn=4", 100)
    cluster.submit("7", "n2:ppn=4", 100, priority=1)
    assert starts(cluster, "4567") == [500, 600, 500, 500]


def test_equal_priority_is_never_displaced() -> None:
    cluster = cluster_with(WISH)
    for job in "123":
        cluster.submit(job, priority=7)
    cluster.submit("4", walltime=10, priority=7)
    assert starts(cluster, "1234") == [0, 100, 200, 300]
    cluster.at(299)
    assert cluster.start("4") == 300


def test_short_job_uses_a_gap_before_jobs_of_higher_priority() -> None:
    cluster = cluster_with(WISH, nodes=2)
    cluster.submit("1", "1:ppn=4", 500)
    cluster.submit("2", "2:ppn=4", 100, priority=100)
    cluster.submit("3", "1:ppn=4", 400)
    assert starts(cluster, "123") == [0, 500, 0]


def test_priority_of_a_queue_and_its_changes_apply() -> None:
    cluster = cluster_with({})
    cluster.send(*cluster.server.change_queue(QueueFacts(name="fast", priority=50)))
    for job in "123":
        cluster.submit(job)
    cluster.submit("4", queue="fast")
    assert starts(cluster, "1234") == [0, 200, 300, 100]
    cluster.send(*cluster.server.change_queue(QueueFacts(name="fast", priority=-1)))
    assert starts(cluster, "1234") == [0, 100, 200, 300]


def test_job_with_a_raised_priority_displaces_others() -> None:
    cluster = cluster_with(WISH)
    for job in "1234":
        cluster.submit(job)
    cluster.alter("4", priority=1)
    assert starts(cluster, "1234") == [0, 200, 300, 100]
    assert cluster.view("4").last_change.words == "its priority was raised"  # type: ignore[union-attr]
    cluster.alter("4", priority=0)
    cluster.alter("3", priority=5)
    assert starts(cluster, "1234") == [0, 300, 100, 200]


def test_priorities_that_grow_with_time_are_worked_out_again() -> None:
    # Waiting time counts from submission: an old job arrived late.
    cluster = cluster_with({"priority": {"waiting": 1.0}}, slack=100_000)
    cluster.submit("1", walltime=10_000)
    for job in "23":
        cluster.submit(job, walltime=1000)
    cluster.engine.state.rank[:] = 0
    cluster.submit("4", walltime=1000)
    cluster.alter("4", submitted=cluster.server.now - 90_000)
    assert starts(cluster, "234") == [10_000, 11_000, 12_000]
    cluster.at(301)
    assert starts(cluster, "234") == [11_000, 12_000, 10_000]
    change = cluster.view("4").last_change
    assert change is not None
    assert (change.cause, change.words) == (
        Cause.PRIORITY,
        "it goes before jobs of lower priority, most by waiting",
    )


def test_in_light_mode_a_job_keeps_the_priority_of_its_submission() -> None:
    weights = {"waiting": 1.0, "deadline": 1.0, "wish": 1.0}
    light = cluster_with({"priority": {**weights, "mode": "light"}}, slack=1_000_000)
    full = cluster_with({"priority": weights}, slack=1_000_000)
    for cluster in (light, full):
        cluster.submit("1", walltime=30_000)
        for job in "234":
            cluster.submit(job, walltime=1000)
        late = cluster.server.now + 31_500
        cluster.alter("4", resources={**cluster.server.jobs["4"].resources, "deadline": str(late)})
    assert starts(light, "234") == starts(full, "234") == [30_000, 31_000, 32_000]
    assert ranks(light, "234") == ranks(full, "234")
    for cluster in (light, full):
        cluster.at(29_000)
    assert ranks(full, "4")[0] > ranks(full, "2")[0] > 0, "the deadline comes near, and all have waited"
    assert starts(full, "234") == [31_000, 32_000, 30_000]
    assert ranks(light, "234") == [0, 0, 0]
    assert starts(light, "234") == [30_000, 31_000, 32_000]
    assert next_rerank(light.engine.state) == FOREVER, "the planner is not even woken"
    light.alter("3", priority=7)
    assert starts(light, "234") == [31_000, 30_000, 32_000]


@pytest.mark.parametrize("mode", ["light", "full"])
def test_users_of_another_class_start_at_another_time(mode: str) -> None:
    def site(**users: list[str]) -> dict[str, Any]:
        points = {"gold": 100.0, "silver": 50.0, "regular": 0.0}
        classes = {name: {"points": points[name], "users": of} for name, of in users.items()}
        return {"classes": classes, "priority": {"mode": mode}}

    cluster = cluster_with(site(gold=["ann"], silver=["bob"], regular=["eve"]), slack=100_000)
    cluster.submit("1", owner="joe@login")
    for job, owner in (("2", "eve"), ("3", "bob"), ("4", "ann")):
        cluster.submit(job, owner=f"{owner}@login")
    assert starts(cluster, "234") == [300, 200, 100]
    change(cluster, site(gold=["eve"], silver=["bob"], regular=["ann"]))
    assert starts(cluster, "234") == [100, 200, 300]
    assert ranks(cluster, "234") == [100, 50, 0]
    state = cluster.engine.state
    (term,) = (
        one
        for one in priority_breakdown(state, state.records["2"], current_demand(state, None)).terms
        if one.points
    )
    assert (term.name, term.value, term.points) == ("class", 100.0, 100.0)
    moved = cluster.view("4").last_change
    assert moved is not None
    assert moved.cause == Cause.PRIORITY
    assert "goes before, most by its class gold; its promise of " in moved.words


def test_the_mode_may_be_changed_while_jobs_wait() -> None:
    weights = {"waiting": 1.0, "wish": 1.0}
    cluster = cluster_with({"priority": {**weights, "mode": "light"}}, slack=100_000)
    cluster.submit("1", walltime=10_000)
    cluster.submit("2")
    cluster.at(8_000)
    assert ranks(cluster, "2") == [0]
    change(cluster, {"priority": weights})
    assert ranks(cluster, "2") == [2], "two hours"
    change(cluster, {"priority": {**weights, "mode": "light"}}, 2)
    assert ranks(cluster, "2") == [0]


def test_light_mode_computes_priority_from_the_request_at_submission() -> None:
    cluster = cluster_with({"priority": {"short": 100.0, "mode": "light"}}, slack=1_000_000)
    cluster.submit("1", walltime=5_000)
    cluster.submit("2", walltime=1_000)
    cluster.at(301)
    cluster.submit("3", walltime=100)
    cluster.submit("4", walltime=200)
    assert ranks(cluster, "234") == [100, 100, 50], "the second was the shortest when it came"
    assert starts(cluster, "234") == [5_000, 6_000, 6_100]


def test_a_class_that_may_break_promises_does_so_by_name() -> None:
    urgent = {"points": 100.0, "queues": ["urgent"], "breaks_promises": True}
    cluster = cluster_with({"classes": {"urgent": urgent}}, slack=0)
    cluster.send(*cluster.server.change_queue(QueueFacts(name="urgent")))
    for job in "123":
        cluster.submit(job)
    cluster.submit("4", queue="urgent")
    assert starts(cluster, "1234") == [0, 200, 300, 100]
    assert cluster.at_risk("2") == Cause.CLASS
    cluster.submit("5", queue="urgent")
    assert starts(cluster, "2345") == [300, 400, 100, 200]
    assert cluster.breaches("4") == []


def test_a_class_without_that_right_keeps_to_promises() -> None:
    cluster = cluster_with({"classes": {"gold": {"points": 100.0, "users": ["bob"]}}}, slack=0)
    for job in "123":
        cluster.submit(job)
    cluster.submit("4", owner="bob@login")
    assert starts(cluster, "1234") == [0, 100, 200, 300]


def test_limits_hold_for_jobs_that_displace_others() -> None:
    site = {**WISH, "limits": [{"what": "jobs", "who": "user", "amount": 1}]}
    cluster = cluster_with(site, nodes=2)
    cluster.submit("1")
    cluster.submit("2")
    cluster.submit("3", owner="bob", walltime=300)
    cluster.submit("4", owner="bob")
    cluster.submit("5", priority=3)
    assert starts(cluster, "12345") == [0, 200, 0, 300, 100]


@pytest.mark.parametrize("mode", ["full", "light"])
@pytest.mark.parametrize("moment", [0, 301])
def test_ranks_survive_a_checkpoint(moment: int, mode: str) -> None:
    priority = {"waiting": 1.0, "fair_share": 100.0, "mode": mode}
    cluster = cluster_with({"priority": priority, "fair_share": {}}, nodes=2)
    for i in range(6):
        cluster.submit(str(i), owner=f"u{i % 2}", walltime=1000, priority=i)
    cluster.at(moment)
    engine = Engine.restore(cluster.engine.checkpoint())
    assert engine.checkpoint() == cluster.engine.checkpoint()
    for later in (400, 650, 950, 3000):
        now = cluster.server.now = cluster.server.now + later
        assert cluster.engine.handle((), now).decisions == engine.handle((), now).decisions
    assert engine.checkpoint() == cluster.engine.checkpoint()
