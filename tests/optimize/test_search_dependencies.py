"""Searches keep dependencies: a dependent job never starts before its predecessor ends."""

from collections.abc import Iterable

import numpy as np
import pytest

from schedd.alternatives.chromosomes import ChromosomeDecoder
from schedd.engine.place.dependencies import last_starts
from schedd.model import FOREVER
from schedd.optimize import SearchInput, SearchSettings
from schedd.plan.columns import Ints
from schedd.plan.latest_starts import latest_starts
from schedd.plan.placements import current_allocation
from schedd.plan.plan import Plan
from tests.engine.cluster import Cluster

DAY = 86_400


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """Two nodes, long jobs before short ones, every third job dependent on an earlier one; no promises."""
    found = Cluster(nodes=2, slack=10 * DAY)
    random = np.random.default_rng(3)
    found.submit("0", "2:ppn=4", walltime=500)
    for i in range(1, 60):
        walltime = int(random.integers(3000, 6000) if i < 20 else random.integers(60, 600))
        more = {}
        if i % 3 == 0:
            more = {
                "depend": f"afterok:{int(random.integers(max(1, i - 10), i))}",
                "state": "H",
                "holds": "s",
            }
        found.submit(str(i), f"1:ppn={random.integers(1, 5)}", walltime, **more)
    while found.engine.state.plan.freed:
        found.engine.handle((), found.server.now)
    assert len(found.engine.state.chained) == 19
    return found


def violated_dependencies(cluster: Cluster, plan: Plan) -> list[str]:
    """Return the jobs that a plan starts before the end of their predecessor."""
    state, found = cluster.engine.state, []
    for name in state.chained:
        for link in state.records[name].behind:
            head = state.records[link.job]
            if plan.start(state.records[name].slot) < plan.start(head.slot) + head.understood.walltime:
                found.append(name)
    return found


def run_tabu(cluster: Cluster, bounds: Ints, seed: int) -> tuple[Plan, int]:
    """Return the plan of a Tabu search and the number of moved jobs."""
    state = cluster.engine.state
    start = SearchInput(state.plan.fork(), bounds, state.columns, 1.0, state.now)
    how = SearchSettings(moves=400, seconds=None, seed=seed)
    places = start.make_search(how, state.settings.criteria, DAY).run().places
    plan = state.plan.fork()
    for place in places:
        plan.remove(place.slot, state.now)
    for place in places:
        plan.place_at(place.slot, place.start, place.takes, search_again=False)
    return plan, len(places)


def decode_random_chromosomes(cluster: Cluster, bounds: Ints, seeds: Iterable[int]) -> list[Plan]:
    state = cluster.engine.state
    slots = state.plan.planned()
    slots = slots[state.plan.starts(slots) > state.now]
    latest = latest_starts(state.plan, bounds, state.columns, state.now, DAY)
    decoder = ChromosomeDecoder(state.plan, slots, latest, state.now)
    found = []
    for seed in seeds:
        random = np.random.default_rng(seed)
        genes = np.where(random.random(slots.shape[0]) < 0.5, decoder.tier_genes[0], decoder.stay_gene)
        one = decoder.decode(genes, random.uniform(0, 1, (slots.shape[0],)))
        if not one.unplaced:
            found.append(one.plan)
    return found


def test_tabu_keeps_dependencies_while_moving_many_jobs(cluster: Cluster) -> None:
    state = cluster.engine.state
    assert violated_dependencies(cluster, state.plan) == []
    for seed in range(3):
        plan, moved = run_tabu(cluster, last_starts(state), seed)
        assert moved > 5
        assert violated_dependencies(cluster, plan) == []
    assert any(
        violated_dependencies(cluster, run_tabu(cluster, state.bound, seed)[0]) for seed in range(3)
    ), "with only the promises as bounds, some jobs start too early"


def test_alternative_plans_respect_dependencies(cluster: Cluster) -> None:
    state = cluster.engine.state
    plans = decode_random_chromosomes(cluster, last_starts(state), range(40))
    assert len(plans) >= 10
    assert [violated_dependencies(cluster, plan) for plan in plans] == [[]] * len(plans)
    before = {slot: current_allocation(state.plan, slot) for slot in state.plan.planned().tolist()}
    assert any(current_allocation(plan, slot) != place for plan in plans for slot, place in before.items())
    assert any(
        violated_dependencies(cluster, plan)
        for plan in decode_random_chromosomes(cluster, state.bound, range(40))
    )


def test_only_jobs_with_dependents_have_an_earlier_latest_start(cluster: Cluster) -> None:
    state = cluster.engine.state
    latest = last_starts(state)
    assert state.bound[state.records["59"].slot] < FOREVER
    heads = {link.job for name in state.chained for link in state.records[name].behind}
    for record in state.records.values():
        if record.id not in heads:
            assert latest[record.slot] == state.bound[record.slot]
        else:
            assert state.plan.start(record.slot) <= latest[record.slot] <= state.bound[record.slot]
