"""What a search begins with: a copy of the plan between two batches, and what was promised then."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from schedd.optimize.search import Search
from schedd.optimize.settings import SearchSettings
from schedd.plan.columns import Ints
from schedd.plan.evaluate import JobColumns, by_name
from schedd.plan.latest import latest_starts
from schedd.plan.plan import Plan

__all__ = ["Start"]


@dataclass(frozen=True, slots=True)
class Start:
    """``plan`` is a fork that is the search's own. ``promised``: the last start allowed, by slot, by
    promises and by others that wait for the job. ``use``: what jobs use of their walltimes, see
    ``as_expected``.
    """

    plan: Plan
    promised: Ints
    columns: JobColumns
    use: float
    now: int

    def search(
        self,
        how: SearchSettings,
        weights: Mapping[str, float],
        patience: int,
        newcomers: Ints | None = None,
        seen: Callable[[Plan], None] | None = None,
    ) -> Search:
        """A search that keeps promises. ``weights`` by the names of criteria; ``patience``: see
        ``latest_starts``; ``newcomers``, ``seen``: see ``Search``.
        """
        return Search(
            self.plan,
            self.columns,
            latest_starts(self.plan, self.promised, self.columns, self.now, patience, self.use),
            self.now,
            replace(how, weights=by_name(weights)),
            patience=patience,
            use=self.use,
            newcomers=newcomers,
            seen=seen,
        )
