"""The planner's thread: acknowledgement of events, and concurrent calls."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

import pytest

from schedd.engine import Engine
from schedd.engine.show.job_view import job_view
from schedd.service.cluster.deliveries import DeliveryResult, PendingDelivery, cut_batches
from schedd.service.cluster.errors import Overloaded, PlannerStopped
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.gaps import find_gaps
from schedd.service.read.plan_lists import bars_in_window, count_jobs, node_views
from schedd.store import EventBatch, MemoryJournal
from schedd.store.errors import DatabaseUnavailable, StatementRejected
from schedd.wire import Event, JobEnded, JobFacts, JobQueued, Run, RunAccepted, Snapshot
from tests.service.planner_harness import T, event_id, job, node, planner, views
from tests.waits import WAIT_S, wait_until


@contextmanager
def busy_planner(loop: PlanLoop) -> Iterator[None]:
    """Keep the planner's thread busy during the block."""
    at_it, go_on = threading.Event(), threading.Event()

    def work(_: Engine) -> None:
        at_it.set()
        assert go_on.wait(WAIT_S)

    done = loop.call_between_batches(work)
    assert at_it.wait(WAIT_S)
    try:
        yield
    finally:
        go_on.set()
        done.result(WAIT_S)


def test_repeated_events_are_handled_once() -> None:
    with planner() as loop:
        events: list[Event] = [node("n1"), job("1"), job("2")]
        first = loop.submit(events).result(WAIT_S)
        again = loop.submit([events[1], job("3"), events[2]]).result(WAIT_S)
        assert (first.accepted, first.duplicates) == (3, ())
        assert (again.accepted, again.duplicates) == (1, (events[1].id, events[2].id))
        assert {view.id for view in views(loop.published).rows} == {"1", "2", "3"}


def test_repeated_event_within_a_delivery_is_a_duplicate() -> None:
    with planner() as loop:
        event = job("1")
        handled = loop.submit([event, event]).result(WAIT_S)
        assert (handled.accepted, handled.duplicates) == (1, (event.id,))


def test_answer_follows_event_publication() -> None:
    with planner() as loop:
        handled = loop.submit([node("n1"), *(job(str(i)) for i in range(450))]).result(WAIT_S)
        assert handled.accepted == 451
        assert loop.published.generation >= handled.generation
        assert count_jobs(loop.published).planned + count_jobs(loop.published).starting == 450


def test_reading_does_not_wait_for_a_busy_planner() -> None:
    with planner() as loop:
        loop.submit([node("n1"), job("1"), job("2")]).result(WAIT_S)
        with busy_planner(loop):
            waiting = loop.submit([job("3")])
            published = loop.published
            assert count_jobs(published).planned == 1
            assert job_view(published, "2") is not None
            assert job_view(published, "3") is None
            assert [view.id for view in views(published).rows] == ["1", "2"]
            assert [view.name for view in node_views(published)] == ["n1"]
            assert [bar.job for bar in bars_in_window(published, T, T + 86_400).rows] == ["1", "2"]
            assert find_gaps(published, T, T + 86_400).gaps
            assert not waiting.done()
        assert waiting.result(WAIT_S).accepted == 1
        assert job_view(loop.published, "3") is not None


def test_published_snapshot_is_immutable() -> None:
    with planner() as loop:
        loop.submit([node("n1"), job("1"), job("2")]).result(WAIT_S)
        before = loop.published
        shown = job_view(before, "2")
        loop.submit([JobEnded(id=event_id(), time=T, job_id="1")]).result(WAIT_S)
        assert job_view(before, "2") == shown
        assert job_view(loop.published, "2") != shown


def test_snapshot_is_applied_in_event_order() -> None:
    here = JobFacts(id="2", owner="ann", queue="batch", submitted=T, resources={"walltime": "60"})
    machine = node("n1").node
    whole = Snapshot(id=event_id(), time=T, jobs=(here,), nodes=(machine,))
    with planner(snapshot_loss=1.0) as loop:
        loop.submit([node("n1"), job("1"), whole, job("3")]).result(WAIT_S)
        # Job 1 came before the snapshot, which does not know it; job 3 came after.
        assert {view.id for view in views(loop.published).rows} == {"2", "3"}


