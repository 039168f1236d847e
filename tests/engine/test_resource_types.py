"""Types of an OpenPBS server's resources: from its snapshot to the plan, limits, alerts and checkpoints."""

from typing import Any

import pytest

from schedd.engine import Engine
from schedd.engine.facts.texts import LIMIT_TO_BE_RAISED
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.model import StartKnown
from schedd.service.questions.plan_fork import fork_plan
from schedd.start_sentence import NEVER
from schedd.wire import JobFacts, QueueFacts, ResourceFacts, ServerFacts
from tests.engine.cluster import Cluster, T

RESOURCES = {
    "rack": ResourceFacts("string", "h"),
    "os": ResourceFacts("string", "h"),
    "Scratch": ResourceFacts("size", "hn"),
    "load": ResourceFacts("float", "hn"),
    "matlab": ResourceFacts("long", "q"),
}


def cluster_of(resources: dict[str, ResourceFacts] | None = None, **limits: str) -> Cluster:
    """n1 is in rack 12 with os 8.10, n2 in rack 13 with os 8.1."""
    cluster = Cluster(nodes=2)
    told = RESOURCES if resources is None else resources
    printed = {name.replace("__", "."): value for name, value in limits.items()}
    facts = ServerFacts(family="openpbs", resources=told, limits=printed)
    cluster.send(*cluster.server.change_server(facts))
    cluster.node("n1", properties=("rack=12", "os=8.10"), resources={"Scratch": 10 << 20, "load": 1_500_000})
    cluster.node("n2", properties=("rack=13", "os=8.1"), resources={"Scratch": 10 << 20, "load": 500_000})
    return cluster


def submit(cluster: Cluster, job: str, select: str, **more: Any) -> None:
    resources = {"select": select, "place": "free", "nodes": "", **more}
    cluster.submit(job, resources=resources, family="openpbs")


@pytest.mark.parametrize(
    ("asked", "node"),
    [("rack=13", "n2"), ("RACK=12", "n1"), ("os=8.10", "n1"), ("OS=8.1", "n2"), ("LOAD=0.75", "n1")],
)
def test_a_job_gets_the_node_that_has_the_value_of_its_type(asked: str, node: str) -> None:
    cluster = cluster_of()
    submit(cluster, "1", f"1:ncpus=1:{asked}")
    assert cluster.planned_node_names("1") == [node]
    assert "type" not in cluster.view("1").why


def test_a_string_that_no_node_has_is_never_met() -> None:
    cluster = cluster_of()
    submit(cluster, "1", "1:ncpus=1:rack=14")
    assert (cluster.view("1").state, cluster.view("1").why) == (
        "never",
        f"{NEVER}: no node has rack=14",
    )


def test_types_reported_later_cause_waiting_jobs_to_be_parsed_again() -> None:
    cluster = cluster_of({})
    submit(cluster, "1", "1:ncpus=1:rack=13")
    assert cluster.view("1").notes == (
        "not planned: rack=13",
        "the server does not tell the type of rack; it was read as a number",
    )
    [alert] = cluster.alerts("resource")
    assert alert.startswith("the server does not tell the type of Scratch, load, os, rack; their values")
    cluster.send(*cluster.server.change_server(ServerFacts(family="openpbs", resources=RESOURCES)))
    assert "resource types" not in cluster.engine.state.alerts
    submit(cluster, "2", "1:ncpus=1:rack=13")
    assert cluster.planned_node_names("2") == ["n2"]


def test_limits_count_resources_by_their_types() -> None:
    cluster = cluster_of(
        max_run_res__SCRATCH="[u:PBS_GENERIC=6gb]",
        resources_available__matlab="3",
        resources_available__rack="1",  # a string limits nothing
    )
    submit(cluster, "1", "1:ncpus=1:scratch=4gb", scratch="4gb")  # the server also writes the sum
    submit(cluster, "2", "1:ncpus=1:Scratch=4gb", Scratch="4gb")
    assert [cluster.start(job) for job in "12"] == [0, 100]
    assert "at most 6gb of Scratch of user ann at once" in cluster.view("2").why
    submit(cluster, "3", "1:ncpus=1:rack=13")
    submit(cluster, "4", "1:ncpus=1", MATLAB="2")
    submit(cluster, "5", "1:ncpus=1", Matlab="2")
    assert [cluster.start(job) for job in "345"] == [0, 0, 100]
    assert cluster.alerts("limit") == []


