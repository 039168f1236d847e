"""Snapshots: acceptance, and effects of differences."""

from dataclasses import replace

import pytest

from schedd.start_sentence import NEVER
from schedd.wire import (
    JobAltered,
    JobFacts,
    JobQueued,
    QueueChanged,
    QueueFacts,
    Run,
    RunAccepted,
    ShareFacts,
    Snapshot,
)
from tests.engine.cluster import Cluster, T


def test_snapshot_without_differences_has_no_effect() -> None:
    cluster = Cluster(nodes=2)
    for job in "123":
        cluster.submit(job, "2:ppn=4")
    before = [cluster.start(job) for job in "123"]
    assert cluster.send(cluster.server.snapshot()) == ()
    assert [cluster.start(job) for job in "123"] == before


def test_a_snapshot_wins_and_its_differences_are_reported() -> None:
    cluster = Cluster()
    for job in "123":
        cluster.submit(job)
    server = cluster.server
    del server.jobs["1"]
    server.jobs["2"] = replace(server.jobs["2"], holds="u", state="H")
    server.jobs["4"] = replace(server.jobs["3"], id="4")
    server.nodes["n2"] = replace(server.nodes["n1"], name="n2")
    server.runtime["4"] = 100
    cluster.send(server.snapshot())
    assert "1" not in cluster.engine.state.records
    assert cluster.start("2") is None
    assert cluster.runs("3") == cluster.runs("4") == [0]
    said = "the server's state differed: 1 x job altered, 1 x job ended, 1 x job queued, 1 x node changed"
    assert cluster.alerts("snapshot") == [said]


def test_a_queue_that_a_snapshot_lacks_is_removed_with_its_limits() -> None:
    cluster = Cluster()
    limits = cluster.engine.state.limits
    before = limits.sources
    night = QueueFacts(name="night", started=False, limits={"max_running": "1"})
    cluster.send(QueueChanged(id="q:1", time=T, queue=night))
    assert limits.sources != before
    cluster.send(replace(cluster.server.snapshot(), queues=()))
    assert set(cluster.engine.state.queues) == {"batch", "night"}, "its sender does not list queues"
    cluster.send(cluster.server.snapshot())
    assert set(cluster.engine.state.queues) == {"batch"}
    assert limits.sources == before
    assert not cluster.alerts("snapshot")


@pytest.mark.parametrize("first", ["queued", "altered", "snapshot"])
def test_a_run_that_was_there_before_counts_as_one_start(first: str) -> None:
    cluster = Cluster()
    if first == "altered":
        cluster.submit("1", holds="u", state="H")
    server = cluster.server
    run = JobFacts(
        id="1",
        owner="ann@login",
        queue="batch",
        submitted=T,
        state="R",
        started=T,
        starts=1,
        resources={"nodes": "1:ppn=4", "walltime": "100"},
        shares=(ShareFacts("n1", 4),),
        version="2",
    )
    server.jobs["1"], server.runtime["1"] = run, 10_000
    kind = {"queued": JobQueued, "altered": JobAltered}.get(first)
    cluster.send(server.snapshot() if kind is None else kind(id="e:1", time=T, job=run))
    assert cluster.engine.state.records["1"].facts == run
    known = cluster.alerts("snapshot")
    cluster.send(server.snapshot())
    assert cluster.alerts("snapshot") == known


def test_a_removed_node_which_only_a_snapshot_can_report_raises_no_alert() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", "1:ppn=4")
    del cluster.server.nodes["n2"]
    cluster.send(cluster.server.snapshot())
    assert cluster.alerts("snapshot") == []
    cluster.submit("2", "2:ppn=4")
    assert cluster.view("2").answer == "never"


def test_changes_during_an_adapter_outage_raise_no_alert() -> None:
    cluster = Cluster()
    cluster.submit("1")
    cluster.server.jobs["2"] = replace(cluster.server.jobs["1"], id="2")
    cluster.send(replace(cluster.server.snapshot(), id="another-run:1"))
    assert "2" in cluster.engine.state.records
    assert cluster.alerts("snapshot") == []
    cluster.server.jobs["3"] = replace(cluster.server.jobs["1"], id="3")
    cluster.send(replace(cluster.server.snapshot(), id="another-run:2"))
    (said,) = cluster.alerts("snapshot")
    assert "1 x job queued" in said


