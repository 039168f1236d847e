"""Placement of a new job: no row is over-committed, no job passes its last start, no worse than the first
gap.
"""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schedd.model import FOREVER, Chunk, Node, NodeState, Request
from schedd.plan.criteria import Criterion
from schedd.plan.evaluate import CriterionWeights, ScoringColumns
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.layout import Ints
from schedd.plan.latest_starts import latest_starts
from schedd.plan.machine import MOST_TIERS
from schedd.plan.placement_choice import DisplaceableJobs, choose_placement
from schedd.plan.placements import current_allocation
from schedd.plan.plan import Plan
from schedd.plan.records import Moves
from tests.optimize.random_plans import NOW, RandomPlan, cost_between, random_plans, random_weights
from tests.plan.mirror import Mirror
from tests.plan.strategies import DURATIONS, requests

FAR = NOW + 100_000


def arrive(scene: RandomPlan, data: st.DataObject, speeds: tuple[float, ...] = (1.0,)) -> int:
    """Give the nodes speeds, and let a job come; returns its slot."""
    plan = scene.plan
    plan.set_nodes([replace(n, speed=data.draw(st.sampled_from(speeds))) for n in plan.nodes.values()], NOW)
    amounts = {name: data.draw(st.integers(0, 2)) for name in scene.mirror.pool_sizes}
    slot = scene.mirror.new(data.draw(requests()), data.draw(DURATIONS), NOW, amounts)
    scene.columns.release[slot] = NOW
    scene.columns.due[slot] = data.draw(st.integers(NOW, NOW + 1000))
    scene.columns.owner[slot] = data.draw(st.integers(0, 2))
    return slot


def lowest_tier(plan: Plan, slot: int) -> int:
    """Return the lowest tier of a job's nodes; -1 if one of these is unusable."""
    return min(int(plan.tables.rows[take.row, at.USABLE]) - 1 for take in plan.takes(slot))


@given(random_plans(), random_weights(), st.data())
def test_with_one_speed_the_first_gap_is_used(
    scene: RandomPlan, drawn: dict[Criterion, float], data: st.DataObject
) -> None:
    slot = arrive(scene, data)
    plain = scene.plan.fork()
    start = plain.place(slot, NOW, FAR)
    found = choose_placement(scene.plan, slot, scene.columns, NOW, FAR, CriterionWeights(drawn))
    assert (found.start if found is not None else -1) == start
    assert current_allocation(scene.plan, slot) == current_allocation(plain, slot)


@given(random_plans(), random_weights(), st.data())
def test_the_best_gap_is_the_first_on_its_nodes_and_no_worse_than_the_first_anywhere(
    scene: RandomPlan, drawn: dict[Criterion, float], data: st.DataObject
) -> None:
    slot = arrive(scene, data, (1.0, 2.0, 3.5))
    weighed = CriterionWeights(drawn)
    first = scene.with_plan(scene.plan.fork())
    earliest = scene.mirror.earliest(slot, NOW)
    assert first.plan.place(slot, NOW, FAR) == earliest or earliest >= FAR
    found = choose_placement(scene.plan, slot, scene.columns, NOW, FAR, weighed)
    if found is None:
        assert first.plan.start(slot) < 0
        return
    scene.check()
    assert found.first == first.plan.start(slot)
    assert found.start == scene.plan.start(slot) >= found.first
    assert lowest_tier(scene.plan, slot) >= found.tier
    assert {s: t for s, t in scene.starts().items() if s != slot} == {
        s: t for s, t in first.starts().items() if s != slot
    }
    # The reference planner, which sees only nodes at least so fast, finds no earlier start.
    rows = scene.plan.tables.rows
    reference = scene.mirror.reference(slot)
    reference.nodes = [
        node
        if rows[scene.plan.node_rows[node.name], at.USABLE] > found.tier
        else replace(node, state=NodeState.DRAIN)
        for node in reference.nodes
    ]
    request, duration, ready, pools = scene.mirror.jobs[slot]
    assert reference.earliest(request, duration, max(NOW, ready), pools=pools) == found.start
    if weighed.regular:
        assert found.start == found.first
    elif found.start > found.first:
        assert cost_between(weighed, scene, first) < cost_between(weighed, first, first)
    # Of equal starts it has the fastest nodes.
    scene.plan.undo_place(slot)
    for tier in range(found.tier + 1, scene.plan.tiers):
        assert scene.plan.probe(slot, NOW, FAR, tier) != found.start


