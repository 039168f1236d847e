"""Jobs that may run in several partitions: promises, moves, queue policies, hypothetical jobs."""

from dataclasses import replace
from typing import Any

import pytest

from schedd.api.request_bodies import WhatIfRequest, WhatIfVariant
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.partitions.state import partition_state
from schedd.model import Never, StartKnown
from schedd.service.questions.plan_fork import PlanFork, fork_plan
from schedd.wire import JobFacts, ShareFacts
from tests.engine.cluster import Cluster, T
from tests.features.partitions.test_partitions import partition

TWO: dict[str, Any] = {"sets": {"a": {"nodes": ["n1", "n2"]}, "b": {"nodes": ["n3", "n4"]}}}


def fork_of(cluster: Cluster) -> PlanFork:
    return fork_plan(cluster.engine, publish_snapshot(cluster.engine.state))


def hypothetical(nodes: str, family: Any = "torque", **resources: str) -> JobFacts:
    requested = {"nodes": nodes, "walltime": "100", **resources}
    return JobFacts(id="what-if", owner="ann", queue="batch", submitted=T, family=family, resources=requested)


def test_a_smaller_request_keeps_the_promise_of_a_job_in_a_partition() -> None:
    cluster = Cluster(site={"partitions": {"sets": {"a": {"nodes": ["n1"]}}}})
    cluster.submit("1", walltime=1000)
    cluster.submit("2", walltime=300)
    cluster.alter_request("1", walltime="5000")
    assert (cluster.promise("2"), cluster.start("2")) == (1000, 5000)
    cluster.alter_request("2", walltime="200")
    assert cluster.promise("2") == 1000
    assert cluster.record("2").ended is None


@pytest.mark.parametrize("policy", ["easy", "fcfs", "aggressive"])
def test_under_a_queue_policy_a_job_moves_to_a_partition_where_it_can_start_at_once(policy: str) -> None:
    cluster = Cluster(4, policy=policy, site={"partitions": TWO})
    cluster.submit("1", "2:ppn=4", walltime=5000, runtime=1000, resources={"partition": "a"})
    cluster.submit("2", "2:ppn=4", walltime=3000, resources={"partition": "b"})
    cluster.submit("3", "2:ppn=4", walltime=100, resources={"partition": "a:b"})
    assert partition(cluster, "3") == "b"
    cluster.at(1100)
    assert cluster.runs("3") == [pytest.approx(1000, abs=61)]
    assert partition(cluster, "3") == "a"


def test_a_job_behind_another_goes_to_the_partition_that_is_free_after_it() -> None:
    cluster = Cluster(4, site={"partitions": TWO})
    cluster.submit("1", "2:ppn=4", walltime=1000, resources={"partition": "b"})
    cluster.reserve("later", "n1", "n2", start=500)
    cluster.submit(
        "2",
        "2:ppn=4",
        walltime=400,
        state="H",
        holds="s",
        depend="afterany:1",
        resources={"partition": "a:b"},
    )
    assert (cluster.start("2"), partition(cluster, "2")) == (1000, "b")


def test_a_job_that_is_complete_leaves_no_choice_behind() -> None:
    cluster = Cluster(4, site={"partitions": TWO})
    cluster.submit("1", resources={"partition": "a:b"})
    assert "1" in partition_state(cluster.engine.state).chosen
    cluster.alter("1", state="C")
    assert "1" not in partition_state(cluster.engine.state).chosen


def test_an_unreadable_partition_is_refused_in_a_what_if_as_in_the_engine() -> None:
    cluster = Cluster(4, site={"partitions": TWO})
    cluster.submit("1", resources={"partition": "b c"})
    assert "is no list of names" in cluster.view("1").why
    answer = fork_of(cluster).what_if(hypothetical("1:ppn=4", partition="b c"), T).answer
    assert isinstance(answer, Never)
    assert "is no list of names" in answer.requirement


def test_names_of_partitions_may_be_quoted_and_their_resource_in_capitals() -> None:
    cluster = Cluster(4, site={"partitions": TWO})
    cluster.submit("1", "2:ppn=4", walltime=500, resources={"partition": '"a"'})
    assert (cluster.start("1"), partition(cluster, "1")) == (0, "a")
    answer = fork_of(cluster).what_if(hypothetical("2:ppn=4", Partition="a:b"), T).answer
    assert isinstance(answer, StartKnown)
    assert answer.placement.start == T


