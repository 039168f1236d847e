"""The room that running jobs leave at a moment: the kernel against a count from the job's placements."""

import random

import pytest

from schedd.model import Chunk, Node, Place, Request
from schedd.plan.columns import FIXED, PLANNED
from schedd.plan.plan import Plan
from schedd.plan.records import Take

_NODES = [Node(f"n{i}", 4, mem=64) for i in range(4)]
_POOL = 6


def _plan(rng: random.Random) -> tuple[Plan, set[int]]:
    """Jobs that run, some beyond their planned ends, jobs that are planned, and reservations."""
    plan = Plan(_NODES, 0)
    plan.set_pool("limit", _POOL, 0)
    plan.limit_pool("limit", 100, 200, -2, 0)
    timed: set[int] = set()
    for _ in range(rng.randint(1, 25)):
        place = rng.choice(list(Place))
        request = Request((Chunk(rng.randint(1, 3), rng.randint(0, 3), mem=rng.choice([0, 16])),), place)
        pools = {"limit": rng.randint(0, 2)}
        slot = plan.add_job(request, rng.randint(1, 300), 0, pools)
        kind = rng.random()
        if kind < 0.5:
            plan.place(slot, rng.randint(0, 300))
            if plan.start(slot) >= 0 and rng.random() < 0.6:
                plan.fix_in_place(slot)
        else:  # whether there is room is not asked
            amounts = [0] * len(plan.resource_columns)
            amounts[plan.resource_columns["cpus"]] = rng.randint(0, 4)
            amounts[plan.resource_columns["share"]] = 1
            rows = rng.sample(sorted(plan.node_names), rng.randint(1, 3))
            plan.fix(slot, rng.randint(0, 300), [Take(row, 0, 1, tuple(amounts)) for row in rows])
            if rng.random() < 0.4:
                timed.add(slot)
    return plan, timed


def _counted(plan: Plan, slot: int, now: int, timed: set[int], others: list[Take]) -> set[str]:
    """Return the names of the rows without capacity for the job, from the sum of all others."""
    held: dict[str, list[int]] = {}
    pool = 0
    for other in range(plan.jobs.size):
        active = plan.start(other) <= now < plan.end(other)
        if other != slot and plan.state(other) == FIXED and (active or other not in timed):
            for take in plan.takes(other):
                name = plan.node_names[take.row]
                before = held.get(name, [0] * len(take.amounts))
                held[name] = [a + b for a, b in zip(before, take.amounts, strict=True)]
            pool += plan.pool_amounts(other).get("limit", 0)
    for take in others:
        name = plan.node_names[take.row]
        before = held.get(name, [0] * len(take.amounts))
        held[name] = [a + b for a, b in zip(before, take.amounts, strict=True)]
    found = set()
    mine: dict[str, list[int]] = {}
    for take in plan.takes(slot):
        name = plan.node_names[take.row]
        before = mine.get(name, [0] * len(take.amounts))
        mine[name] = [a + b for a, b in zip(before, take.amounts, strict=True)]
    for name, amounts in mine.items():
        capacity = plan.timeline(plan.node_rows[name]).capacity.tolist()
        rest = held.get(name, [0] * len(amounts))
        if any(a > 0 and a + b > c for a, b, c in zip(amounts, rest, capacity, strict=True)):
            found.add(name)
    wanted = plan.pool_amounts(slot).get("limit", 0)
    if wanted and pool + wanted > (_POOL - 2 if 100 <= now < 200 else _POOL):
        found.add("limit")
    return found


@pytest.mark.parametrize("seed", range(60))
def test_overcommitted_row_matches_a_plain_sum(seed: int) -> None:
    rng = random.Random(seed)
    plan, timed = _plan(rng)
    columns = len(plan.resource_columns)
    for slot in range(plan.jobs.size):
        if plan.state(slot) != PLANNED:
            continue
        for now in (plan.start(slot), rng.randint(0, 600)):
            some = rng.randint(0, 1)
            others = [Take(rng.choice(sorted(plan.node_names)), 0, 1, (1,) * columns) for _ in range(some)]
            expected = _counted(plan, slot, now, timed, others)
            found = plan.overcommitted_now(slot, now, timed, others)
            assert found in expected if expected else not found
