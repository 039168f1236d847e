"""Best gap and best gap - EDF, as the site's policy sets them: examples worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest

from schedd.engine import Cause, Engine, publish_snapshot
from schedd.model import StartKnown
from schedd.service.questions.plan_fork import fork_plan
from schedd.wire import JobFacts, PolicyChanged
from tests.engine.cluster import Cluster, T

ALL = "1:ppn=4"


def speeds(placement: str = "best_gap", **criteria: float) -> Cluster:
    """n1 of speed 1, and n2 of speed 3, of 4 cpus each."""
    site: dict[str, Any] = {"placement": placement, "speeds": {"n2": 3.0}}
    if criteria:
        site["criteria"] = criteria
    return Cluster(nodes=2, site=site)


@pytest.mark.parametrize(("placement", "node"), [("first_gap", "n1"), ("best_gap", "n2")])
def test_fastest_nodes_are_chosen_among_gaps_of_equal_start(placement: str, node: str) -> None:
    cluster = speeds(placement)
    cluster.submit("1")
    assert (cluster.start("1"), cluster.planned_node_names("1")) == (0, [node])


def both_busy(cluster: Cluster) -> None:
    """n2 for 100 s, n1 for 50 s; then job C comes, of 100 s.

    On n1 at 50: makespan 150, weighted utilisation (4*100*3 + 4*50*1 + 4*100*1) / (16 * 150) = 0.75, wait 50.
    On n2 at 100: makespan 200, (4*100*3 + 4*50*1 + 4*100*3) / (16 * 200) = 0.8125, wait 100. Relative to the
    former, waiting for n2 costs 1 of `wait` and gains 1/12 of `weighted_utilisation`.
    """
    cluster.submit("A", "n2:ppn=4", walltime=100)
    cluster.submit("B", "n1:ppn=4", walltime=50)
    cluster.submit("C", ALL, walltime=100)
    assert (cluster.start("A"), cluster.start("B")) == (0, 0)


@pytest.mark.parametrize(("weight", "start", "node"), [(11.0, 50, "n1"), (12.0, 50, "n1"), (13.0, 100, "n2")])
def test_job_waits_for_faster_nodes_if_the_criteria_favour_it(weight: float, start: int, node: str) -> None:
    cluster = speeds(wait=1.0, weighted_utilisation=weight)
    both_busy(cluster)
    assert (cluster.start("C"), cluster.planned_node_names("C")) == (start, [node])
    view = cluster.view("C")
    assert ("not sooner, since nodes of speed 3 are worth more" in view.why) == (node == "n2")
    assert ("a start at 2023-11-14 22:14:10 UTC on slower ones" in view.why) == (node == "n2")


@pytest.mark.parametrize("weight", range(1, 30, 4))
def test_what_if_about_several_jobs_waits_for_faster_nodes_as_the_engine_does(weight: int) -> None:
    cluster = speeds(wait=1.0, weighted_utilisation=float(weight))
    both_busy(cluster)
    state = cluster.engine.state
    resources = {"nodes": ALL, "walltime": "100"}
    facts = JobFacts(id="D", owner="ann", queue="batch", submitted=T, family="torque", resources=resources)
    asked = fork_plan(cluster.engine, publish_snapshot(state)).what_if(facts, T, tasks=(1, 2, 3, 4))
    ends = []
    for job in "DEFG":
        cluster.submit(job, ALL, walltime=100)
        ends.append((cluster.start(job) or 0) + 100)
    assert [one.end - T for one in asked.many] == [max(ends[: number + 1]) for number in range(4)]


def test_without_a_weight_of_speed_no_job_waits_for_faster_nodes() -> None:
    cluster = speeds(wait=1.0, bounded_slowdown=1.0)
    both_busy(cluster)
    assert (cluster.start("C"), cluster.planned_node_names("C")) == (50, ["n1"])


def test_choice_of_fast_nodes_stays_until_the_policy_changes() -> None:
    cluster = speeds(wait=1.0, weighted_utilisation=13.0)
    both_busy(cluster)
    engine = Engine.restore(cluster.engine.checkpoint())
    assert engine.checkpoint() == cluster.engine.checkpoint()
    cluster.engine = engine
    cluster.at(10)
    cluster.send(*cluster.server.delete("B"))
    assert (cluster.start("C"), cluster.planned_node_names("C")) == (100, ["n2"])
    assert "worth more" in cluster.view("C").why
    site = {"speeds": {"n2": 3.0}}
    cluster.send(PolicyChanged(id="p1", time=cluster.server.now, version=1, site=site, by="root"))
    assert (cluster.start("C"), cluster.planned_node_names("C")) == (10, ["n1"])
    assert "worth more" not in cluster.view("C").why


def test_nodes_of_equal_speed_are_filled_in_the_usual_order() -> None:
    found = []
    for placement in ("first_gap", "best_gap", "best_gap_edf"):
        cluster = Cluster(nodes=3, site={"placement": placement, "criteria": {"weighted_utilisation": 1.0}})
        for i in range(12):
            cluster.submit(str(i), f"{1 + i % 3}:ppn={1 + i % 4}", walltime=50 + 37 * i % 100)
        found.append([(cluster.start(str(i)), cluster.planned_node_names(str(i))) for i in range(12)])
    assert found[0] == found[1] == found[2]


# ---- earlier deadline first ---------------------------------------------------------------------


def deadline_in(seconds: int) -> dict[str, str]:
    """As `qsub -W x=deadline:…` has it."""
    return {"x.deadline": str(T + seconds)}


def queue(slack: int = 1000, **site: Any) -> Cluster:
    """One node; job 0 until 100, job 1 until 200, due in an hour, job 2 until 300 without a deadline."""
    site = {"placement": "best_gap_edf", "criteria": {"late_jobs": 1.0}, **site}
    cluster = Cluster(nodes=1, slack=slack, site=site)
    cluster.submit("0", ALL)
    cluster.submit("1", ALL, resources=deadline_in(3600))
    cluster.submit("2", ALL)
    assert [cluster.start(job) for job in "012"] == [0, 100, 200]
    return cluster


def test_a_job_that_would_be_late_goes_before_the_first_with_a_later_deadline() -> None:
    cluster = queue()
    cluster.submit("3", ALL, resources=deadline_in(220))
    assert [cluster.start(job) for job in "0123"] == [0, 200, 300, 100]
    assert cluster.view("3").deadline_state == "wished", "less than the margin is left"
    last = cluster.view("1").last_change
    assert last is not None
    assert last.cause == Cause.DEADLINE
    assert last.words.startswith("job 3 with an earlier deadline goes before; its promise of ")
    assert (cluster.promise("1"), cluster.promise("3")) == (1100, 1100)
    cluster.at(400)
    assert [cluster.runs(job) for job in "0123"] == [[0], [200], [300], [100]]


@pytest.mark.parametrize(("deadline", "slack"), [(220, 1000), (220, 99), (320, 1000), (500, 1000)])
def test_what_if_offers_the_time_that_jobs_with_later_deadlines_can_give(deadline: int, slack: int) -> None:
    cluster = queue(slack)
    state = cluster.engine.state
    fork = fork_plan(cluster.engine, publish_snapshot(state))
    facts = JobFacts(
        id="3",
        owner="ann",
        queue="batch",
        submitted=T,
        family="torque",
        resources={"nodes": ALL, "walltime": "100", **deadline_in(deadline)},
    )
    found = fork.what_if(facts, T, tasks=(1, 2, 3))
    assert fork.what_if(facts, T, tasks=(1, 2, 3)) == found, "the question changes nothing"
    assert isinstance(found.answer, StartKnown)
    offered = [one.end - T for one in found.many]
    ends = []
    for job in "345":
        cluster.submit(job, ALL, resources=deadline_in(deadline))
        ends.append((cluster.start(job) or 0) + 100)
    assert found.answer.placement.end - T == ends[0]
    assert offered == [max(ends[: number + 1]) for number in range(3)]
    assert fork.what_if(replace(facts, resources={"nodes": ALL, "walltime": "100"}), T).answer == StartKnown(
        replace(found.answer.placement, start=T + 300, end=T + 400)
    )


def test_deadline_set_later_moves_the_job() -> None:
    cluster = queue()
    cluster.submit("3", ALL)
    assert cluster.start("3") == 300
    cluster.alter_request("3", **deadline_in(220))
    assert [cluster.start(job) for job in "0123"] == [0, 200, 300, 100]


@pytest.mark.parametrize("resources", [{}, deadline_in(500)])
def test_without_a_deadline_or_in_time_anyway_it_takes_its_gap(resources: dict[str, str]) -> None:
    cluster = queue()
    cluster.submit("3", ALL, resources=resources)
    assert [cluster.start(job) for job in "0123"] == [0, 100, 200, 300]


def test_no_job_passes_its_promise() -> None:
    cluster = queue(slack=0)
    cluster.submit("3", ALL, resources=deadline_in(220))
    assert [cluster.start(job) for job in "0123"] == [0, 100, 200, 300]
    cluster = queue(slack=99)  # job 1 would have to wait for 100 s more
    cluster.submit("3", ALL, resources=deadline_in(220))
    assert [cluster.start(job) for job in "0123"] == [0, 100, 200, 300]


def test_it_does_not_make_another_late_in_its_place() -> None:
    cluster = Cluster(nodes=1, slack=1000, site={"placement": "best_gap_edf", "criteria": {"late_jobs": 1.0}})
    cluster.submit("0", ALL)
    cluster.submit("1", ALL, resources=deadline_in(230))
    cluster.submit("3", ALL, resources=deadline_in(220))
    assert [cluster.start(job) for job in "013"] == [0, 100, 200]


def test_higher_priority_is_not_displaced_for_a_deadline() -> None:
    site: dict[str, Any] = {"placement": "best_gap_edf", "criteria": {"late_jobs": 1.0}}
    cluster = Cluster(nodes=1, slack=1000, site={**site, "priority": {"wish": 1.0}})
    cluster.submit("0", ALL)
    cluster.submit("1", ALL, resources=deadline_in(3600), priority=5)
    cluster.submit("2", ALL)
    cluster.submit("3", ALL, resources=deadline_in(320))
    assert [cluster.start(job) for job in "0123"] == [0, 100, 300, 200]


def test_best_gap_without_other_rules_moves_no_job() -> None:
    cluster = queue(placement="best_gap")
    cluster.submit("3", ALL, resources=deadline_in(220))
    assert [cluster.start(job) for job in "0123"] == [0, 100, 200, 300]
