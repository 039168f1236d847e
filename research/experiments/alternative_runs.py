"""Periodic searches for alternatives within a replay; the best one by the weights is applied."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from schedd.alternatives.chromosomes import ChromosomeDecoder
from schedd.alternatives.objective_weights import Objective
from schedd.alternatives.objectives import ObjectiveInput, measure_objectives
from schedd.alternatives.pareto_front import ObjectiveWeights
from schedd.alternatives.pareto_search import ParetoSearch, ParetoSettings
from schedd.alternatives.thrift_tiers import set_thrift_tiers
from schedd.engine import Engine, EngineState, Outcome, last_starts, movable_slots, place_facts
from schedd.model import FOREVER
from schedd.plan.latest_starts import latest_starts
from schedd.plan.plan import Plan
from schedd.replay.result import SearchTotals
from schedd.wire import PlanChosen

Floats = npt.NDArray[np.float64]

_LEAST: Final = 4  # minimum waiting jobs for a search


def make_alternative_search(
    state: EngineState, facts: ObjectiveInput, weights: Mapping[Objective, float], how: ParetoSettings
) -> tuple[ParetoSearch, Plan, Floats]:
    """Return a search on a fork of the engine's plan, the fork, and the objective values of the live plan."""
    plan = state.plan.fork()
    plan.limit_work()
    names = tuple(weights)

    def values(one: Plan) -> Floats:
        found = {valued.objective: valued.value for valued in measure_objectives(one, facts, state.now)}
        return np.array([found[name] for name in names], np.float64)

    live = values(plan)
    slots = plan.planned()
    slots = slots[plan.starts(slots) > state.now]
    patience, use = state.settings.search_patience, state.walltime_use.share
    latest = latest_starts(plan, last_starts(state), state.columns, state.now, patience, use)
    set_thrift_tiers(plan, facts.economics, weights, state.now)
    decoder = ChromosomeDecoder(plan, slots, latest, state.now)
    plain = {name.value: weight for name, weight in weights.items()}
    balance = ObjectiveWeights(plain, dict(zip(plain, live.tolist(), strict=True)))
    columns = state.columns
    orders = [plan.jobs.durations[slots].astype(np.float64)]
    if (columns.due[slots] < FOREVER).any():
        orders.append(columns.due[slots].astype(np.float64))
    return ParetoSearch(decoder, values, balance, how, orders), plan, live


@dataclass(slots=True)
class AlternativeRuns:
    """Searches for alternatives at fixed simulated intervals with a fixed number of evaluations."""

    weights: Mapping[Objective, float]
    facts: Callable[[EngineState], ObjectiveInput]
    every: int
    evaluations: int
    seed: int = 0
    _last: int = -FOREVER
    _number: int = 0
    _moved: int = 0
    chosen: list[tuple[int, int]] = field(default_factory=list)
    """Time of each applied plan and number of moved jobs."""

    def record_outcome(self, outcome: Outcome) -> None:
        """Record the outcome of an engine call."""
        self._moved += sum(
            count for event, count in outcome.taken.items() if event == f"choice:{self._number}"
        )

    def next_search(self, engine: Engine) -> int | None:
        """Return the time of the next search without other events."""
        if movable_slots(engine.state).shape[0] < _LEAST:
            return None
        return max(self._last + self.every, engine.state.now + 1)

    def improve(self, engine: Engine) -> PlanChosen | None:
        """Return the best plan if a search is due and found a better one than the live plan."""
        state = engine.state
        if state.now < self._last + self.every or movable_slots(state).shape[0] < _LEAST:
            return None
        self._last = state.now
        how = ParetoSettings(seconds=None, evaluations=self.evaluations, seed=self.seed + self._number)
        run, plan, _ = make_alternative_search(state, self.facts(state), self.weights, how)
        found = run.run()
        if not found.plans:
            return None
        self._number += 1
        best = found.plans[0]
        jobs = {record.slot: record.id for record in state.records.values()}
        self.chosen.append((state.now, len(best.places)))
        places = place_facts(plan, jobs, best.places)
        return PlanChosen(id=f"choice:{self._number}", time=state.now, places=places, by="schedd")

    def totals(self) -> SearchTotals:
        """Return the numbers of searches and moves."""
        return SearchTotals(searches=self._number, moves_accepted=self._moved)
