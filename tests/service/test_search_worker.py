"""Background searches: their starts, their effects, and their ends."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from schedd.engine import IMPROVED_BY_SEARCH, Cause
from schedd.engine.show.job_view import JobView, job_history, job_view, published_record
from schedd.optimize import PlanSearch, SearchEndReason
from schedd.service.background.plan_metrics_log import MemoryPlanMetricsLog, SearchRun
from schedd.service.background.search_worker import SearchWorker
from schedd.service.cluster.errors import PlannerStopped
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.wire import JobEnded
from tests.service.planner_harness import T, event_id, job, node, planner
from tests.waits import WAIT_S, wait_until


@contextmanager
def running_searches(**settings: Any) -> Iterator[tuple[PlanLoop, SearchWorker]]:
    """A planner with one node that runs job 1, and a long and a short job in the queue."""
    with planner(end_allowance=0, publish_starts=False, **settings) as loop:
        searcher = SearchWorker(loop, MemoryPlanMetricsLog())
        searcher.start()
        loop.submit([node("n1"), job("1")]).result(WAIT_S)
        loop.submit([job("2", walltime="36000")]).result(WAIT_S)
        loop.submit([job("3", walltime="60")]).result(WAIT_S)
        try:
            yield loop, searcher
        finally:
            searcher.stop()


def view(loop: PlanLoop, job_id: str) -> JobView:
    found = job_view(loop.published, job_id)
    assert found is not None
    return found


def effects(loop: PlanLoop) -> dict[str, float]:
    return {effect: counter._value.get() for effect, counter in loop.metrics._searches.items()}


def runs(searcher: SearchWorker) -> tuple[SearchRun, ...]:
    return searcher._track.searches(1000).runs


def wait_for_a_run(searcher: SearchWorker) -> None:
    wait_until(lambda: runs(searcher), "no search began")


def test_search_moves_a_short_job_first_within_a_long_jobs_promise() -> None:
    with running_searches(slack=300, search_seconds=0.2) as (loop, searcher):
        assert (view(loop, "2").planned_start, view(loop, "3").planned_start) == (T + 3600, T + 39600)
        run = searcher.search_now().result(WAIT_S)
        assert run is not None
        assert (run.why, run.taken, run.report.moved) == ("asked for", 2, 2)
        assert run.report.gain > 0
        assert (view(loop, "2").planned_start, view(loop, "3").planned_start) == (T + 3660, T + 3600)
        assert view(loop, "2").promised_start == T + 3900
        record = published_record(loop.published, "3")
        assert record is not None
        last = job_history(loop.published, record)[0]
        assert last.cause == Cause.IMPROVED
        assert last.words.startswith(f"{IMPROVED_BY_SEARCH} (1 job starts 10 h earlier, 1 job 60 s later)")
        assert runs(searcher) == (run,)
        assert effects(loop) == {"taken": 1, "none": 0}


def test_search_keeps_promises() -> None:
    with running_searches(slack=59, search_seconds=0.2) as (loop, searcher):
        run = searcher.search_now().result(WAIT_S)
        assert run is not None
        assert (run.taken, run.report.moved) == (0, 0)
        assert effects(loop) == {"taken": 0, "none": 1}
        assert view(loop, "2").planned_start == T + 3600


def test_no_search_with_a_single_queued_job() -> None:
    with planner() as loop:
        searcher = SearchWorker(loop, MemoryPlanMetricsLog())
        searcher.start()
        loop.submit([node("n1"), job("1"), job("2")]).result(WAIT_S)
        assert searcher.search_now().result(WAIT_S) is None
        assert runs(searcher) == ()
        searcher.stop()
        with pytest.raises(PlannerStopped):
            searcher.search_now()


def test_changed_plan_starts_searches() -> None:
    with running_searches(slack=300, search_every=1, search_pause=1, search_seconds=0.1) as (loop, searcher):
        wait_for_a_run(searcher)
        assert runs(searcher)[0].why == "periodic"
        # The result changed the plan, so another search follows.
        time.sleep(4.5)
        assert [run.taken for run in reversed(runs(searcher))] == [2, 0]
        assert view(loop, "3").planned_start == T + 3600


def test_changes_during_a_search_trigger_the_next_search(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = PlanSearch.search
    how = {"search_every": 1, "search_pause": 1, "search_newcomers": 0, "search_seconds": 0.2}
    with running_searches(slack=300, **how) as (loop, searcher):

        def search_while_a_job_comes(search: PlanSearch) -> None:
            monkeypatch.undo()
            loop.submit([job("4", walltime="30")]).result(WAIT_S)
            plain(search)

        monkeypatch.setattr(PlanSearch, "search", search_while_a_job_comes)
        wait_until(
            lambda: (found := job_view(loop.published, "4")) and found.planned_start == T + 3600,
            "the job that came meanwhile was not tried",
        )
        assert runs(searcher)[-1].taken == 2, "the first search found something"


def test_search_starts_after_capacity_was_freed() -> None:
    with running_searches(slack=300, search_every=3600, search_pause=1, search_seconds=0.1) as (
        loop,
        searcher,
    ):
        loop.submit([job("4", walltime="7200"), job("5", walltime="60")]).result(WAIT_S)
        loop.submit([JobEnded(id=event_id(), time=T, job_id="1")]).result(WAIT_S)
        wait_for_a_run(searcher)
        assert runs(searcher)[0].why == "cpus freed"


def test_new_job_is_tried_first_before_the_next_search() -> None:
    how = {"search_every": 3600, "search_pause": 3600, "search_newcomers": 1, "search_seconds": 600}
    with running_searches(slack=300, **how) as (loop, searcher):
        wait_for_a_run(searcher)
        run = runs(searcher)[0]
        assert (run.why, run.taken, run.report.why_ended) == ("new jobs", 2, SearchEndReason.NOTHING_LEFT)
        assert (view(loop, "2").planned_start, view(loop, "3").planned_start) == (T + 3660, T + 3600)
        # This job cannot go first: the attempt has no report.
        loop.submit([job("4", walltime="36000")]).result(WAIT_S)
        newest = searcher._history.newest
        wait_until(lambda: searcher._history.newest != newest)
        time.sleep(1.5)
        assert len(runs(searcher)) == 1
        # The time of the next full search is unchanged.
        assert searcher._history.whole < searcher._history.tried - 1


def test_job_that_fits_into_freed_capacity_is_tried_before_the_next_search() -> None:
    how: dict[str, Any] = {"search_every": 3600, "search_pause": 3600, "search_newcomers": 1}
    with planner(slack=36_000, end_allowance=0, publish_starts=False, search_seconds=600, **how) as loop:
        loop.submit([node("n1"), job("1", nodes="1:ppn=2"), job("2", nodes="1:ppn=2")]).result(WAIT_S)
        loop.submit([job("3", walltime="36000"), job("4", nodes="1:ppn=2", walltime="4000")]).result(WAIT_S)
        assert (view(loop, "3").planned_start, view(loop, "4").planned_start) == (T + 3600, T + 39600)
        searcher = SearchWorker(loop, MemoryPlanMetricsLog())
        newest = loop.call_between_batches(lambda engine: engine.state.change_number).result(WAIT_S)
        searcher._history = replace(searcher._history, newest=newest)
        searcher.start()
        time.sleep(2.5)
        assert runs(searcher) == (), "no job came, no capacity was freed"
        loop.submit([JobEnded(id=event_id(), time=T, job_id="1")]).result(WAIT_S)
        wait_for_a_run(searcher)
        run = runs(searcher)[0]
        assert (run.why, run.taken, run.report.why_ended) == (
            "cpus freed early",
            2,
            SearchEndReason.NOTHING_LEFT,
        )
        assert view(loop, "4").planned_start == T
        searcher.stop()


def test_newcomers_wait_for_the_next_search_if_configured() -> None:
    how = {"search_every": 3600, "search_pause": 3600, "search_newcomers": 0}
    with running_searches(slack=300, **how) as (loop, searcher):
        time.sleep(2.5)
        assert runs(searcher) == ()
        assert view(loop, "3").planned_start == T + 39600


def test_disabled_searches_do_not_start() -> None:
    with running_searches(search_every=0, search_pause=1) as (_, searcher):
        time.sleep(2.5)
        assert runs(searcher) == ()


def test_daemon_stop_ends_a_search() -> None:
    with running_searches(slack=300, search_seconds=600) as (_, searcher):
        answer = searcher.search_now()
        wait_until(lambda: searcher._search is not None)
        searcher.stop()
        assert not searcher._thread.is_alive()
        run = answer.result(WAIT_S)
        assert run is not None
        assert (run.report.why_ended, run.taken) == ("stopped", 0)
