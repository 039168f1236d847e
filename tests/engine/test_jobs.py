"""Arrivals, alterations, holds, deletions: their effect on a job's place and promise."""

from dataclasses import replace
from typing import Any

import pytest

from schedd.engine import Cause
from schedd.engine.facts.texts import REQUEST_ENLARGED
from schedd.model import Never
from schedd.wire import JobDeleted, JobEnded, JobFacts, JobQueued, QueueFacts, ServerFacts
from tests.engine.cluster import Cluster, T


def test_new_job_gets_the_earliest_gap_and_delays_no_other_job() -> None:
    cluster = Cluster(cpus=4)
    cluster.submit("1", "1:ppn=3", 100)
    cluster.submit("2", "1:ppn=4", 100)
    cluster.submit("3", "1:ppn=1", 100)
    cluster.submit("4", "1:ppn=1", 101)
    assert [cluster.start(job) for job in "1234"] == [0, 100, 0, 200]


def test_slack_makes_the_promise_later_than_the_plan() -> None:
    cluster = Cluster(slack=600)
    cluster.submit("1")
    cluster.submit("2")
    assert (cluster.start("2"), cluster.promise("2")) == (100, 700)


def test_deletion_of_a_job_lets_later_jobs_move_ahead() -> None:
    cluster = Cluster()
    for job in "123":
        cluster.submit(job)
    cluster.send(*cluster.server.delete("2"))
    assert cluster.start("3") == 100
    assert cluster.view("3").last_change is not None
    assert "2" not in cluster.engine.state.records


def test_shrinking_keeps_the_promise_and_enlarging_ends_it() -> None:
    cluster = Cluster()
    for job in "123":
        cluster.submit(job)
    cluster.alter_request("2", walltime="50")
    assert (cluster.promise("2"), cluster.start("3")) == (100, 150)
    cluster.alter_request("2", walltime="200")
    record = cluster.record("2")
    assert record.ended is not None
    assert (record.ended.promised, record.ended.words) == (T + 100, REQUEST_ENLARGED)
    # It went behind job 3, which then gained from its going; a promise is an upper bound.
    assert (cluster.promise("2"), cluster.start("3"), cluster.start("2")) == (250, 100, 200)
    assert cluster.engine.state.breaches == 0


def test_moving_to_another_queue_ends_the_promise() -> None:
    cluster = Cluster()
    cluster.send(*cluster.server.change_queue(QueueFacts(name="long")))
    cluster.submit("1")
    cluster.submit("2")
    cluster.alter("2", queue="long")
    ended = cluster.record("2").ended
    assert ended is not None
    assert ended.words == "it was moved to queue long"
    assert cluster.promise("2") == 100


def test_another_name_moves_nothing() -> None:
    cluster = Cluster()
    cluster.submit("1")
    cluster.submit("2")
    changed = cluster.view("2").last_change
    cluster.alter("2", name="other")
    assert cluster.view("2").name == "other"
    assert cluster.view("2").last_change == changed


def test_a_held_job_has_neither_start_nor_promise_until_it_is_released() -> None:
    cluster = Cluster()
    for job in "123":
        cluster.submit(job)
    cluster.send(*cluster.server.hold("2"))
    assert (cluster.start("2"), cluster.promise("2")) == (None, None)
    assert cluster.view("2").why == "waiting for a user hold"
    assert cluster.start("3") == 100
    cluster.send(*cluster.server.release("2"))
    assert (cluster.start("2"), cluster.promise("2")) == (200, 200)


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"state": "H", "holds": "uo"}, "hold", "a user hold and an operator hold"),
        (
            {"state": "H", "holds": "s", "depend": "afterok:9"},
            "dependency",
            "its dependency afterok:9; job 9 is over or not of this cluster",
        ),
        ({"state": "H", "holds": "u", "depend": "beforeok:9"}, "hold", "a user hold"),
        ({"state": "W"}, "hold", "the server, which keeps it in state W"),
        ({"state": "T"}, "server", "the server, which keeps it in state T"),
        ({"state": "T", "holds": "u"}, "server", "the server, which keeps it in state T"),
        ({"queue": "off"}, "queue", "queue off, which is stopped"),
    ],
)
def test_waiting_reason_is_named(changes: dict[str, Any], kind: str, words: str) -> None:
    cluster = Cluster()
    cluster.send(*cluster.server.change_queue(QueueFacts(name="off", started=False)))
    cluster.submit("1", **changes)
    view = cluster.view("1")
    assert (view.answer, view.waiting_for, view.why) == ("waiting", kind, f"waiting for {words}")
    assert cluster.runs("1") == []


def test_a_job_with_a_start_time_of_its_own_is_planned_but_promised_only_when_eligible() -> None:
    cluster = Cluster()
    cluster.submit("1", state="W", not_before=T + 500)
    assert (cluster.start("1"), cluster.promise("1")) == (500, None)
    cluster.at(500)
    cluster.alter("1", state="Q", not_before=None)
    assert cluster.promise("1") == 500
    assert cluster.runs("1") == [500]


