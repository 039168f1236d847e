"""Run decisions: times, contents and outcomes."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from schedd.engine import Cause, Engine
from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.state import EngineState
from schedd.engine.facts.texts import STARTED_BY_SOMEBODY_ELSE
from schedd.engine.place import placement
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.wire import (
    BatchSkipped,
    JobFacts,
    JobQueued,
    JobStarted,
    NodeChanged,
    QueueFacts,
    Run,
    RunAccepted,
    RunRefused,
    ServerFacts,
    ShareFacts,
)
from schedd.wire.run_limits import run_limits_version
from server_adapter.servers.openpbs.vnode_capacity import VNODES_FULL
from tests.engine.cluster import Cluster, T


def _decision(cluster: Cluster, job: str) -> Run:
    return [d for d in cluster.decisions if isinstance(d, Run) and d.job_id == job][-1]


def _opened(cluster: Cluster) -> list[str]:
    return [alert.kind for alert in publish_snapshot(cluster.engine.state).alerts]


def _refuse(cluster: Cluster, job: str, code: int) -> None:
    cluster.send(*cluster.server.refuse(_decision(cluster, job), code, "no"))


def test_run_decision_has_nodes_expiry_and_job_version() -> None:
    cluster = Cluster(nodes=2, decision_expiry=60)
    cluster.submit("1", "2:ppn=2", resources={"mem": "4gb"})
    run = _decision(cluster, "1")
    assert run.shares == (ShareFacts("n1", 2, 2 << 20), ShareFacts("n2", 2, 2 << 20))
    assert (run.time, run.expires, run.version, run.cause) == (T, T + 60, "v:1", "sim:2")


def test_run_decision_has_the_version_of_the_limits_of_its_queue() -> None:
    cluster = Cluster()
    limits = {"max_run": "[u:PBS_GENERIC=3]", "max_queued": "9"}
    cluster.send(*cluster.server.change_queue(QueueFacts(name="batch", limits=limits)))
    cluster.submit("1", "1:ppn=1", queue="batch")
    found = _decision(cluster, "1").limits
    assert found == run_limits_version({}, {"max_run": "[u:PBS_GENERIC=3]"})
    assert found not in (run_limits_version({}, {}), run_limits_version(limits, {}))


def test_job_starts_at_its_planned_start_and_not_before() -> None:
    cluster = Cluster()
    for job in "123":
        cluster.submit(job)
    cluster.at(1000)
    assert [cluster.runs(job) for job in "123"] == [[0], [100], [200]]


def test_no_second_decision_while_one_is_out() -> None:
    cluster = Cluster()
    cluster.obeys = False
    cluster.submit("1")
    cluster.at(60)
    assert cluster.runs("1") == [0]
    assert cluster.view("1").state == "starting"


def test_busy_is_tried_again_a_second_later_on_the_same_nodes_a_few_times() -> None:
    cluster = Cluster(nodes=2, busy_retries=3)
    cluster.obeys = False
    cluster.submit("1")
    shares = _decision(cluster, "1").shares
    for i in range(3):
        _refuse(cluster, "1", 15046)
        assert cluster.start("1") == 0
        cluster.at(i + 1)
        assert cluster.runs("1") == list(range(i + 2))
        assert _decision(cluster, "1").shares == shares
    _refuse(cluster, "1", 15046)
    cluster.at(32)
    assert cluster.runs("1") == [0, 1, 2, 3]
    cluster.at(33)
    assert cluster.runs("1") == [0, 1, 2, 3, 33]


def _refuse_as_fragmented(cluster: Cluster, job: str) -> None:
    text = VNODES_FULL
    cluster.send(*cluster.server.refuse(_decision(cluster, job), 0, text, fragmented=True))


@pytest.mark.parametrize("early", [False, True])
def test_a_job_refused_on_fragmented_nodes_waits_for_the_first_end_there(early: bool) -> None:
    """It was shown as the next to start, kept the rest of the node free, and was refused time and again."""
    cluster = Cluster(nodes=1)
    cluster.submit("1", "1:ppn=2", walltime=5000, runtime=900 if early else 5000)
    cluster.obeys = False
    cluster.submit("2", "1:ppn=2", walltime=1000)
    _refuse_as_fragmented(cluster, "2")
    cluster.obeys = True
    assert cluster.start("2") == 5000
    assert VNODES_FULL in cluster.view("2").why
    cluster.submit("3", "1:ppn=1", walltime=4000)
    assert cluster.runs("3") == [0]
    cluster.at(6000)
    assert cluster.runs("2") == [0, 900 if early else 5000]


def test_a_job_refused_on_fragmented_nodes_starts_on_others_first() -> None:
    cluster = Cluster(nodes=2, check_wait=5)
    cluster.submit("1", "1:ppn=2", walltime=5000)
    cluster.submit("2", "1:ppn=4", walltime=300)
    cluster.obeys = False
    cluster.submit("3", "1:ppn=2", walltime=1000)
    assert [share.node for share in _decision(cluster, "3").shares] == ["n1"]
    _refuse_as_fragmented(cluster, "3")
    cluster.obeys = True
    assert cluster.start("3") == 300
    cluster.at(300)
    assert [share.node for share in _decision(cluster, "3").shares] == ["n2"]


def test_a_job_refused_on_fragmented_nodes_forgets_that_when_it_is_altered() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1", "1:ppn=2", walltime=5000)
    cluster.obeys = False
    cluster.submit("2", "1:ppn=2", walltime=1000)
    _refuse_as_fragmented(cluster, "2")
    cluster.obeys = True
    cluster.send(*cluster.server.alter("2", resources={"nodes": "1:ppn=1", "walltime": "1000"}))
    assert cluster.runs("2")[1:] == [0]
    assert cluster.engine.state.awaited_ends == {}


@pytest.mark.parametrize(
    ("code", "again"),
    [(15044, 1), (15046, 30), (15157, 5), (0, 5)],
    ids=["nodes busy", "a full queue to this family", "altered since", "our own check"],
)
def test_backoff_depends_on_the_meaning_of_the_rejection(code: int, again: int) -> None:
    cluster = Cluster(refusal_wait=30, busy_wait=1, check_wait=5)
    cluster.obeys = False
    cluster.submit("1", family="openpbs", resources={"select": "1:ncpus=1"})
    _refuse(cluster, "1", code)
    cluster.at(again)
    cluster.at(31)
    assert cluster.runs("1")[:2] == [0, again]


def test_a_refusal_that_means_cannot_backs_off_with_growing_waits() -> None:
    cluster = Cluster(refusal_wait=30, refusal_most=100)
    cluster.obeys = False
    cluster.submit("1")
    for _ in range(4):
        _refuse(cluster, "1", 15043)
        assert cluster.view("1").planned_start is not None
        cluster.at(cluster.start("1") or 0)
    assert cluster.runs("1") == [0, 30, 90, 190, 290]
    assert cluster.record("1").back_off.refusal == "the server (code 15043): no"
    assert cluster.breaches("1")[0] == Cause.REFUSED


def test_a_job_that_a_hook_refuses_is_tried_again_every_two_minutes_at_least() -> None:
    cluster = Cluster(refusal_wait=30, refusal_most=3600)
    cluster.obeys = False
    cluster.submit("1", family="openpbs", resources={"select": "1:ncpus=1"})
    for _ in range(6):
        _refuse(cluster, "1", 15136)
        cluster.at(cluster.start("1") or 0)
    assert cluster.runs("1") == [0, 30, 90, 210, 330, 450, 570]


def _refuse_by_outage(cluster: Cluster, job: str) -> None:
    (refused,) = cluster.server.refuse(_decision(cluster, job), 0, "the server does not answer")
    assert isinstance(refused, RunRefused)
    cluster.send(replace(refused, outage=True))


def test_starts_refused_by_an_outage_are_tried_again_on_their_nodes_after_growing_waits() -> None:
    cluster = Cluster(refusal_wait=30, check_wait=5)
    cluster.obeys = False
    for job in "12":
        cluster.submit(job)
    tried = [0, 5, 10, 15, 22, 33, 49, 73, 109, 163, 223, 283]
    for second in tried:
        cluster.at(second)
        assert _opened(cluster) == (["starts_refused"] if second > 33 else [])
        _refuse_by_outage(cluster, "1")
    assert cluster.runs("1") == tried
    (alert,) = cluster.alerts("starts_refused")
    assert alert == (
        "no start has succeeded since 2023-11-14 22:13:20 UTC: 1 job was refused, the last by the adapter: "
        "the server does not answer"
    )
    assert publish_snapshot(cluster.engine.state).starts_refused == alert
    back_off = cluster.record("1").back_off
    assert (back_off.refusals, back_off.failed_on) == (0, ())
    assert back_off.refusal == "the adapter: the server does not answer"
    assert cluster.runs("2") == []
    cluster.obeys = True
    cluster.at(343)
    assert cluster.runs("1")[-1] == 343
    assert cluster.record("1").phase == "running"
    assert (_opened(cluster), publish_snapshot(cluster.engine.state).starts_refused) == ([], "")


@pytest.mark.parametrize("ends", ["run", "snapshot"])
def test_end_of_an_outage_ends_the_waits_of_all_its_jobs(ends: str) -> None:
    cluster = Cluster(nodes=2)
    cluster.obeys = False
    for job in "12":
        cluster.submit(job)
    for second in (0, 5, 10, 15, 22, 33, 49):
        cluster.at(second)
        for job in "12":
            _refuse_by_outage(cluster, job)
    cluster.at(50)
    cluster.obeys = True
    if ends == "run":
        cluster.node("n3")
        cluster.submit("3")
    else:
        cluster.send(cluster.server.snapshot())
    assert [cluster.runs(job)[-1] for job in "12"] == [50, 50]


def test_outage_without_a_job_left_is_over() -> None:
    cluster = Cluster()
    cluster.obeys = False
    cluster.submit("1")
    for second in (0, 5, 10, 15, 22, 33, 49):
        cluster.at(second)
        _refuse_by_outage(cluster, "1")
    assert _opened(cluster) == ["starts_refused"]
    cluster.send(*cluster.server.delete("1"))
    assert _opened(cluster) == []


def test_new_outage_does_not_count_the_time_since_a_refusal_of_a_job_that_is_gone() -> None:
    cluster = Cluster()
    cluster.obeys = False
    cluster.submit("1")
    _refuse_by_outage(cluster, "1")
    cluster.send(*cluster.server.delete("1"))
    cluster.at(10_000)
    cluster.submit("2")
    _refuse_by_outage(cluster, "2")
    assert _opened(cluster) == []
    cluster.at(10_005)
    assert cluster.runs("2") == [10_000, 10_005]


def test_backoff_of_a_job_that_was_refused_itself_does_not_end_with_an_outage() -> None:
    cluster = Cluster(refusal_wait=300)
    cluster.obeys = False
    cluster.submit("1")
    _refuse_by_outage(cluster, "1")
    cluster.at(5)
    _refuse(cluster, "1", 15043)
    cluster.at(10)
    cluster.send(cluster.server.snapshot())
    assert cluster.runs("1") == [0, 5]


def _lasting_outage() -> Cluster:
    cluster = Cluster(nodes=2)
    cluster.obeys = False
    for job in "12":
        cluster.submit(job)
    for second in (0, 5, 10, 15, 22, 33, 49):
        cluster.at(second)
        for job in "12":
            _refuse_by_outage(cluster, job)
    assert _opened(cluster) == ["starts_refused"]
    return cluster


def test_start_that_is_reported_before_its_acceptance_ends_an_outage() -> None:
    cluster = _lasting_outage()
    cluster.at(73)
    cluster.send(*cluster.server.start("1", _decision(cluster, "1").shares))
    assert _opened(cluster) == []


def test_outage_lasts_while_the_plan_is_rebuilt() -> None:
    cluster = _lasting_outage()
    now = cluster.server.now
    cluster.send(BatchSkipped(id="skipped", time=now, batch=1, why="it failed", decided=0, anew=True))
    assert "starts_refused" in _opened(cluster)
    cluster.send(cluster.server.snapshot())
    assert "starts_refused" in _opened(cluster)


@pytest.mark.parametrize(("code", "alerts"), [(15007, 1), (15043, 0), (15046, 0), (0, 0)])
def test_one_error_of_the_server_for_five_jobs_in_a_row_raises_one_alert(code: int, alerts: int) -> None:
    cluster = Cluster(nodes=7, hole_failures=0)
    cluster.obeys = False
    for job in "12345":
        cluster.submit(job)
        _refuse(cluster, job, code)
    assert len(cluster.alerts("starts_refused")) == alerts
    cluster.obeys = True
    cluster.submit("8")
    assert bool(cluster.runs("8")) != bool(alerts), "an outage is probed with growing waits"
    cluster.at(10)
    assert cluster.runs("8") == [5 if alerts else 0]
    assert _opened(cluster) == []


def test_freed_nodes_of_a_rejected_job_go_to_the_next_job() -> None:
    cluster = Cluster()
    cluster.obeys = False
    cluster.submit("1")
    cluster.submit("2", walltime=20)
    _refuse(cluster, "1", 15064)
    assert cluster.runs("2") == [0]
    assert cluster.start("1") == 30


def test_unanswered_decision_is_void_after_its_expiry_and_the_grace() -> None:
    cluster = Cluster(decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    cluster.submit("1")
    cluster.at(90)
    assert cluster.runs("1") == [0]
    cluster.at(91)
    assert cluster.runs("1") == [0, 91]
    assert cluster.alerts("unanswered") == ["1 start was sent to the adapter and not answered in time"]


def test_a_decision_is_not_void_while_older_events_are_still_being_handled() -> None:
    """A planner with a backlog handles outcomes minutes after they arrived."""
    cluster = Cluster(nodes=2, decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    cluster.submit("1", "n1:ppn=4", 1000)
    (run,) = [one for one in cluster.decisions if isinstance(one, Run)]
    new, node = cluster.server.event_id, cluster.server.nodes["n2"]
    cluster.server.now = T + 300
    cluster.engine.handle([NodeChanged(id=new(), time=T + 40, node=replace(node, cpus=5))], T + 300)
    taken = RunAccepted(id=new(), time=T + 50, decision_id=run.id, job_id="1")
    cluster.engine.handle([taken], T + 310)
    assert cluster.record("1").attempt.accepted
    assert _opened(cluster) == []


def test_a_start_that_comes_after_its_decision_was_void_is_still_ours() -> None:
    cluster = Cluster(decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    cluster.submit("1")
    cluster.engine.pause("test")
    cluster.at(95)
    assert cluster.view("1").state == "planned"
    cluster.send(JobStarted(id="s", time=T + 50, job_id="1", shares=(ShareFacts("n1", 4),)))
    assert cluster.view("1").started == T + 50
    assert cluster.alerts("foreign") == []


def test_an_outcome_of_an_older_decision_is_ignored() -> None:
    cluster = Cluster()
    cluster.obeys = False
    cluster.submit("1")
    old = _decision(cluster, "1")
    _refuse(cluster, "1", 15046)
    cluster.at(1)
    assert cluster.view("1").state == "starting"
    cluster.send(*cluster.server.refuse(old, 15043, "late"))
    cluster.send(RunAccepted(id="x", time=T, decision_id=old.id, job_id="1"))
    assert cluster.view("1").state == "starting"
    assert not cluster.record("1").attempt.accepted


def test_job_returned_three_times_is_quarantined() -> None:
    cluster = Cluster(returns_most=3, refusal_wait=30)
    cluster.submit("1")
    for n in range(1, 4):
        cluster.at((cluster.start("1") or 0) + 2)
        cluster.send(*cluster.server.requeue("1"))
        assert cluster.record("1").back_off.returns == n
    assert cluster.view("1").waiting_for == "returned"
    assert "it came back to its queue 3 times" in cluster.view("1").why
    assert cluster.start("1") is None
    cluster.send(*cluster.server.release("1"))
    assert cluster.view("1").state == "running"


def test_a_job_requeued_by_a_restart_of_the_server_has_not_failed_and_goes_before_later_jobs() -> None:
    """`qterm -t immediate` of OpenPBS requeues what runs, without an exit status for subjobs: that counted as
    a failed start, and the job went behind jobs that had come after it.
    """
    cluster = Cluster(nodes=2, slack=500, returns_within=60)
    cluster.submit("1", "1:ppn=4", walltime=600)
    cluster.submit("2", "1:ppn=4", walltime=600)
    cluster.at(10)
    for number in "34":
        cluster.submit(number, "1:ppn=4", walltime=500)
    cluster.at(30)
    for number in "12":
        cluster.server.requeue(number)
    cluster.send(cluster.server.snapshot(age=5))
    assert [cluster.record(number).back_off.returns for number in "12"] == [0, 0]
    assert "failed" not in cluster.view("1").why
    assert not cluster.engine.state.failures
    assert [cluster.runs(number) for number in "1234"] == [[0, 30], [0, 30], [], []]
    assert [cluster.start(number) for number in "34"] == [630, 630]
    assert cluster.breaches("3") == []


def test_a_job_requeued_by_a_restart_breaks_no_promise_of_later_jobs() -> None:
    cluster = Cluster(slack=0)
    cluster.submit("1", "1:ppn=4", walltime=600)
    cluster.submit("2", "1:ppn=4", walltime=500)
    cluster.at(30)
    cluster.server.requeue("1")
    cluster.send(cluster.server.snapshot(age=5))
    assert (cluster.runs("2"), cluster.start("1")) == ([30], 530)
    assert cluster.breaches("2") == []


def test_a_job_requeued_by_a_restart_goes_first_when_its_node_is_back() -> None:
    cluster = Cluster(slack=500)
    cluster.submit("1", "1:ppn=4", walltime=600)
    cluster.at(10)
    cluster.submit("2", "1:ppn=4", walltime=500)
    cluster.at(30)
    cluster.server.nodes["n1"] = replace(cluster.server.nodes["n1"], state="down")
    cluster.server.requeue("1")
    cluster.send(cluster.server.snapshot(age=5))
    assert cluster.start("1") is None
    cluster.at(40)
    cluster.node("n1", state="up")
    assert (cluster.runs("1"), cluster.start("2")) == ([0, 40], 640)
    assert not cluster.engine.state.requeued_by_restart


@pytest.mark.parametrize(
    ("first", "second", "seconds_between"),
    [("1", "2", 4), ("9.s", "10.s", 0), ("7[9].s", "7[10].s", 0), ("7[2].s", "8.s", 0)],
)
def test_of_jobs_found_at_the_same_time_the_one_submitted_first_goes_first_after_a_restart(
    first: str, second: str, seconds_between: int
) -> None:
    """Within a second their numbers decide: servers tell times in whole seconds."""
    cluster = Cluster(slack=500)
    server = cluster.server
    for number, submitted, walltime in ((first, T - 9, 600), (second, T - 9 + seconds_between, 500)):
        resources = {"nodes": "1:ppn=4", "walltime": str(walltime)}
        job = JobFacts(id=number, owner="ann@login", queue="batch", submitted=submitted, resources=resources)
        server.submit(job, walltime)
    cluster.send(server.snapshot())
    cluster.at(30)
    server.requeue(first)
    cluster.send(server.snapshot(age=5))
    assert (cluster.runs(first), cluster.start(second)) == ([0, 30], 630)


def test_a_job_that_comes_back_long_after_a_restart_or_started_after_it_has_failed() -> None:
    cluster = Cluster(server_grace=20, returns_within=60)
    cluster.submit("1", "1:ppn=4", walltime=600)
    cluster.at(30)
    cluster.server.requeue("1")
    cluster.send(cluster.server.snapshot(age=25))
    assert cluster.record("1").back_off.returns == 1
    cluster = Cluster(server_grace=60, returns_within=60)
    cluster.submit("1", "1:ppn=4", walltime=600)
    cluster.at(10)
    cluster.send(*cluster.server.requeue("1"))
    assert cluster.record("1").back_off.returns == 1


@pytest.mark.parametrize(
    ("family", "status", "returns", "failures"),
    [("openpbs", -11, 0, 0), ("openpbs", -20, 1, 1), ("", 271, 0, 0), ("", -3, 1, 1), ("", None, 1, 1)],
)
def test_a_rerun_on_request_speaks_neither_against_the_job_nor_its_node(
    family: str, status: int | None, returns: int, failures: int
) -> None:
    """A user's ``qrerun`` soon after the start counted as a failure of the node."""
    cluster = Cluster()
    resources = {"select": "1:ncpus=4", "walltime": "100"} if family else {"walltime": "100"}
    cluster.submit("1", resources=resources, family=family)
    cluster.at(2)
    cluster.server.jobs["1"] = replace(cluster.server.jobs["1"], exit_status=status)
    cluster.send(*cluster.server.requeue("1"))
    assert cluster.record("1").back_off.returns == returns
    assert len(cluster.engine.state.failures.get("n1", ())) == failures


