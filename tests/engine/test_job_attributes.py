"""Attributes of waiting jobs: starts, reasons, and halts."""

from dataclasses import replace

import pytest

from schedd.engine import Engine
from schedd.engine.run import job_attributes
from schedd.engine.run.job_attributes import first_start_ahead
from schedd.model import FOREVER
from schedd.start_sentence import NEVER
from schedd.wire import Run, RunRefused, ShareFacts, Snapshot
from tests.engine.cluster import Cluster, T


def test_far_moves_are_written_next_start_first() -> None:
    cluster = Cluster(publish_starts=True, publish_threshold=60, publish_rate=2)
    cluster.submit("1", walltime=1000)
    for job in ("2", "3", "4"):
        cluster.submit(job, walltime=100)
    assert [cluster.attribute_writes(job)[0].planned_start for job in ("2", "3")] == [T + 1000, T + 1100]
    assert cluster.attribute_writes("4") == []
    cluster.at(1)
    assert cluster.attribute_writes("4")[0].planned_start == T + 1200
    told = cluster.attribute_writes("2")[0]
    assert (told.planned_end, told.planned_nodes) == (T + 1100, ("n1",))
    assert told.text == ""
    cluster.alter_request("1", walltime="1050")
    cluster.at(2)
    assert len(cluster.attribute_writes("2")) == 1
    cluster.alter_request("1", walltime="2000")
    cluster.at(9)
    assert cluster.attribute_writes("2")[-1].planned_start == T + 2000


def test_new_job_is_written_before_distant_moved_ones() -> None:
    cluster = Cluster(publish_starts=True, publish_rate=1)
    cluster.submit("1", walltime=5000)
    cluster.submit("far", walltime=1000)
    cluster.at(5)
    cluster.submit("other", walltime=1000)
    assert [len(cluster.attribute_writes(job)) for job in ("far", "other")] == [1, 1]
    cluster.alter_request("1", walltime="9000")
    cluster.submit("new", walltime=500)
    assert cluster.attribute_writes("new") == []
    cluster.at(6)
    assert [len(cluster.attribute_writes(job)) for job in ("far", "other", "new")] == [1, 1, 1]
    cluster.at(8)
    assert [len(cluster.attribute_writes(job)) for job in ("far", "other", "new")] == [2, 2, 1]


def test_jobs_near_their_start_show_a_halt_and_its_end() -> None:
    cluster = Cluster(publish_starts=True)
    cluster.submit("1", walltime=300)
    cluster.submit("next", walltime=5000)
    cluster.submit("far", walltime=100)
    assert cluster.attribute_writes("next")[-1].text == ""
    cluster.engine.pause("by ann, since bob's job fills the disk")
    cluster.send()
    assert cluster.attribute_writes("next")[-1].text == "no jobs are started at present"
    assert cluster.attribute_writes("next")[-1].planned_start == T + 300
    assert len(cluster.attribute_writes("far")) == 1
    cluster.engine.resume()
    cluster.send()
    assert cluster.attribute_writes("next")[-1].text == ""


def test_all_jobs_show_a_pause_that_lasts_and_its_end() -> None:
    cluster = Cluster(publish_starts=True)
    cluster.submit("1", walltime=40_000)
    cluster.submit("2", walltime=100)
    cluster.at(10)
    cluster.engine.pause("by ann")
    cluster.send()
    cluster.at(300)
    assert "no jobs are started" not in cluster.attribute_writes("2")[-1].text
    cluster.at(320)
    assert "no jobs are started" in cluster.attribute_writes("2")[-1].text
    cluster.engine.resume()
    cluster.at(330)
    assert "no jobs are started" not in cluster.attribute_writes("2")[-1].text


