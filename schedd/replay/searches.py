"""Searches within a replay, due as in the daemon by the simulated clock."""

from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from schedd.engine import (
    MOST_MOVED,
    DueSearch,
    Engine,
    EngineSettings,
    Outcome,
    SearchHistory,
    due_search,
    improvement_event,
    last_starts_on_hold,
    next_search,
)
from schedd.optimize import SearchEndReason, SearchInput, SearchReport, SearchSettings
from schedd.parallel_calls import run_in_threads
from schedd.plan.criteria import parse_criteria
from schedd.replay.result import SearchTotals
from schedd.wire import PlanChosen, PlanImproved

SEARCH_POLICY = "tabu"
_DAEMON = EngineSettings()


class PlanImprover(Protocol):
    """Improves the plan of a replay between its events: see ``PeriodicSearches``."""

    def record_outcome(self, outcome: Outcome) -> None:
        """Record the outcome of an engine call."""

    def next_search(self, engine: Engine) -> int | None:
        """Return the time of the next search without other events."""

    def improve(self, engine: Engine) -> PlanImproved | PlanChosen | None:
        """Return the result of a search if one is due."""

    def totals(self) -> SearchTotals:
        """Return the totals."""


@dataclass(frozen=True, slots=True)
class SearchSchedule:
    """Schedule of searches in a replay. ``search`` bounds each search by moves or by real seconds (then two
    runs differ).

    The other fields are engine settings in simulated seconds: ``every`` is ``search_every``, and so on.
    Raises ValueError.
    """

    every: int = _DAEMON.search_every
    search: SearchSettings = SearchSettings()
    patience: int = _DAEMON.search_patience
    newcomers: int = _DAEMON.search_newcomers
    pause: int = _DAEMON.search_pause

    def __post_init__(self) -> None:
        for name, least in (("every", 1), ("pause", 1), ("newcomers", 0), ("patience", 0)):
            if (value := getattr(self, name)) < least:
                raise ValueError(f"{name} {value}: at least {least} seconds")

    @classmethod
    def from_settings(cls, settings: EngineSettings, search: SearchSettings) -> Self:
        """Return the schedule of a site's settings, with each search bounded as in ``search``."""
        weighed = replace(
            search,
            weights=parse_criteria(settings.criteria),
            parallel=max(settings.search_threads, search.parallel),
        )
        return cls(
            settings.search_every,
            weighed,
            settings.search_patience,
            settings.search_newcomers,
            settings.search_pause,
        )

    @property
    def weights(self) -> dict[str, float]:
        """Weights by objective name, as in the engine's settings."""
        return {str(criterion): weight for criterion, weight in self.search.weights.items()}

    def apply_to(self, settings: EngineSettings) -> EngineSettings:
        return settings.with_changes(
            weights=self.weights,
            search_every=self.every,
            search_pause=self.pause,
            search_newcomers=self.newcomers,
            search_patience=self.patience,
        )


@dataclass(slots=True)
class PeriodicSearches:
    """Searches of one replay, with their reports."""

    search: SearchSettings
    seen: SearchHistory
    last: DueSearch | None = None  # the last search, until its result is applied
    reports: list[SearchReport] = field(default_factory=list)
    moved: int = 0  # how many jobs that result moved

    def record_outcome(self, outcome: Outcome) -> None:
        """Record the outcome of an engine call."""
        self.moved = outcome.taken.get(self._name, self.moved)

    def next_search(self, engine: Engine) -> int | None:
        """Return the time of the next search if nothing else happens; None if nothing is left to search."""
        moment = next_search(engine.state, self.seen)
        return None if moment is None else max(int(moment), engine.state.now + 1)

    def improve(self, engine: Engine) -> PlanImproved | None:
        """Return the result of a search on the engine's plan, if one is due; None otherwise."""
        state = engine.state
        self._record_applied(engine)
        search = due_search(state, self.seen, state.now)
        if search is None:
            return None
        self.seen = self.seen.after_begin(search)
        settings = replace(
            self.search, seed=self.search.seed * 1_000_003 + len(self.reports), most_moved=MOST_MOVED
        )
        start = SearchInput(
            state.plan.fork(), last_starts_on_hold(state), state.columns, state.walltime_use.share, state.now
        )
        patience = state.settings.search_patience
        found = start.make_search(
            settings, state.settings.criteria, patience, search.newcomers, run_in_threads
        ).run()
        self.reports.append(found.report)
        self.last, self.moved = search, 0
        if not found.places:
            self._record_applied(engine)
            return None
        jobs = {record.slot: record.id for record in state.records.values()}
        return improvement_event(self._name, state.now, state.plan, jobs, found.places)

    @property
    def _name(self) -> str:
        return f"search:{len(self.reports)}"

    def _record_applied(self, engine: Engine) -> None:
        """Record the moves of the last search that the engine has applied."""
        search, self.last = self.last, None
        if search is None:
            return
        moved_enough = self.reports[-1].why_ended is SearchEndReason.MOVED_ENOUGH
        unfinished = moved_enough and self.moved > 0
        self.seen = self.seen.after_end(search, engine.state.now, unfinished=unfinished)

    def totals(self) -> SearchTotals:
        reports = self.reports
        return SearchTotals(
            len(reports),
            sum(report.tried for report in reports),
            sum(report.accepted for report in reports),
            sum(report.too_late for report in reports),
            sum(report.elapsed_s for report in reports),
        )
