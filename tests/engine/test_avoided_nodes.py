"""A job that a node refuses is tried on other nodes next, and the refusal counts against the node."""

from dataclasses import replace

import pytest

from schedd.engine import Engine, publish_snapshot
from schedd.model import Request
from schedd.plan.plan import Plan
from schedd.plan.work_limits import WorkSpent
from schedd.wire import Run, RunAccepted
from tests.engine.cluster import Cluster, T


def last_run(cluster: Cluster, job_id: str) -> Run:
    return [d for d in cluster.decisions if isinstance(d, Run) and d.job_id == job_id][-1]


def refuse(cluster: Cluster, job_id: str, code: int = 15043) -> None:
    cluster.send(*cluster.server.refuse(last_run(cluster, job_id), code, "no"))


def requeue_refused_run(cluster: Cluster, job_id: str) -> None:
    """The server takes the run, the node does not; the job is soon queued again."""
    run = last_run(cluster, job_id)
    server = cluster.server
    cluster.send(RunAccepted(id=server.event_id(), time=server.now, decision_id=run.id, job_id=job_id))
    job = server.jobs[job_id]
    server.jobs[job_id] = replace(job, starts=job.starts + 1)
    cluster.send(*server.requeue(job_id))


def go_on(cluster: Cluster, job_id: str) -> None:
    cluster.at(cluster.start(job_id) or 0)


@pytest.mark.parametrize("happens", [refuse, requeue_refused_run])
def test_job_rejected_by_a_node_is_tried_on_all_other_nodes_first(
    happens: object,
) -> None:
    cluster = Cluster(nodes=3, returns_most=9)
    cluster.obeys = False
    cluster.submit("1")
    tried: list[str] = []
    for _ in range(4):
        tried.append(*{share.node for share in last_run(cluster, "1").shares})
        happens(cluster, "1")  # type: ignore[operator]
        go_on(cluster, "1")
    assert sorted(tried[:3]) == ["n1", "n2", "n3"]
    assert tried[3] != tried[2], "all have failed: the one that failed last is not the first to be tried"


def test_job_rejected_on_two_nodes_is_tried_on_two_others() -> None:
    cluster = Cluster(nodes=4)
    cluster.obeys = False
    cluster.submit("1", "2:ppn=4")
    first = {share.node for share in last_run(cluster, "1").shares}
    refuse(cluster, "1")
    go_on(cluster, "1")
    assert not first & {share.node for share in last_run(cluster, "1").shares}


def test_job_retries_the_same_node_if_others_are_busy_for_over_an_hour() -> None:
    for walltime, expected in ((1_800, "n2"), (7_200, "n1")):
        cluster = Cluster(nodes=2, refusal_wait=30)
        cluster.submit("0", "n2:ppn=4", walltime=walltime)
        cluster.obeys = False
        cluster.submit("1")
        assert last_run(cluster, "1").shares[0].node == "n1"
        refuse(cluster, "1")
        assert cluster.planned_node_names("1") == [expected]


def test_a_job_that_names_its_node_is_tried_there_again() -> None:
    cluster = Cluster(nodes=2)
    cluster.obeys = False
    cluster.submit("1", "n1:ppn=4")
    refuse(cluster, "1")
    assert cluster.planned_node_names("1") == ["n1"]


def test_the_answer_names_the_nodes_that_are_avoided() -> None:
    cluster = Cluster(nodes=2)
    cluster.obeys = False
    cluster.submit("1")
    refuse(cluster, "1")
    assert (
        "refused by the server (code 15043): no; other nodes than n1 are tried first" in cluster.view("1").why
    )


def test_a_refusal_keeps_a_promise_and_a_release_forgives_it() -> None:
    cluster = Cluster(nodes=2, slack=500)
    cluster.obeys = False
    cluster.submit("1")
    promised = cluster.promise("1")
    refuse(cluster, "1")
    assert cluster.planned_node_names("1") == ["n2"]
    assert cluster.promise("1") == promised
    cluster.alter("1", resources={"nodes": "1:ppn=2", "walltime": "100"})
    assert cluster.record("1").back_off.failed_on == ()
    assert cluster.planned_node_names("1") == ["n1"]


