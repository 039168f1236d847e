"""Input of a search: a fork of the plan taken between two batches, with the promises of that moment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from schedd.optimize.parallel_search import ParallelSearch, RunTogether, run_sequentially
from schedd.optimize.search import PlanSearch
from schedd.optimize.settings import SearchSettings
from schedd.plan.columns import Ints
from schedd.plan.criteria import parse_criteria
from schedd.plan.evaluate import ScoringColumns
from schedd.plan.latest_starts import latest_starts
from schedd.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class SearchInput:
    """``plan``: a fork owned by the search. ``latest_promised``: latest start by slot that keeps the
    promises of the job and of its dependents. ``use``: used share of the walltimes, see
    ``scale_to_expected``.
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
        run_together: RunTogether = run_sequentially,
    ) -> PlanSearch | ParallelSearch:
        """Return a search that keeps all promises; several in parallel if ``how`` has it, but not of
        ``newcomers``, which takes little time. ``run_together`` runs the parallel ones.

        ``weights`` by criterion name; ``patience``: see ``latest_starts``; ``newcomers``: see ``PlanSearch``.
        """
        first = self.make_single_search(how, weights, patience, newcomers)
        if how.parallel == 1 or newcomers is not None:
            return first
        return ParallelSearch(first, run_together)

    def make_single_search(
        self,
        how: SearchSettings,
        weights: Mapping[str, float],
        patience: int,
        newcomers: Ints | None = None,
        on_move: Callable[[Plan], None] | None = None,
    ) -> PlanSearch:
        """Return one search, as ``make_search`` does; ``on_move``: see ``PlanSearch``."""
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
