"""Published snapshots are immutable, and a job's view agrees with the engine."""

from dataclasses import replace

import numpy as np
import pytest

from schedd.engine import Engine, EngineSettings
from schedd.engine.show.job_view import Change, JobView, job_history, job_view, published_record
from schedd.engine.show.plan_snapshot import PlanSnapshot, publish_snapshot
from schedd.start_sentence import NEVER
from schedd.wire import (
    Event,
    JobAltered,
    JobDeleted,
    JobEnded,
    JobFacts,
    JobHeld,
    JobQueued,
    JobStarted,
    NodeChanged,
    NodeFacts,
    Run,
    ShareFacts,
)

T = 1_700_000_000
GIB = 1 << 20


class ShownCluster:
    """An engine with numbered events."""

    def __init__(self, *nodes: NodeFacts, **settings: int | bool | str) -> None:
        fixed = {"validate": True, "publish_starts": False, "end_allowance": 0}
        self.engine = Engine(EngineSettings(**fixed, **settings), T)  # type: ignore[arg-type]
        self.n = 0
        self.runs: list[Run] = []
        self.send(*(NodeChanged(id="", time=T, node=node) for node in nodes))

    def send(self, *events: Event, now: int = T) -> PlanSnapshot:
        numbered = []
        for event in events:
            self.n += 1
            numbered.append(replace(event, id=f"test:{self.n}"))
        decisions = self.engine.handle(numbered, now).decisions
        while self.engine.next_wake == now:
            decisions += self.engine.handle([], now).decisions
        self.runs += [decision for decision in decisions if isinstance(decision, Run)]
        return publish_snapshot(self.engine.state)

    def queue(self, *ids: str, **resources: str) -> PlanSnapshot:
        return self.send(*(queued(job_id, **resources) for job_id in ids))


def queued(job_id: str, **resources: str) -> JobQueued:
    asked = {"nodes": "1:ppn=4", "walltime": "3600", **resources}
    facts = JobFacts(id=job_id, owner="ann@x", queue="batch", submitted=T, resources=asked, version="1")
    return JobQueued(id="", time=T, job=facts)


def node(name: str, cpus: int = 4, mem: int = 8 * GIB) -> NodeFacts:
    return NodeFacts(name=name, cpus=cpus, mem=mem)


def row(published: PlanSnapshot, job_id: str) -> JobView:
    view = job_view(published, job_id)
    assert view is not None
    return view


def test_view_of_a_planned_job_has_start_nodes_and_promise() -> None:
    cluster = ShownCluster(node("n1"), slack=600)
    published = cluster.queue("1", "2", mem="2gb")
    first, second = row(published, "1"), row(published, "2")
    assert (first.state, first.answer, first.planned_start) == ("starting", "start_known", T)
    assert (second.state, second.answer) == ("planned", "start_known")
    assert (second.planned_start, second.planned_end) == (T + 3600, T + 7200)
    assert second.promised_start == T + 4200
    assert second.planned_nodes == (ShareFacts("n1", 4, 2 * GIB, 0),)
    assert second.why.startswith("planned start 2023-11-14 23:13:20 UTC")
    assert second.last_change is not None
    assert (second.last_change.cause, second.last_change.after) == ("arrived", T + 3600)
    assert second.generation == published.generation == second.changed


def test_a_run_whose_memory_the_server_does_not_report_shows_what_it_holds() -> None:
    """TORQUE reports cores only: a run that held 2 GB was shown with none."""
    cluster = ShownCluster(node("n1"))
    cluster.queue("1", mem="2gb")
    published = cluster.send(JobStarted(id="", time=T, job_id="1", shares=(ShareFacts("n1", 4),)))
    assert row(published, "1").planned_nodes == (ShareFacts("n1", 4, 2 * GIB, 0),)


def test_the_last_change_names_the_event_that_moved_the_job() -> None:
    cluster = ShownCluster(node("n1"))
    cluster.queue("1", "2")
    cluster.send(JobStarted(id="", time=T, job_id="1", shares=(ShareFacts("n1", 4),)))
    published = cluster.send(JobEnded(id="", time=T + 60, job_id="1"), now=T + 60)
    moved = row(published, "2")
    assert moved.planned_start == T + 60
    assert moved.last_change is not None
    assert (moved.last_change.before, moved.last_change.after) == (T + 3600, T + 60)
    assert moved.last_change.words == "job 1 ended"
    assert moved.last_change.event == f"test:{cluster.n}"


def test_a_publication_does_not_change_with_the_plan() -> None:
    cluster = ShownCluster(node("n1"))
    before = cluster.queue("1", "2", "3")
    seen = [row(before, job) for job in ("1", "2", "3")]
    cluster.send(JobAltered(id="", time=T, job=queued("2", walltime="60").job))
    after = cluster.send(JobDeleted(id="", time=T, job_id="3"))
    for old in seen[:2]:
        assert row(before, old.id) == old
    assert row(after, "2").walltime == 60
    assert job_view(after, "3") is None
    with pytest.raises(ValueError, match="read-only"):
        before.starts[0] = 5