def test_other_jobs_still_go_to_the_node() -> None:
    cluster = Cluster(nodes=2)
    cluster.obeys = False
    cluster.submit("1")
    refuse(cluster, "1")
    cluster.submit("2")
    assert last_run(cluster, "2").shares[0].node == "n1"


def test_repair_does_not_move_a_job_to_the_node_that_refused_it() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("0", "n2:ppn=4", walltime=1_000)
    cluster.obeys = False
    cluster.submit("1")
    refuse(cluster, "1")
    cluster.submit("2", walltime=500)
    assert (cluster.planned_node_names("1"), cluster.start("1")) == (["n2"], 1_000)
    cluster.send(*cluster.server.delete("2"))
    assert (cluster.planned_node_names("1"), cluster.start("1")) == (["n2"], 1_000)


@pytest.mark.parametrize("happens", [refuse, requeue_refused_run])
def test_node_that_rejects_five_jobs_of_two_users_is_closed(happens: object) -> None:
    cluster = Cluster(nodes=3, cpus=8, returns_most=9)
    cluster.obeys = False
    for number in range(5):
        cluster.submit(f"{number}", "1:ppn=8", owner=f"{'ann' if number else 'bob'}@x")
        assert last_run(cluster, f"{number}").shares[0].node == "n1"
        happens(cluster, f"{number}")  # type: ignore[operator]
        cluster.send(*cluster.server.delete(f"{number}"))
    assert len(cluster.alerts("black_hole")) == 1
    cluster.submit("9", "1:ppn=8")
    assert cluster.planned_node_names("9") != ["n1"]


def test_starts_that_all_nodes_refuse_have_their_own_alert_besides_those_of_the_closed_nodes() -> None:
    cluster = Cluster(nodes=2, cpus=8, returns_most=9, refusal_wait=1, refusal_most=1)
    cluster.obeys = False
    for number in range(12):
        cluster.submit(f"{number}", "1:ppn=8", owner=f"{'ann' if number % 2 else 'bob'}@x")
    for second in range(1, 12):
        for number in range(12):
            if cluster.record(f"{number}").phase == "dispatched":
                refuse(cluster, f"{number}")
        cluster.at(second)
    opened = sorted(alert.kind for alert in publish_snapshot(cluster.engine.state).alerts)
    assert opened == ["black_hole", "black_hole", "starts_refused"]
    (alert,) = cluster.alerts("starts_refused")
    assert alert.endswith("the last by the server (code 15043): no")
    cluster.obeys = True
    for state in ("drain", "up"):
        cluster.node("n1", state=state)
    cluster.at(100)
    assert sorted(alert.kind for alert in publish_snapshot(cluster.engine.state).alerts) == ["black_hole"]


def test_failures_on_several_nodes_at_once_close_no_node() -> None:
    cluster = Cluster(nodes=8, returns_most=99, refusal_wait=1, refusal_most=1)
    cluster.obeys = False
    jobs = [f"{number}" for number in range(24)]
    for number, job in enumerate(jobs):
        cluster.submit(job, "1:ppn=4", owner=f"{'ann' if number % 2 else 'bob'}@x")
    for second in range(1, 40):
        for job in jobs:
            if cluster.record(job).phase == "dispatched":
                refuse(cluster, job)
        cluster.at(second)
    assert cluster.engine.state.black_holes == {}
    assert len(cluster.alerts("black_hole")) <= 2
    (alert,) = cluster.alerts("failing_together")
    assert "3 nodes at once" in alert
    cluster.obeys = True
    cluster.at(140)
    running = [record for record in map(cluster.record, jobs) if record.phase == "running"]
    assert len({record.facts.shares for record in running}) == 8


