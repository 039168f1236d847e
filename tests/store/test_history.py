"""The history of jobs and nodes outlives the events."""

from dataclasses import replace
from pathlib import Path
from typing import Literal
from zlib import compress

import pytest

from schedd.cli.main import main
from schedd.engine import Cause
from schedd.engine.facts.texts import REQUEST_ENLARGED
from schedd.store import (
    DurableJournal,
    EventBatch,
    Promise,
    PromiseBreach,
    RetentionLimits,
    Store,
    history_writer,
)
from schedd.store.checkpoint_writer import FORKED_SIZE, CheckpointWriter
from schedd.store.records import JobHistory, NodeHistory
from schedd.store.retention import ROWS_PER_TRANSACTION
from schedd.wire import (
    Alert,
    Event,
    JobAltered,
    JobDeleted,
    JobEnded,
    JobHeld,
    JobQueued,
    NodeChanged,
    NodeFacts,
    Preempt,
    ShareFacts,
    Snapshot,
)
from tests.cli.run_main import run_main
from tests.store.conftest import NewDatabase
from tests.store.event_builders import StoredState, accepted, facts, queued, run, started, write_attributes
from tests.waits import wait_until


def append_events(store: Store, *events: Event, now: int = 1000) -> EventBatch:
    cluster = store.register_cluster("c", 1000)
    batch = store.append_events(cluster, store.last_position(cluster), events, now)
    assert batch is not None
    return batch


def record_all(store: Store) -> Store:
    for _ in store.record_history(1):
        pass
    return store


def recorded_history(store: Store, job: str) -> JobHistory:
    record_all(store)
    found = store.job_history(1, job)
    assert found is not None
    return found


def last_recorded_event(store: Store) -> int:
    with store.database.read() as connection:
        return history_writer.last_recorded_event(connection, 1)


def ended(number: int, job: str, time: int, status: int = 0) -> JobEnded:
    return JobEnded(id=f"epoch:{number}", time=time, job_id=job, exit_status=status)


def requeued(number: int, job: str, time: int) -> JobQueued:
    return JobQueued(id=f"epoch:{number}", time=time, job=facts(job, starts=1, queue="other"))


@pytest.mark.covering
@pytest.mark.parametrize("at_once", [True, False])
def test_job_history_covers_arrival_to_end(store: Store, at_once: bool) -> None:
    events = (
        queued(1),
        started(2, "1.srv", 2000),
        requeued(3, "1.srv", 2100),
        started(4, "1.srv", 3000),
        ended(5, "1.srv", 3500, 271),
    )
    for part in [events] if at_once else [(event,) for event in events]:
        append_events(store, *part)
    assert recorded_history(store, "1.srv") == JobHistory(
        id="1.srv",
        owner="ann",
        queue="other",
        name="",
        resources={"nodes": "1:ppn=2", "walltime": "01:00:00"},
        submitted=900,
        state="R",
        runs=2,
        started=3000,
        held=(("n1", 2),),
        ended=3500,
        exit_status=271,
        how="ended",
    )
    assert store.job_history(1, "2.srv") is None
    assert store.job_history(2, "1.srv") is None


def test_history_does_not_invent_an_exit_status(store: Store) -> None:
    append_events(
        store,
        queued(1),
        started(1, "1.srv", 1200),
        JobEnded(id="e", time=1500, job_id="1.srv", exit_status=None),
    )
    found = recorded_history(store, "1.srv")
    assert (found.ended, found.how, found.exit_status) == (1500, "ended", None)
    assert "ended, exit status not known" in [moment.text for moment in store.job_timeline(1, "1.srv")]


def test_history_covers_deleted_and_altered_jobs(store: Store) -> None:
    append_events(store, queued(1), queued(2))
    altered = replace(facts("1.srv"), name="new", resources={"procs": "7"})
    append_events(
        store, JobAltered(id="a", time=1500, job=altered), JobDeleted(id="d", time=1600, job_id="2.srv")
    )
    first, second = recorded_history(store, "1.srv"), recorded_history(store, "2.srv")
    assert (first.name, first.resources, first.ended, first.how) == ("new", {"procs": "7"}, None, "")
    assert (second.started, second.runs, second.ended, second.how) == (None, 0, 1600, "deleted")


