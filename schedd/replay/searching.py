"""Searches within a replay: as the daemon makes them, but by the simulated clock."""

from dataclasses import dataclass, field, replace

from schedd.engine import Engine
from schedd.engine.improve import improvement, movable
from schedd.optimize import Report, Search, SearchSettings
from schedd.plan.evaluate import by_name
from schedd.plan.latest import latest_starts
from schedd.wire import Improved

__all__ = ["NO_PROMISE", "SEARCH_POLICY", "Searches", "Searching"]

SEARCH_POLICY = "tabu"
NO_PROMISE = 1 << 40
"""A slack that no wait reaches, in seconds."""


@dataclass(frozen=True, slots=True)
class Searching:
    """How a replay searches: after ``every`` simulated seconds in which the plan changed.

    ``moves`` or ``seconds`` (of real time; then two runs differ) bound each search. Raises ValueError.
    """

    every: int = 300
    moves: int | None = 200
    seconds: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every {self.every}: at least 1 second")
        self.settings(self.seed)

    def settings(self, seed: int) -> SearchSettings:
        """Those of one search."""
        return SearchSettings(moves=self.moves, seconds=self.seconds, seed=seed)


@dataclass(slots=True)
class Searches:
    """The searches of one replay, and what they did."""

    how: Searching
    following: int
    """No search begins before this moment."""
    seen: int = -1
    """The number of the change up to which the plan was searched."""
    reports: list[Report] = field(default_factory=list)

    def improved(self, engine: Engine) -> Improved | None:
        """What a search on the engine's plan finds, if one is due; None otherwise."""
        state = engine.state
        if state.now < self.following:
            return None
        self.following = state.now + self.how.every
        if state.change_number == self.seen:
            return None
        self.seen = state.change_number
        if movable(state).shape[0] < 2:
            return None
        settings = replace(
            self.how.settings(self.how.seed * 1_000_003 + len(self.reports)),
            weights=by_name(state.settings.weights),
        )
        latest = latest_starts(state.plan, state.promise, state.columns)
        found = Search(state.plan.fork(), state.columns, latest, state.now, settings).run()
        self.reports.append(found.report)
        if not found.places:
            return None
        jobs = {record.slot: record.id for record in state.records.values()}
        return improvement(f"search:{len(self.reports)}", state.now, state.plan, jobs, found.places)
