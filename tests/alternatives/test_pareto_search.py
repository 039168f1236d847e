"""The set of alternative plans: valid, no worse than the live plan, and reproducible by its seed."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.benchmarks.grow import Grower
from schedd.alternatives.chromosomes import ChromosomeDecoder
from schedd.alternatives.node_economics import NodeEconomics
from schedd.alternatives.objective_weights import Objective
from schedd.alternatives.objectives import ObjectiveInput, measure_objectives
from schedd.alternatives.pareto_front import ObjectiveWeights, pareto_front
from schedd.alternatives.pareto_search import ParetoSearch, ParetoSet, ParetoSettings
from schedd.model import FOREVER
from schedd.plan.columns import PLANNED, Ints
from schedd.plan.evaluate import ScoringColumns
from schedd.plan.latest_starts import latest_starts
from schedd.plan.placements import current_allocation
from schedd.plan.plan import Plan
from schedd.policy.economy import Draw, Economy, Price
from schedd.wire import NodeFacts
from tests.property_examples import examples

AIMS = (Objective.WAIT, Objective.MAKESPAN, Objective.ENERGY, Objective.COST)
ECONOMY = Economy(
    draws={"thrifty": Draw(idle=50, core=2), "*": Draw(idle=150, core=9)},
    prices=(Price(core_hour=0.5), Price(core_hour=0.1, nodes=("thrifty",))),
)


class GrownPlan:
    """A grown plan; every second node is thrifty."""

    def __init__(self, jobs: int = 60, nodes: int = 8, seed: int = 1, slack: int = 6 * 3600) -> None:
        grower = Grower("metacentrum", nodes, jobs, seed)
        self.now = grower.now
        grower.fill(jobs)
        self.plan = plan = grower.plan
        size = plan.jobs.size
        columns = ScoringColumns(
            np.full(size, self.now, np.int64),
            np.full(size, FOREVER, np.int64),
            np.arange(size) % 5,
            np.zeros(size, np.int64),
        )
        promised = np.where(plan.jobs.states == PLANNED, plan.jobs.starts + slack, FOREVER)
        self.latest = latest_starts(plan, promised, columns, self.now)
        names = sorted(plan.nodes)
        facts = {
            name: NodeFacts(name=name, cpus=plan.nodes[name].cpus, properties=("thrifty",) if i % 2 else ())
            for i, name in enumerate(names)
        }
        end = int((plan.jobs.starts + plan.jobs.durations).max())
        books = NodeEconomics.from_economy(ECONOMY, plan.node_names, facts, self.now, end)
        self.facts = ObjectiveInput(columns, books, np.full(size, np.inf))
        slots = plan.planned()
        self.slots: Ints = slots[plan.starts(slots) > self.now]

    def measure(self, plan: Plan) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        pareto_set = {one.objective: one.value for one in measure_objectives(plan, self.facts, self.now)}
        return np.array([pareto_set[one] for one in AIMS], float)

    def make_search(
        self, weights: tuple[float, ...] = (1.0,) * len(AIMS), **how: object
    ) -> tuple[ChromosomeDecoder, ParetoSearch]:
        decoder = ChromosomeDecoder(self.plan, self.slots, self.latest, self.now)
        live = dict(zip(map(str, AIMS), self.measure(self.plan).tolist(), strict=True))
        balance = ObjectiveWeights(dict(zip(live, weights, strict=True)), live)
        return decoder, ParetoSearch(decoder, self.measure, balance, ParetoSettings(**how))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def grown() -> GrownPlan:
    return GrownPlan()


def free_amounts(plan: Plan) -> list[list[int]]:
    return [plan.timeline(row).free.min(axis=1).tolist() for row in plan.node_rows.values()]


@pytest.fixture(scope="module")
def pareto_set(grown: GrownPlan) -> ParetoSet:
    return grown.make_search(evaluations=120, seed=1)[1].run()


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 1 << 32), moved=st.floats(0, 1))
def test_every_decoded_chromosome_is_a_valid_plan(
    grown: GrownPlan, pareto_set: ParetoSet, seed: int, moved: float
) -> None:
    places = [{place.slot: place for place in one.places} for one in pareto_set.plans[:2]]
    decoder = ChromosomeDecoder(grown.plan, grown.slots, grown.latest, grown.now, places)
    n, random = grown.slots.shape[0], np.random.default_rng(seed)
    genes = np.where(random.random(n) < moved, random.integers(0, decoder.gene_count, n), 0)
    keys = random.uniform(0, 1, (n,))
    before = grown.plan.jobs.starts.copy()
    decoded = decoder.decode(genes, keys)
    assert np.array_equal(grown.plan.jobs.starts, before), "the live plan is not touched"
    plan = decoded.plan
    assert all(amount >= 0 for row in free_amounts(plan) for amount in row), "over-committed"
    assert int((plan.jobs.states[grown.slots] != PLANNED).sum()) == decoded.unplaced
    placed = grown.slots[plan.jobs.states[grown.slots] == PLANNED]
    assert (plan.starts(placed) <= grown.latest[placed]).all()
    assert (plan.starts(placed) >= grown.now).all()


def test_stay_genes_preserve_places_and_known_genes_restore_known_plans(
    grown: GrownPlan, pareto_set: ParetoSet
) -> None:
    known = {place.slot: place for place in pareto_set.plans[0].places}
    decoder = ChromosomeDecoder(grown.plan, grown.slots, grown.latest, grown.now, [known])
    n = grown.slots.shape[0]
    keys = np.zeros(n)
    assert decoder.moved_places(decoder.decode(np.zeros(n, np.int64), keys).plan) == ()
    again = decoder.decode(np.full(n, decoder.known_genes[0]), keys).plan
    assert {place.slot: place for place in decoder.moved_places(again)} == known


def test_offered_plans_are_undominated_and_no_worse_by_the_weights(
    grown: GrownPlan, pareto_set: ParetoSet
) -> None:
    assert pareto_set.plans, "something better is found in a plan that was only grown"
    live = np.array(pareto_set.live)
    assert np.array_equal(live, grown.measure(grown.plan))
    values = np.array([one.values for one in pareto_set.plans])
    assert pareto_front(values).shape[0] == len(pareto_set.plans)
    for one in pareto_set.plans:
        assert (np.array(one.values) / live).sum() <= len(AIMS) + 1e-6
        assert not (live <= np.array(one.values)).all(), "the live plan would do"
    assert pareto_set.tried == 120
    # The rebuilt plans have the reported values.
    for one in pareto_set.plans[:3]:
        plan = grown.plan.fork()
        for place in one.places:
            plan.remove(place.slot, grown.now)
        for place in one.places:
            plan.place_at(place.slot, place.start, place.takes)
        assert grown.measure(plan) == pytest.approx(np.array(one.values))
        assert all(current_allocation(plan, place.slot) == place for place in one.places)


def test_some_alternative_uses_less_energy(pareto_set: ParetoSet) -> None:
    least = min(one.values[AIMS.index(Objective.ENERGY)] for one in pareto_set.plans)
    assert least < pareto_set.live[AIMS.index(Objective.ENERGY)]


def test_weights_determine_the_first_plan(grown: GrownPlan) -> None:
    best = [
        grown.make_search(weights, evaluations=150, seed=1)[1].run().plans[0].values
        for weights in ((0.01, 0.01, 1.0, 0.01), (1.0, 0.01, 0.01, 0.01))
    ]
    thrifty, quick = (dict(zip(AIMS, values, strict=True)) for values in best)
    assert thrifty[Objective.ENERGY] < quick[Objective.ENERGY]
    assert quick[Objective.WAIT] < thrifty[Objective.WAIT]


def test_seed_determines_the_set(grown: GrownPlan) -> None:
    first, again, other = (grown.make_search(evaluations=60, seed=seed)[1].run() for seed in (5, 5, 6))
    assert (first.plans, first.tried) == (again.plans, again.tried)
    assert first.plans != other.plans


def test_search_ends_at_its_time_limit_or_on_stop(grown: GrownPlan) -> None:
    pareto_set = grown.make_search(seconds=0.3)[1].run()
    assert not pareto_set.stopped
    assert pareto_set.tried > 0
    _, pareto = grown.make_search(seconds=600.0)
    threading.Timer(0.5, pareto.stop).start()
    begun = time.monotonic()
    pareto_set = pareto.run()
    assert pareto_set.stopped
    assert time.monotonic() - begun < 60, "it did not wait for its time limit"


def test_promise_at_the_planned_start_prevents_later_starts(grown: GrownPlan) -> None:
    tight = GrownPlan(slack=0)
    for one in tight.make_search(evaluations=60)[1].run().plans:
        for place in one.places:
            assert place.start <= tight.plan.start(place.slot)


def test_search_for_a_single_job_finds_nothing() -> None:
    lone = GrownPlan(jobs=60)
    lone.slots = lone.slots[:1]
    pareto_set = lone.make_search(evaluations=10)[1].run()
    assert (pareto_set.plans, pareto_set.tried) == ((), 0)


@pytest.mark.parametrize(
    "how",
    [
        {"seconds": None},
        {"seconds": -1.0},
        {"seconds": float("inf")},
        {"population": 3},
        {"most": 0},
        {"evaluations": 0},
    ],
)
def test_invalid_pareto_settings_are_refused(how: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"seconds|population|most|evaluations"):
        ParetoSettings(**how)  # type: ignore[arg-type]