def test_history_tells_where_a_job_was_moved(store: Store) -> None:
    append_events(store, queued(1), JobDeleted(id="m", time=1600, job_id="1.srv", moved_to="workq@far"))
    first = recorded_history(store, "1.srv")
    assert (first.ended, first.how, first.moved_to) == (1600, "moved", "workq@far")
    assert store.job_timeline(1, "1.srv")[-1].text == "moved to workq@far"


def snapshot(number: int, time: int, *jobs: str, complete: bool = True, **changes: object) -> Snapshot:
    found = tuple(replace(facts(job), **changes) for job in jobs)  # type: ignore[arg-type]
    nodes = (NodeFacts(name="n1", cpus=4), NodeFacts(name="n2", cpus=8, state="down"))
    return Snapshot(id=f"epoch:{number}", time=time, jobs=found, nodes=nodes, complete=complete)


def test_snapshot_adds_missed_and_closes_missing_jobs(store: Store) -> None:
    append_events(store, queued(1), queued(2), queued(3))
    shares = (ShareFacts("n7", 3),)
    append_events(
        store, snapshot(4, 1500, "1.srv", "9.srv", state="R", started=1400, shares=shares, starts=1)
    )
    assert (recorded_history(store, "1.srv").started, recorded_history(store, "1.srv").held) == (
        1400,
        (("n7", 3),),
    )
    assert recorded_history(store, "9.srv").runs == 1
    assert (recorded_history(store, "2.srv").how, recorded_history(store, "2.srv").ended) == ("gone", 1500)
    append_events(store, snapshot(5, 1600, "1.srv", "2.srv"))
    assert (recorded_history(store, "2.srv").how, recorded_history(store, "2.srv").ended) == (
        "",
        None,
    )  # it was there after all
    append_events(store, snapshot(6, 1700, "1.srv", complete=False))
    assert recorded_history(store, "2.srv").how == ""
    append_events(store, ended(7, "1.srv", 1800))
    append_events(store, snapshot(8, 1900, "1.srv", state="C"))
    assert (recorded_history(store, "1.srv").how, recorded_history(store, "1.srv").ended) == ("ended", 1800)


def test_replaced_events_are_recorded_again(store: Store) -> None:
    append_events(store, queued(1))
    known = store.last_position(1)
    store.append_events(1, known, [queued(2)], 1001)  # the answer to this one was lost
    assert recorded_history(store, "2.srv").queue == "q"
    store.append_events(1, known, [queued(3)], 1002)
    assert recorded_history(store, "3.srv").queue == "q"


def owners(store: Store, jobs: int) -> set[str | None]:
    found = [store.job_history(1, f"{job}.srv") for job in range(0, jobs, 49)]
    return {one.owner if one is not None else None for one in found}


def test_large_snapshot_is_recorded_in_slices_between_other_writes(store: Store) -> None:
    names = [f"{job}.srv" for job in range(700)]
    append_events(store, queued(1), queued(2), queued(9_999), snapshot(3, 1500, *names))
    steps = store.record_history(1)
    next(steps)  # what came before it
    assert last_recorded_event(store) == 3
    next(steps)
    assert owners(store, 700) == {"ann", None}
    before = store.job_history(1, "9999.srv")
    assert before is not None
    assert before.ended is None
    append_events(store, started(5, "1.srv", 2000))
    unnoted = store.job_history(1, "1.srv")
    assert unnoted is not None
    assert (unnoted.started, unnoted.runs) == (2000, 1)
    assert last_recorded_event(store) == 3
    for _ in steps:
        pass
    assert (last_recorded_event(store), owners(store, 700)) == (5, {"ann"})
    assert store.job_history(1, "1.srv") == unnoted
    gone = store.job_history(1, "9999.srv")
    assert gone is not None
    assert (gone.how, gone.ended) == ("gone", 1500)
    assert store.total_cpus(1) == 12


