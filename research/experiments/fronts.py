"""Hypervolumes of the plans found by Tabu search, NSGA-II and both.

Waiting jobs of a log arrive at once on equal nodes; every second node is thrifty and cheap. Each method
searches from that plan for a number of seconds of processor time, so that other load matters little; the
found plans are measured by the same four objectives.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from statistics import median
from time import process_time
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from schedd.alternatives.chromosomes import ChromosomeDecoder
from schedd.alternatives.node_economics import NodeEconomics
from schedd.alternatives.objective_weights import Objective
from schedd.alternatives.objectives import ObjectiveInput, measure_objectives
from schedd.alternatives.pareto_front import ObjectiveWeights, pareto_front
from schedd.alternatives.pareto_search import ParetoSearch, ParetoSettings, hypervolume
from schedd.alternatives.plan_archive import PlanArchive
from schedd.alternatives.thrift_tiers import set_thrift_tiers
from schedd.engine import Engine, EngineSettings
from schedd.model import FOREVER
from schedd.optimize import PlanSearch, SearchInput, SearchSettings
from schedd.plan.placements import Allocation
from schedd.plan.plan import Plan
from schedd.policy.site import parse_economy, site_policy
from schedd.replay.prepared import Prepared
from schedd.wire import JobQueued, NodeChanged

Floats = npt.NDArray[np.float64]

METHODS: Final = ("tabu", "tabu with archive", "nsga-2", "both")
"""``tabu``: its last plan; with its archive; alternatives bred only from the live plan; alternatives bred
from Tabu's plan, which has a quarter of the time.
"""
_AIMS: Final = (Objective.WAIT, Objective.MAKESPAN, Objective.ENERGY, Objective.COST)
_SITE: Final[Mapping[str, Any]] = {
    "power": {"thrifty": {"idle": 60.0, "core": 3.0}, "*": {"idle": 60.0, "core": 12.0}},
    "prices": [{"core_hour": 1.0}, {"core_hour": 0.5, "nodes": ["thrifty"]}],
}
ALONE: Final = (0.2 / 1.2) ** len(_AIMS)  # the hypervolume of the live plan by itself
_SLACK: Final = "7d"
_ARCHIVE: Final = 12
_SHARE: Final = 0.25
_BEGIN: Final = 1_700_000_000
_FOR_EVER: Final = 1e9
_POLL: Final = 0.02  # seconds between two looks at the processor's time


@dataclass(frozen=True, slots=True)
class Volume:
    """What a method came to on one log in ``seconds`` of the processor: the median hypervolume of its seeds,
    the least and the most, and how many plans it has on average. ``cpu_s`` is the processor's time of a run.
    """

    log: str
    jobs: int
    method: str
    seconds: float
    volume: float
    least: float
    most: float
    plans: float
    cpu_s: float

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Case:
    """A plan with its waiting jobs, and how plans are valued."""

    engine: Engine
    plan: Plan
    facts: ObjectiveInput
    now: int

    def values(self, plan: Plan) -> Floats:
        found = {one.objective: one.value for one in measure_objectives(plan, self.facts, self.now)}
        return np.array([found[one] for one in _AIMS], np.float64)


def volumes(prepared: Prepared, waiting: int, seconds: Sequence[float], seeds: int) -> Iterator[Volume]:
    """Compare the methods on one log with this number of ``waiting`` jobs, on the nodes of ``prepared``."""
    case = _case(prepared, waiting)
    live = case.values(case.plan)
    for method in METHODS:
        for bound in seconds:
            found, sizes, spent = [], [], []
            for seed in range(seeds):
                begin = process_time()
                vectors = np.vstack([live, *_searched(case, live, method, bound, seed)])
                spent.append(process_time() - begin)
                best = vectors[pareto_front(vectors)]
                found.append(hypervolume(best, live))
                sizes.append(best.shape[0])
            yield Volume(
                prepared.name,
                waiting,
                method,
                bound,
                median(found),
                min(found),
                max(found),
                float(np.mean(sizes)),
                median(spent),
            )


def _case(prepared: Prepared, waiting: int) -> _Case:
    settings = EngineSettings(
        site=site_policy(dict(_SITE)), slack=_SLACK, end_allowance=0, publish_starts=False, search_every=0
    )
    engine = Engine(settings, _BEGIN)
    nodes = [
        replace(node, properties=("thrifty",) if i % 2 else ()) for i, node in enumerate(prepared.site.nodes)
    ]
    engine.handle([NodeChanged(id=f"n:{one.name}", time=_BEGIN, node=one) for one in nodes], _BEGIN)
    some = [prepared.facts(i) for i in range(min(waiting, len(prepared.jobs)))]
    events = [JobQueued(id=f"j:{one.id}", time=_BEGIN, job=replace(one, submitted=_BEGIN)) for one in some]
    engine.handle(events, _BEGIN)
    while engine.state.plan.freed:
        engine.handle((), _BEGIN)
    state = engine.state
    plan, jobs = state.plan, state.plan.jobs
    end = int((jobs.starts + jobs.durations).max())
    books = NodeEconomics.from_economy(parse_economy(_SITE), plan.node_names, state.node_facts, _BEGIN, end)
    limits = np.full(jobs.size, np.inf)
    return _Case(engine, plan, ObjectiveInput(state.columns, books, limits), _BEGIN)


def _searched(case: _Case, live: Floats, method: str, seconds: float, seed: int) -> list[Floats]:
    """The objectives of a method's plans."""
    plan = case.plan.fork()
    slots = plan.planned()
    slots = slots[plan.starts(slots) > case.now]
    known: list[Mapping[int, Allocation]] = []
    found: list[Floats] = []
    if method != "nsga-2":
        archive = PlanArchive(slots, case.values, _ARCHIVE, _SHARE) if method != "tabu" else None
        how = SearchSettings(moves=None, seconds=_FOR_EVER, seed=seed)
        start = SearchInput(plan.fork(), case.engine.state.bound, case.facts.columns, 1.0, case.now)
        search = start.make_single_search(
            how, case.engine.state.settings.criteria, FOREVER >> 1, on_move=archive
        )
        with _stopped_after(search, seconds / 4 if method == "both" else seconds):
            improved = search.run()
        places = {place.slot: place for place in improved.places}
        known = [places, *(archive.plans if archive is not None else ())]
        found = [_made(case, one) for one in known]
    if method not in ("nsga-2", "both"):
        return found
    left = seconds * 3 / 4 if method == "both" else seconds
    set_thrift_tiers(plan, case.facts.economics, dict.fromkeys(_AIMS, 1.0), case.now)
    decoder = ChromosomeDecoder(plan, slots, case.engine.state.bound, case.now, [one for one in known if one])
    names = [one.value for one in _AIMS]
    balance = ObjectiveWeights(dict.fromkeys(names, 1.0), dict(zip(names, live.tolist(), strict=True)))
    run = ParetoSearch(decoder, case.values, balance, ParetoSettings(seconds=_FOR_EVER, seed=seed, most=48))
    with _stopped_after(run, left):
        bred = run.run()
    return [*found, *(np.array(one.values) for one in bred.plans)]


@contextmanager
def _stopped_after(run: PlanSearch | ParetoSearch, seconds: float) -> Iterator[None]:
    """Stop a run after a number of seconds of this process's processor time."""
    end, ended = process_time() + seconds, threading.Event()

    def watch() -> None:
        while process_time() < end:
            if ended.wait(_POLL):
                return
        run.stop()

    watcher = threading.Thread(target=watch, name="processor-time")
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _made(case: _Case, places: Mapping[int, Allocation]) -> Floats:
    """The objectives of the plan with jobs at these places."""
    plan = case.plan.fork()
    for slot in places:
        plan.remove(slot, case.now)
    for place in places.values():
        plan.place_at(place.slot, place.start, place.takes, search_again=False)
    return case.values(plan)