def test_a_requeue_after_a_real_run_is_no_return_and_ends_the_promise() -> None:
    cluster = Cluster(returns_within=60)
    cluster.submit("1", walltime=1000)
    cluster.at(500)
    cluster.engine.pause("test")
    cluster.send(*cluster.server.requeue("1"))
    record = cluster.record("1")
    assert record.back_off.returns == 0
    assert record.ended is not None
    assert (record.ended.words, record.ended.promised) == ("it came back to its queue", T)
    assert cluster.promise("1") == 500


def test_job_altered_while_dispatched_is_replanned_after_a_rejection() -> None:
    cluster = Cluster(nodes=2)
    cluster.obeys = False
    cluster.submit("1", "1:ppn=4")
    cluster.alter_request("1", nodes="2:ppn=4")
    assert cluster.planned_node_names("1") == ["n1"]
    cluster.send(*cluster.server.run(_decision(cluster, "1")))
    assert cluster.start("1") == 5
    assert cluster.planned_node_names("1") == ["n1", "n2"]


def test_placement_lost_while_dispatched_is_not_kept() -> None:
    cluster = Cluster(nodes=2)
    cluster.obeys = False
    cluster.submit("1", "1:ppn=4")
    taken = _decision(cluster, "1").shares[0].node
    cluster.node(taken, state="drain")
    _refuse(cluster, "1", 15046)
    assert taken not in cluster.planned_node_names("1")