def test_a_job_that_the_server_has_not_released_in_time_is_not_started() -> None:
    cluster = Cluster()
    cluster.submit("1", state="W", not_before=T + 500)
    cluster.at(600)
    assert cluster.runs("1") == []
    assert cluster.start("1") >= 600  # type: ignore[operator]


def test_stopped_queue_has_no_plan_and_new_promises_after_its_start() -> None:
    cluster = Cluster()
    for job in "123":
        cluster.submit(job)
    cluster.send(*cluster.server.change_queue(QueueFacts(name="batch", started=False)))
    assert cluster.start("2") is None
    assert cluster.view("2").waiting_for == "queue"
    cluster.at(150)
    assert cluster.runs("2") == []
    cluster.send(*cluster.server.change_queue(QueueFacts(name="batch")))
    assert cluster.runs("2") == [150]
    assert cluster.breaches("3") in ([], [Cause.QUEUE])


def test_no_walltime_means_the_queues_default_then_the_servers_then_the_sites() -> None:
    cluster = Cluster(default_walltime=5000)
    cluster.submit("1", walltime=None)
    assert (cluster.view("1").walltime, cluster.view("1").walltime_assumed) == (5000, True)
    assert "walltime assumed to be 5000 s" in cluster.view("1").why
    cluster.submit("2", walltime=None)
    cluster.send(*cluster.server.change_server(ServerFacts(defaults={"walltime": "300"})))
    assert (cluster.view("2").walltime, cluster.view("2").walltime_assumed) == (300, False)
    cluster.send(*cluster.server.change_queue(QueueFacts(name="batch", defaults={"walltime": "0:03:20"})))
    assert cluster.view("2").walltime == 200


def test_a_promise_behind_an_assumed_walltime_is_weak() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", "n1:ppn=4", None)
    cluster.submit("2", "n1:ppn=4", 100)
    cluster.submit("3", "n2:ppn=4", 100)
    assert (cluster.view("2").weak, cluster.view("3").weak) == (True, False)


def test_a_request_in_error_concerns_its_job_alone_and_is_mended_by_altering_it() -> None:
    cluster = Cluster()
    cluster.submit("1", "1:ppn=none")
    cluster.submit("2", "1:ppn=9")
    cluster.submit("3")
    assert cluster.view("1").answer == "never"
    assert cluster.record("2").answer == Never("9 cpus on a node; the largest has 4")
    assert cluster.runs("3") == [0]
    cluster.alter_request("1", nodes="1:ppn=2")
    cluster.node("n2", cpus=16)
    assert cluster.runs("1") == cluster.runs("2") == [0]


def test_ends_go_before_arrivals_of_the_same_batch() -> None:
    cluster = Cluster()
    cluster.submit("1")
    cluster.server.now = T + 10
    facts = cluster.server.jobs.pop("1")
    arrival = cluster.server.submit(_queued(facts, "2"), 100)
    cluster.send(*arrival, JobEnded(id="e", time=T + 10, job_id="1"))
    assert cluster.runs("2") == [10]
    assert [change.cause for change in (cluster.view("2").last_change,) if change] == ["arrived"]


def _queued(facts: JobFacts, job_id: str) -> JobFacts:
    """Return the job before its start, or an equal one."""
    return replace(facts, id=job_id, state="Q", started=None, shares=())


def test_the_end_of_a_job_that_arrived_in_the_same_batch_is_not_lost() -> None:
    cluster = Cluster()
    facts = JobFacts(id="1", owner="ann", queue="batch", submitted=T, resources={"nodes": "1"})
    arrival = cluster.server.submit(facts, 100)
    cluster.send(*arrival, JobDeleted(id="e", time=T, job_id="1"))
    assert cluster.engine.state.records == {}


def test_repeated_arrival_event_has_no_effect() -> None:
    cluster = Cluster()
    cluster.submit("1")
    cluster.submit("2")
    before = cluster.view("2")
    facts = cluster.server.jobs["2"]
    cluster.send(JobQueued(id="again", time=T, job=facts))
    after = cluster.view("2")
    assert (after.planned_start, after.promised_start) == (before.planned_start, before.promised_start)
    assert len(cluster.engine.state.records) == 2


def test_late_arrival_event_does_not_affect_the_running_job() -> None:
    cluster = Cluster()
    cluster.submit("1")
    queued = _queued(cluster.server.jobs["1"], "1")
    cluster.at(5)
    cluster.send(JobQueued(id="late", time=T - 1, job=queued))
    assert cluster.view("1").state == "running"


def test_time_stops_while_the_clock_is_behind() -> None:
    cluster = Cluster()
    cluster.submit("1")
    cluster.submit("2")
    cluster.engine.handle([], T - 5000)
    assert cluster.engine.state.now == T
    assert cluster.start("2") == 100