def test_ready_jobs_get_run_decisions_that_outcomes_close() -> None:
    with planner(publish_starts=False) as loop:
        loop.submit([node("n1"), job("1")]).result(WAIT_S)
        (run,) = loop.decisions.page_after("").decisions
        assert isinstance(run, Run)
        assert run.job_id == "1"
        accepted = RunAccepted(id=event_id(), time=T, decision_id=run.id, job_id="1")
        loop.submit([accepted]).result(WAIT_S)
        assert loop.decisions.page_after("").decisions == ()


def test_pause_stops_starts_and_resume_continues_them() -> None:
    with planner(publish_starts=False) as loop:
        loop.pause("the disks are full").result(WAIT_S)
        loop.submit([node("n1"), job("1")]).result(WAIT_S)
        assert loop.published.paused == "the disks are full"
        assert loop.decisions.page_after("").decisions == ()
        loop.resume().result(WAIT_S)
        assert loop.published.paused == ""
        assert [decision.type for decision in loop.decisions.page_after("").decisions] == ["run"]


def test_fork_is_shared_until_the_next_event() -> None:
    with planner() as loop:
        loop.submit([node("n1")]).result(WAIT_S)
        first = loop.fork().result(WAIT_S)
        assert loop.fork().result(WAIT_S) is first
        loop.submit([job("1")]).result(WAIT_S)
        assert loop.fork().result(WAIT_S) is not first


def test_excess_events_are_refused_and_accepted_later() -> None:
    with planner(most_pending=3) as loop:
        with busy_planner(loop):
            kept = loop.submit([node("n1"), job("1")])
            with pytest.raises(Overloaded, match="2 events wait"):
                loop.submit([job("2"), job("3")])
        kept.result(WAIT_S)
        assert loop.submit([job("2"), job("3")]).result(WAIT_S).accepted == 2


def test_stopped_planner_refuses_events() -> None:
    with planner() as loop:
        loop.submit([node("n1")]).result(WAIT_S)
    with pytest.raises(PlannerStopped, match="shutting down"):
        loop.submit([job("1")])


class FailingJournal(MemoryJournal):
    """A journal that fails this many times before it stores anything."""

    def __init__(self, failures: Sequence[Exception]) -> None:
        super().__init__()
        self.failures = list(failures)

    def commit_events(self, events: Sequence[Event], now: int, paused: str = "") -> EventBatch | None:
        if self.failures:
            raise self.failures.pop()
        return super().commit_events(events, now, paused)


def test_events_are_acknowledged_after_the_journal_stored_them() -> None:
    journal = FailingJournal([DatabaseUnavailable("away"), DatabaseUnavailable("away")])
    with planner(journal) as loop:
        handled = loop.submit([node("n1"), job("1")]).result(WAIT_S)
        assert handled.accepted == 2
        assert journal.failures == []
        assert loop.trouble == ""


def test_permanently_failing_journal_stops_the_planner_with_a_reason() -> None:
    with planner(FailingJournal([StatementRejected("no such column")] * 1_000)) as loop:
        with pytest.raises(PlannerStopped):
            loop.submit([node("n1")]).result(WAIT_S)
        assert not loop.alive
        assert "no such column" in loop.failure
        assert "stopped" in loop.published.stale
        with pytest.raises(PlannerStopped):
            loop.submit([node("n2")])