# ---- permission and rate of starts --------------------------------------------------------------


def test_a_pause_stops_starts_at_once_and_resume_goes_on() -> None:
    cluster = Cluster()
    cluster.submit("1")
    cluster.submit("2")
    cluster.engine.pause("upgrade")
    cluster.at(150)
    assert cluster.runs("2") == []
    cluster.at(300)
    assert cluster.breaches("2")[0] == Cause.ADMIN
    change = cluster.view("2").last_change
    assert change is not None
    promise = "its promise of 2023-11-14 22:17:01 UTC still holds"
    assert change.words == f"it was not started in time: paused: upgrade; {promise}"
    cluster.engine.resume()
    cluster.send()
    assert cluster.runs("2") == [300]


def test_the_servers_own_switch_does_the_same() -> None:
    cluster = Cluster()
    cluster.send(*cluster.server.change_server(ServerFacts(scheduling=False)))
    cluster.submit("1")
    cluster.at(50)
    assert (cluster.runs("1"), cluster.start("1")) == ([], 0)
    cluster.send(*cluster.server.change_server(ServerFacts(scheduling=True)))
    assert cluster.runs("1") == [50]


@pytest.mark.parametrize(("mode", "tells"), [("shadow", 0), ("adviser", 1)])
def test_shadow_and_adviser_start_nothing(mode: str, tells: int) -> None:
    cluster = Cluster(mode=mode, publish_starts=True)
    cluster.submit("1")
    cluster.at(10)
    assert (cluster.runs("1"), cluster.start("1")) == ([], 0)
    assert len(cluster.attribute_writes("1")) == tells
    cluster.send(*cluster.server.start("1", (ShareFacts("n1", 4),)))
    assert cluster.view("1").state == "running"
    assert cluster.alerts("foreign") == []


