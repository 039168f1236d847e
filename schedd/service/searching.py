"""Looking for better plans while there is time: one search at a time, on a copy of the plan."""

import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

import numpy as np
import structlog

from schedd.engine import Engine
from schedd.engine.improve import improvement, movable
from schedd.engine.records import Cause, JobRecord
from schedd.engine.settings import EngineSettings
from schedd.optimize import Improvement, Search, SearchSettings, WhyEnded, startable
from schedd.plan.evaluate import JobColumns, by_name
from schedd.plan.kernels.layout import Ints
from schedd.plan.latest import latest_starts
from schedd.plan.plan import Plan
from schedd.service.errors import Overloaded, PlannerStopped
from schedd.service.loop import PlanLoop
from schedd.service.track import SearchRun, Track, Why
from schedd.store import StoreError

__all__ = ["MOST_MOVED", "Searcher", "trial"]

_log = structlog.get_logger(__name__)
_LOOK_S = 1.0
_PATIENCE_S = 60.0
_SHARE = 0.1
"""Of the time of a search, for trying newcomers: a storm of arrivals is to leave processors free."""
_ALONE: Final[tuple[Why, ...]] = ("jobs came", "jobs fit")
"""Nothing else is tried than these, in front of others."""
MOST_MOVED = 500
"""A search ends when it has moved so many jobs: taking over more would hold up events for too long."""


@dataclass(frozen=True, slots=True)
class _Start:
    """What a search begins with: copies of its own, made between two batches."""

    plan: Plan
    promised: Ints
    columns: JobColumns
    use: float
    """What jobs use of their walltimes, see ``as_expected``."""
    records: tuple[JobRecord | None, ...]
    """By slot."""
    movable: int
    """How many jobs a search could move."""
    now: int
    generation: int
    counts: tuple[int, int]
    newcomers: Ints
    """Slots of jobs that are worth trying in front of others, see ``_newcomers``."""


class Searcher:
    """The searches of one cluster, in a thread of their own. Public methods may be called from any thread."""

    def __init__(self, loop: PlanLoop, track: Track) -> None:
        self._loop = loop
        self._track = track
        self._turn = threading.Condition()
        self._asked: deque[Future[SearchRun | None]] = deque()
        self._stopping = False
        self._search: Search | None = None
        self._number = 0
        self._epoch = time.time_ns()
        self._ended = self._tried = time.monotonic()
        self._changes = 0
        self._newest = 0
        self._frees = self._tried_frees = 0
        self._go_on = False
        self._thread = threading.Thread(target=self._work, name=f"search-{loop.name}", daemon=True)

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
        if self._thread.ident is not None:
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
                run = self._run("asked for") if asked else self._when_due()
            except (PlannerStopped, Overloaded, TimeoutError, StoreError) as error:
                for answer in asked:
                    answer.set_exception(PlannerStopped(str(error) or "the planner is busy"))
            except Exception as error:
                _log.exception("a search failed", cluster=self._loop.name)
                for answer in asked:
                    answer.set_exception(error)
            else:
                for answer in asked:
                    answer.set_result(run)

    def _when_due(self) -> SearchRun | None:
        loop = self._loop
        settings = loop.published.settings
        if settings.search_every == 0 or loop.standing_by:
            return None
        waited = time.monotonic() - self._ended
        paused = waited >= min(settings.search_pause, settings.search_every)
        tries = 0 < settings.search_newcomers <= time.monotonic() - self._tried
        if not paused and not tries:
            return None
        if paused and self._go_on:
            return self._run("not at its end")
        since = (self._newest, self._tried_frees)
        (changes, frees), came, fit = loop.at_rest(
            lambda engine: (_counts(engine), *_newcomers(engine, *since))
        ).result(_PATIENCE_S)
        if paused and changes != self._changes and waited >= settings.search_every:
            return self._run("periodic")
        if paused and changes != self._changes and frees != self._frees:
            return self._run("room was freed")
        if not tries:
            return None
        if came.shape[0]:
            return self._run("jobs came")
        return self._run("jobs fit") if fit.shape[0] else None

    def _run(self, why: Why) -> SearchRun | None:
        try:
            return self._searched(why)
        finally:  # whatever came of it: where the planner is too busy, the next one waits, too
            self._tried = time.monotonic()
            if why not in _ALONE:
                self._ended = self._tried

    def _searched(self, why: Why) -> SearchRun | None:
        loop = self._loop
        since, alone = (self._newest, self._tried_frees), why in _ALONE
        start = loop.at_rest(lambda engine: _start(engine, *since)).result(_PATIENCE_S)
        self._newest, self._tried_frees = start.counts
        if not alone:
            self._changes, self._frees = start.counts
            self._go_on = False
        if start.movable < 2:
            return None
        self._number = max(self._number, self._track.last_search()) + 1
        newcomers = start.newcomers if alone else None
        search = _search(start, loop.published.settings, self._number, newcomers)
        with self._turn:
            self._search = search
            if self._stopping:
                return None
        search.search()
        with self._turn:
            self._search = None
        found = search.improvement()
        taken, changes = self._take_over(start, found) if found.places and not self._stopping else (0, None)
        report = found.report
        run = SearchRun(self._number, start.now, why, start.generation, taken, report)
        if not alone:
            self._changes = self._changes if changes is None else changes
            self._go_on = taken > 0 and report.why_ended is WhyEnded.MOVED_ENOUGH
        elif taken == 0:  # there would be one to tell of for each job that has to wait
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
        )
        return run

    def _take_over(self, start: _Start, found: Improvement) -> tuple[int, int | None]:
        """How many jobs of the live plan what was found moved, and the number of the next change; None where
        something else changed since the copy was made, which no search has seen.
        """
        name = f"search:{self._epoch}:{self._number}"
        records = ((place.slot, start.records[place.slot]) for place in found.places)
        jobs = {slot: record.id for slot, record in records if record is not None}
        event = improvement(name, self._loop.now(), start.plan, jobs, found.places)
        self._loop.submit([event]).result(_PATIENCE_S)
        since = start.counts[0]
        return self._loop.at_rest(lambda engine: _taken(engine, name, since)).result(_PATIENCE_S)

    def _note(self, run: SearchRun) -> None:
        try:
            self._track.note_search(run)
        except StoreError as error:
            _log.error("the report of a search was not kept", cluster=self._loop.name, why=str(error))


