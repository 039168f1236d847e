"""Periodic search for alternative plans; the best one within the limits is applied."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import structlog

from schedd.alternatives.pareto_front import ObjectiveWeights
from schedd.alternatives.pareto_search import ParetoSettings, PymooMissing
from schedd.features.alternatives.plan_alternatives import (
    AlternativeSet,
    LivePlanChanged,
    NoSuchPlan,
    OfferedPlan,
    PlanAlternatives,
    SearchInProgress,
)
from schedd.features.alternatives.settings import ChooseSettings
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.cluster.errors import Overloaded, PlannerStopped
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.store import StoreError
from schedd.supervision import PeriodicWork

_log = structlog.get_logger(__name__)
AUTOMATIC_ACTOR: Final = "schedd"
_PERIOD_S: Final = 1.0
_VIEWING_S: Final = 900  # seconds until a user's set may be replaced: the user may still be choosing from it


class AutomaticAlternatives(PeriodicWork):
    """Automatic choice of alternatives for one cluster, in a separate thread, by the current settings."""

    def __init__(self, loop: PlanLoop, choices: PlanAlternatives) -> None:
        super().__init__(loop.supervisor, "alternatives", _PERIOD_S, cluster=loop.name)
        self._loop = loop
        self.alternatives = choices
        self._last = 0
        self._trouble = ""

    def end(self) -> None:
        """End a running search, and request the end of the thread."""
        super().end()
        self.alternatives.stop()

    def run_step(self) -> None:
        """Search and apply if it is due."""
        self.run_once()

    def run_once(self) -> bool:
        """Search and apply if it is due and this daemon leads; return whether a plan was applied."""
        loop = self._loop
        choosing = loop.published.settings.site.part(ChooseSettings)
        now, latest = loop.now(), self.alternatives.latest
        looked_at = (
            latest is not None
            and latest.by != AUTOMATIC_ACTOR
            and latest.as_of <= now < latest.as_of + _VIEWING_S
        )
        searched = self._last <= now < self._last + choosing.every  # the clock may have been set back
        if not choosing.every or searched or looked_at or loop.published.stale:
            return False
        self._last = now
        try:
            loop.check_leads()
            done = self._search_and_apply(choosing)
        except (SearchInProgress, LivePlanChanged, NoSuchPlan):
            return False  # next time
        except (PymooMissing, PlannerStopped, Overloaded, TimeoutError, StoreError, ValueError) as error:
            if self._trouble != repr(error):
                self._trouble = repr(error)
                _log.warning("no plan was chosen", cluster=loop.name, why=str(error))
            return False
        self._trouble = ""
        return done

    def _search_and_apply(self, choosing: ChooseSettings) -> bool:
        how = ParetoSettings(seconds=choosing.seconds)
        found = self.alternatives.search(how, None, AUTOMATIC_ACTOR)
        best = best_acceptable_plan(found, choosing.limits, choosing.gain)
        if best is None or self._stopping.is_set():
            return False
        count = self.alternatives.apply(found.number, best.number, AUTOMATIC_ACTOR, choosing.tolerance).moved
        detail = f"plan {best.number} of set {found.number}: {count} jobs moved"
        self._loop.audit(AUTOMATIC_ACTOR, "choose", detail)
        return True


def cluster_service(loop: PlanLoop, _: DaemonStore | None) -> AutomaticAlternatives:
    """What searches for alternatives to the plan of a cluster."""
    return AutomaticAlternatives(loop, PlanAlternatives(loop))


def best_acceptable_plan(
    found: AlternativeSet, limits: Mapping[str, float], gain: float
) -> OfferedPlan | None:
    """Return the plan with the best weighted sum that keeps the ``limits``; None if there is none.

    Beyond a limit, a plan may not be worse than the live plan. The weighted sum must be better than the live
    plan's by at least the share ``gain``.
    """
    names = list(found.weights)
    balance = ObjectiveWeights(found.weights, found.live)
    live = balance.cost(_vector(found.live, names))

    def keeps_limits(plan: OfferedPlan) -> bool:
        return all(
            plan.objectives[name] <= max(limit, found.live[name])
            for name, limit in limits.items()
            if name in plan.objectives
        )

    costs = [
        (balance.cost(_vector(one.objectives, names)), one.number, one)
        for one in found.plans
        if keeps_limits(one)
    ]
    best = min(costs, default=None, key=lambda one: one[:2])
    return best[2] if best is not None and best[0] <= live * (1 - gain) else None


def _vector(values: Mapping[str, float], names: list[str]) -> npt.NDArray[np.float64]:
    return np.array([values[name] for name in names], np.float64)