def test_several_foreign_starts_stop_dispatch_until_resumed() -> None:
    cluster = Cluster(nodes=4, alone_starts=3, alone_within=600)
    for number in "1234":
        cluster.submit(number, "n1:ppn=4")
    for number, at in (("2", 0), ("3", 50), ("4", 90)):
        assert cluster.alerts("foreign") == []
        cluster.at(at)
        cluster.send(*cluster.server.start(number, (ShareFacts(f"n{number}", 4),)))
    assert len(cluster.alerts("foreign")) == 1
    words = f"job 4 {STARTED_BY_SOMEBODY_ELSE}, as were 2 others in the 90 s before"
    assert cluster.engine.state.foreign == words
    cluster.submit("5", "n1:ppn=4")
    cluster.at(120)
    assert cluster.runs("5") == []
    cluster.engine.resume()
    cluster.send()
    assert cluster.runs("5") == [120]


def test_single_manual_start_stops_nothing_and_displaced_jobs_have_the_reason() -> None:
    cluster = Cluster(nodes=1, alone_starts=2, alone_within=600)
    cluster.submit("1", "n1:ppn=4", walltime=50)
    cluster.submit("2", "n1:ppn=4", walltime=50)
    cluster.submit("3", "n1:ppn=4", walltime=200)
    cluster.at(10)
    cluster.send(*cluster.server.start("3", (ShareFacts("n1", 4),)))
    assert cluster.alerts("by_hand") == [f"job 3 {STARTED_BY_SOMEBODY_ELSE}, not by this scheduler"]
    assert (cluster.engine.state.halted, cluster.start("2")) == ("", 210)
    assert cluster.at_risk("2") == Cause.ADMIN
    cluster.submit("4", "n1:ppn=1", walltime=20)
    cluster.at(700)
    cluster.submit("5", "n1:ppn=4", walltime=50)
    cluster.submit("6", "n1:ppn=4", walltime=50)
    cluster.send(*cluster.server.start("6", (ShareFacts("n1", 4),)))  # long after the first
    assert (cluster.engine.state.halted, len(cluster.alerts("by_hand"))) == ("", 2)


