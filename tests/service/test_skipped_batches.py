"""A batch that makes the engine fail or hang is skipped."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schedd.engine import Engine, EngineSettings, handlers, settle
from schedd.engine.component.placement_hooks import reason_to_replan
from schedd.engine.facts.state import EngineState
from schedd.engine.place import placement
from schedd.engine.run import dispatch, reevaluation
from schedd.engine.run.dispatch import dispatch_jobs
from schedd.engine.run.running import extend_overruns
from schedd.engine.show.job_view import JobView, job_view
from schedd.service.cluster.batch_skipping import BatchSkipper
from schedd.service.cluster.engine_calls import CallWatchdog, EngineCallFailed, _CallTimedOut
from schedd.service.cluster.errors import EventsNotStorable
from schedd.service.cluster.incidents import IncidentFiles
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.cluster.retries import StoreRetries
from schedd.service.read.current_faults import job_start_state
from schedd.store import EventBatch
from schedd.wire import Alert, JobStarted, NodeFacts, QueueFacts, Run
from tests.conftest import ROOT
from tests.engine.server import Server
from tests.service.planner_harness import StillClock, T, event_id, job, node, planner
from tests.waits import WAIT_S, wait_until


def alert_texts(loop: PlanLoop, kind: str) -> list[str]:
    page = loop.decisions.page_after("")
    return [one.text for one in page.decisions if isinstance(one, Alert) and one.kind == kind]


def answers(loop: PlanLoop, *numbers: str) -> list[str]:
    views = [job_view(loop.published, number) for number in numbers]
    return [view.answer if view is not None else "" for view in views]


def view(loop: PlanLoop, number: str) -> JobView:
    found = job_view(loop.published, number)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def load_kernels() -> None:
    """Load the kernels, so that compilation does not exceed the time limit of a call."""
    with planner() as loop:
        loop.submit([node("n1", 8), job("1"), job("2")]).result(WAIT_S)


def failing_first(work: Callable[..., Any], *, hangs: bool = False, times: int = 1) -> Callable[..., Any]:
    """Return a function that fails ``times`` times before it works."""
    left = [times]

    def fails(*args: Any, **named: Any) -> Any:
        if left[0]:
            left[0] -= 1
            while hangs:
                pass
            raise RuntimeError("broken on purpose")
        return work(*args, **named)

    return fails


@pytest.mark.usefixtures("load_kernels")
@pytest.mark.parametrize("hangs", [False, True])
def test_failing_batch_is_skipped_and_a_snapshot_requested(
    hangs: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with planner(incidents=IncidentFiles(tmp_path), batch_limit=1 if hangs else 30) as loop:
        loop.submit([node("n1", 8), job("1")]).result(WAIT_S)
        monkeypatch.setattr(settle, "dispatch_jobs", failing_first(dispatch_jobs, hangs=hangs))
        assert loop.submit([job("2")]).result(WAIT_S).accepted == 1
        assert loop.alive
        assert (loop.failure, loop.trouble) == ("", "")
        loop.submit([job("3")]).result(WAIT_S)
        assert answers(loop, "1", "2", "3") == ["start_known", "", "start_known"]
        (told,) = alert_texts(loop, "batch_skipped")
        assert "could not handle batch 2 of events" in told
        assert ("it did not return within 1 s of processor time" if hangs else "broken on purpose") in told
        assert 'the step "dispatch" is skipped for 60 s' in told
        (asked,) = alert_texts(loop, "snapshot")
        assert asked.startswith("a full snapshot of the server was requested")
    assert [file.name for file in tmp_path.iterdir()] == [f"main-{T}-passed-over.jsonl"]


@pytest.mark.parametrize("times", [3, 100], ids=["once", "each time"])
def test_own_starts_are_recognised_after_an_error_in_the_replay(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rebuilt engine did not start the jobs itself; three foreign starts would stop the cluster."""
    with planner() as loop:
        loop.submit([node("n1", 16), job("1"), job("2"), job("3")]).result(WAIT_S)
        runs = [one for one in loop.decisions.page_after("").decisions if isinstance(one, Run)]
        assert len(runs) == 3
        loop.submit([started_event(run) for run in runs]).result(WAIT_S)
        monkeypatch.setattr(dispatch, "reason_to_replan", failing_first(reason_to_replan, times=times))
        monkeypatch.setattr(settle, "extend_overruns", failing_first(extend_overruns))
        loop.submit([job("4")]).result(WAIT_S)
        assert len(alert_texts(loop, "batch_skipped")) == 1
        assert loop.published.foreign == ""
        state = loop._planner.engine.state
        assert state.unexplained_starts == []
        decided = [state.records[run.job_id].attempt.decision for run in runs]
        assert decided == ([run.id for run in runs] if times == 3 else ["", "", ""])
        monkeypatch.undo()
        assert isinstance(loop._clock, StillClock)
        loop._clock.moment += 1_000
        loop.submit([job("5")]).result(WAIT_S)
        last = [one for one in loop.decisions.page_after("").decisions if isinstance(one, Run)][-1]
        assert (last.job_id, loop.published.halted) == ("5", "")