def test_snapshot_finds_jobs_started_or_requeued_during_an_outage() -> None:
    cluster = Cluster(alone=False)
    cluster.submit("1", walltime=1000)
    cluster.submit("2", walltime=1000)
    cluster.at(100)
    cluster.server.requeue("1")
    cluster.server.start("2", tuple(cluster.record("1").facts.shares))
    cluster.send(cluster.server.snapshot())
    assert (cluster.view("1").state, cluster.view("2").state) == ("planned", "running")
    assert cluster.start("1") == 1100


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"complete": False}, "the reply was cut short"),
        ({"jobs": ()}, "the server lacks 10 of 10 jobs"),
        ({"nodes": ()}, "the server lacks 8 of 8 nodes"),
    ],
)
def test_implausible_snapshot_pauses_starts_and_raises_an_alert(
    changes: dict[str, object], words: str
) -> None:
    cluster = Cluster(nodes=8)
    for i in range(10):
        cluster.submit(str(i), "8:ppn=4")
    before = [cluster.start(str(i)) for i in range(10)]
    wrong: Snapshot = replace(cluster.server.snapshot(), **changes)  # type: ignore[arg-type]
    cluster.send(wrong)
    assert cluster.engine.state.stale == words
    assert cluster.view("3").stale == words
    assert cluster.alerts("snapshot") == [f"a snapshot of the server was rejected: {words}"]
    assert [cluster.start(str(i)) for i in range(10)] == before
    cluster.send(wrong)
    assert len(cluster.alerts("snapshot")) == 1
    cluster.server.runtime["0"] = 50
    cluster.at(60)
    assert cluster.runs("1") == []
    cluster.send(cluster.server.snapshot())
    assert cluster.runs("1") == [60]
    assert cluster.engine.state.stale == ""


def test_a_loss_that_snapshots_insist_on_is_believed_after_the_servers_grace() -> None:
    cluster = Cluster(server_grace=180)
    for i in range(10):
        cluster.submit(str(i))
    cluster.server.jobs.clear()
    for moment in (0, 60, 120):
        cluster.server.now = T + moment
        cluster.send(cluster.server.snapshot())
        assert len(cluster.engine.state.records) == 10
    cluster.server.now = T + 180
    cluster.send(cluster.server.snapshot())
    assert cluster.engine.state.records == {}


def _emptied_by_a_restart() -> Cluster:
    cluster = Cluster(server_grace=180)
    for i in range(10):
        cluster.submit(str(i))
    cluster.server.jobs.clear()
    return cluster


def _insist(cluster: Cluster, at: int, age: int | None) -> bool:
    """One more snapshot without jobs; whether it is believed."""
    cluster.server.now = T + at
    cluster.send(replace(cluster.server.snapshot(), server_age=age))
    return not cluster.engine.state.records


def test_a_restarted_server_that_lists_none_of_its_jobs_is_not_believed_within_an_hour() -> None:
    cluster = _emptied_by_a_restart()
    seen = [_insist(cluster, at, 10 + at) for at in (0, 60, 180, 600, 3000, 3580)]
    assert not any(seen)
    assert (
        cluster.view("3").stale
        == "the server lacks all 10 jobs since its restart; `schedd resume` if they are gone"
    )
    assert _insist(cluster, 3590, 3600)


def test_jobs_that_are_back_after_a_restart_keep_their_places() -> None:
    cluster = _emptied_by_a_restart()
    jobs = {f"{i}": cluster.record(f"{i}").facts for i in range(10)}
    starts = [cluster.start(str(i)) for i in range(10)]
    assert not _insist(cluster, 0, 10)
    assert not _insist(cluster, 1200, 1210)
    cluster.server.jobs = jobs
    cluster.send(replace(cluster.server.snapshot(), server_age=1220))
    assert cluster.engine.state.stale == ""
    assert len(cluster.engine.state.records) == 10
    assert [cluster.start(str(i)) is None for i in range(10)] == [one is None for one in starts]


def test_resume_by_an_admin_accepts_the_loss_of_all_jobs() -> None:
    cluster = _emptied_by_a_restart()
    assert not _insist(cluster, 0, 10)
    assert not _insist(cluster, 240, 250)
    cluster.engine.resume()
    cluster.at(241)
    assert cluster.alerts("snapshot")[-1].endswith("an admin accepted what the last one lacked")
    assert _insist(cluster, 250, 260)


def test_an_accepted_loss_holds_although_new_jobs_have_the_numbers_of_lost_ones() -> None:
    cluster = _emptied_by_a_restart()
    jobs = {f"{i}": cluster.record(f"{i}").facts for i in range(2)}
    assert not _insist(cluster, 0, 10)
    cluster.engine.resume()
    cluster.server.jobs = jobs  # a server without its old jobs counts from the beginning again
    cluster.at(241)
    cluster.send(replace(cluster.server.snapshot(), server_age=250))
    assert cluster.engine.state.stale == ""
    assert set(cluster.engine.state.records) <= set(jobs)


def test_a_few_lost_jobs_are_believed_whatever_their_share() -> None:
    cluster = Cluster()
    for i in range(4):
        cluster.submit(str(i))
    cluster.server.jobs.clear()
    cluster.send(cluster.server.snapshot())
    assert cluster.engine.state.records == {}


def test_a_node_that_the_server_no_longer_has_takes_no_jobs() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", "n2:ppn=4")
    cluster.submit("2", "n2:ppn=4")
    cluster.submit("4", "n1:ppn=2+n2:ppn=2")
    del cluster.server.nodes["n2"]
    cluster.send(cluster.server.snapshot())
    cluster.submit("5", "n2:ppn=9")
    whys = [cluster.view(job).why for job in "245"]
    words = f"{NEVER}: node n2 no longer exists"
    assert whys == [words, f"{words} (chunk 2)", words]
    cluster.submit("3", "1:ppn=4")
    assert cluster.planned_node_names("3") == ["n1"]


