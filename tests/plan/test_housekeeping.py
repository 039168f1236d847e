"""Housekeeping of a plan: repacked pool entries, speed tiers."""

from dataclasses import replace
from typing import Any

import pytest

from schedd.model import Chunk, Node, NodeState, Request
from schedd.plan.kernels import layout as at
from schedd.plan.plan import Plan
from schedd.plan.slabs import MOST_WORK

ONE = Request((Chunk(cpus=1),))


def test_unused_pool_entries_are_dropped() -> None:
    plan = Plan([Node("n1", 64)], 0)
    names = [f"p{i}" for i in range(6)]
    for i, name in enumerate(names):
        plan.set_pool(name, 100 + i, 0)
    gone = plan.add_job(ONE, 10, 0, dict.fromkeys(names, 1))  # its entries stand before all others
    kept = {
        plan.add_job(ONE, 10, 0, {name: 1 + i, names[(i + 1) % 6]: 50 - i}): i for i, name in enumerate(names)
    }
    busy = plan.add_job(ONE, 10, 0, {"p0": 1})
    plan.drop_job(gone, 0)
    most = 0
    for turn in range(2000):
        plan.set_pools(busy, {names[turn % 6]: 1 + turn % 7}, turn)
        most = max(most, plan.slabs.n_pools)
    assert 1024 <= most <= 1026, "they are packed again and again"
    for slot, i in kept.items():
        assert plan.pool_amounts(slot) == {names[i]: 1 + i, names[(i + 1) % 6]: 50 - i}
    assert plan.pool_amounts(busy) == {names[1999 % 6]: 1 + 1999 % 7}
    assert plan.fork().pool_amounts(busy) == plan.pool_amounts(busy)


def test_a_tier_is_as_fast_as_its_slowest_node() -> None:
    plan = Plan([Node("a", 1, speed=2.0), Node("b", 1, speed=0.5), Node("c", 1, speed=1.0)], 0)
    assert [plan.slowest(tier) for tier in range(plan.tiers)] == [0.5, 1.0, 2.0]
    many = Plan([Node(f"n{i}", 1, speed=1.0 + i) for i in range(40)], 0)
    slowest = [many.slowest(tier) for tier in range(many.tiers)]
    assert slowest[0] == 1.0
    assert slowest == sorted(set(slowest))


@pytest.mark.parametrize("slower", [{"state": NodeState.DOWN}, {"speed": 1.0}])
def test_job_protected_on_a_fast_node_may_leave_it_when_down_or_not_faster(
    slower: dict[str, Any],
) -> None:
    fast, slow = Node("fast", 1, speed=2.0), Node("slow", 1, speed=1.0)
    plan = Plan([fast, slow], 0)
    plan.protect_tiers(True)
    busy, short, waits = (plan.add_job(ONE, length, 0) for length in (100, 150, 100))
    for slot in (busy, short, waits):
        plan.place(slot, 0)
    assert (plan.takes(waits)[0].row, plan.start(waits)) == (plan.node_rows["fast"], 100)
    plan.drop_job(short, 0)
    plan.repair(0)
    assert plan.start(waits) == 100, "it would start earlier on the slow node"
    plan.set_nodes([replace(fast, **slower)], 0)
    plan.repair(0)
    assert (plan.takes(waits)[0].row, plan.start(waits)) == (plan.node_rows["slow"], 0)


def test_job_protected_on_a_fast_node_may_move_to_an_equally_fast_one() -> None:
    fast, slow, other = Node("fast", 1, speed=2.0), Node("slow", 1, speed=1.0), Node("other", 1, speed=1.0)
    plan = Plan([fast, slow, other], 0)
    plan.protect_tiers(True)
    slots = [plan.add_job(ONE, length, 0) for length in (100, 1_000, 1_000, 100)]
    for slot in slots:
        plan.place(slot, 0)
    on = {plan.node_names[plan.takes(slot)[0].row]: slot for slot in slots[:3]}
    waits = slots[3]
    plan.drop_job(on["slow"], 0)
    plan.repair(0)
    assert (plan.takes(waits)[0].row, plan.start(waits)) == (plan.node_rows["fast"], 100)
    plan.set_nodes([replace(slow, speed=2.0)], 0)
    plan.repair(0)
    assert (plan.takes(waits)[0].row, plan.start(waits)) == (plan.node_rows["slow"], 0)


def test_searches_do_half_as_much_each_time_but_no_less_than_a_hundredth() -> None:
    plan = Plan([Node("n1", 1)], 0)

    def most() -> int:
        return int(plan.slabs.tb.ctl[at.MOST_WORK])

    assert most() == MOST_WORK
    seen = []
    for _ in range(9):
        plan.halve_work_limit()
        seen.append(most())
    assert seen[:6] == [MOST_WORK // 2**i for i in range(1, 7)]
    assert seen[6:] == [MOST_WORK // 100] * 3
    plan.limit_work(1000)
    plan.halve_work_limit()
    assert most() == 1000, "less than a hundredth was asked for"
    plan.limit_work()
    assert most() == MOST_WORK


def test_free_amounts_of_a_pool_are_listed_by_time() -> None:
    plan = Plan([Node("n1", 8)], 0)
    plan.set_pool("licence", 3, 0)
    slot = plan.add_job(ONE, 10, 5, {"licence": 2})
    plan.place(slot, 0)
    moments, free = plan.pool_free("licence")
    assert [(int(at_), int(left)) for at_, left in zip(moments, free, strict=True)][1:] == [(5, 1), (15, 3)]
    assert free[0] == 3
