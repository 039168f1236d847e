"""What a search leaves behind is kept where it is better by some objective; how much a front dominates."""

import numpy as np
import pytest

from research.benchmarks.grow import Grower
from schedd.alternatives.pareto_search import hypervolume
from schedd.alternatives.plan_archive import PlanArchive
from schedd.model import FOREVER
from schedd.optimize import PlanSearch, SearchSettings
from schedd.plan.columns import PLANNED
from schedd.plan.evaluate import ScoringColumns
from schedd.plan.plan import Plan


def grown() -> tuple[Plan, int]:
    grower = Grower("metacentrum", 20, 60, 1)
    grower.fill(60)
    return grower.plan, grower.now


def aims(plan: Plan) -> np.ndarray:
    """Mean start, and the last end."""
    jobs = plan.jobs
    planned = jobs.states == PLANNED
    ends = jobs.starts[planned] + jobs.durations[planned]
    return np.array([jobs.starts[planned].mean(), ends.max(), ends.std()], np.float64)


def search(plan: Plan, now: int, archive: PlanArchive | None) -> PlanSearch:
    columns = ScoringColumns.blank(plan.jobs.size)
    latest = np.full(plan.jobs.size, FOREVER, np.int64)
    settings = SearchSettings(moves=300, seconds=None, seed=3)
    return PlanSearch(plan, columns, latest, now, settings, on_move=archive)


def test_the_archive_has_plans_of_which_none_is_better_by_all_and_they_can_be_made_again() -> None:
    plan, now = grown()
    slots = np.flatnonzero(plan.jobs.states == PLANNED)
    archive = PlanArchive(slots, aims)
    found = search(plan.fork(), now, archive).run()
    assert archive.examined == found.report.accepted > 3
    kept = archive.plans
    assert 1 <= len(kept) <= 4
    for i, one in enumerate(archive.values):
        assert not any((other <= one).all() for j, other in enumerate(archive.values) if j != i)
    for places, value in zip(kept, archive.values, strict=True):
        again = plan.fork()
        for slot in slots.tolist():
            again.remove(slot, now)
        for place in places.values():
            again.place_at(place.slot, place.start, place.takes, search_again=False)
        assert aims(again) == pytest.approx(value)


def test_a_search_finds_the_same_whether_it_is_looked_at_or_not() -> None:
    plan, now = grown()
    slots = np.flatnonzero(plan.jobs.states == PLANNED)
    looked_at = search(plan.fork(), now, PlanArchive(slots, aims)).run()
    assert looked_at.places == search(plan.fork(), now, None).run().places


def test_with_no_share_of_the_time_nothing_but_the_first_is_looked_at() -> None:
    plan, _ = grown()
    archive = PlanArchive(np.flatnonzero(plan.jobs.states == PLANNED), aims, share=0.0)
    for _ in range(3):
        archive(plan)
    assert archive.examined == 1


def test_the_hypervolume_is_the_share_of_the_box_that_is_dominated() -> None:
    live = np.array([10.0, 2.0])
    box = 1.2 * 1.2
    assert hypervolume(live[None, :], live) == pytest.approx(0.2 * 0.2 / box)
    better = np.array([[5.0, 2.0], [10.0, 1.0]])
    assert hypervolume(better, live) == pytest.approx((0.7 * 0.2 + 0.2 * 0.7 - 0.2 * 0.2) / box)
    assert hypervolume(np.array([[0.0, 0.0]]), live) == pytest.approx(1.0)
    assert hypervolume(np.array([[20.0, 9.0]]), live) == 0.0
    assert hypervolume(np.array([[5.0, 0.0]]), np.array([10.0, 0.0])) == pytest.approx(0.7 / 1.2)
    assert hypervolume(np.zeros((1, 2)), np.zeros(2)) == 0.0