def test_a_slot_that_another_job_took_over_does_not_answer_for_the_old_one() -> None:
    cluster = ShownCluster(node("n1"))
    before = cluster.queue("1")
    cluster.send(JobDeleted(id="", time=T, job_id="1"))
    cluster.queue("2")
    assert job_view(before, "2") is None


@pytest.mark.parametrize(
    ("resources", "state", "words"),
    [
        ({"nodes": "1:ppn=64"}, "never", f"{NEVER}: 64 cpus on a node; the largest has 4"),
        ({"nodes": "1:ppn=x"}, "never", f"{NEVER}: "),
        ({"nodes": "9:ppn=1"}, "never", "it needs 9 nodes; the cluster has 1 that fit"),
    ],
)
def test_view_of_an_impossible_job_has_the_reason(resources: dict[str, str], state: str, words: str) -> None:
    view = row(ShownCluster(node("n1")).queue("1", **resources), "1")
    assert (view.state, view.answer, view.planned_start) == (state, "never", None)
    assert view.requirement
    assert view.why.startswith(f"{NEVER}: {view.requirement}")
    assert words in view.why


def test_a_held_job_waits_for_its_hold_and_has_no_start() -> None:
    cluster = ShownCluster(node("n1"))
    cluster.queue("1", "2")
    view = row(cluster.send(JobHeld(id="", time=T, job_id="2", holds="u")), "2")
    assert (view.state, view.answer, view.waiting_for) == ("waiting", "waiting", "hold")
    assert view.planned_nodes == ()
    assert view.why == "waiting for a user hold"


def test_exclusive_job_shows_its_requested_amounts() -> None:
    cluster = ShownCluster(node("n1", cpus=16))
    view = row(cluster.queue("1", naccesspolicy="singlejob"), "1")
    assert view.planned_nodes == (ShareFacts("n1", 4, 0, 0),)


def test_held_entries_match_each_slot() -> None:
    cluster = ShownCluster(node("n1"), node("n2"))
    published = cluster.queue("1", "2", nodes="2:ppn=4")
    slots = np.array([published.ids["1"].slot, published.ids["2"].slot])
    held = published.on_nodes(slots)
    assert held.owner.tolist() == [0, 0, 1, 1]
    assert {published.names[row] for row in held.rows.tolist()} == {"n1", "n2"}
    entries = [entry for _, entry in held]
    assert entries == published.held_by(int(slots[0])) + published.held_by(int(slots[1]))


def moves_of(published: PlanSnapshot, job: str, most: int = 100) -> tuple[Change, ...]:
    record = published_record(published, job)
    assert record is not None
    return job_history(published, record, most)


def test_the_history_of_a_job_names_every_move_with_its_cause_newest_first() -> None:
    cluster = ShownCluster(node("n1"))
    cluster.queue("1", "2", "3")
    cluster.send(JobStarted(id="", time=T, job_id="1", shares=(ShareFacts("n1", 4),)))
    before = cluster.send(JobEnded(id="", time=T + 60, job_id="1"), now=T + 60)
    after = cluster.send(JobDeleted(id="", time=T + 70, job_id="2"), now=T + 70)
    moves = [(m.cause, m.words, m.before, m.after) for m in moves_of(after, "3")]
    assert moves == [
        ("freed", "job 2 was deleted", T + 3660, T + 70),
        ("freed", "job 1 ended", T + 7200, T + 3660),
        ("arrived", "it arrived", None, T + 7200),
    ]
    assert len(moves_of(before, "3")) == 2
    assert len(moves_of(after, "3", most=1)) == 1


def test_history_excludes_the_previous_job_of_the_slot() -> None:
    cluster = ShownCluster(node("n1"))
    cluster.queue("1", "2")
    cluster.send(JobDeleted(id="", time=T, job_id="2"))
    view = cluster.queue("3")
    assert [(m.before, m.after) for m in moves_of(view, "3")] == [(None, T + 3600)]


def test_an_older_snapshot_stays_as_it_was_when_a_node_gets_more_memory() -> None:
    cluster = ShownCluster(node("n1", cpus=4, mem=100))
    old = cluster.queue("1", naccesspolicy="singlejob")
    slot = old.ids["1"].slot
    before = old.held_by(slot)
    new = cluster.send(NodeChanged(id="", time=T, node=node("n1", cpus=6, mem=300)))
    assert old.held_by(slot) == before
    assert new.held_by(slot) != before


def test_an_older_snapshot_stays_as_it_was_when_a_resource_is_counted_only_now() -> None:
    cluster = ShownCluster(node("n1"))
    old = cluster.queue("1", scratch="1")
    slot = old.ids["1"].slot
    before = old.held_by(slot)
    facts = replace(node("n1"), resources={"scratch": 5})
    cluster.send(NodeChanged(id="", time=T, node=facts))
    assert old.held_by(slot) == before