def test_all_jobs_show_that_all_starts_are_refused_and_the_end_of_it() -> None:
    cluster = Cluster(publish_starts=True, check_wait=5)
    cluster.obeys = False
    cluster.submit("1", walltime=3_000)
    for job in ("2", "far"):
        cluster.submit(job, walltime=3_000)
    for second in (0, 5, 10, 15, 22, 33, 49, 73, 109, 163, 223, 283, 343):
        cluster.at(second)
        run = [one for one in cluster.decisions if isinstance(one, Run) and one.job_id == "1"][-1]
        (refused,) = cluster.server.refuse(run, 0, "the server does not answer")
        assert isinstance(refused, RunRefused)
        cluster.send(replace(refused, outage=True))
    assert "no jobs are started" in cluster.attribute_writes("far")[-1].text
    cluster.obeys = True
    cluster.at(403)
    assert cluster.runs("1")[-1] == 403
    cluster.at(420)
    assert "no jobs are started" not in cluster.attribute_writes("far")[-1].text


def test_all_jobs_show_that_the_servers_state_is_not_known_for_long_and_the_end_of_it() -> None:
    cluster = Cluster(publish_starts=True)
    cluster.submit("1", walltime=40_000)
    cluster.submit("far", walltime=100)
    cut = Snapshot(id="cut", time=cluster.server.now, jobs=(), nodes=(), queues=(), complete=False)
    cluster.send(cut)
    cluster.at(200)
    assert "no jobs are started" not in cluster.attribute_writes("far")[-1].text
    cluster.at(320)
    assert "no jobs are started" in cluster.attribute_writes("far")[-1].text
    cluster.send(cluster.server.snapshot())
    cluster.at(330)
    assert "no jobs are started" not in cluster.attribute_writes("far")[-1].text


def test_job_getting_near_its_start_during_a_halt_shows_it() -> None:
    cluster = Cluster(publish_starts=True)
    cluster.submit("1", walltime=700)
    cluster.submit("far", walltime=100)
    cluster.engine.pause("by ann")
    cluster.send()
    cluster.at(99)
    assert [one.text for one in cluster.attribute_writes("far")] == [""]
    cluster.at(100)
    assert [one.text for one in cluster.attribute_writes("far")] == ["", "no jobs are started at present"]
    assert cluster.attribute_writes("far")[-1].planned_start == T + 700
    cluster.at(250)
    assert len(cluster.attribute_writes("far")) == 2
    cluster.engine.resume()
    cluster.send()
    assert [one.text for one in cluster.attribute_writes("far")[2:]] == [""]


def test_job_without_a_start_shows_the_reason() -> None:
    cluster = Cluster(publish_starts=True)
    cluster.submit("1", "1:ppn=99")
    assert cluster.attribute_writes("1")[0].planned_start is None
    assert cluster.attribute_writes("1")[0].text == f"{NEVER}: 99 cpus on a node; the largest has 4"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("900gb", "900gb mem"),
        ("1536mb", "1536mb mem"),
        ("1100000kb", "1.04gb mem"),
        ("1048577kb", "1.00gb mem"),
    ],
)
def test_memory_is_shown_in_the_units_of_users(asked: str, said: str) -> None:
    cluster = Cluster(publish_starts=True)
    cluster.node("n1", mem=1 << 20)
    cluster.submit("1", "1:ppn=1", resources={"mem": asked})
    assert cluster.attribute_writes("1")[0].text == f"{NEVER}: {said} on a node; the largest has 1gb"


def test_memory_that_a_job_did_not_request_is_named_as_the_sites_default() -> None:
    cluster = Cluster(publish_starts=True, mem_per_core=2 << 20)
    cluster.node("n1", mem=4 << 20)
    for number, mem in (("1", {}), ("2", {"mem": "8gb"})):
        cluster.submit(number, "1:ppn=4", resources=mem)
        (written,) = cluster.attribute_writes(number)
        assert written.text.startswith("never on this cluster: 8gb mem on a node; the largest has 4gb")
        assert ("it requests no memory, so the site's amount for each core counts" in written.text) != bool(
            mem
        )


def test_ignored_parts_of_a_request_are_shown_with_the_start() -> None:
    cluster = Cluster(publish_starts=True)
    cluster.submit("1", walltime=1000)
    cluster.submit("2", walltime=None, resources={"software": "matlab"})
    (told,) = cluster.attribute_writes("2")
    assert told.planned_start == T + 1000
    assert told.text == "not planned: software=matlab; walltime assumed to be 86400 s"


