"""Searches within a replay: as the daemon makes them, but by the simulated clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from schedd.engine import Engine
from schedd.engine.improve import improvement, movable
from schedd.optimize import Report, Search, SearchSettings
from schedd.plan.evaluate import by_name
from schedd.plan.latest import PATIENCE, latest_starts
from schedd.wire import Improved

__all__ = ["SEARCH_POLICY", "Searched", "Searches", "Searching"]

SEARCH_POLICY = "tabu"


@dataclass(frozen=True, slots=True)
class Searching:
    """How a replay searches: after ``every`` simulated seconds in which the plan changed.

    ``search`` bounds each by moves or by seconds (of real time; then two runs differ). Who has waited for
    ``patience`` seconds is moved back no more, see ``latest_starts``. This and the weights are also the
    engine's, which takes over what was found. Raises ValueError.
    """

    every: int = 300
    search: SearchSettings = SearchSettings()
    patience: int = PATIENCE

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every {self.every}: at least 1 second")
        if self.patience < 0:
            raise ValueError(f"patience {self.patience}: at least 0 seconds")

    @property
    def weights(self) -> dict[str, float]:
        """By the names of the criteria, as the engine's settings have them."""
        return {str(criterion): weight for criterion, weight in self.search.weights.items()}


@dataclass(frozen=True, slots=True)
class Searched:
    """What all searches of a replay did: how many there were, their moves, and the seconds they took."""

    searches: int = 0
    moves_tried: int = 0
    moves_accepted: int = 0
    moves_too_late: int = 0
    search_s: float = 0.0

    def counts(self) -> Mapping[str, Any]:
        """All but the seconds, which are this computer's."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "search_s"}


@dataclass(slots=True)
class Searches:
    """The searches of one replay, and what they did."""

    how: Searching
    following: int
    """No search begins before this moment."""
    seen: int = -1
    """The number of the change up to which the plan was searched."""
    reports: list[Report] = field(default_factory=list)

    def due(self, engine: Engine) -> int | None:
        """When the next search begins though nothing else happens; None where nothing is left to search."""
        state = engine.state
        if state.change_number == self.seen or movable(state).shape[0] < 2:
            return None
        return max(self.following, state.now + 1)

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
            self.how.search,
            seed=self.how.search.seed * 1_000_003 + len(self.reports),
            weights=by_name(state.settings.weights),
        )
        patience = state.settings.search_patience
        latest = latest_starts(state.plan, state.promise, state.columns, state.now, patience)
        found = Search(state.plan.fork(), state.columns, latest, state.now, settings).run()
        self.reports.append(found.report)
        if not found.places:
            return None
        jobs = {record.slot: record.id for record in state.records.values()}
        return improvement(f"search:{len(self.reports)}", state.now, state.plan, jobs, found.places)

    def done(self) -> Searched:
        """What they did up to now."""
        reports = self.reports
        return Searched(
            len(reports),
            sum(report.tried for report in reports),
            sum(report.accepted for report in reports),
            sum(report.too_late for report in reports),
            sum(report.elapsed_s for report in reports),
        )