def test_the_remedy_names_the_form_that_the_job_used() -> None:
    cluster = Cluster(4, site={"partitions": TWO})
    cluster.submit("1", resources={"x.partition": "big"})
    assert "name a or b (qalter -W x=PARTITION:NAME)" in cluster.view("1").why


def test_all_questions_about_a_hypothetical_job_try_all_its_partitions() -> None:
    sets = {"a": {"nodes": ["n1"]}, "b": {"nodes": ["n2", "n3"]}}
    cluster = Cluster(3, site={"partitions": {"sets": sets}})
    cluster.submit("1", walltime=500, resources={"partition": "a"})
    fork, job = fork_of(cluster), hypothetical("1:ppn=4", partition="a:b")
    assert fork.earliest_start(job, T, 100) == T
    assert fork.with_job(job, T, lambda plan, slot: plan.start(slot)) == T
    cluster = Cluster(3, site={"partitions": {"sets": sets}})
    cluster.submit("2", "2:ppn=4", walltime=900, resources={"partition": "b"})
    found = fork_of(cluster).what_if(hypothetical("2:ppn=4", partition="a:b"), T, changes=True)
    assert isinstance(found.answer, StartKnown)
    assert found.answer.placement.start == T + 900
    assert [(one.change, one.value) for one in found.changes] == [("nodes", 1)], "at once in partition a"


def test_the_windows_of_a_what_if_are_those_of_all_partitions() -> None:
    """They were those of the first partition, and began after the planned start in another one."""
    cluster = Cluster(4, site={"partitions": TWO})
    cluster.submit("1", "2:ppn=4", walltime=900, resources={"partition": "a"})
    cluster.reserve("later", "n3", "n4", start=500)
    found = fork_of(cluster).what_if(hypothetical("2:ppn=4", partition="a:b"), T, most_windows=8)
    assert isinstance(found.answer, StartKnown)
    assert found.answer.placement.start == T
    assert [one.first - T for one in found.windows] == [0, 900]
    assert found.windows[0].last - T == 400
    found = fork_of(cluster).what_if(hypothetical("2:ppn=4", partition="a:b"), T, most_windows=1)
    assert [(one.first - T, one.last - T) for one in found.windows] == [(0, 400)]


def test_the_tasks_of_a_what_if_use_all_partitions() -> None:
    cluster = Cluster(4, site={"partitions": TWO})
    fork = fork_of(cluster)
    found = fork.what_if(hypothetical("1:ppn=4"), T, tasks=(2, 4, 5)).many
    assert [(one.tasks, one.end - T) for one in found] == [(2, 100), (4, 100), (5, 200)]
    assert fork.what_if(hypothetical("1:ppn=4"), T, tasks=(4,)).many == found[1:2], "the plan is as before"


def test_a_hypothetical_job_gets_the_partition_that_is_the_default_of_its_queue() -> None:
    cluster = Cluster(4, site={"partitions": TWO})
    queue = replace(cluster.server.queues["batch"], defaults={"partition": "b"})
    cluster.send(*cluster.server.change_queue(queue))
    cluster.submit("1", "2:ppn=4", walltime=500, resources={"partition": "b"})
    answer = fork_of(cluster).what_if(hypothetical("2:ppn=4"), T).answer
    assert isinstance(answer, StartKnown)
    assert answer.placement.start == T + 500


def test_an_altered_partition_replaces_the_one_that_the_job_names_by_the_other_resource() -> None:
    job = hypothetical("1:ppn=4", family="openpbs", node_partition="a")
    question = WhatIfRequest(job="1")
    altered = question.facts(T, job, WhatIfVariant(request="partition=b")).resources
    assert altered == {"nodes": "1:ppn=4", "walltime": "100", "partition": "b"}


def test_a_job_that_was_started_by_hand_counts_in_the_partition_of_its_nodes() -> None:
    limits = [{"amount": 4, "what": "cpus", "partition": "a"}]
    cluster = Cluster(4, site={"partitions": TWO, "limits": limits})
    cluster.reserve("service", "n1", "n2", start=0, end=50)
    cluster.submit("1", walltime=500, resources={"partition": "a:b"}, state="H", holds="u")
    assert partition(cluster, "1") == "b"
    cluster.send(*cluster.server.start("1", (ShareFacts("n1", 4),)))
    assert partition(cluster, "1") == "a"
    cluster.submit("2", walltime=100, resources={"partition": "a"})
    assert cluster.start("2") == 500
