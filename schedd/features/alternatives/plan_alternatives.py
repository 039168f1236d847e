"""Alternative plans of one cluster: searched on a fork, kept for inspection, and applied."""

import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import structlog

from schedd.alternatives.chromosomes import ChromosomeDecoder
from schedd.alternatives.objective_weights import Objective, parse_weights
from schedd.alternatives.objectives import ObjectiveInput, measure_objectives
from schedd.alternatives.pareto_front import ObjectiveWeights
from schedd.alternatives.pareto_search import ParetoSearch, ParetoSettings
from schedd.alternatives.plan_archive import PlanArchive
from schedd.alternatives.thrift_tiers import set_thrift_tiers
from schedd.engine import JobRecord, Phase, PlanSnapshot, find_allocation, place_facts
from schedd.engine.place.dependencies import last_starts
from schedd.model import FOREVER
from schedd.optimize import PlanSearch, SearchInput, SearchSettings
from schedd.plan.columns import PLANNED, Ints
from schedd.plan.criteria import parse_criteria
from schedd.plan.evaluate import CriterionWeights
from schedd.plan.latest_starts import latest_starts
from schedd.plan.placements import Allocation, free_at
from schedd.plan.plan import Plan
from schedd.plan.rebase import rebase
from schedd.policy.site import Placing
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.objectives import (
    ObjectiveChange,
    measure_fork,
    objective_changes,
    objective_input,
)
from schedd.wire import PlaceFacts, PlanChosen

_log = structlog.get_logger(__name__)
_PATIENCE_S: Final = 60.0
_TABU: Final = 0.25  # share of the time for a first search by the site's criteria; its plan seeds the others
_ARCHIVE: Final = 0.25  # share of that search's time for archiving intermediate plans
_TABU_MOVES: Final = 200  # maximum number of its moves, if the run has no time limit
_DEFAULT: Final = (Objective.WAIT, Objective.MAKESPAN, Objective.ENERGY, Objective.COST)
_MOVED_S: Final = 60  # smaller differences of a start do not count as moved


class SearchInProgress(RuntimeError):
    """A search for alternatives is already running."""


class NoSuchPlan(LookupError):
    """There is no stored plan of this set and number."""


class LivePlanChanged(RuntimeError):
    """The live plan has changed too much since the alternatives were found."""


@dataclass(frozen=True, slots=True)
class OfferedMove:
    """A job that an alternative plan moves."""

    job: str
    owner: str
    before: int
    """Its planned start in the live plan at that time."""
    after: int
    nodes: tuple[str, ...]
    promised: int | None
    """Promised start, which is kept."""


@dataclass(frozen=True, slots=True)
class DroppedMove:
    """A move of an alternative plan that was not made, and the reason."""

    job: str
    why: str


class AppliedAlternative(NamedTuple):
    """Result of applying a plan: the number of moved jobs, and the changes of the objectives."""

    moved: int
    objectives: tuple[ObjectiveChange, ...]
    dropped: tuple[DroppedMove, ...]


@dataclass(frozen=True, slots=True)
class OfferedPlan:
    """An alternative to the live plan, with its value by objective in ``objectives``.

    The plans of a set are numbered from 1, best weighted sum first.
    """

    number: int
    objectives: Mapping[str, float]
    moves: tuple[OfferedMove, ...]


@dataclass(frozen=True, slots=True)
class AlternativeSet:
    """Result of one search; the latest is kept. ``weights`` and ``units`` by objective.

    ``live`` has the values of the live plan at ``as_of``.
    """

    number: int
    by: str
    as_of: int
    generation: int
    seed: int
    weights: Mapping[str, float]
    units: Mapping[str, str]
    live: Mapping[str, float]
    plans: tuple[OfferedPlan, ...]
    jobs: int
    """Number of movable jobs."""
    tried: int
    homeless: int
    """Rejected plans, because some job had no placement in time."""
    worse: int
    """Plans of the Pareto front that were left out, because their weighted sum is worse than the
    live plan's."""
    stopped: bool
    seconds: float
    hypervolume: float
    """Share of the box up to 1.2 times the live plan's values that the set dominates; 1 is ideal."""


@dataclass(frozen=True, slots=True)
class _StoredSet:
    """A set with the data for applying its plans."""

    found: AlternativeSet
    places: tuple[tuple[PlaceFacts, ...], ...]
    starts: Mapping[str, int]  # planned starts of all movable jobs at that time


