"""Background search for better plans: one search at a time, on a fork of the plan."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import structlog

from schedd.engine import (
    MOST_MOVED,
    DueSearch,
    Engine,
    EngineSettings,
    EngineState,
    JobRecord,
    SearchHistory,
    due_search,
    improvement_event,
    last_starts_on_hold,
    requested_search,
)
from schedd.optimize import (
    Improvement,
    ParallelSearch,
    PlanSearch,
    SearchEndReason,
    SearchInput,
    SearchSettings,
)
from schedd.parallel_calls import run_in_threads
from schedd.service.background.plan_metrics_log import PlanMetricsLog, SearchRun
from schedd.service.cluster.errors import Overloaded, PlannerStopped
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.objectives import ObjectiveChange, measure_fork, objective_changes
from schedd.store import StoreError

_log = structlog.get_logger(__name__)
_LOOK_S = 1.0
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class _SearchStart:
    """Input of a search, copied between two batches."""

    search: DueSearch
    start: SearchInput
    records: tuple[JobRecord | None, ...]  # by slot
    generation: int


class SearchWorker:
    """Searches of one cluster, in a thread of their own. Public methods may be called from any thread."""

    def __init__(self, loop: PlanLoop, track: PlanMetricsLog) -> None:
        self._loop = loop
        self._track = track
        self._condition = threading.Condition()
        self._requests: deque[Future[SearchRun | None]] = deque()
        self._stopping = False
        self._search: PlanSearch | ParallelSearch | None = None
        self._number = 0
        self._epoch = time.time_ns()
        self._history = SearchHistory(whole=time.monotonic(), tried=time.monotonic())
        self._thread = loop.supervisor.thread("searches", self._work, cluster=loop.name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End at once and abandon a running search."""
        with self._condition:
            self._stopping = True
            if self._search is not None:
                self._search.stop()
            self._condition.notify()
        self._thread.join(10)
        while self._requests:
            self._requests.popleft().set_exception(PlannerStopped("the daemon is shutting down"))

    def search_now(self) -> "Future[SearchRun | None]":
        """Search now; return the run, or None if nothing can be searched. Raises PlannerStopped."""
        answer: Future[SearchRun | None] = Future()
        with self._condition:
            if self._stopping:
                raise PlannerStopped("the daemon is shutting down")
            self._requests.append(answer)
            self._condition.notify()
        return answer

    # ---- the thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._condition:
                if not self._requests and not self._stopping:
                    self._condition.wait(_LOOK_S)
                if self._stopping:
                    return
                asked = list(self._requests)
                self._requests.clear()
            try:
                run = self._run(requested_search) if asked else self._run_periodic()
            except (PlannerStopped, Overloaded, TimeoutError, StoreError) as error:
                for answer in asked:
                    answer.set_exception(PlannerStopped(str(error) or "the planner is busy"))
            except BaseException as error:
                for answer in asked:
                    answer.set_exception(error)
                raise
            else:
                for answer in asked:
                    answer.set_result(run)

    def _run_periodic(self) -> SearchRun | None:
        loop, now = self._loop, time.monotonic()
        earliest = self._history.earliest(loop.published.settings)
        if earliest is None or now < earliest or loop.on_standby:
            return None
        return self._run(partial(due_search, seen=self._history, now=now))

    def _run(self, which: Callable[[EngineState], DueSearch | None]) -> SearchRun | None:
        loop = self._loop
        copied = loop.call_between_batches(
            lambda engine: _copy_for_search(engine, which(engine.state))
        ).result(_PATIENCE_S)
        if copied is None:
            return None
        search = copied.search
        self._history = self._history.after_begin(search)
        unfinished = False
        try:
            self._number = max(self._number, self._track.last_search()) + 1
            found = self._run_search(copied)
            if found is None:
                return None
            taken = 0
            changes: tuple[ObjectiveChange, ...] = ()
            if found.places and not self._stopping:
                taken, changes = self._apply_and_measure(copied, found)
            unfinished = taken > 0 and found.report.why_ended is SearchEndReason.MOVED_ENOUGH
        finally:  # whatever came of it: where the planner is too busy, the next one waits, too
            self._history = self._history.after_end(search, time.monotonic(), unfinished=unfinished)
        report, why = found.report, search.why
        run = SearchRun(self._number, copied.start.now, why, copied.generation, taken, report, changes)
        if (
            search.newcomers is not None and taken == 0
        ):  # otherwise there would be a report for each waiting job
            return run
        self._record(run)
        loop.metrics.count_search(taken)
        _log.info(
            "searched for a better plan",
            cluster=loop.name,
            why=why,
            tried=report.tried,
            accepted=report.accepted,
            moved=report.moved,
            taken=taken,
            gain=round(report.gain, 4),
            ended=report.why_ended.value,
            seconds=round(report.elapsed_s, 3),
            objectives={one.objective: [one.before, one.after] for one in changes},
        )
        return run

    def _run_search(self, copied: _SearchStart) -> Improvement | None:
        """Return the result of a search; None if the worker was stopped first."""
        search = _search(copied, self._loop.published.settings, self._number)
        with self._condition:
            self._search = search
            if self._stopping:
                return None
        search.search()
        with self._condition:
            self._search = None
        return search.improvement()

    def _apply_and_measure(
        self, copied: _SearchStart, found: Improvement
    ) -> tuple[int, tuple[ObjectiveChange, ...]]:
        """Apply the result; return the number of moved jobs and the changes of the objectives."""
        loop = self._loop
        before = measure_fork(loop.fork().result(_PATIENCE_S))
        taken = self._apply(copied, found)
        if not taken:
            return 0, ()
        after = measure_fork(loop.fork().result(_PATIENCE_S))
        loop.metrics.set_objectives(after)
        return taken, objective_changes(before, after)

    def _apply(self, copied: _SearchStart, found: Improvement) -> int:
        """Apply the result to the live plan; return the number of moved jobs."""
        name = f"search:{self._epoch}:{self._number}"
        records = ((place.slot, copied.records[place.slot]) for place in found.places)
        jobs = {slot: record.id for slot, record in records if record is not None}
        event = improvement_event(name, self._loop.now(), copied.start.plan, jobs, found.places)
        return self._loop.submit([event]).result(_PATIENCE_S).taken

    def _record(self, run: SearchRun) -> None:
        try:
            self._track.record_search(run)
        except StoreError as error:
            _log.error("the report of a search could not be stored", cluster=self._loop.name, why=str(error))