def test_request_that_was_not_understood_shows_the_reason() -> None:
    cluster = Cluster(publish_starts=True, publish_rate=1)
    cluster.engine.handle((), T)
    for job in ("1", "2"):
        cluster.submit(job, "1:ppn=0")
    assert [told.planned_start for told in cluster.attribute_writes("1")] == [None]
    assert "ppn= must not be 0" in cluster.attribute_writes("1")[0].text
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    cluster.at(5)
    assert [len(cluster.attribute_writes(job)) for job in ("1", "2")] == [1, 1]
    cluster.alter_request("1", nodes="1:ppn=0+1")
    assert len(cluster.attribute_writes("1")) == 2
    cluster.alter_request("1", nodes="1:ppn=4")
    assert (len(cluster.attribute_writes("1")), cluster.engine.state.unexplained) == (2, {})


@pytest.mark.parametrize(("mode", "promised"), [("scheduler", T + 2500), ("adviser", None)])
def test_promised_start_is_written_in_scheduler_mode(mode: str, promised: int | None) -> None:
    cluster = Cluster(publish_starts=True, slack=1500, mode=mode)
    cluster.submit("1", walltime=1000)
    if mode == "adviser":  # the server's own scheduler starts it
        cluster.send(*cluster.server.start("1", (ShareFacts("n1", 4),)))
    cluster.submit("2", walltime=100)
    told = cluster.attribute_writes("2")[-1]
    assert (told.planned_start, told.promised_start) == (T + 1000, promised)


def test_a_start_that_passes_during_a_halt_is_not_written_as_a_planned_start() -> None:
    cluster = Cluster(publish_starts=True)
    cluster.submit("1", walltime=30)
    cluster.submit("2", walltime=500)
    assert cluster.attribute_writes("2")[-1].planned_start == T + 30
    cluster.engine.pause("by ann")
    cluster.send()
    cluster.at(36)
    written = cluster.attribute_writes("2")[-1]
    assert (written.planned_start, written.text) == (None, "due to start; no jobs are started at present")
    count = len(cluster.attribute_writes("2"))
    cluster.at(80)
    assert len(cluster.attribute_writes("2")) == count
    cluster.engine.resume()
    cluster.send()
    assert cluster.runs("2") == [80]


def test_a_start_that_passes_while_a_node_is_down_is_not_written_as_a_planned_start() -> None:
    cluster = Cluster(publish_starts=True)
    cluster.submit("1", walltime=30)
    cluster.submit("2", walltime=500)
    cluster.at(20)
    cluster.node("n1", state="down")
    cluster.at(50)
    written = cluster.attribute_writes("2")[-1]
    assert written.planned_start is None
    words = "it waits for n1, which cannot be used at present, and is planned elsewhere if that lasts 5 min"
    assert written.text == f"due to start; {words}"
    view = cluster.view("2")
    assert words in view.notes
    assert words in view.why
    cluster.node("n1", state="up")
    cluster.at(60)
    assert not any("cannot be used" in note for note in cluster.view("2").notes)


def test_a_requeued_job_shows_its_new_start_at_once() -> None:
    """A job that `qrun` had started before its time showed its start of before, while the server's comment
    said that it runs, until the pause between two publications was over.
    """
    cluster = Cluster(slack=5_000, publish_starts=True, publish_pause=3_600)
    cluster.submit("1", "1:ppn=3", walltime=1_000)
    cluster.submit("2", "1:ppn=4", walltime=600)
    cluster.submit("3", "1:ppn=1", walltime=2_000)
    cluster.at(10)
    assert [written.planned_start for written in cluster.attribute_writes("2")] == [T + 1_000]
    cluster.send(*cluster.server.start("2", (ShareFacts("n1", 4),)))
    cluster.at(100)
    cluster.server.jobs["2"] = replace(cluster.server.jobs["2"], exit_status=271)
    cluster.send(*cluster.server.requeue("2"))
    cluster.at(101)
    assert cluster.start("2") == 2_100
    assert [written.planned_start for written in cluster.attribute_writes("2")] == [T + 1_000, T + 2_100]


