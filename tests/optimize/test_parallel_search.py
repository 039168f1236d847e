"""Searches at the same time keep promises, improve on one search's plan, and do not depend on threads."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.model import Chunk, Node, Request
from schedd.optimize import ParallelSearch, SearchEndReason, SearchInput, SearchSettings, run_sequentially
from schedd.parallel_calls import run_in_threads
from schedd.plan.criteria import DEFAULT_WEIGHTS, PATIENCE
from schedd.plan.evaluate import CriterionWeights, ScoringColumns
from schedd.plan.placements import current_allocation
from schedd.plan.plan import Plan
from tests.optimize.random_plans import NOW, RandomPlan, cost_between, random_plans, search_settings
from tests.optimize.test_search import no_promises, plan_long_before_short

WEIGHTS = {str(criterion): weight for criterion, weight in DEFAULT_WEIGHTS.items()}


def parallel_search(
    random_plan: RandomPlan, settings: SearchSettings, *, threads: bool = False, patience: int = 0
) -> ParallelSearch:
    plan = random_plan.plan.fork()
    start = SearchInput(plan, random_plan.promised, random_plan.columns, 1.0, NOW)
    weights = {str(criterion): weight for criterion, weight in settings.weights.items()}
    search = start.make_search(
        settings, weights, patience, run_together=run_in_threads if threads else run_sequentially
    )
    assert isinstance(search, ParallelSearch)
    return search


@given(random_plans(), search_settings(1000), st.integers(2, 5), st.sampled_from([0, 500, 5000]))
def test_parallel_searches_respect_promises_and_report_their_differences(
    random_plan: RandomPlan, settings: SearchSettings, parallel: int, patience: int
) -> None:
    before = random_plan.starts()
    search = parallel_search(random_plan, replace(settings, parallel=parallel), patience=patience)
    improvement = search.run()
    report = improvement.report
    assert random_plan.starts() == before, "the searches touched more than their forks"
    found = random_plan.with_plan(random_plan.plan.fork())
    for place in improvement.places:
        found.plan.remove(place.slot, NOW)
    for place in improvement.places:
        found.plan.place_at(place.slot, place.start, place.takes)
    found.check()
    for slot in random_plan.waiting:
        assert found.plan.start(slot) <= max(random_plan.promised[slot], before[slot])
        if before[slot] == NOW:
            assert current_allocation(found.plan, slot) == current_allocation(random_plan.plan, slot)
    weights = CriterionWeights(settings.weights)
    old, new = (cost_between(weights, plan, random_plan, patience) for plan in (random_plan, found))
    assert report.gain == pytest.approx((old - new) / np.abs(weights.array).sum(), rel=1e-9, abs=1e-9)
    assert report.moved == len(improvement.places)
    assert report.accepted + report.too_late <= report.tried <= parallel * (settings.moves or 0)


@given(random_plans(), search_settings(1000), st.integers(2, 3))
def test_results_do_not_depend_on_threads(
    random_plan: RandomPlan, settings: SearchSettings, parallel: int
) -> None:
    wanted = replace(settings, parallel=parallel)
    first, second = (parallel_search(random_plan, wanted, threads=threads).run() for threads in (False, True))
    assert first.places == second.places
    assert replace(first.report, elapsed_s=0.0) == replace(second.report, elapsed_s=0.0)


def mixed_plan(jobs: int) -> tuple[Plan, ScoringColumns]:
    """Plan jobs of 1 to 4 cores and 10 to 1,000 s, in random order, on four nodes."""
    plan = Plan([Node(name, 4) for name in "abcd"], 0)
    random = np.random.default_rng(1)
    for cpus, duration in zip(random.integers(1, 5, jobs), random.integers(10, 1000, jobs), strict=True):
        plan.place(plan.add_job(Request((Chunk(cpus=int(cpus)),)), int(duration), 0), 0)
    return plan, ScoringColumns.blank(plan.tables.jobs.shape[1])


def test_parallel_searches_find_more_than_one_search() -> None:
    plan, columns = mixed_plan(200)
    start = SearchInput(plan, no_promises(plan), columns, 1.0, 0)
    gains = []
    for parallel in (1, 2, 4):
        settings = SearchSettings(moves=2000, parallel=parallel)
        searched = replace(start, plan=plan.fork())
        gains.append(searched.make_search(settings, WEIGHTS, PATIENCE).run().report.gain)
    assert 0 < gains[0] < gains[1] < gains[2]


def test_stop_ends_all_searches_and_keeps_the_best_plan() -> None:
    plan, columns = mixed_plan(60)
    start = SearchInput(plan, no_promises(plan), columns, 1.0, 0)
    rounds = []

    def stop_in_the_third_round(calls: Sequence[Callable[[], None]]) -> None:
        rounds.append(len(calls))
        if len(rounds) == 3:
            search.stop()
        run_in_threads(calls)

    settings = SearchSettings(moves=None, seconds=5, parallel=2)
    search = start.make_search(settings, WEIGHTS, PATIENCE, run_together=stop_in_the_third_round)
    improvement = search.run()
    assert rounds == [2, 2, 2]
    assert improvement.report.why_ended is SearchEndReason.STOPPED
    assert improvement.places, "of the first two rounds"
    assert improvement.report.moved == len(improvement.places)


def test_searches_of_newcomers_are_not_parallel() -> None:
    plan, columns = plan_long_before_short()
    start = SearchInput(plan, no_promises(plan), columns, 1.0, 0)
    search = start.make_search(SearchSettings(parallel=4), {"wait": 1.0}, 0, np.array([3]))
    assert not isinstance(search, ParallelSearch)


def test_zero_parallel_searches_are_refused() -> None:
    with pytest.raises(ValueError, match="parallel 0: must be at least 1"):
        SearchSettings(parallel=0)