def test_a_snapshot_taken_before_an_accepted_start_does_not_undo_it() -> None:
    cluster = Cluster()
    old = cluster.server.snapshot()
    cluster.obeys = False
    cluster.submit("1")
    (run,) = (decision for decision in cluster.decisions if isinstance(decision, Run))
    cluster.server.now = T + 5
    cluster.send(RunAccepted(id="taken", time=T + 5, job_id="1", decision_id=run.id))

    def state_after(at: int) -> str:
        cluster.server.now = T + 8
        cluster.send(replace(old, id=f"late{at}", time=T + at, jobs=(cluster.server.jobs["1"],)))
        return cluster.view("1").state

    assert state_after(3) == "starting", "the server was asked before it took the job"
    assert state_after(5) == "starting"
    assert cluster.record("1").back_off.returns == 0
    assert state_after(6) != "starting", "it was there again, queued"
    assert cluster.record("1").back_off.returns == 1


def test_completed_jobs_of_a_snapshot_are_gone() -> None:
    cluster = Cluster()
    cluster.submit("1")
    cluster.server.jobs["1"] = replace(cluster.server.jobs["1"], state="C")
    cluster.send(cluster.server.snapshot())
    assert cluster.engine.state.records == {}


def test_grace_of_a_loss_restarts_when_some_jobs_return() -> None:
    cluster = Cluster(nodes=1, server_grace=180)
    for number in range(20):
        cluster.submit(str(number), "1:ppn=4", walltime=1_000)
    state = cluster.engine.state
    all_jobs = dict(cluster.server.jobs)

    def state_after(at: int, jobs: int) -> bool:
        cluster.server.now = T + at
        cluster.server.jobs = dict(list(all_jobs.items())[:jobs])
        cluster.send(cluster.server.snapshot())
        return state.stale == ""

    assert not state_after(10, 5)
    assert not state_after(100, 8)  # three are back: it is another loss
    assert not state_after(190, 8)
    assert not state_after(279, 8)
    assert len(state.records) == 20
    assert state_after(280, 8)
    assert len(state.records) == 8


# ---- a server that was restarted ----------------------------------------------------------------


def test_a_restarted_server_is_believed_at_once_for_nodes_that_have_reported() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("running", "n1:ppn=4", walltime=1000)
    cluster.submit("behind", "n1:ppn=4")
    cluster.submit("here", "n2:ppn=4", walltime=50)
    cluster.submit("next", "n2:ppn=4")
    cluster.server.now = T + 40
    cluster.server.nodes["n1"] = replace(cluster.server.nodes["n1"], state="down")
    cluster.send(cluster.server.snapshot(age=2))
    assert cluster.engine.state.stale == ""
    assert cluster.view("running").state == "running"
    cluster.at(60)
    assert cluster.runs("next") == [50]
    assert cluster.runs("behind") == []


def test_a_restarted_server_is_doubted_when_it_lacks_most_jobs() -> None:
    cluster = Cluster(nodes=8)
    for number in range(10):
        cluster.submit(str(number), "8:ppn=4")
    cluster.send(replace(cluster.server.snapshot(age=1), jobs=()))
    assert cluster.engine.state.stale.startswith("the server lacks all 10 jobs since its restart")


def test_a_node_that_has_not_reported_to_a_restarted_server_is_given_up_after_the_servers_grace() -> None:
    cluster = Cluster(nodes=2, node_grace=20, server_grace=180)
    cluster.submit("1", "1:ppn=4", walltime=100, runtime=100)
    cluster.submit("2", "1:ppn=4", walltime=100, runtime=100)
    cluster.submit("waits", "1:ppn=4", walltime=100)
    (home,) = cluster.planned_node_names("waits")
    cluster.at(90)
    cluster.node(home, state="down")
    cluster.send(cluster.server.snapshot(age=5))
    cluster.at(260)
    assert cluster.planned_node_names("waits") == [home]
    assert cluster.runs("waits") == []
    cluster.at(270)
    assert cluster.planned_node_names("waits") != [home]
    assert cluster.runs("waits") == [265]


def test_a_node_that_reports_during_the_grace_gets_its_jobs_at_once() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1", walltime=50)
    cluster.submit("2", walltime=50)
    cluster.at(40)
    cluster.node("n1", state="down")
    cluster.send(cluster.server.snapshot(age=1))
    cluster.at(70)
    assert cluster.runs("2") == []
    cluster.node("n1", state="up")
    assert cluster.runs("2") == [70]


@pytest.mark.parametrize(("moved", "said"), [(2, False), (-2, False), (30, True)])
def test_correction_of_a_start_by_seconds_has_no_effect(moved: int, *, said: bool) -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1", "1:ppn=4")
    cluster.submit("2", "1:ppn=4")
    cluster.at(40)
    before = cluster.start("2")
    event = cluster.server.snapshot()
    jobs = tuple(
        replace(job, started=job.started + moved) if job.id == "1" and job.started is not None else job
        for job in event.jobs
    )
    cluster.send(replace(event, jobs=jobs))
    assert bool(cluster.alerts("snapshot")) == said
    assert (cluster.start("2") != before) == said