def test_strings_and_booleans_of_the_server_and_its_queues_keep_jobs_with_other_values_waiting() -> None:
    """pbs_sched says `Insufficient amount of server resource: sbool (True != False)`."""
    types = {
        "sbool": ResourceFacts("boolean"),
        "sstr": ResourceFacts("string"),
        "ssa": ResourceFacts("string_array"),
    }
    closed = {"resources_available.sbool": "False", "resources_available.ssa": "x,y"}
    cluster = cluster_of(types, **{name.replace(".", "__"): text for name, text in closed.items()})
    queue = QueueFacts(name="batch", started=True, limits={"resources_available.sstr": "abc"})
    cluster.send(*cluster.server.change_queue(queue))
    for job, asked in enumerate(({"sbool": "True"}, {"ssa": "z"}, {"sstr": "abd"})):
        submit(cluster, str(job), "1:ncpus=1", **asked)
    for job, asked in enumerate(({"sbool": "false"}, {"ssa": "y"}, {"sstr": "abc"}, {}), start=3):
        submit(cluster, str(job), "1:ncpus=1", **asked)
    assert [cluster.start(str(job)) for job in range(3, 7)] == [0, 0, 0, 0]
    assert [cluster.view(str(job)).notes for job in range(7)] == [()] * 7
    assert [cluster.view(job).why for job in "012"] == [
        f"waiting for {LIMIT_TO_BE_RAISED}: no sbool other than False; it asks for another value",
        f"waiting for {LIMIT_TO_BE_RAISED}: no ssa other than x,y; it asks for another value",
        f"waiting for {LIMIT_TO_BE_RAISED}: no sstr other than abc in queue batch; it asks for another value",
    ]
    assert cluster.engine.state.limits.copies == {}
    open_now = ServerFacts(family="openpbs", resources=types, limits={"resources_available.sbool": "True"})
    cluster.send(*cluster.server.change_server(open_now))
    assert [cluster.start(job) for job in "01"] == [0, 0]
    submit(cluster, "7", "1:ncpus=1", sbool="F")
    assert cluster.view("7").why.startswith(f"waiting for {LIMIT_TO_BE_RAISED}: no sbool other than True")


def test_types_are_kept_in_a_checkpoint() -> None:
    cluster = cluster_of()
    restored = Engine.restore(cluster.engine.checkpoint(), cluster.engine.state.settings)
    assert restored.state.server == cluster.engine.state.server
    cluster.engine = restored
    submit(cluster, "1", "1:ncpus=1:RACK=13")
    assert cluster.planned_node_names("1") == ["n2"]


def test_reason_names_only_unmet_requirements() -> None:
    cluster = cluster_of()
    submit(cluster, "1", "1:ncpus=1:os=8.10:rack=14")
    submit(cluster, "2", "1:ncpus=1:os=8.10:rack=13")
    assert [cluster.view(job).why for job in "12"] == [
        f"{NEVER}: no node has rack=14",
        f"{NEVER}: no node has os=8.10 and rack=13",
    ]


def test_jobs_share_a_number_that_they_do_not_use_up() -> None:
    resources = {**RESOURCES, "speed": ResourceFacts("long", "h")}
    cluster = cluster_of(resources)
    cluster.node("n1", properties=("speed=7", "rack=12"))
    cluster.node("n2", properties=("speed=3", "rack=13"))
    for job in "123":
        submit(cluster, job, "1:ncpus=1:SPEED=5")
    assert [(cluster.start(job), cluster.planned_node_names(job)) for job in "123"] == [(0, ["n1"])] * 3
    submit(cluster, "4", "1:ncpus=1:speed=8")
    assert cluster.view("4").why == f"{NEVER}: no node has speed>=8"
    cluster.node("n2", properties=("speed=9", "rack=13"))
    assert cluster.planned_node_names("4") == ["n2"]


def test_amounts_are_printed_in_the_units_of_their_types() -> None:
    cluster = cluster_of()
    submit(cluster, "1", "1:ncpus=1:scratch=20gb")
    submit(cluster, "2", "1:ncpus=1:load=2.5")
    assert [cluster.view(job).why.partition(": ")[2] for job in "12"] == [
        "20gb Scratch on a node; the largest has 10gb",
        "2.5 load on a node; the largest has 1.5",
    ]


def test_a_what_if_compares_by_the_types_of_the_server() -> None:
    cluster = cluster_of()
    state = cluster.engine.state
    resources = {"select": "1:ncpus=1:RACK=13", "walltime": "100"}
    facts = JobFacts(id="new", owner="ann", queue="batch", submitted=T, family="openpbs", resources=resources)
    answer = fork_plan(cluster.engine, publish_snapshot(state)).what_if(facts, T).answer
    assert isinstance(answer, StartKnown)
    assert [share.node for share in answer.placement.shares] == ["n2"]


def test_remarks_on_requests_follow_the_limits_that_were_set_or_removed_since() -> None:
    """A running job said for ever that its licence is not planned, though it counts."""
    cluster = Cluster(cpus=2)

    def limit(**amounts: str) -> None:
        types = {"lic": ResourceFacts("long")}
        limits = {f"resources_available.{name}": text for name, text in amounts.items()}
        server = ServerFacts(family="openpbs", resources=types, limits=limits)
        cluster.send(*cluster.server.change_server(server))

    def whys() -> list[str]:
        return [cluster.view(job).why for job in ("1", "2")]

    limit()
    for job in ("1", "2"):
        cluster.submit(job, family="openpbs", resources={"select": "1:ncpus=2", "lic": "1"})
    assert all("not planned: lic=1" in why for why in whys())
    limit(lic="1")
    assert not any("not planned" in why for why in whys())
    assert cluster.start("2") == 100
    limit()
    assert all("not planned: lic=1" in why for why in whys())