def test_manual_start_recorded_by_the_server_does_not_indicate_another_scheduler() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", "n1:ppn=4")
    cluster.submit("2", "n1:ppn=4")
    cluster.server.start("2", (ShareFacts("n2", 4),))
    cluster.send(JobStarted(id="x", time=T, job_id="2", shares=(ShareFacts("n2", 4),), by="root@server"))
    assert cluster.alerts("foreign") == []
    assert cluster.planned_node_names("2") == ["n2"]


def test_jobs_running_at_the_first_snapshot_are_not_foreign() -> None:
    cluster = Cluster(alone_starts=1)
    other = Cluster()
    other.submit("1")
    other.at(10)
    cluster.engine.handle([other.server.snapshot()], T + 10)
    assert cluster.engine.state.foreign == ""
    other.server.now = T + 20
    other.submit("2")
    other.send(*other.server.start("2", (ShareFacts("n1", 1),)))
    other.server.now = T + 30
    cluster.engine.handle([other.server.snapshot()], T + 30)
    assert "job 2" in cluster.engine.state.foreign


def test_manual_start_in_a_snapshot_does_not_indicate_another_scheduler() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", "n1:ppn=4")
    cluster.submit("2", "n1:ppn=4")
    cluster.server.start("2", (ShareFacts("n2", 4),))
    cluster.server.jobs["2"] = replace(cluster.server.jobs["2"], by="carol@login1")
    cluster.send(cluster.server.snapshot())
    assert (cluster.alerts("foreign"), cluster.planned_node_names("2")) == ([], ["n2"])
    cluster.server.submit(JobFacts(id="3", owner="ann", queue="batch", submitted=T), 100)
    cluster.server.start("3", (ShareFacts("n2", 1),))
    cluster.server.jobs["3"] = replace(cluster.server.jobs["3"], by="carol@login1")
    cluster.send(cluster.server.snapshot())
    assert cluster.alerts("foreign") == []