def trial(engine: Engine, settings: EngineSettings) -> SearchRun | None:
    """What a search under these settings would find in ``engine``, a copy; None where there is nothing to do.

    Nothing is taken over. To be called in a thread that may wait: it takes as long as a search.
    """
    start = _start(engine, *_counts(engine))
    if start.movable < 2:
        return None
    found = _search(start, settings, 0).run()
    return SearchRun(0, start.now, "asked for", start.generation, 0, found.report)


def _search(start: _Start, settings: EngineSettings, seed: int, newcomers: Ints | None = None) -> Search:
    patience = settings.search_patience
    latest = latest_starts(start.plan, start.promised, start.columns, start.now, patience, start.use)
    how = SearchSettings(
        weights=by_name(settings.criteria),
        moves=None,
        seconds=settings.search_seconds * (1.0 if newcomers is None else _SHARE),
        seed=seed,
        most_moved=MOST_MOVED,
    )
    return Search(
        start.plan,
        start.columns,
        latest,
        start.now,
        how,
        patience=patience,
        use=start.use,
        newcomers=newcomers,
    )


def _counts(engine: Engine) -> tuple[int, int]:
    return engine.state.change_number, engine.state.frees


def _newcomers(engine: Engine, newest: int, frees: int) -> tuple[Ints, Ints]:
    """The slots of jobs that were planned for the first time, or again, since the change of number
    ``newest``; and of those that may start in what is free, if room came back since there were so many
    ``frees``.
    """
    state = engine.state
    slots = []
    for change in reversed(state.changes):
        if change.number < newest:
            break
        if change.cause in (Cause.ARRIVED, Cause.RELEASED):
            slots.append(change.slots[(change.old < 0) & (change.new > state.now)])
    none = np.empty(0, np.int64)
    fit = startable(state.plan, movable(state), state.now) if state.frees != frees else none
    return np.unique(np.concatenate(slots)) if slots else none, fit


def _start(engine: Engine, newest: int, frees: int) -> _Start:
    state = engine.state
    return _Start(
        plan=state.plan.fork(),
        promised=state.promise.copy(),
        columns=state.columns.copy(),
        use=state.walltime_use.share,
        records=tuple(state.by_slot),
        movable=movable(state).shape[0] if state.policy is None else 0,
        now=state.now,
        generation=state.generation,
        counts=_counts(engine),
        newcomers=np.union1d(*_newcomers(engine, newest, frees)),
    )


def _taken(engine: Engine, event: str, since: int) -> tuple[int, int | None]:
    """How many jobs ``event`` moved, and the number of the next change; None if others follow ``since``."""
    later = list(takewhile(lambda change: change.number >= since, reversed(engine.state.changes)))
    moved = next((c for c in later if c.event == event and c.cause == Cause.IMPROVED), None)
    alone = all(change.event == event for change in later)
    number = engine.state.change_number if alone else None
    return (moved.slots.shape[0] if moved is not None else 0), number
