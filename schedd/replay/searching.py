"""Searches within a replay: as the daemon makes them, but by the simulated clock."""

from dataclasses import dataclass, field, replace

import numpy as np

from schedd.engine import Engine
from schedd.engine.improve import improvement, movable
from schedd.engine.state import EngineState
from schedd.optimize import Report, Search, SearchSettings, startable
from schedd.plan.evaluate import by_name
from schedd.plan.kernels.layout import Ints
from schedd.plan.latest import PATIENCE, latest_starts
from schedd.replay.result import Searched
from schedd.wire import Improved

__all__ = ["SEARCH_POLICY", "Searches", "Searching"]

SEARCH_POLICY = "tabu"


@dataclass(frozen=True, slots=True)
class Searching:
    """How a replay searches: after ``every`` simulated seconds in which the plan changed, and in between
    in front of whom jobs may go that came since, or that would fit into room that came back before the plan
    had it free, ``newcomers`` seconds after the last time (0: never).

    ``search`` bounds each by moves or by seconds (of real time; then two runs differ). Who has waited for
    ``patience`` seconds is moved back no more, see ``latest_starts``. This and the weights are also the
    engine's, which takes over what was found. Raises ValueError.
    """

    every: int = 300
    search: SearchSettings = SearchSettings()
    patience: int = PATIENCE
    newcomers: int = 5

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every {self.every}: at least 1 second")
        if self.newcomers < 0:
            raise ValueError(f"newcomers {self.newcomers}: at least 1 second, or 0 for never")
        if self.patience < 0:
            raise ValueError(f"patience {self.patience}: at least 0 seconds")

    @property
    def weights(self) -> dict[str, float]:
        """By the names of the criteria, as the engine's settings have them."""
        return {str(criterion): weight for criterion, weight in self.search.weights.items()}


@dataclass(slots=True)
class Searches:
    """The searches of one replay, and what they did."""

    how: Searching
    following: int
    """No search of the whole plan begins before this moment."""
    looked: int = -1
    """Who came up to this moment was tried."""
    frees: int = 0
    """Room that came back up to this number was tried."""
    seen: int = -1
    """The number of the change up to which the plan was searched."""
    reports: list[Report] = field(default_factory=list)

    def due(self, engine: Engine) -> int | None:
        """When the next search begins though nothing else happens; None where nothing is left to search."""
        state = engine.state
        slots = movable(state)
        if slots.shape[0] < 2:
            return None
        moments = [self.following] if state.change_number != self.seen else []
        if self._newcomers(state, slots).shape[0]:
            moments.append(self.looked + self.how.newcomers)
        return max(min(moments), state.now + 1) if moments else None

    def _newcomers(self, state: EngineState, slots: Ints) -> Ints:
        """Who came since the last look, and where room came back, who may start in what is free."""
        if self.how.newcomers == 0:
            return slots[:0]
        came = slots[state.columns.release[slots] > self.looked]
        if state.frees == self.frees:
            return came
        return np.union1d(came, startable(state.plan, slots, state.now))

    def improved(self, engine: Engine) -> Improved | None:
        """What a search on the engine's plan finds, if one is due; None otherwise."""
        state = engine.state
        slots = movable(state)
        whole = state.now >= self.following
        newcomers = None if whole else self._newcomers(state, slots)
        if newcomers is None:
            self.following = state.now + self.how.every
            changed, self.seen = state.change_number != self.seen, state.change_number
            if not changed:
                return None
        elif newcomers.shape[0] == 0 or state.now < self.looked + self.how.newcomers:
            return None
        self.looked, self.frees = state.now, state.frees
        if slots.shape[0] < 2:
            return None
        settings = replace(
            self.how.search,
            seed=self.how.search.seed * 1_000_003 + len(self.reports),
            weights=by_name(state.settings.weights),
        )
        patience = state.settings.search_patience
        use = state.walltime_use.share
        latest = latest_starts(state.plan, state.promise, state.columns, state.now, patience, use)
        found = Search(
            state.plan.fork(),
            state.columns,
            latest,
            state.now,
            settings,
            patience=patience,
            use=use,
            newcomers=newcomers,
        ).run()
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