@pytest.mark.parametrize(
    ("here", "there", "effect", "tells"),
    [
        ("scheduler", "adviser", "adviser", 1),
        ("scheduler", "shadow", "shadow", 1),  # for comparison: the adapter writes none of them
        ("adviser", "scheduler", "adviser", 1),
        ("shadow", "adviser", "shadow", 0),
    ],
)
def test_the_more_careful_of_our_mode_and_the_adapters_counts(
    here: str, there: Any, effect: str, tells: int
) -> None:
    cluster = Cluster(nodes=2, mode=here, publish_starts=True)
    cluster.send(replace(cluster.server.snapshot(), mode=there))
    cluster.submit("1")
    cluster.at(10)
    assert (cluster.runs("1"), cluster.engine.state.mode) == ([], effect)
    assert cluster.engine.state.halted.endswith(f"mode is {effect}")
    assert len(cluster.attribute_writes("1")) == tells
    cluster.send(*cluster.server.start("1", (ShareFacts("n1", 4),)))
    assert cluster.alerts("foreign") == []


def test_an_adapter_that_becomes_scheduler_lets_jobs_start() -> None:
    cluster = Cluster()
    cluster.send(replace(cluster.server.snapshot(), mode="shadow"))
    cluster.submit("1")
    cluster.at(10)
    cluster.send(replace(cluster.server.snapshot(), mode="scheduler"))
    assert cluster.runs("1") == [10]
    assert cluster.alerts("mode") == []


def test_contradiction_of_modes_raises_one_alert_also_over_a_checkpoint() -> None:
    cluster = Cluster(mode="adviser")
    cluster.send(cluster.server.snapshot())
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    cluster.send(cluster.server.snapshot())
    (alert,) = cluster.alerts("mode")
    assert 'has mode = "adviser": no jobs are started' in alert
    assert cluster.engine.state.adapter_mode == "scheduler"