def test_message_of_a_rejecting_hook_is_shown_with_the_next_start() -> None:
    cluster = Cluster(publish_starts=True)
    cluster.obeys = False
    cluster.submit("1")
    [run] = [one for one in cluster.decisions if isinstance(one, Run)]
    cluster.send(*cluster.server.refuse(run, 15136, "not before you read the rules"))
    cluster.at(1)
    told = cluster.attribute_writes("1")[-1]
    assert told.planned_start is not None
    assert told.text == "its last start was refused by the server (code 15136): not before you read the rules"


def test_busy_nodes_are_not_shown_as_a_rejection() -> None:
    cluster = Cluster(publish_starts=True)
    cluster.obeys = False
    cluster.submit("1")
    [run] = [one for one in cluster.decisions if isinstance(one, Run)]
    cluster.send(*cluster.server.refuse(run, 15046, "busy"))
    cluster.at(20)
    assert all("refused" not in told.text for told in cluster.attribute_writes("1"))


def test_job_that_can_never_run_shows_no_assumed_walltime() -> None:
    cluster = Cluster(publish_starts=True)
    cluster.submit("1", "1:ppn=1000", walltime=None)
    assert cluster.attribute_writes("1")[0].text.startswith(NEVER)
    assert "walltime" not in cluster.attribute_writes("1")[0].text


def test_first_published_start_is_found_again_after_each_change() -> None:
    # With `validate`, each batch compares the remembered start with a scan of all slots.
    cluster = Cluster(publish_starts=True, nodes=2)
    state = cluster.engine.state
    cluster.submit("1", walltime=1000)
    cluster.submit("2", walltime=1000)
    assert first_start_ahead(state) == (FOREVER, -1)
    cluster.submit("3", walltime=100)
    cluster.submit("4", "2:ppn=4", walltime=100)
    assert first_start_ahead(state)[0] == T + 1000
    cluster.alter_request("1", walltime="500")  # the third job moves to an earlier start
    cluster.at(5)
    assert first_start_ahead(state)[0] == T + 500
    cluster.send(*cluster.server.delete("3"))
    assert first_start_ahead(state)[0] == T + 1000
    cluster.at(1000)
    assert first_start_ahead(state) == (FOREVER, -1)
    forgets_nothing = Engine.restore(cluster.engine.checkpoint()).state
    assert first_start_ahead(forgets_nothing) == (FOREVER, -1)


def test_next_write_is_found_again_after_each_change() -> None:
    # With `validate`, each batch compares the remembered slot with a scan of all slots.
    cluster = Cluster(publish_starts=True, publish_rate=1, publish_pause=60)
    state = cluster.engine.state
    for job in ("1", "2", "3", "4"):
        cluster.submit(job, walltime=5000)
    assert cluster.engine.next_wake == T + 1
    kept = state.next_updated
    assert state.update_due[kept]
    record = state.by_slot[kept]
    assert record is not None
    cluster.send(*cluster.server.delete(record.id))
    assert cluster.engine.next_wake == T + 1
    assert state.next_updated not in (kept, -1)
    for second in range(1, 5):
        cluster.at(second)
    cluster.engine.handle((), cluster.server.now)
    assert not state.update_due.any()
    assert state.next_updated == -1


def test_batches_without_work_scan_no_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(publish_starts=True)
    cluster.submit("1", walltime=1000)
    cluster.submit("2", walltime=100)
    cluster.at(5)
    scans: list[int] = []
    monkeypatch.setattr(job_attributes, "_written_starts", lambda _: scans.append(1))
    monkeypatch.setattr(job_attributes, "find_start_ahead", lambda _: scans.append(1))
    cluster.engine.state.settings = cluster.engine.state.settings.with_changes(validate_=False)
    for _ in range(3):
        cluster.engine.handle((), T + 5)
        assert cluster.engine.next_wake == T + 1000
    assert not scans