class PlanAlternatives:
    """The alternatives of one cluster. Any thread may call."""

    def __init__(self, loop: PlanLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._running: ParetoSearch | PlanSearch | None = None
        self._stopping = False
        self._stored: _StoredSet | None = None
        self._number = 0

    @property
    def latest(self) -> AlternativeSet | None:
        """The latest set; None before the first."""
        return self._stored.found if self._stored is not None else None

    def stop(self) -> bool:
        """End the running search at once and keep its results; return whether there was one."""
        running, self._stopping = self._running, True
        if running is not None:
            running.stop()
        return self._lock.locked()

    def search(self, how: ParetoSettings, weights: Mapping[str, float] | None, by: str) -> AlternativeSet:
        """Search for alternatives to the live plan, which stays unchanged.

        ``weights`` by objective replace the site's. Raises SearchInProgress, ValueError for invalid weights
        or unknown objectives, PlannerStopped, TimeoutError and PymooMissing.
        """
        if not self._lock.acquire(blocking=False):
            raise SearchInProgress("a search for alternative plans is running already")
        try:
            self._stopping = False
            return self._search(how, weights, by)
        finally:
            self._running = None
            self._lock.release()

    def _search(self, how: ParetoSettings, wanted: Mapping[str, float] | None, by: str) -> AlternativeSet:
        loop = self._loop
        fork = loop.fork().result(_PATIENCE_S)
        published, now = fork.published, fork.as_of
        bound = loop.call_between_batches(lambda engine: last_starts(engine.state)).result(_PATIENCE_S)
        plan = fork.copy()
        plan.limit_work()
        facts = objective_input(fork)
        vector = {one.objective: one for one in measure_objectives(plan, facts, now)}
        weights = _weights(wanted or published.settings.site.objectives, vector)
        slots = plan.planned()
        slots = slots[plan.starts(slots) > now]
        settings = published.settings
        patience, use = settings.search_patience, fork.walltime_use
        latest = latest_starts(plan, bound, fork.columns, now, patience, use)
        known: list[Mapping[int, Allocation]] = []
        if slots.shape[0] >= 2 and settings.policy == "conservative":
            start = SearchInput(plan.fork(), bound, fork.columns, use, now)
            archive = PlanArchive(
                slots,
                lambda one: _values(one, facts, now, weights),
                share=_ARCHIVE if how.evaluations is None else None,
            )
            search = start.make_single_search(
                _tabu_settings(how), settings.criteria, patience, on_move=archive
            )
            self._register_run(search)
            known.append({place.slot: place for place in search.run().places})
            known += archive.plans
        if not _keeps_tiers(published):
            set_thrift_tiers(plan, facts.economics, weights, now)
        decoder = ChromosomeDecoder(plan, slots, latest, now, [places for places in known if places])
        live = {one.value: vector[one].value or 0.0 for one in weights}
        run = ParetoSearch(
            decoder,
            lambda one: _values(one, facts, now, weights),
            ObjectiveWeights({one.value: weight for one, weight in weights.items()}, live),
            how,
            _initial_keys(plan, slots, facts),
        )
        self._register_run(run)
        found = run.run()
        self._number += 1
        names = [one.value for one in weights]
        offered = tuple(
            OfferedPlan(
                number, dict(zip(names, one.values, strict=True)), _moves(published, plan, one.places)
            )
            for number, one in enumerate(found.plans, 1)
        )
        jobs = {slot: record.id for slot, record in _records(published, slots)}
        result = AlternativeSet(
            number=self._number,
            by=by,
            as_of=now,
            generation=fork.generation,
            seed=how.seed,
            weights={one.value: weight for one, weight in weights.items()},
            units={one.value: vector[one].unit for one in weights},
            live=dict(zip(names, found.live, strict=True)),
            plans=offered,
            jobs=slots.shape[0],
            tried=found.tried,
            homeless=found.unplaced,
            worse=found.worse,
            stopped=found.stopped,
            seconds=round(found.elapsed_s, 3),
            hypervolume=round(found.volume, 6),
        )
        starts = {job: int(plan.start(slot)) for slot, job in jobs.items()}
        places = tuple(
            place_facts(plan, jobs, [place for place in one.places if place.slot in jobs])
            for one in found.plans
        )
        self._stored = _StoredSet(result, places, starts)
        _log.info(
            "alternative plans were sought",
            cluster=loop.name,
            by=by,
            plans=len(offered),
            tried=found.tried,
            jobs=result.jobs,
            seconds=result.seconds,
        )
        return result

    def _register_run(self, run: ParetoSearch | PlanSearch) -> None:
        self._running = run
        if self._stopping:
            run.stop()

    # ---- putting one in force -------------------------------------------------------------------

    def drift(self, number: int) -> float:
        """Return how much the live plan has changed since the set was found. Raises NoSuchPlan.

        The number of jobs that moved, arrived or left, as a share of the movable jobs; at most 1.
        """
        kept = self._stored_set(number)
        published = self._loop.published
        now = published.as_of
        waiting = {
            record.id: int(published.starts[slot])
            for slot, record in _records(published, np.flatnonzero(published.states == PLANNED))
        }
        changed = sum(
            abs(waiting.get(job, -FOREVER) - start) > _MOVED_S for job, start in kept.starts.items()
        )
        came = sum(start > now and job not in kept.starts for job, start in waiting.items())
        return min(1.0, (changed + came) / max(1, len(kept.starts)))

    def apply(self, number: int, plan: int, by: str, tolerance: float | None = None) -> AppliedAlternative:
        """Apply a plan of the set: make all of its moves that still hold, together, and drop the others.

        A move holds if its job still waits, with the same start or a start that the move brings forward, and
        its new place is free and in time.
        With ``tolerance`` all waiting jobs of the plan move, or none. Raises NoSuchPlan, LivePlanChanged if
        no move holds, the remaining moves are worse than the live plan, or the drift exceeds ``tolerance``;
        PlannerStopped and TimeoutError.
        """
        loop = self._loop
        kept = self._stored_set(number)
        if not 1 <= plan <= len(kept.places):
            raise NoSuchPlan(f"set {number} has no plan {plan}; it has {len(kept.places)}")
        places = kept.places[plan - 1]
        dropped: dict[str, str] = {}
        if tolerance is None:
            places, dropped = self._select_moves(kept, places)
        elif (drift := self.drift(number)) > tolerance:
            raise LivePlanChanged(
                f"{drift:.0%} of the jobs have come, gone or moved since the plan was found, "
                f"more than {tolerance:.0%}"
            )
        before = measure_fork(loop.fork().result(_PATIENCE_S))
        name = f"choice:{secrets.token_hex(8)}"
        event = PlanChosen(id=name, time=loop.now(), places=places, by=by)
        count = loop.submit([event]).result(_PATIENCE_S).taken
        if not count:
            raise LivePlanChanged("the live plan has no room for it any more, or is this plan already")
        after = loop.fork().result(_PATIENCE_S)
        if tolerance is None:
            starts = {r.id: int(after.published.starts[r.slot]) for r in after.published.records if r}
            for place in places:
                if starts.get(place.job_id, place.start) != place.start:
                    dropped[place.job_id] = "its new place is taken: it was given another one, or stays"
        vector = measure_fork(after)
        loop.metrics.set_objectives(vector)
        changes = objective_changes(before, vector)
        _log.warning(
            "another plan was put in force",
            cluster=loop.name,
            by=by,
            set=number,
            plan=plan,
            moved=count,
            dropped=len(dropped),
            objectives={one.objective: [one.before, one.after] for one in changes},
        )
        return AppliedAlternative(count, changes, tuple(DroppedMove(*one) for one in dropped.items()))

    def _select_moves(
        self, kept: _StoredSet, places: tuple[PlaceFacts, ...]
    ) -> tuple[tuple[PlaceFacts, ...], dict[str, str]]:
        """Return the moves possible together, and by job why another is not. Raises LivePlanChanged."""
        loop = self._loop
        # The fork first: the bounds must have all of its slots.
        fork = loop.fork().result(_PATIENCE_S)
        bound = loop.call_between_batches(lambda engine: last_starts(engine.state)).result(_PATIENCE_S)
        plan, now = fork.copy(), fork.as_of
        patience = fork.published.settings.search_patience
        latest = latest_starts(plan, bound, fork.columns, now, patience, fork.walltime_use)
        slots = {record.id: slot for slot, record in _records(fork.published, plan.planned())}
        wanted: dict[str, Allocation] = {}
        dropped: dict[str, str] = {}
        for facts in places:
            job = facts.job_id
            slot = slots.get(job, -1)
            allocation = find_allocation(plan, slot, facts) if slot >= 0 else None
            if slot < 0 or plan.start(slot) <= now:
                dropped[job] = "it does not wait any more"
            elif abs(plan.start(slot) - kept.starts[job]) > _MOVED_S and plan.start(slot) <= facts.start:
                dropped[job] = "its start has moved since the search"
            elif allocation is None:
                dropped[job] = "its request was changed since the search"
            elif not max(now, plan.ready(slot)) <= facts.start <= latest[slot]:
                dropped[job] = "its new start is not possible any more"
            else:
                wanted[job] = allocation
        if not wanted:
            raise LivePlanChanged(f"none of the {len(places)} moves of this plan can be made any more")
        weights = {Objective(name): weight for name, weight in kept.found.weights.items()}
        facts_now = objective_input(fork)
        live = _values(plan, facts_now, now, weights)
        reference = dict(zip(kept.found.weights, live.tolist(), strict=True))
        value = ObjectiveWeights(kept.found.weights, reference)
        # A job gets another place if its new one is taken; or it stays, and so do jobs in its way.
        moved = plan.fork()
        criteria = CriterionWeights(parse_criteria(fork.published.settings.criteria))
        allocations = tuple(wanted.values())
        rebase(
            moved,
            allocations,
            fork.columns,
            latest,
            now,
            criteria,
            patience=patience,
            use=fork.walltime_use,
            must_gain=False,
        )
        rest = dict(wanted)
        kept_apart, taken = _place_together(plan, rest, now)
        costs = [value.cost(_values(one, facts_now, now, weights)) for one in (moved, kept_apart)]
        if (dropped or taken) and min(costs) > value.cost(live):
            raise LivePlanChanged(
                f"{len(wanted)} of the {len(places)} moves of this plan can still be made, but the live plan "
                "is better by the weights"
            )
        if rest and costs[1] <= costs[0]:
            dropped |= dict.fromkeys(taken, "its new place is taken")
            wanted = rest
        return tuple(facts for facts in places if facts.job_id in wanted), dropped

    def _stored_set(self, number: int) -> _StoredSet:
        kept = self._stored
        if kept is None or kept.found.number != number:
            newest = (
                f"; the latest is {kept.found.number}" if kept is not None else ": there was no search yet"
            )
            raise NoSuchPlan(f"set {number} is not kept{newest}")
        return kept


def _place_together(plan: Plan, wanted: dict[str, Allocation], now: int) -> tuple[Plan, list[str]]:
    """Remove from ``wanted`` the jobs with places that conflict with the rest of the plan. Return the plan
    with the others at their places, and the removed jobs, which stay where they are.
    """
    removed: list[str] = []
    while True:
        trial = plan.fork()
        for place in wanted.values():
            trial.remove(place.slot, now)
        conflicts = []
        for job, place in sorted(wanted.items(), key=lambda item: (item[1].start, item[1].slot)):
            if free_at(trial, place):
                trial.place_at(place.slot, place.start, place.takes)
            else:
                conflicts.append(job)
        if not conflicts:
            return trial, removed
        removed += conflicts
        for job in conflicts:
            del wanted[job]


def _weights(wanted: Any, vector: Mapping[Objective, Any]) -> dict[Objective, float]:
    """Return the weights; unknown objectives are left out unless they were named. Raises ValueError."""
    if not wanted:
        return {one: 1.0 for one in _DEFAULT if vector[one].value is not None}
    weights = parse_weights(wanted)
    for one in weights:
        if vector[one].value is None:
            raise ValueError(f"{one.value} is not known here: {vector[one].why}")
    return weights


def _keeps_tiers(published: PlanSnapshot) -> bool:
    """Whether repair prefers fast nodes: then tiers follow the speed, as in the live plan."""
    weighted = published.settings.criteria.get("weighted_utilisation", 0)
    return published.settings.site.placement is not Placing.FIRST_GAP and weighted > 0


def _tabu_settings(how: ParetoSettings) -> SearchSettings:
    """Return the settings of the first search, by the site's criteria."""
    if how.evaluations is not None:
        return SearchSettings(moves=_TABU_MOVES, seconds=None, seed=how.seed)
    return SearchSettings(moves=None, seconds=_TABU * (how.seconds or 0.0), seed=how.seed)


def _values(
    plan: Plan, facts: ObjectiveInput, now: int, weights: Mapping[Objective, float]
) -> npt.NDArray[np.float64]:
    found = {one.objective: one.value for one in measure_objectives(plan, facts, now)}
    return np.array([found[one] for one in weights], np.float64)


def _initial_keys(plan: Plan, slots: Ints, facts: ObjectiveInput) -> list[npt.NDArray[np.float64]]:
    """Return the sort keys of the first plans: shortest, smallest, oldest, earliest deadline first."""
    durations = plan.jobs.durations[slots].astype(np.float64)
    keys = [
        durations,
        plan.requested_cpus(slots) * durations,
        facts.columns.release[slots].astype(np.float64),
    ]
    due = facts.columns.due[slots]
    if (due < FOREVER).any():
        keys.append(due.astype(np.float64))
    return keys


def _records(published: PlanSnapshot, slots: Ints) -> list[tuple[int, JobRecord]]:
    return [
        (slot, record)
        for slot in slots.tolist()
        if (record := published.records[slot]) is not None and record.phase is Phase.WAITING
    ]


def _moves(published: PlanSnapshot, plan: Plan, places: tuple[Allocation, ...]) -> tuple[OfferedMove, ...]:
    found = []
    for place in places:
        record = published.records[place.slot]
        if record is None:
            continue
        promised = int(published.promise[place.slot])
        found.append(
            OfferedMove(
                job=record.id,
                owner=record.facts.owner,
                before=int(published.starts[place.slot]),
                after=place.start,
                nodes=tuple(dict.fromkeys(plan.node_names[take.row] for take in place.takes)),
                promised=promised if promised < FOREVER else None,
            )
        )
    return tuple(found)