def test_failures_on_several_nodes_at_once_close_no_node_later() -> None:
    cluster = Cluster(nodes=4, hole_failures=2)
    cluster.obeys = False

    def fail(node: int, job: str, owner: str) -> None:
        cluster.submit(job, f"n{node}:ppn=4", owner=f"{owner}@x")
        refuse(cluster, job)
        cluster.send(*cluster.server.delete(job))

    for node in (1, 2, 3):
        fail(node, f"{node}.1", "ann")
        fail(node, f"{node}.2", "bob")
    closed = cluster.engine.state.black_holes
    assert (closed, len(cluster.alerts("failing_together"))) == ({}, 1)
    cluster.at(1_000)
    fail(1, "4", "ann")
    assert closed == {}
    fail(1, "5", "bob")
    assert list(closed) == ["n1"]


def test_a_node_is_closed_although_another_one_failed_long_ago() -> None:
    cluster = Cluster(nodes=4, returns_most=99)
    cluster.obeys = False
    for node in (1, 2, 3):
        for number in range(5):
            job = f"{node}.{number}"
            cluster.submit(job, f"n{node}:ppn=4", owner=f"{'ann' if number else 'bob'}@x")
            refuse(cluster, job)
            cluster.send(*cluster.server.delete(job))
        cluster.at(700 * node)
    assert sorted(cluster.engine.state.black_holes) == ["n1", "n2", "n3"]
    assert cluster.alerts("failing_together") == []


def test_a_job_that_fails_everywhere_counts_against_two_nodes_at_most() -> None:
    cluster = Cluster(nodes=6, refusal_wait=1, refusal_most=1)
    cluster.obeys = False
    cluster.submit("1")
    for second in range(1, 9):
        refuse(cluster, "1")
        cluster.at(second)
    assert len(cluster.engine.state.failures) == 2


def test_repeated_rejections_of_one_job_count_once_against_a_node() -> None:
    cluster = Cluster(nodes=1, refusal_wait=1, refusal_most=1)
    cluster.obeys = False
    cluster.submit("1", owner="ann@x")
    cluster.submit("2", walltime=1, owner="bob@x")
    for _ in range(6):
        refuse(cluster, "1")
        cluster.at((cluster.server.now - T) + 1)
    assert cluster.alerts("black_hole") == []


@pytest.mark.parametrize(
    ("family", "code", "counts"),
    [
        ("torque", 15043, True),
        ("torque", 15064, False),
        ("openpbs", 15041, True),
        ("openpbs", 15169, True),
        ("openpbs", 15136, False),
    ],
)
def test_only_rejections_by_the_node_count_against_it(family: str, code: int, counts: bool) -> None:
    """A hook of the server that refuses all jobs does not close all nodes."""
    cluster = Cluster(nodes=2)
    cluster.obeys = False
    cluster.submit("1", family=family)
    refuse(cluster, "1", code)
    assert bool(cluster.engine.state.failures) is counts
    assert cluster.record("1").back_off.failed_on == ("n1",)


def test_the_nodes_that_a_job_avoids_survive_a_checkpoint() -> None:
    cluster = Cluster(nodes=3)
    cluster.obeys = False
    cluster.submit("1")
    refuse(cluster, "1")
    again = Engine.restore(cluster.engine.checkpoint())
    record = again.state.records["1"]
    assert record.back_off.failed_on == ("n1",)
    request: Request = again.state.plan.request(record.slot)
    assert request.avoids == frozenset({"n1"})
    for engine in (cluster.engine, again):
        decisions = [d for d in engine.handle((), T + 30).decisions if isinstance(d, Run)]
        assert [share.node for share in decisions[0].shares] == ["n2"]


def test_no_slot_stays_in_use_if_the_search_for_other_nodes_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def give_up(*_: object) -> int:
        raise WorkSpent("too hard")

    cluster = Cluster(nodes=2)
    cluster.obeys = False
    cluster.submit("1")
    monkeypatch.setattr(Plan, "probe", give_up)
    refuse(cluster, "1")  # the check of invariants fails for a slot in use without a job
    assert "too hard" in cluster.record("1").quarantine