def test_events_that_arrive_while_the_last_ones_are_recorded_wait_for_the_next_call(store: Store) -> None:
    append_events(store, *(queued(number) for number in range(1, 131)))
    steps = store.record_history(1)
    assert next(steps) == last_recorded_event(store) == 100
    append_events(store, queued(131))
    assert next(steps) == last_recorded_event(store) == 131
    append_events(store, queued(132))
    assert list(steps) == []
    assert last_recorded_event(store) == 131
    record_all(store)
    assert last_recorded_event(store) == 132


def test_interrupted_snapshot_is_recorded_again(store: Store) -> None:
    append_events(store, snapshot(1, 1500, *(f"{job}.srv" for job in range(700))))
    steps = store.record_history(1)
    next(steps)
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert last_recorded_event(store) == 0
    assert owners(record_all(store), 700) == {"ann"}
    assert last_recorded_event(store) == 1


def test_replaced_snapshot_is_recorded_again(store: Store) -> None:
    known = store.last_position(store.register_cluster("c", 1000))
    append_events(store, snapshot(1, 1500, *(f"{job}.srv" for job in range(700))))
    steps = store.record_history(1)
    next(steps)
    store.append_events(1, known, [queued(800)], 1001)  # the answer to the snapshot was lost
    for _ in steps:
        pass
    assert last_recorded_event(store) == 1
    assert store.job_history(1, "800.srv") is not None
    assert store.job_history(1, "699.srv") is None