def test_starts_are_limited_by_second_and_by_node() -> None:
    cluster = Cluster(nodes=2, cpus=8, start_rate=3, start_rate_node=2)
    cluster.engine.pause("collect")
    for i in range(8):
        cluster.submit(str(i), f"n{1 + i // 6}:ppn=1")
    cluster.engine.resume()
    cluster.send()
    cluster.at(10)
    started = sorted(cluster.runs(str(i))[0] for i in range(8))
    assert started == [0, 0, 0, 1, 1, 1, 2, 2]
    assert sorted(cluster.runs(str(i))[0] for i in range(6)) == [0, 0, 1, 1, 2, 2]


def test_duplicates_of_a_start_change_nothing() -> None:
    cluster = Cluster()
    cluster.submit("1")
    cluster.submit("2")
    seen = cluster.view("1")
    started = JobStarted(id="x", time=T, job_id="1", shares=(ShareFacts("n1", 4),))
    cluster.send(started, started)
    assert replace(cluster.view("1"), generation=0, as_of=0) == replace(seen, generation=0, as_of=0)


def test_a_job_started_elsewhere_than_planned_takes_its_room_there() -> None:
    cluster = Cluster(nodes=2, alone=False)
    cluster.submit("1", "n1:ppn=4")
    cluster.submit("2", "n2:ppn=4")
    cluster.submit("3", "n1:ppn=4")
    cluster.send(*cluster.server.start("3", (ShareFacts("n2", 4),)))
    cluster.submit("4", "n2:ppn=4")
    assert (cluster.start("4"), cluster.planned_node_names("3")) == (100, ["n2"])


def test_every_start_of_a_decision_is_counted_once() -> None:
    cluster = Cluster()
    cluster.submit("1", walltime=300)
    cluster.at(100)
    facts = cluster.server.jobs["1"]
    cluster.send(JobQueued(id="dup", time=T - 5, job=replace(facts, state="Q", started=None, shares=())))
    cluster.at(250)
    assert cluster.runs("1") == [0]
    assert cluster.server.jobs["1"].starts == cluster.record("1").facts.starts == 1


def test_a_refusal_of_an_unknown_job_is_ignored() -> None:
    cluster = Cluster()
    cluster.send(RunRefused(id="x", time=T, decision_id="d1", job_id="nobody", code=1, text=""))
    assert cluster.engine.state.records == {}


def test_late_report_of_an_old_start_does_not_answer_the_open_decision() -> None:
    cluster = Cluster(decision_expiry=60)
    cluster.obeys = False
    cluster.submit("1")
    queued = cluster.server.jobs["1"]
    event_id = cluster.server.event_id
    shares = (ShareFacts("n1", 4),)
    cluster.send(JobStarted(id=event_id(), time=T - 3000, job_id="1", shares=shares))
    assert cluster.view("1").state == "running"
    cluster.send(JobQueued(id=event_id(), time=T, job=queued))
    cluster.at(60)
    assert cluster.runs("1") == [0]  # the adapter may carry it out until its last second
    cluster.at(61)
    assert cluster.runs("1") == [0, 61]


# ---- starts of unknown origin -------------------------------------------------------------------


def test_accepted_start_keeps_its_nodes_until_it_is_reported() -> None:
    cluster = Cluster(nodes=1, end_allowance=20, start_wait=3_600)
    cluster.obeys = False
    cluster.submit("1", "n1:ppn=4", walltime=60)
    run = _decision(cluster, "1")
    cluster.send(RunAccepted(id="a", time=T, decision_id=run.id, job_id="1"))
    cluster.submit("2", "n1:ppn=4", walltime=60)
    cluster.at(3_000)
    assert (cluster.runs("1"), cluster.runs("2")) == ([0], [])
    assert (cluster.start("2") or 0) > 3_000
    cluster.server.now = T + 3_000
    cluster.send(*cluster.server.start("1", run.shares))
    cluster.obeys = True
    cluster.at(3_100)
    assert cluster.runs("2") == [3_060]


