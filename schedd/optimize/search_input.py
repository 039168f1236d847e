"""Input of a search: a fork of the plan taken between two batches, with the promises of that moment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from schedd.optimize.search import PlanSearch
from schedd.optimize.settings import SearchSettings
from schedd.plan.columns import Ints
from schedd.plan.evaluate import ScoringColumns, parse_criteria
from schedd.plan.latest_starts import latest_starts
from schedd.plan.plan import Plan

__all__ = ["SearchInput"]


@dataclass(frozen=True, slots=True)
class SearchInput:
    """``plan``: a fork owned by the search. ``latest_promised``: latest start by slot that keeps the
    promises of the job and of its dependents. ``use``: used share of the walltimes, see
    ``as_expected``.
    """

    plan: Plan
    latest_promised: Ints
    columns: ScoringColumns
    use: float
    now: int

    def make_search(
        self,
        how: SearchSettings,
        weights: Mapping[str, float],
        patience: int,
        newcomers: Ints | None = None,
        on_move: Callable[[Plan], None] | None = None,
    ) -> PlanSearch:
        """Return a search that keeps all promises. ``weights`` by criterion name; ``patience``: see
        ``latest_starts``; ``newcomers``, ``on_move``: see ``PlanSearch``.
        """
        return PlanSearch(
            self.plan,
            self.columns,
            latest_starts(self.plan, self.latest_promised, self.columns, self.now, patience, self.use),
            self.now,
            replace(how, weights=parse_criteria(weights)),
            patience=patience,
            use=self.use,
            newcomers=newcomers,
            on_move=on_move,
        )
