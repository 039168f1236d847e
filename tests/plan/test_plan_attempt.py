"""Reversible attempts on a plan are committed as a whole, or reverted."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from schedd.model import Chunk, Node, NodeState, Request
from schedd.plan.kernels import layout as at
from schedd.plan.placements import PlanAttempt, current_allocation
from schedd.plan.plan import Plan

NODES = [Node(f"n{i}", 4) for i in range(3)]


def _plan(seed: int) -> tuple[Plan, list[int]]:
    """A plan with running jobs, planned ones and a node that is down."""
    rng = Random(seed)
    plan = Plan([*NODES, Node("down", 4, state=NodeState.DOWN)], 0)
    plan.set_pool("licence", 3, 0)
    slots = []
    for _ in range(12):
        pools = {"licence": 1} if rng.random() < 0.4 else {}
        slots.append(
            plan.add_job(
                Request((Chunk(rng.randint(1, 2), rng.randint(1, 4)),)), rng.randint(5, 50), 0, pools
            )
        )
        plan.place(slots[-1], 0)
    for slot in slots[:3]:
        plan.fix_in_place(slot)
    plan.repair(0)
    return plan, slots


def _contents(plan: Plan, slots: list[int]) -> list[Any]:
    """All that must be as before."""
    tb = plan.tables
    places = [
        (current_allocation(plan, slot), plan.state(slot), int(tb.jobs[at.SEEN, slot])) for slot in slots
    ]
    rows = range(tb.rows.shape[0])
    # Equal neighbouring segments may be split now: only free amounts over time count.
    lines = [(row, _free(plan, row)) for row in rows if tb.rows[row, at.KIND] != at.SPARE_ROW]
    return [places, lines, tb.rows[:, at.USABLE].tolist()]


def _free(plan: Plan, row: int) -> list[list[int]]:
    line = plan.timeline(row)
    found = [[int(t), *free.tolist()] for t, free in zip(line.times, line.free.T, strict=True)]
    return [step for i, step in enumerate(found) if i == 0 or step[1:] != found[i - 1][1:]]


def _lift_all(plan: Plan, attempt: PlanAttempt, slots: list[int]) -> None:
    for slot in slots:
        attempt.remove(slot)


def _mix(plan: Plan, attempt: PlanAttempt, slots: list[int]) -> None:
    """Some end elsewhere, one is put back, one stays away, one is lifted twice."""
    _lift_all(plan, attempt, slots[:6])
    for slot in slots[5:2:-1]:
        plan.place(slot, 3)
    attempt.remove(slots[4])
    attempt.restore(slots[0])
    attempt.open_node(plan.node_rows["down"])


def _anew(plan: Plan, attempt: PlanAttempt, slots: list[int]) -> None:
    elsewhen = replace(current_allocation(plan, slots[-1]), start=5000)
    attempt.remove(slots[-1])
    attempt.place_at(elsewhen)


class _FailedError(Exception):
    """Of something that was tried."""


@pytest.mark.parametrize("trying", [_lift_all, _mix, _anew])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fails", [False, True])
def test_uncommitted_attempt_is_reverted(
    trying: Callable[[Plan, PlanAttempt, list[int]], None], seed: int, fails: bool
) -> None:
    plan, slots = _plan(seed)
    before = _contents(plan, slots)
    with suppress(_FailedError), PlanAttempt(plan, 0) as attempt:
        trying(plan, attempt, slots)
        assert _contents(plan, slots) != before
        if fails:
            raise _FailedError
    assert _contents(plan, slots) == before


def test_committed_attempt_stays() -> None:
    plan, slots = _plan(1)
    was = plan.start(slots[-1])
    with PlanAttempt(plan, 0) as attempt:
        attempt.remove(slots[-1])
        plan.place(slots[-1], was + 500)
        attempt.commit()
    assert plan.start(slots[-1]) == was + 500