def test_restarted_daemon_voids_no_start_before_contact_with_the_adapter() -> None:
    cluster = Cluster(nodes=1, decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    cluster.submit("1", walltime=600)
    run = _decision(cluster, "1")
    cluster.server.now = T + 400  # during an outage
    cluster.send()
    cluster.at(450)
    assert (cluster.runs("1"), cluster.alerts("unanswered")) == ([0], [])
    cluster.submit("2")
    cluster.at(470)
    assert cluster.runs("1") == [0]
    cluster.send(
        RunAccepted(id="a", time=T + 5, decision_id=run.id, job_id="1"),
        JobStarted(id="b", time=T + 5, job_id="1", shares=run.shares),
    )
    assert cluster.view("1").state == "running"
    assert cluster.alerts("by_hand") == []


def test_unanswered_start_is_void_after_contact_with_the_adapter() -> None:
    cluster = Cluster(nodes=1, decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    cluster.submit("1", walltime=600)
    cluster.server.now = T + 400
    cluster.send()
    cluster.submit("2")
    cluster.at(430)
    assert cluster.runs("1") == [0]
    cluster.at(431)
    assert cluster.runs("1") == [0, 431]


def test_job_in_backoff_is_not_started_with_other_due_jobs() -> None:
    cluster = Cluster(nodes=2)
    cluster.obeys = False
    cluster.submit("1", "n1:ppn=4")
    _refuse(cluster, "1", 15046)
    cluster.submit("2", "n2:ppn=4")
    assert (cluster.runs("1"), cluster.runs("2")) == ([0], [0])
    cluster.at(1)
    assert cluster.runs("1") == [0, 1]


def test_dispatched_job_has_no_pending_attribute_writes() -> None:
    cluster = Cluster(nodes=2, publish_starts=True, publish_rate=1)
    cluster.obeys = False
    cluster.submit("1", "n1:ppn=4", walltime=1_000)
    cluster.submit("2", "n1:ppn=4", walltime=1_000)
    assert len(cluster.attribute_writes("2")) == 1  # all writes of this second
    cluster.submit("3", "n2:ppn=4", walltime=1_000)
    assert cluster.runs("3") == [0]
    wake = cluster.engine.next_wake
    assert wake is not None
    assert wake > T + 1


@pytest.mark.parametrize("policy", ["conservative", "easy"])
def test_a_hook_that_refuses_all_starts_is_an_outage_in_which_one_start_is_tried_at_a_time(
    policy: str,
) -> None:
    cluster = Cluster(nodes=8, policy=policy)
    cluster.obeys = False
    for number in range(80):
        cluster.submit(str(number), family="openpbs", resources={"select": "1:ncpus=4"}, walltime=50)
    answered = 0

    def refuse_until(last: int) -> None:
        nonlocal answered
        while True:
            runs = [one for one in cluster.decisions if isinstance(one, Run)]
            for one in runs[answered:]:
                cluster.send(*cluster.server.refuse(one, 15136, "licences are being renewed"))
            done, answered = answered == len(runs), len(runs)
            wake = cluster.engine.next_wake
            if done and (wake is None or wake > T + last):
                return
            if done and wake is not None:
                cluster.at(wake - T)

    refuse_until(59)
    assert _opened(cluster) == []
    refuse_until(120)
    assert _opened(cluster) == ["starts_refused"]
    before = answered
    refuse_until(720)
    assert 10 <= answered - before <= 14, "half the outage's length, then a minute"
    assert len(cluster.alerts("starts_refused")) == 1
    cluster.obeys = True
    cluster.at(800)
    assert _opened(cluster) == []
    assert len([one for one in cluster.server.jobs.values() if one.state == "R"]) == 8


def test_jobs_behind_many_unanswered_starts_are_delayed_by_as_much_and_not_placed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(cpus=16, decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    for number in range(16):
        cluster.submit(f"s{number}", "1:ppn=1", walltime=40)
    waiting = [f"w{number}" for number in range(40)]
    for number, job in enumerate(waiting):
        cluster.submit(job, "1:ppn=4", walltime=200 + number)
    placed: Counter[str] = Counter()
    place = placement.place_job

    def place_job(state: EngineState, record: JobRecord, event: str, **options: bool) -> None:
        placed[record.id] += 1
        place(state, record, event, **options)

    monkeypatch.setattr(placement, "place_job", place_job)
    before = {job: cluster.start(job) for job in waiting}
    cluster.at(90)
    placed.clear()
    cluster.at(91)
    assert [cluster.runs(f"s{number}")[-1] for number in range(16)] == [91] * 16
    assert not placed
    for job, start in before.items():
        now = cluster.start(job)
        assert start is not None
        assert now is not None
        assert now <= start + 91
    assert {one.words for one in cluster.engine.state.changes if one.time == T + 91} >= {
        "run decisions were not answered"
    }


def test_jobs_behind_a_refused_start_whose_placement_has_ended_are_delayed_as_they_are() -> None:
    """A new place for the wide job only would be behind the long job on its other node."""
    cluster = Cluster(nodes=2, slack="900", busy_wait=20, decision_expiry=120)
    cluster.submit("2")
    cluster.obeys = False
    cluster.submit("1", walltime=90)
    cluster.submit("wide", "2:ppn=4", walltime=1_000)
    cluster.submit("3", walltime=10_000)
    cluster.submit("4", walltime=10_000)
    before = {job: cluster.start(job) for job in ("wide", "3", "4")}
    cluster.at(85)
    _refuse(cluster, "1", 15046)
    for job, start in before.items():
        now = cluster.start(job)
        assert start is not None
        assert now is not None
        assert now <= start + 95
        assert not cluster.at_risk(job)


def test_a_run_decision_says_why_the_job_was_planned_for_then() -> None:
    cluster = Cluster()
    cluster.submit("1", walltime=1000, runtime=500)
    cluster.submit("2")
    cluster.at(510)
    why = {one.job_id: one.why for one in cluster.decisions if isinstance(one, Run)}
    assert why == {"1": "it arrived", "2": "job 1 ended"}