@given(random_plans(), random_weights(), st.data())
def test_displacing_later_deadlines_improves_the_plan_and_breaks_no_promise(
    scene: RandomPlan, drawn: dict[Criterion, float], data: st.DataObject
) -> None:
    slot = arrive(scene, data, data.draw(st.sampled_from([(1.0,), (1.0, 3.0)])))
    weighed = CriterionWeights({Criterion.LATE_JOBS: 1.0, **drawn})
    plan = scene.plan
    rank = np.zeros(plan.tables.jobs.shape[1], np.int64)
    for other in scene.waiting:
        rank[other] = data.draw(st.integers(-1, 1))
    latest = latest_starts(plan, scene.promised, scene.columns, NOW)
    before = scene.starts()
    gap = scene.with_plan(plan.fork())
    alone = choose_placement(gap.plan, slot, scene.columns, NOW, FAR, weighed)
    found = choose_placement(plan, slot, scene.columns, NOW, FAR, weighed, DisplaceableJobs(latest, rank))
    assert (found is None) == (alone is None)
    if found is None or alone is None:
        return
    scene.check()
    after = scene.starts()
    moved = {other for other in before if other != slot and before[other] != after[other]}
    assert moved == set(found.moves.slots.tolist())
    for other, old, new in zip(found.moves.slots, found.moves.old, found.moves.new, strict=True):
        assert (old, new) == (before[other], after[other])
        assert new <= latest[other]
        assert old > NOW
        assert rank[other] <= rank[slot]
    if after[slot] != gap.plan.start(slot) or moved:
        assert after[slot] < gap.plan.start(slot)
        assert cost_between(weighed, scene, gap) < cost_between(weighed, gap, gap) + 1e-9


def test_a_try_that_fails_after_all_leaves_everything_as_it_was() -> None:
    """Which cannot happen; so it is made to."""
    scene, slot, others = _a_queue()
    plan = scene.plan
    before = {s: current_allocation(plan, s) for s in scene.mirror.jobs if s != slot}
    refuses = _Refuses(plan)
    try:
        choose_placement(
            refuses, slot, scene.columns, NOW, FAR, CriterionWeights({Criterion.LATE_JOBS: 1.0}), others
        )
    except AssertionError:
        assert {s: current_allocation(plan, s) for s in before} == before
        assert plan.start(slot) >= 0
        scene.check()
    else:
        raise AssertionError("it was to fail")


class _Refuses(Plan):
    """Plan with displaced jobs and past starts."""

    def __init__(self, plan: Plan) -> None:
        self.__dict__ = plan.__dict__

    def displace(self, slots: Ints, latest: Ints, now: int, tier: int = 0) -> Moves | None:
        return super().displace(slots, np.where(np.arange(slots.shape[0]) == 0, latest, 0), now, tier)


def _a_queue() -> tuple[RandomPlan, int, DisplaceableJobs]:
    """A node that is full for 100 s, a later job without a deadline, and a new one with a deadline."""
    mirror = Mirror(Plan([Node("n1", cpus=4, mem=0)], NOW))
    plan = mirror.plan
    slots = plan.tables.jobs.shape[1]
    scene = RandomPlan(mirror, ScoringColumns.blank(slots), np.full(slots, FOREVER, np.int64))
    request = Request((Chunk(1, 4),))
    runs, waits, comes = (mirror.new(request, 100, NOW) for _ in range(3))
    plan.place(runs, NOW)
    plan.fix_in_place(runs)
    plan.place(waits, NOW)
    scene.columns.release[:] = NOW
    scene.columns.due[comes] = NOW + 220
    return scene, comes, DisplaceableJobs(scene.promised.copy(), np.zeros(slots, np.int64))


def test_job_is_placed_before_the_first_job_with_a_later_deadline() -> None:
    scene, slot, others = _a_queue()
    found = choose_placement(
        scene.plan, slot, scene.columns, NOW, FAR, CriterionWeights({Criterion.LATE_JOBS: 1.0}), others
    )
    assert found is not None
    assert (found.start, found.first) == (NOW + 100, NOW + 200)
    assert (found.moves.old.tolist(), found.moves.new.tolist()) == ([NOW + 100], [NOW + 200])


@given(random_plans(), st.booleans(), st.data())
def test_repair_keeps_the_speed_tier_if_tiers_are_protected(
    scene: RandomPlan, keep: bool, data: st.DataObject
) -> None:
    slot = arrive(scene, data, (1.0, 2.0, 3.5))
    plan = scene.plan
    plan.place(slot, NOW, FAR)
    plan.protect_tiers(keep)
    had = {s: (plan.start(s), lowest_tier(plan, s)) for s in scene.waiting}
    plan.repair(NOW)
    if scene.running:
        gone = data.draw(st.sampled_from(scene.running))
        plan.drop_job(gone, NOW)
        scene.running.remove(gone)
        del scene.mirror.jobs[gone]
    plan.repair_now(NOW)
    plan.repair(NOW)
    scene.check()
    for s, (start, tier) in had.items():
        assert plan.start(s) <= start
        if keep and plan.start(s) < start:
            assert lowest_tier(plan, s) >= tier
    if not keep:
        for s in had:
            assert plan.start(s) == scene.mirror.earliest(s, NOW, alone=True)


def test_many_speeds_make_few_tiers_in_their_order() -> None:
    plan = Plan([Node(f"n{i}", cpus=1, mem=0, speed=1 + i / 10) for i in range(30)], NOW)
    tiers = [int(plan.tables.rows[plan.node_rows[f"n{i}"], at.USABLE]) - 1 for i in range(30)]
    assert tiers == sorted(tiers)
    assert set(tiers) == set(range(MOST_TIERS))
    assert plan.tiers == MOST_TIERS
    plan.set_nodes([replace(node, speed=1.0) for node in plan.nodes.values()], NOW)
    assert plan.tiers == 1
    assert (plan.tables.rows[: len(tiers), at.USABLE] == 1).all()
