"""The set of alternative plans: decoded by the plan, no worse than the live one, the same by its seed."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.benchmarks.grow import Grower
from schedd.alternatives.chromosomes import ChromosomeDecoder
from schedd.alternatives.node_economics import NodeEconomics
from schedd.alternatives.objectives import Objective, ObjectiveInput, measure_objectives
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

AIMS = (Objective.WAIT, Objective.MAKESPAN, Objective.ENERGY, Objective.COST)
ECONOMY = Economy(
    draws={"thrifty": Draw(50, 2), "*": Draw(150, 9)},
    prices=(Price(core_hour=0.5), Price(core_hour=0.1, nodes=("thrifty",))),
)


class Scene:
    """A grown plan whose every second node is thrifty."""

    def __init__(self, jobs: int = 60, nodes: int = 8, seed: int = 1, slack: int = 6 * 3600) -> None:
        grower = Grower("metacentrum", nodes, jobs, seed)
        self.now = grower.now
        grower.fill(jobs)
        self.plan = plan = grower.plan
        size = plan.jobs.size
        columns = ScoringColumns(
            np.full(size, self.now, np.int64), np.full(size, FOREVER, np.int64), np.arange(size) % 5
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

    def values(self, plan: Plan) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        found = {one.objective: one.value for one in measure_objectives(plan, self.facts, self.now)}
        return np.array([found[one] for one in AIMS], float)

    def run(
        self, weights: tuple[float, ...] = (1.0,) * len(AIMS), **how: object
    ) -> tuple[ChromosomeDecoder, ParetoSearch]:
        decoder = ChromosomeDecoder(self.plan, self.slots, self.latest, self.now)
        live = dict(zip(map(str, AIMS), self.values(self.plan).tolist(), strict=True))
        balance = ObjectiveWeights(dict(zip(live, weights, strict=True)), live)
        return decoder, ParetoSearch(decoder, self.values, balance, ParetoSettings(**how))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def free(plan: Plan) -> list[list[int]]:
    return [plan.timeline(row).free.min(axis=1).tolist() for row in plan.node_rows.values()]


@pytest.fixture(scope="module")
def found(scene: Scene) -> ParetoSet:
    return scene.run(evaluations=120, seed=1)[1].run()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 32), moved=st.floats(0, 1))
def test_whatever_is_decoded_is_a_plan(scene: Scene, found: ParetoSet, seed: int, moved: float) -> None:
    places = [{place.slot: place for place in one.places} for one in found.plans[:2]]
    decoder = ChromosomeDecoder(scene.plan, scene.slots, scene.latest, scene.now, places)
    n, random = scene.slots.shape[0], np.random.default_rng(seed)
    genes = np.where(random.random(n) < moved, random.integers(0, decoder.gene_count, n), 0)
    keys = random.uniform(0, 1, (n,))
    before = scene.plan.jobs.starts.copy()
    decoded = decoder.decode(genes, keys)
    assert np.array_equal(scene.plan.jobs.starts, before), "the live plan is not touched"
    plan = decoded.plan
    assert all(amount >= 0 for row in free(plan) for amount in row), "over-committed"
    assert int((plan.jobs.states[scene.slots] != PLANNED).sum()) == decoded.unplaced
    placed = scene.slots[plan.jobs.states[scene.slots] == PLANNED]
    assert (plan.starts(placed) <= scene.latest[placed]).all()
    assert (plan.starts(placed) >= scene.now).all()


def test_who_stays_is_where_the_live_plan_has_it_and_known_plans_come_back_exactly(
    scene: Scene, found: ParetoSet
) -> None:
    known = {place.slot: place for place in found.plans[0].places}
    decoder = ChromosomeDecoder(scene.plan, scene.slots, scene.latest, scene.now, [known])
    n = scene.slots.shape[0]
    keys = np.zeros(n)
    assert decoder.moved_places(decoder.decode(np.zeros(n, np.int64), keys).plan) == ()
    again = decoder.decode(np.full(n, decoder.known_genes[0]), keys).plan
    assert {place.slot: place for place in decoder.moved_places(again)} == known


def test_nothing_that_is_offered_is_dominated_or_worse_than_the_live_plan_by_the_weights(
    scene: Scene, found: ParetoSet
) -> None:
    assert found.plans, "something better is found in a plan that was only grown"
    live = np.array(found.live)
    assert np.array_equal(live, scene.values(scene.plan))
    values = np.array([one.values for one in found.plans])
    assert pareto_front(values).shape[0] == len(found.plans)
    for one in found.plans:
        assert (np.array(one.values) / live).sum() <= len(AIMS) + 1e-6
        assert not (live <= np.array(one.values)).all(), "the live plan would do"
    assert found.tried == 120
    # What is offered is worth what was said.
    for one in found.plans[:3]:
        plan = scene.plan.fork()
        for place in one.places:
            plan.remove(place.slot, scene.now)
        for place in one.places:
            plan.place_at(place.slot, place.start, place.takes)
        assert scene.values(plan) == pytest.approx(np.array(one.values))
        assert all(current_allocation(plan, place.slot) == place for place in one.places)


def test_some_plan_takes_less_energy(found: ParetoSet) -> None:
    least = min(one.values[AIMS.index(Objective.ENERGY)] for one in found.plans)
    assert least < found.live[AIMS.index(Objective.ENERGY)]


def test_a_weight_moves_the_choice(scene: Scene) -> None:
    """The best plan by the weights comes first."""
    found = [
        scene.run(weights, evaluations=150, seed=1)[1].run().plans[0].values
        for weights in ((0.01, 0.01, 1.0, 0.01), (1.0, 0.01, 0.01, 0.01))
    ]
    thrifty, quick = (dict(zip(AIMS, values, strict=True)) for values in found)
    assert thrifty[Objective.ENERGY] < quick[Objective.ENERGY]
    assert quick[Objective.WAIT] < thrifty[Objective.WAIT]


def test_the_same_seed_gives_the_same_set_and_another_another(scene: Scene) -> None:
    first, again, other = (scene.run(evaluations=60, seed=seed)[1].run() for seed in (5, 5, 6))
    assert (first.plans, first.tried) == (again.plans, again.tried)
    assert first.plans != other.plans


def test_it_ends_when_its_time_is_up_and_at_once_when_it_is_stopped(scene: Scene) -> None:
    found = scene.run(seconds=0.3)[1].run()
    assert not found.stopped
    assert found.tried > 0
    _, pareto = scene.run(seconds=600.0)
    threading.Timer(0.5, pareto.stop).start()
    begun = time.monotonic()
    found = pareto.run()
    assert found.stopped
    assert time.monotonic() - begun < 60, "it did not wait for its time"


def test_a_promise_of_what_is_planned_now_leaves_nothing_later(scene: Scene) -> None:
    tight = Scene(slack=0)
    for one in tight.run(evaluations=60)[1].run().plans:
        for place in one.places:
            assert place.start <= tight.plan.start(place.slot)


def test_two_jobs_are_needed() -> None:
    lone = Scene(jobs=60)
    lone.slots = lone.slots[:1]
    found = lone.run(evaluations=10)[1].run()
    assert (found.plans, found.tried) == ((), 0)


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
def test_settings_that_make_no_sense_are_refused(how: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"seconds|population|most|evaluations"):
        ParetoSettings(**how)  # type: ignore[arg-type]