def started_event(run: Run) -> JobStarted:
    return JobStarted(id=event_id(), time=T, job_id=run.job_id, shares=run.shares)


def test_failing_step_is_skipped_for_a_minute_and_then_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with planner() as loop:
        assert isinstance(loop._clock, StillClock)
        loop.submit([node("n1")]).result(WAIT_S)
        monkeypatch.setattr(settle, "dispatch_jobs", failing_first(dispatch_jobs))
        loop.submit([job("0")]).result(WAIT_S)
        loop.submit([job("1")]).result(WAIT_S)
        assert not [one for one in loop.decisions.page_after("").decisions if isinstance(one, Run)]
        loop._clock.moment += 61
        loop.submit([job("2")]).result(WAIT_S)
        runs = [one for one in loop.decisions.page_after("").decisions if isinstance(one, Run)]
        assert [run.job_id for run in runs] == ["1"]


@pytest.mark.usefixtures("load_kernels")
@pytest.mark.parametrize("hangs", [False, True])
def test_only_the_hanging_job_is_quarantined(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seat = placement._place_job

    def fails(state: EngineState, record: Any, *rest: Any, **named: Any) -> None:
        if record.id == "2":
            while hangs:
                pass
            raise RuntimeError("broken on purpose")
        seat(state, record, *rest, **named)

    monkeypatch.setattr(placement, "_place_job", fails)
    with planner(batch_limit=1) as loop:
        loop.submit([node("n1")]).result(WAIT_S)
        loop.submit([job("1"), job("2"), job("3")]).result(WAIT_S)
        loop.submit([job("1"), job("2"), job("3")]).result(WAIT_S)  # as in the next snapshot
        assert answers(loop, "1", "2", "3") == ["start_known", "waiting", "start_known"]
        assert len(alert_texts(loop, "batch_skipped")) == hangs
        assert "an administrator: planning it failed" in view(loop, "2").why


def test_planner_recovers_from_continuous_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with planner() as loop:
        loop.submit([node("n1"), job("1"), job("2")]).result(WAIT_S)
        broken = threading.Event()
        broken.set()
        apply_all = handlers.apply_all

        def fails(*args: Any) -> None:
            if broken.is_set():
                raise RuntimeError("broken on purpose")
            apply_all(*args)

        monkeypatch.setattr("schedd.engine.engine.apply_all", fails)
        answer = loop.submit([job("3")])
        wait_until(lambda: loop._planner._skipper._failures_in_row >= 3)
        assert "planner could not handle batch" in loop.trouble
        broken.clear()
        assert answer.result(WAIT_S).accepted == 1
        assert (loop.alive, loop.trouble) == (True, "")
        loop.submit([job("4")]).result(WAIT_S)
        assert answers(loop, "1", "2", "3", "4") == ["start_known", "start_known", "", "start_known"]


def test_cluster_wide_step_is_retried_with_a_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with planner() as loop:
        server = Server(T)
        server.change_node(NodeFacts(name="n1", cpus=4))
        server.change_queue(QueueFacts(name="batch"))
        loop.submit([server.snapshot()]).result(WAIT_S)
        monkeypatch.setattr(
            "schedd.features.limits.rules.limits_changed", failing_first(reevaluation.limits_changed)
        )
        changed = server.change_queue(QueueFacts(name="batch", limits={"max_running": "1"}))
        loop.submit(changed).result(WAIT_S)
        assert len(alert_texts(loop, "error")) == len(alert_texts(loop, "snapshot")) == 1
        assert loop.published.queues["batch"].limits == {}
        loop.submit([server.snapshot()]).result(WAIT_S)
        assert loop.published.queues["batch"].limits == {"max_running": "1"}
        sources = loop.call_between_batches(lambda e: e.state.limits.sources).result(WAIT_S)
        assert [one.amount for limits in sources for one in limits if one.queue == "batch"] == [1]


# ---- failures outside the engine call --------------------------------------------------------------


def check_failure_is_reported_until_it_ends(
    loop: PlanLoop, monkeypatch: pytest.MonkeyPatch, where: str, words: str
) -> None:
    """Assert that a failure is reported, planning continues, and the report ends with the failure."""
    with monkeypatch.context() as patched:
        patched.setattr(where, failing_first(lambda *_: None, times=1_000_000))
        assert loop.submit([job("2")]).result(WAIT_S).accepted == 1
        runs = [one.job_id for one in loop.decisions.page_after("").decisions if isinstance(one, Run)]
        assert runs == ["1", "2"]
        wait_until(lambda: words in loop.failing)
        assert words in loop.published.stale
        assert (loop.published.halted, job_start_state(loop).alert) == ("", ""), "jobs are still started"
        loop.alerts.update()
        assert [alert.kind for alert in loop.alerts.current] == ["planner"]
        assert loop.alive
    loop.submit([job("3", nodes="1:ppn=8")]).result(WAIT_S)
    assert (loop.alive, loop.failing, loop.published.stale) == (True, "", "")
    assert answers(loop, "1", "2", "3") == ["start_known"] * 3


def test_failed_publication_leaves_the_plan_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    with planner() as loop:
        loop.submit([node("n1", 8), job("1")]).result(WAIT_S)
        publish = "schedd.service.cluster.publisher.publish_snapshot"
        check_failure_is_reported_until_it_ends(loop, monkeypatch, publish, "the plan cannot be shown")


def test_engine_is_called_although_next_wake_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with planner() as loop:
        loop.submit([node("n1", 8), job("1")]).result(WAIT_S)
        where = "schedd.engine.engine.next_wake"
        check_failure_is_reported_until_it_ends(
            loop, monkeypatch, where, "the time of the next engine call is unknown"
        )


def test_batch_with_failing_results_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with planner() as loop:
        loop.submit([node("n1", 8), job("1")]).result(WAIT_S)
        journal = loop._planner.journal
        monkeypatch.setattr(journal, "commit_decisions", failing_first(journal.commit_decisions))
        assert loop.submit([job("2")]).result(WAIT_S).accepted == 1
        loop.submit([job("3")]).result(WAIT_S)
        assert loop.alive
        assert answers(loop, "1", "2", "3") == ["start_known", "", "start_known"]
        (told,) = alert_texts(loop, "batch_skipped")
        assert "broken on purpose" in told


def test_failing_checkpoint_does_not_stop_the_planner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with planner() as loop:
        loop.submit([node("n1", 8), job("1")]).result(WAIT_S)
        journal = loop._planner.journal
        monkeypatch.setattr(journal, "maybe_checkpoint", failing_first(journal.maybe_checkpoint, times=2))
        loop.submit([job("2")]).result(WAIT_S)
        loop.submit([job("3")]).result(WAIT_S)
        assert loop.alive
        assert answers(loop, "1", "2", "3") == ["start_known"] * 3


def test_only_events_that_cannot_be_stored_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with planner() as loop:
        loop.submit([node("n1", 8), job("1")]).result(WAIT_S)
        journal = loop._planner.journal
        monkeypatch.setattr(journal, "commit_events", failing_first(journal.commit_events))
        many = [job(str(number)) for number in range(100, 350)]  # more than one batch
        with pytest.raises(EventsNotStorable, match="cannot be stored"):
            loop.submit(many).result(WAIT_S)
        assert loop.pending == 0
        assert loop.submit([job("2")]).result(WAIT_S).accepted == 1
        assert loop.alive
        assert answers(loop, "1", "2", "100", "349") == ["start_known", "start_known", "", ""]


def test_call_time_limit_grows_after_timeouts_and_shrinks_after_successes() -> None:
    watch = CallWatchdog()
    passing = BatchSkipper("main", StoreRetries("main"), watch)
    engine = Engine(EngineSettings(), T)
    late = EngineCallFailed(engine, EventBatch(number=1, now=T, last_event=0), 0, _CallTimedOut(), 30)
    found = []
    for _ in range(2):
        passing.record_failure(late)
        found.append(watch.limit_factor)
    assert found == [2, 4]
    watch.limit_factor = 8
    passing.record_failure(late)
    assert watch.limit_factor == 8  # bounded, or a cluster could stop for half an hour
    for times in (8, 4, 2, 1):
        assert watch.limit_factor == times
        for _ in range(10):
            passing.record_success()


def exceed_time_limit(watch: CallWatchdog, seconds: float, work: Callable[[], object]) -> None:
    """Repeat ``work`` until its time is over."""
    with watch.time_limit(seconds):
        while True:
            work()


def test_a_call_without_processor_time_is_given_longer_and_blames_no_job() -> None:
    """The machine is busy, or out of memory."""
    watch = CallWatchdog()
    engine = Engine(EngineSettings(), T)
    engine.state.at_job = "1"
    began = time.monotonic()
    with pytest.raises(_CallTimedOut):
        exceed_time_limit(watch, 0.2, lambda: time.sleep(0.01))
    assert (time.monotonic() - began > 1.5, watch.starved) == (True, True)
    batch = EventBatch(number=1, now=T, last_event=0)
    failed = EngineCallFailed(engine, batch, 0, _CallTimedOut(), 0.2, starved=watch.starved)
    assert (failed.job, failed.late) == ("", True)
    assert failed.why == "it did not return within 2 s, for most of which it got no processor time"
    with pytest.raises(_CallTimedOut):
        exceed_time_limit(watch, 0.2, lambda: None)
    assert not watch.starved
    watch.end()


def test_the_time_in_which_the_process_was_stopped_does_not_count() -> None:
    script = """if True:
        import os, signal, sys, time
        from schedd.service.cluster.engine_calls import CallWatchdog
        watch = CallWatchdog()
        with watch.time_limit(0.3):
            print("waits", flush=True)
            sys.stdin.readline()
            time.sleep(0.5)
        print(watch.starved, "goes on")
    """
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(3.5)
        process.send_signal(signal.SIGCONT)
        found, _ = process.communicate("\n", timeout=WAIT_S)
    assert found == "False goes on\n"


def test_profiler_works_after_an_interrupted_call() -> None:
    """Run in a process of its own: with an exception from a callback, Python 3.11 hung here."""
    script = """if True:
        import sys, time
        from schedd.service.cluster.engine_calls import CallWatchdog, _CallTimedOut
        watch = CallWatchdog()
        try:
            with watch.time_limit(0.01):
                while True:
                    pass
        except _CallTimedOut:
            print("ended")
        with watch.time_limit(30):
            sys.setprofile(lambda *_: None)
            time.localtime()
            sum(one for one in range(3))
            sys.setprofile(None)
        print("goes on")
    """
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=WAIT_S, check=True, cwd=ROOT
    )
    assert done.stdout.split("\n") == ["ended", "goes on", ""]
