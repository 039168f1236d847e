"""Rebase of a search result onto a plan that has changed since."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schedd.model import FOREVER, Chunk, Node, Request
from schedd.optimize import PlanSearch, SearchSettings
from schedd.plan.criteria import PATIENCE, Criterion
from schedd.plan.evaluate import CriterionWeights, ScoringColumns
from schedd.plan.kernels import layout as at
from schedd.plan.latest_starts import latest_starts, scale_to_expected
from schedd.plan.placements import Allocation, current_allocation
from schedd.plan.plan import Plan
from schedd.plan.rebase import rebase
from tests.optimize.random_plans import NOW, RandomPlan, cost_between, random_plans, search_settings
from tests.plan.strategies import DURATIONS, requests


def change_live_plan(random_plan: RandomPlan, data: st.DataObject) -> int:
    """Apply random events to the live plan; return the time after them."""
    plan, now = random_plan.plan, NOW
    for what in data.draw(st.lists(st.sampled_from(["add", "drop", "end", "later"]), max_size=5)):
        if what == "add" and plan.tables.jobs.shape[1] > len(random_plan.mirror.jobs) + 1:
            slot = random_plan.mirror.new(data.draw(requests()), data.draw(DURATIONS), now)
            random_plan.columns.release[slot] = now
            plan.place(slot, now)
        elif what == "drop" and random_plan.waiting:
            slot = data.draw(st.sampled_from(random_plan.waiting))
            plan.drop_job(slot, now)
            del random_plan.mirror.jobs[slot]
        elif what == "end" and random_plan.running:
            slot = random_plan.running.pop()
            plan.drop_job(slot, now)
            del random_plan.mirror.jobs[slot]
            plan.repair(now)
        elif what == "later":
            now += data.draw(st.integers(1, 40))
            for slot in random_plan.waiting:
                if plan.start(slot) <= now:
                    plan.fix_in_place(slot)
                    random_plan.running.append(slot)
    return now


@given(random_plans(), search_settings(), st.sampled_from([1.0, 0.4]), st.data())
def test_rebase_keeps_promises_and_never_increases_the_cost(
    random_plan: RandomPlan, settings: SearchSettings, use: float, data: st.DataObject
) -> None:
    latest = latest_starts(random_plan.plan, random_plan.promised, random_plan.columns, NOW, PATIENCE, use)
    improvement = PlanSearch(
        random_plan.plan.fork(), random_plan.columns, latest, NOW, settings, use=use
    ).run()
    known = dict(random_plan.mirror.jobs)
    now = change_live_plan(random_plan, data)
    places = [
        place for place in improvement.places if random_plan.mirror.jobs.get(place.slot) is known[place.slot]
    ]
    latest = latest_starts(random_plan.plan, random_plan.promised, random_plan.columns, NOW, PATIENCE, use)
    before = random_plan.with_plan(random_plan.plan.fork())
    rebased = rebase(
        random_plan.plan,
        places,
        random_plan.columns,
        latest,
        now,
        CriterionWeights(settings.weights),
        use=use,
        threshold=settings.threshold,
    )

    random_plan.check()
    assert set(random_plan.waiting) == set(before.waiting)
    for slot in random_plan.running:
        assert current_allocation(random_plan.plan, slot) == current_allocation(before.plan, slot)
    for slot in random_plan.waiting:
        assert random_plan.plan.start(slot) <= max(random_plan.promised[slot], before.plan.start(slot))
        assert random_plan.plan.start(slot) >= min(now, before.plan.start(slot))
    weights = CriterionWeights(settings.weights)
    expected, patience = scale_to_expected(random_plan.columns, now, PATIENCE, use)
    then, after = (replace(plan, columns=expected) for plan in (before, random_plan))
    old, new = (cost_between(weights, plan, then, patience) for plan in (then, after))
    assert new <= old + 1e-9
    changed = {
        slot: (before.plan.start(slot), random_plan.plan.start(slot))
        for slot in random_plan.waiting
        if current_allocation(random_plan.plan, slot) != current_allocation(before.plan, slot)
    }
    assert changed == {
        slot: (was, start)
        for slot, was, start in zip(
            *(column.tolist() for column in (rebased.moves.slots, rebased.moves.old, rebased.moves.new)),
            strict=True,
        )
    }
    assert not changed or new < old
    # After a repair no job could start earlier in the free capacity.
    random_plan.plan.repair(now)
    for slot in random_plan.waiting:
        request = random_plan.mirror.jobs[slot][0]
        if len(request.chunks) == 1 and random_plan.plan.start(slot) > now:
            assert random_plan.mirror.earliest(slot, now) >= random_plan.plan.start(slot)


@given(random_plans(), search_settings())
def test_rebase_onto_an_unchanged_plan_takes_every_place(
    random_plan: RandomPlan, settings: SearchSettings
) -> None:
    found = random_plan.with_plan(random_plan.plan.fork())
    latest = latest_starts(random_plan.plan, random_plan.promised, random_plan.columns, NOW)
    improvement = PlanSearch(found.plan, random_plan.columns, latest, NOW, settings).run()
    rebased = rebase(
        random_plan.plan,
        improvement.places,
        random_plan.columns,
        latest,
        NOW,
        CriterionWeights(settings.weights),
        threshold=settings.threshold,
    )
    assert rebased.whole == bool(improvement.places)
    for slot in random_plan.waiting:
        assert current_allocation(random_plan.plan, slot) == current_allocation(found.plan, slot)


MEANS = {Criterion.WAIT: 1.0}


def plan_queue(*durations: int) -> tuple[Plan, ScoringColumns, Any]:
    plan = Plan([Node("a", 1)], 0)
    for duration in (50, *durations):
        plan.place(plan.add_job(Request((Chunk(cpus=1),)), duration, 0), 0)
    plan.fix_in_place(0)
    slots = plan.tables.jobs.shape[1]
    return plan, ScoringColumns.blank(slots), np.full(slots, FOREVER, np.int64)


def test_rebase_does_not_use_a_place_occupied_meanwhile() -> None:
    plan, columns, free = plan_queue(1000, 10)
    settings = SearchSettings(weights=MEANS)
    places = PlanSearch(plan.fork(), columns, free, 0, settings).run().places
    assert [(place.slot, place.start) for place in places] == [(2, 50), (1, 60)]
    plan.remove(1, 0)
    plan.remove(2, 0)
    urgent = plan.add_job(Request((Chunk(cpus=1),)), 5, 0)
    plan.place(urgent, 0)
    plan.place(1, 0)
    plan.place(2, 0)
    rebased = rebase(
        plan, places, columns, free, 0, CriterionWeights(settings.weights), threshold=settings.threshold
    )
    assert rebased.whole
    assert [plan.start(slot) for slot in (urgent, 2, 1)] == [50, 55, 65]


def test_rebase_respects_a_promise_made_in_the_meantime() -> None:
    plan, columns, free = plan_queue(1000, 10)
    settings = SearchSettings(weights=MEANS)
    places = PlanSearch(plan.fork(), columns, free, 0, settings).run().places
    promised = free.copy()
    promised[1] = 50
    rebased = rebase(
        plan, places, columns, promised, 0, CriterionWeights(settings.weights), threshold=settings.threshold
    )
    assert len(rebased.moves) == 0
    assert not rebased.whole
    assert [plan.start(slot) for slot in (1, 2)] == [50, 1050]


def test_abandoned_rebase_leaves_gaps_for_a_later_repair() -> None:
    plan, columns, free = plan_queue(1000, 10, 10)
    plan.drop_job(1, 0)  # its place is free and no job has moved up yet
    taken = Allocation(2, 10, plan.takes(2))  # another runs there: it would go to its earliest gap, at 50
    bad = Allocation(3, 5000, plan.takes(3))
    rebased = rebase(plan, [taken, bad], columns, free, 0, CriterionWeights(MEANS))
    assert len(rebased.moves) == 0
    assert [plan.start(slot) for slot in (2, 3)] == [1050, 1060]
    plan.repair(0)
    assert [plan.start(slot) for slot in (2, 3)] == [50, 60]


def test_rebase_places_a_late_job_again_and_takes_the_other_places() -> None:
    plan = Plan([Node("a", 1), Node("b", 1)], 0)
    on = {name: Request((Chunk(cpus=1, features=(frozenset({name}),)),)) for name in "ab"}
    slots = {}
    for name, duration in (("run", 50), ("long", 1000), ("short", 10)):
        for node in "ab":
            slots[name, node] = plan.add_job(on[node], duration, 0)
            plan.place(slots[name, node], 0)
    for node in "ab":
        plan.fix_in_place(slots["run", node])
    columns = ScoringColumns.blank(plan.tables.jobs.shape[1])
    free = np.full(plan.tables.jobs.shape[1], FOREVER, np.int64)
    places = PlanSearch(plan.fork(), columns, free, 0, SearchSettings(weights=MEANS)).run().places
    assert {place.slot: place.start for place in places} == {
        slots[name, node]: start for node in "ab" for name, start in (("short", 50), ("long", 60))
    }
    for name in ("long", "short"):
        plan.remove(slots[name, "a"], 0)
    urgent = plan.add_job(on["a"], 5, 0)
    for slot in (urgent, slots["long", "a"], slots["short", "a"]):
        plan.place(slot, 0)
    latest = free.copy()
    latest[slots["short", "a"]] = plan.start(slots["short", "a"])  # behind the long one it would be too late
    rebased = rebase(plan, places, columns, latest, 0, CriterionWeights(MEANS))
    assert rebased.whole
    assert sorted(rebased.moves.slots.tolist()) == sorted((slots["long", "b"], slots["short", "b"]))
    starts = {key: plan.start(slot) for key, slot in slots.items()}
    assert [starts[name, "a"] for name in ("long", "short")] == [55, 1055]
    assert [starts[name, "b"] for name in ("long", "short")] == [60, 50]


def test_job_delayed_by_a_rebase_moves_into_capacity_freed_earlier() -> None:
    plan = Plan([Node("a", 1), Node("b", 1)], 0)
    on = {name: Request((Chunk(cpus=1, features=(frozenset({name}),)),)) for name in "ab"}
    some = Request((Chunk(cpus=1),))
    for request, duration in ((on["a"], 50), (on["b"], 70), (on["b"], 900), (some, 300)):
        plan.place(plan.add_job(request, duration, 0), 0)
    for _ in range(2):
        plan.place(plan.add_job(on["a"], 20, 0), 0)
    plan.fix_in_place(0)
    plan.fix_in_place(1)
    gone, long, *short = range(2, 6)
    columns = ScoringColumns.blank(plan.tables.jobs.shape[1])
    free = np.full(plan.tables.jobs.shape[1], FOREVER, np.int64)
    places = PlanSearch(plan.fork(), columns, free, 0, SearchSettings(weights=MEANS)).run().places
    assert {place.start for place in places if place.slot in short} == {50, 70}
    assert [place.start for place in places if place.slot == long] == [90]
    plan.drop_job(
        gone, 0
    )  # b is free from 70 on, which is of no use to the long one as long as it has 50 on a
    plan.repair(0)
    assert plan.start(long) == 50
    assert rebase(plan, places, columns, free, 0, CriterionWeights(MEANS)).whole
    plan.repair(0)
    assert plan.start(long) == 70
    assert plan.node_names[plan.takes(long)[0].row] == "b"


def test_single_places_are_adopted_if_all_together_fail() -> None:
    plan, columns, free = plan_queue(1000, 10)
    settings = SearchSettings(weights=MEANS)
    places = PlanSearch(plan.fork(), columns, free, 0, settings).run().places
    plan.drop_job(1, 0)  # its place is free and no job has moved up yet
    rebased = rebase(
        plan,
        [p for p in places if p.slot == 2],
        columns,
        free,
        0,
        CriterionWeights(settings.weights),
        threshold=settings.threshold,
    )
    assert plan.start(2) == 50
    assert plan.state(2) == at.PLANNED
    assert rebased.moves.slots.tolist() == [2]