def trial_search(engine: Engine, settings: EngineSettings) -> SearchRun | None:
    """Run a search with these settings on ``engine``, a copy; None if there is nothing to search.

    Nothing is applied. Blocks for the duration of a search.
    """
    copied = _copy_for_search(engine, requested_search(engine.state))
    if copied is None:
        return None
    found = _search(copied, settings, 0).run()
    return SearchRun(0, copied.start.now, "asked for", copied.generation, 0, found.report)


def _search(copied: _SearchStart, settings: EngineSettings, seed: int) -> PlanSearch | ParallelSearch:
    search = copied.search
    how = SearchSettings(
        moves=None,
        seconds=search.seconds,
        seed=seed,
        most_moved=MOST_MOVED,
        parallel=settings.search_threads,
    )
    return copied.start.make_search(
        how, settings.criteria, settings.search_patience, search.newcomers, run_in_threads
    )


def _copy_for_search(engine: Engine, search: DueSearch | None) -> _SearchStart | None:
    """Copy the input of a search, between two batches; None if none is due."""
    if search is None:
        return None
    state = engine.state
    start = SearchInput(
        plan=state.plan.fork(),
        latest_promised=last_starts_on_hold(state),
        columns=state.columns.copy(),
        use=state.walltime_use.share,
        now=state.now,
    )
    return _SearchStart(search, start, tuple(state.by_slot), state.generation)
