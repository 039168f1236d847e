"""Archive of non-dominated plans met by a search, and the hypervolume of a front."""

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


def grow_plan() -> tuple[Plan, int]:
    grower = Grower("metacentrum", 20, 60, 1)
    grower.fill(60)
    return grower.plan, grower.now


def objective_values(plan: Plan) -> np.ndarray:
    """Return the mean start, the last end, and the spread of the ends."""
    jobs = plan.jobs
    planned = jobs.states == PLANNED
    ends = jobs.starts[planned] + jobs.durations[planned]
    return np.array([jobs.starts[planned].mean(), ends.max(), ends.std()], np.float64)


def make_search(plan: Plan, now: int, archive: PlanArchive | None) -> PlanSearch:
    columns = ScoringColumns.blank(plan.jobs.size)
    latest = np.full(plan.jobs.size, FOREVER, np.int64)
    settings = SearchSettings(moves=300, seconds=None, seed=3)
    return PlanSearch(plan, columns, latest, now, settings, on_move=archive)


def test_archived_plans_do_not_dominate_each_other_and_can_be_rebuilt() -> None:
    plan, now = grow_plan()
    slots = np.flatnonzero(plan.jobs.states == PLANNED)
    archive = PlanArchive(slots, objective_values)
    found = make_search(plan.fork(), now, archive).run()
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
        assert objective_values(again) == pytest.approx(value)


def test_archive_does_not_change_the_search_result() -> None:
    plan, now = grow_plan()
    slots = np.flatnonzero(plan.jobs.states == PLANNED)
    archived = make_search(plan.fork(), now, PlanArchive(slots, objective_values)).run()
    assert archived.places == make_search(plan.fork(), now, None).run().places


def test_archive_without_a_time_share_examines_only_the_first_plan() -> None:
    plan, _ = grow_plan()
    archive = PlanArchive(np.flatnonzero(plan.jobs.states == PLANNED), objective_values, share=0.0)
    for _ in range(3):
        archive(plan)
    assert archive.examined == 1


def test_hypervolume_is_the_dominated_share_within_the_box() -> None:
    live = np.array([10.0, 2.0])
    box = 1.2 * 1.2
    assert hypervolume(live[None, :], live) == pytest.approx(0.2 * 0.2 / box)
    better = np.array([[5.0, 2.0], [10.0, 1.0]])
    assert hypervolume(better, live) == pytest.approx((0.7 * 0.2 + 0.2 * 0.7 - 0.2 * 0.2) / box)
    assert hypervolume(np.array([[0.0, 0.0]]), live) == pytest.approx(1.0)
    assert hypervolume(np.array([[20.0, 9.0]]), live) == 0.0
    assert hypervolume(np.array([[5.0, 0.0]]), np.array([10.0, 0.0])) == pytest.approx(0.7 / 1.2)
    assert hypervolume(np.zeros((1, 2)), np.zeros(2)) == 0.0