def test_checkpoint_waiters_do_not_wait_for_the_history(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedd.store.history_recorder._MIN_PAUSE_S", 60)
    journal = DurableJournal(store, "c", 1000, every=0)
    journal.commit_events([queued(number) for number in range(1_100)], 1000)
    wait_until(lambda: journal.maybe_checkpoint(lambda: StoredState([b"state"]), 1000))
    wait_until(lambda: last_recorded_event(store) == 100)
    assert journal.maybe_checkpoint(lambda: StoredState([b"state"]), 1000, must=True)
    assert journal.history_events_behind == 1_000
    journal.close()
    assert DurableJournal(store, "c", 1000).history_events_behind == 1_000


def test_history_waits_while_a_large_cluster_is_busy(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took a fifth of the interpreter's time while 100,000 jobs were planned."""
    monkeypatch.setattr(CheckpointWriter, "_busy", True)
    journal = DurableJournal(store, "c", 1000, every=0.0)
    journal.commit_events([queued(1)], 1000)
    for recorded in (0, 1):
        monkeypatch.setattr(journal._history, "_busy_at", 0.0 if recorded else float("inf"))
        assert not journal.maybe_checkpoint(lambda: StoredState(size=FORKED_SIZE), 1000)
        assert journal._background.finished(wait=True)
        wait_until(lambda: last_recorded_event(store) == recorded)  # noqa: B023
    journal.close()


def test_snapshot_that_is_half_recorded_waits_while_a_large_cluster_is_busy(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took a sixth of the time in which the jobs of a large snapshot were planned."""
    monkeypatch.setattr("schedd.store.history_recorder._MIN_PAUSE_S", 1)
    journal = DurableJournal(store, "c", 1000, every=0.0)
    history = journal._history
    journal.commit_events([snapshot(1, 1500, *(f"{job}.srv" for job in range(3_000)))], 1000)
    history.start(1000, 1, busy=False)
    wait_until(lambda: owners(store, 1) == {"ann"})
    history.start(1000, 1, busy=True)
    wait_until(lambda: not history._is_running)
    assert journal.history_events_behind == 1
    journal.close()


def test_history_of_a_storm_is_recorded_while_a_large_cluster_is_busy(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, 5,000 events a minute were recorded: after an hour of 1,000 a second it was 15 hours behind."""
    monkeypatch.setattr(CheckpointWriter, "_busy", True)
    monkeypatch.setattr("schedd.store.history_recorder._MAX_BUSY_EVENTS", 100)
    journal = DurableJournal(store, "c", 1000, every=0.0)
    last = 0
    for count in (100, 1_000):
        journal.commit_events([queued(last + number) for number in range(count)], 1000)
        last += count
        assert journal.history_events_behind == last
        assert not journal.maybe_checkpoint(lambda: StoredState(size=FORKED_SIZE), 1000)
        assert journal._background.finished(wait=True)
    wait_until(lambda: journal.history_events_behind == 0)
    assert last_recorded_event(store) == last
    journal.close()


def test_checkpoint_starts_the_history(store: Store) -> None:
    journal = DurableJournal(store, "c", 1000, every=0)

    def records(event: int) -> bool:
        journal.maybe_checkpoint(lambda: StoredState([b"state"]), 1000)
        return last_recorded_event(store) == event

    journal.commit_events([queued(number) for number in range(1_100)], 1000)
    assert last_recorded_event(store) == 0
    wait_until(lambda: records(1_100))
    journal.commit_events([snapshot(1_100, 1500, *(f"{job}.srv" for job in range(1_300)))], 1000)
    wait_until(lambda: records(1_101))
    assert owners(store, 1_300) == {"ann"}
    journal.close()


def test_job_timeline_is_in_order(store: Store) -> None:
    batch = append_events(store, queued(1), queued(2))
    store.record_decisions(
        1,
        batch,
        [write_attributes(1, "1.srv", 2000), run(2, "1.srv", 1990), run(3, "2.srv", 1991)],
        promises=[Promise("1.srv", 1000, 2600, weak=True)],
        breaches=[
            PromiseBreach("1.srv", 1400, "epoch:7", Cause.NODE_LOST, 2600, 2700),
            PromiseBreach("1.srv", 1500, "epoch:8", REQUEST_ENLARGED, 2700, None, "ended"),
        ],
    )
    append_events(store, JobHeld(id="h", time=1200, job_id="1.srv", holds="u"))
    append_events(store, accepted(3, run(2, "1.srv").id, "1.srv", 1992), started(4, "1.srv", 1993))
    append_events(store, ended(5, "1.srv", 2500, 1))
    told = store.job_timeline(1, "1.srv")
    assert [moment.decision for moment in told if moment.decision] == [run(2, "1.srv").id]
    found = [(moment.time, moment.kind, moment.text, moment.start) for moment in told]
    assert found == [
        (1000, "event", "queued in q: nodes=1:ppn=2,walltime=01:00:00", None),
        (1000, "published", "planned", 2000),
        (1000, "promise", "if an assumed walltime ahead holds", 2600),
        (1200, "event", "held", None),
        (1400, "breach", "node lost, by epoch:7", 2700),
        (1500, "promise", f"ended: {REQUEST_ENLARGED}, by epoch:8", 2700),
        (1990, "decision", "start ordered: accepted", None),
        (1992, "event", "run accepted", None),
        (1993, "event", "started on n1:2", None),
        (2500, "event", "ended, exit status 1", None),
    ]


def test_an_ended_job_keeps_why_it_was_planned_for_its_start(store: Store) -> None:
    batch = append_events(store, queued(1))
    store.record_decisions(1, batch, [replace(run(2, "1.srv", 1990), why="job 7 ended")])
    texts = [moment.text for moment in store.job_timeline(1, "1.srv") if moment.kind == "decision"]
    assert texts == ["start ordered: no answer known; planned for then: job 7 ended"]


def test_a_preempted_job_keeps_for_which_job_it_was_preempted(store: Store) -> None:
    batch = append_events(store, queued(1))
    order = Preempt(
        id="d9",
        cause="epoch:1",
        time=2000,
        job_id="1.srv",
        started=1990,
        method="requeue",
        preemptor="2.srv",
        expires=2060,
    )
    store.record_decisions(1, batch, [order])
    texts = [moment.text for moment in store.job_timeline(1, "1.srv") if moment.kind == "decision"]
    assert texts == ["preemption for job 2.srv ordered: no answer known"]


def test_within_a_second_a_decision_precedes_its_answer_and_starts_follow_the_request(
    store: Store,
) -> None:
    batch = append_events(store, queued(1))
    store.record_decisions(
        1,
        batch,
        [write_attributes(1, "1.srv", 2000), run(2, "1.srv", 1000)],
        promises=[Promise("1.srv", 1000, 2600)],
    )
    append_events(store, accepted(2, run(2, "1.srv").id, "1.srv", 1000), started(3, "1.srv", 1000))
    append_events(store, ended(4, "1.srv", 1000))
    words = [moment.text.partition(":")[0] for moment in store.job_timeline(1, "1.srv")]
    answers = ["start ordered", "run accepted", "started on n1", "ended, exit status 0"]
    assert words == ["queued in q", "planned", "", *answers]


def test_node_history_has_a_row_for_each_change(store: Store) -> None:
    def node(number: int, time: int, **facts: object) -> NodeChanged:
        chosen: dict[str, object] = {"name": "n1", "cpus": 4, **facts}
        return NodeChanged(id=f"n:{number}", time=time, node=NodeFacts(**chosen))  # type: ignore[arg-type]

    append_events(store, node(1, 1000), node(2, 1001, properties=("new",)), node(3, 1002, state="down"))
    append_events(store, snapshot(1, 1100), node(4, 1200, cpus=6, mem=77))
    assert record_all(store).node_history(1, "n1") == [
        NodeHistory(1000, "up", 4, 0, 0),
        NodeHistory(1002, "down", 4, 0, 0),
        NodeHistory(1100, "up", 4, 0, 0),
        NodeHistory(1200, "up", 6, 77, 0),
    ]
    assert store.node_history(1, "n2") == [NodeHistory(1100, "down", 8, 0, 0)]


def test_node_alerts_include_black_hole_and_overrun_alerts(store: Store) -> None:
    def alert(number: int, kind: str, text: str) -> Alert:
        return Alert(id=f"d{number}", cause="e", time=1000 + number, kind=kind, text=text)

    hole = "jobs fail on node n1 soon after they start: 1.srv, 2.srv; it gets no new jobs"
    late = "job 3.srv is 21600 s past its walltime: n10, n1 counts as blocked"
    others = [alert(3, "black_hole", hole.replace("n1", "n10")), alert(4, "unknown_job", "job n1 started")]
    batch = append_events(store, queued(1))
    store.record_decisions(1, batch, [alert(1, "black_hole", hole), alert(2, "overrun", late), *others])
    found = [(one.time, one.kind, one.text) for one in store.node_alerts(1, "n1")]
    assert found == [(1001, "black_hole", hole), (1002, "overrun", late)]


def test_history_outlives_events_and_expires_by_its_own_age(store: Store) -> None:
    append_events(store, queued(1), queued(2), snapshot(3, 1001, "1.srv", "2.srv"))
    down = NodeFacts(name="n1", cpus=4, state="down")
    append_events(store, ended(4, "1.srv", 2000), NodeChanged(id="n", time=2000, node=down))
    record_all(store)
    for _ in range(2):
        store.save_checkpoint(1, store.last_position(1), 2000, compress(b""))
    store.purge(RetentionLimits(events=1), 1_000_000)
    assert store.job_timeline(1, "1.srv") == []
    assert recorded_history(store, "1.srv").ended == 2000
    store.purge(RetentionLimits(jobs=1000), 3001)
    assert store.job_history(1, "1.srv") is None
    assert recorded_history(store, "2.srv").ended is None
    assert [one.state for one in store.node_history(1, "n1")] == ["down"]
    assert len(store.node_history(1, "n2")) == 1  # it is still so


def test_old_node_states_are_purged_beside_unchanged_nodes(store: Store) -> None:
    def node(number: int, name: str, time: int, state: Literal["up", "down"]) -> NodeChanged:
        return NodeChanged(id=f"n:{number}", time=time, node=NodeFacts(name=name, cpus=4, state=state))

    append_events(store, *(node(n, f"steady{n}", 1000, "up") for n in range(ROWS_PER_TRANSACTION + 1)))
    append_events(store, *(node(1000 + n, "moody", 1001 + n, ("up", "down")[n % 2]) for n in range(4)))
    append_events(store, node(2000, "moody", 5000, "up"))
    record_all(store)
    while store.purge(RetentionLimits(jobs=1000), 3000):
        pass
    assert [one.time for one in store.node_history(1, "moody")] == [5000]
    assert len(store.node_history(1, "steady0")) == 1


def test_history_command_prints_jobs_and_nodes(
    new_database: NewDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = new_database()
    store = Store.open(url)
    append_events(store, queued(1), snapshot(2, 1000, "1.srv"), started(3, "1.srv", 2000))
    append_events(store, ended(4, "1.srv", 2500, 9))
    append_events(store, JobQueued(id="epoch:5", time=2600, job=facts("2.srv", name="[b]a\x1b[2J")))
    record_all(store).close()

    def run_history(*arguments: str) -> tuple[object, str]:
        code = run_main(["history", *arguments, "--cluster", "c", "--database", url])
        out, err = capsys.readouterr()
        return code, out + err

    code, text = run_history("1.srv")
    assert code == 0
    assert "of ann in q: nodes=1:ppn=2,walltime=01:00:00" in text
    assert "exit status 9" in text
    assert "started on n1:2" in text
    code, text = run_history("--node", "n2")
    assert (code, "down" in text) == (0, True)
    assert run_history("2.srv")[1].startswith("2.srv [b]a?[2J\n"), "no command of the terminal"
    assert run_history("7.srv")[0] == 1
    assert "the database has no node n9 in cluster c" in run_history("--node", "n9")[1]
    assert run_history()[0] == 2
    monkeypatch.setenv("SCHEDD_STORE__URL", url)
    assert main(["history", "1.srv", "--cluster", "c"]) == 0
    assert "exit status 9" in capsys.readouterr().out
    assert main(["history", "1.srv", "--database", f"{tmp_path}/none.sqlite"]) == 1
    assert "none.sqlite: no such file" in capsys.readouterr().err
    assert not (tmp_path / "none.sqlite").exists()


def test_unrecorded_events_are_read_from_the_log(store: Store) -> None:
    append_events(store, queued(1), started(2, "1.srv", 1100), ended(3, "1.srv", 1200, 4))
    unnoted = store.job_history(1, "1.srv")
    assert unnoted == store.job_history(1, "1")
    assert unnoted is not None
    assert (unnoted.started, unnoted.ended, unnoted.runs, unnoted.how) == (1100, 1200, 1, "ended")
    assert recorded_history(store, "1.srv") == recorded_history(store, "1") == unnoted
    append_events(store, requeued(4, "1.srv", 1250), started(5, "1.srv", 1300))
    unnoted = store.job_history(1, "1")
    assert unnoted is not None
    assert (unnoted.started, unnoted.ended, unnoted.runs, unnoted.queue) == (1300, None, 2, "other")
    assert recorded_history(store, "1.srv") == unnoted
    assert store.job_history(1, "11") is None
    assert store.job_history(1, "1.sr") is None


def test_repeated_end_is_recorded_once(store: Store) -> None:
    append_events(store, queued(1), *(ended(number, "1.srv", 1050, 271) for number in range(2, 9)))
    words = [moment.text for moment in store.job_timeline(1, "1.srv")]
    assert words[1:] == ["ended, exit status 271"]
    append_events(store, requeued(9, "1.srv", 1060), ended(10, "1.srv", 1070))
    words = [moment.text for moment in store.job_timeline(1, "1.srv")]
    assert (len(words), words[-1]) == (4, "ended, exit status 0")