def test_planner_without_database_continues_after_an_error_and_requests_a_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with planner(publish_starts=False) as loop:
        loop.submit([node("n1"), job("1")]).result(WAIT_S)
        (run,) = loop.decisions.page_after("").decisions
        take, errors = loop._inbox.next_deliveries, [MemoryError()]

        def failing() -> list[PendingDelivery]:
            if errors:
                raise errors.pop()
            return take()

        monkeypatch.setattr(loop._inbox, "next_deliveries", failing)
        with pytest.raises(PlannerStopped, match="no memory is left"):
            loop.submit([job("2")]).result(WAIT_S)
        wait_until(lambda: loop.alive)
        assert loop.pending == 0
        assert run in loop.decisions.page_after("").decisions  # it is still to be carried out
        assert "part of the log" in loop.published.stale  # a snapshot makes up for missed events
        assert loop.submit([job("3")]).result(WAIT_S).accepted == 1
        assert {"1", "3"} <= set(loop.published.ids)


def test_decision_ids_increase_across_restarts() -> None:
    ids = []
    for _ in range(2):
        with planner(publish_starts=False) as loop:
            loop.submit([node("n1"), job("1")]).result(WAIT_S)
            ids.append(loop.decisions.page_after("").last)
    assert ids[0] == ids[1]  # the clock was stopped
    assert int(ids[0][1:]) > T


def test_unreadable_request_affects_only_its_job() -> None:
    with planner() as loop:
        bad = job("1", nodes="1:ppn=many")
        loop.submit([node("n1"), bad, job("2")]).result(WAIT_S)
        view = job_view(loop.published, "1")
        assert view is not None
        assert view.answer == "never"
        assert "ppn" in view.why
        other = job_view(loop.published, "2")
        assert other is not None
        assert other.answer == "start_known"


def test_many_senders_at_once_are_all_answered() -> None:
    with planner() as loop:
        answers: list[Future[DeliveryResult]] = []

        def send(sender: int) -> None:
            answers.append(loop.submit([job(f"{sender}.{k}") for k in range(20)]))

        threads = [threading.Thread(target=send, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(answer.result(WAIT_S).accepted for answer in answers) == 160


def test_displayed_job_equals_the_sent_job() -> None:
    with planner() as loop:
        sent: JobQueued = job("1", mem="2gb")
        sent = replace(sent, job=replace(sent.job, name="relax", group="chem", priority=7))
        loop.submit([node("n1"), sent]).result(WAIT_S)
        view = job_view(loop.published, "1")
        assert view is not None
        assert (view.name, view.group, view.priority) == ("relax", "chem", 7)
        assert view.resources == sent.job.resources


def batch_sizes(*deliveries: Sequence[Event]) -> list[list[int]]:
    waiting = [PendingDelivery(events, Future()) for events in deliveries]
    found = [list(parts) for parts in cut_batches(waiting)]
    # Nothing is lost or reordered, and each delivery has exactly one last part.
    sent = [event for events in deliveries for event in events]
    assert [event for parts in found for part in parts for event in part.events] == sent
    lasts = [part.delivery for parts in found for part in parts if part.last]
    assert [id(delivery) for delivery in lasts] == [id(delivery) for delivery in waiting]
    return [[len(part.events) for part in parts] for parts in found]


def test_deliveries_are_cut_into_bounded_batches() -> None:
    many = [node(f"n{i}") for i in range(450)]
    whole = Snapshot(id=event_id(), time=T, jobs=(), nodes=())
    assert batch_sizes(many) == [[200], [200], [50]]
    assert batch_sizes(many[:3], many[3:5], []) == [[3, 2, 0]]
    assert batch_sizes(many[:150], many[150:250]) == [[150], [100]]
    assert batch_sizes([whole]) == [[1]]
    assert batch_sizes([*many[:2], whole, whole, *many[2:5]], many[5:6]) == [[2], [1], [1], [3, 1]]


class BlockingJournal(MemoryJournal):
    """A journal that blocks the sync of its events."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go_on = threading.Event(), threading.Event()

    def sync_events(self) -> None:
        self.asked.set()
        assert self.go_on.wait(WAIT_S)


def test_events_are_acknowledged_after_sync() -> None:
    journal = BlockingJournal()
    with planner(journal) as loop:
        answer = loop.submit([node("n1"), job("1")])
        assert journal.asked.wait(WAIT_S)
        assert not answer.done()
        journal.go_on.set()
        assert answer.result(WAIT_S).accepted == 2
