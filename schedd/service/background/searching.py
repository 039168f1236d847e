"""Looking for better plans while there is time: one search at a time, on a copy of the plan."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import structlog

from schedd.engine import Engine
from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.settings import EngineSettings
from schedd.engine.facts.state import EngineState
from schedd.engine.improve import improvement
from schedd.engine.place.chains import last_starts
from schedd.engine.searching import MOST_MOVED, Due, SearchHistory, asked_for, due
from schedd.optimize import Improvement, PlanSearch, SearchEndReason, SearchInput, SearchSettings
from schedd.service.background.track import SearchRun, Track
from schedd.service.cluster.errors import Overloaded, PlannerStopped
from schedd.service.cluster.loop import PlanLoop
from schedd.service.questions.objectives import ObjectiveChange, measured, moved
from schedd.store import StoreError

__all__ = ["Searcher", "trial"]

_log = structlog.get_logger(__name__)
_LOOK_S = 1.0
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class _Copy:
    """What a search begins with, copied between two batches."""

    search: Due
    start: SearchInput
    records: tuple[JobRecord | None, ...]
    """By slot."""
    generation: int


class Searcher:
    """The searches of one cluster, in a thread of their own. Public methods may be called from any thread."""

    def __init__(self, loop: PlanLoop, track: Track) -> None:
        self._loop = loop
        self._track = track
        self._turn = threading.Condition()
        self._asked: deque[Future[SearchRun | None]] = deque()
        self._stopping = False
        self._search: PlanSearch | None = None
        self._number = 0
        self._epoch = time.time_ns()
        self._seen = SearchHistory(whole=time.monotonic(), tried=time.monotonic())
        self._thread = loop.supervisor.thread("searches", self._work, cluster=loop.name)

    def start(self) -> None:
        """Begin to look for moments at which a search may gain something."""
        self._thread.start()

    def stop(self) -> None:
        """End at once; a search under way is given up."""
        with self._turn:
            self._stopping = True
            if self._search is not None:
                self._search.stop()
            self._turn.notify()
        self._thread.join(10)
        while self._asked:
            self._asked.popleft().set_exception(PlannerStopped("the daemon is shutting down"))

    def ask(self) -> "Future[SearchRun | None]":
        """Search now; answers with the run, or None where there was nothing to do. Raises PlannerStopped."""
        answer: Future[SearchRun | None] = Future()
        with self._turn:
            if self._stopping:
                raise PlannerStopped("the daemon is shutting down")
            self._asked.append(answer)
            self._turn.notify()
        return answer

    # ---- the thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._turn:
                if not self._asked and not self._stopping:
                    self._turn.wait(_LOOK_S)
                if self._stopping:
                    return
                asked = list(self._asked)
                self._asked.clear()
            try:
                run = self._run(asked_for) if asked else self._when_due()
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

    def _when_due(self) -> SearchRun | None:
        loop, now = self._loop, time.monotonic()
        earliest = self._seen.earliest(loop.published.settings)
        if earliest is None or now < earliest or loop.standing_by:
            return None
        return self._run(partial(due, seen=self._seen, now=now))

    def _run(self, which: Callable[[EngineState], Due | None]) -> SearchRun | None:
        loop = self._loop
        copied = loop.at_rest(lambda engine: _copy(engine, which(engine.state))).result(_PATIENCE_S)
        if copied is None:
            return None
        search = copied.search
        self._seen = self._seen.begun(search)
        unfinished = False
        try:
            self._number = max(self._number, self._track.last_search()) + 1
            found = self._searched(copied)
            if found is None:
                return None
            taken = 0
            changes: tuple[ObjectiveChange, ...] = ()
            if found.places and not self._stopping:
                taken, changes = self._weighed(copied, found)
            unfinished = taken > 0 and found.report.why_ended is SearchEndReason.MOVED_ENOUGH
        finally:  # whatever came of it: where the planner is too busy, the next one waits, too
            self._seen = self._seen.ended(search, time.monotonic(), unfinished=unfinished)
        report, why = found.report, search.why
        run = SearchRun(self._number, copied.start.now, why, copied.generation, taken, report, changes)
        if (
            search.newcomers is not None and taken == 0
        ):  # there would be one to tell of for each job that has to wait
            return run
        self._note(run)
        loop.meters.searched(taken)
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

    def _searched(self, copied: _Copy) -> Improvement | None:
        """What a search finds; None where the daemon ends before it began."""
        search = _search(copied, self._loop.published.settings, self._number)
        with self._turn:
            self._search = search
            if self._stopping:
                return None
        search.search()
        with self._turn:
            self._search = None
        return search.improvement()

    def _weighed(self, copied: _Copy, found: Improvement) -> tuple[int, tuple[ObjectiveChange, ...]]:
        """Take over what was found; what the live plan was worth before and after, where jobs moved."""
        loop = self._loop
        before = measured(loop.fork().result(_PATIENCE_S))
        taken = self._take_over(copied, found)
        if not taken:
            return 0, ()
        after = measured(loop.fork().result(_PATIENCE_S))
        loop.meters.valued(after)
        return taken, moved(before, after)

    def _take_over(self, copied: _Copy, found: Improvement) -> int:
        """How many jobs of the live plan what was found moved."""
        name = f"search:{self._epoch}:{self._number}"
        records = ((place.slot, copied.records[place.slot]) for place in found.places)
        jobs = {slot: record.id for slot, record in records if record is not None}
        event = improvement(name, self._loop.now(), copied.start.plan, jobs, found.places)
        return self._loop.submit([event]).result(_PATIENCE_S).taken

    def _note(self, run: SearchRun) -> None:
        try:
            self._track.note_search(run)
        except StoreError as error:
            _log.error("the report of a search was not kept", cluster=self._loop.name, why=str(error))


def trial(engine: Engine, settings: EngineSettings) -> SearchRun | None:
    """What a search under these settings would find in ``engine``, a copy; None where there is nothing to do.

    Nothing is taken over. To be called in a thread that may wait: it takes as long as a search.
    """
    copied = _copy(engine, asked_for(engine.state))
    if copied is None:
        return None
    found = _search(copied, settings, 0).run()
    return SearchRun(0, copied.start.now, "asked for", copied.generation, 0, found.report)


def _search(copied: _Copy, settings: EngineSettings, seed: int) -> PlanSearch:
    search = copied.search
    how = SearchSettings(moves=None, seconds=search.seconds, seed=seed, most_moved=MOST_MOVED)
    return copied.start.make_search(how, settings.criteria, settings.search_patience, search.newcomers)


def _copy(engine: Engine, search: Due | None) -> _Copy | None:
    """Called between two batches; None where no search is due."""
    if search is None:
        return None
    state = engine.state
    start = SearchInput(
        plan=state.plan.fork(),
        latest_promised=last_starts(state),
        columns=state.columns.copy(),
        use=state.walltime_use.share,
        now=state.now,
    )
    return _Copy(search, start, tuple(state.by_slot), state.generation)
