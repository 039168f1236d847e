"""What is seen of nodes' failures, and long jobs that leave those that fail most.

A node has failed when it was up, went down by itself, and is down for longer than the grace for nodes. Nodes
that were drained or switched off first have not.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from schedd.engine.records import JobRecord
from schedd.policy.reliability import Life, failure_rates

if TYPE_CHECKING:
    from schedd.engine.state import EngineState

__all__ = ["failed", "fails_less", "seen"]

_BLOCK = 300
"""Rates are worked out anew so often, in seconds."""


def seen(state: "EngineState", name: str, now_is: str, *, away: bool) -> None:
    """The server shows a node ``now_is`` (up, drain, down); ``away``: we switched it off."""
    half = state.site.reliability.half_life
    life = state.lives.get(name, Life(state.now)).aged(state.now, half)
    fell = now_is == "down" and not away and (life.is_up or life.fell)
    state.lives[name] = replace(life, is_up=now_is == "up", fell=fell)


def failed(state: "EngineState", name: str) -> None:
    """A node is down for longer than the grace."""
    life = state.lives.get(name)
    if life is not None and life.fell:
        life = life.aged(state.now, state.site.reliability.half_life)
        state.lives[name] = replace(life, failures=life.failures + 1, fell=False)
        state.flaky = None


def _rates(state: "EngineState") -> dict[int, float]:
    """Failures per second by row of the plan; empty where all nodes fail alike."""
    block = state.now - state.now % _BLOCK
    if state.flaky is None or state.flaky[0] != block:
        rates = failure_rates(state.lives, block, state.site.reliability.half_life)
        rows = state.plan.row_of
        found = {rows[name]: rate for name, rate in rates.items() if name in rows}
        state.flaky = (block, found if any(found.values()) else {})
    return state.flaky[1]


def fails_less(state: "EngineState", record: JobRecord, *, placed_now: bool) -> bool:
    """Move a planned job to nodes that fail less and are free at its start, too; returns whether it moved.

    The worst of its nodes is then the best that can be had at that start; who needs fewer failures gets no
    later start by it. ``placed_now``: nobody has seen its present place yet.
    """
    least = state.site.reliability.avoid
    plan, slot = state.plan, record.slot
    if not least or record.understood.walltime < least or plan.start(slot) < state.now:
        return False
    rates = _rates(state)
    takes, start = plan.takes(slot), plan.start(slot)
    worst = max((rates.get(take.row, 0.0) for take in takes), default=0.0)
    better = sorted({rate for rate in rates.values() if rate < worst})
    if not better:
        return False
    if placed_now:
        plan.take_back(slot)
    else:
        plan.lift(slot, state.now)
    low, high = 0, len(better)  # the first of ``better`` that is enough for a place; all of them: none is
    while low < high:
        middle = (low + high) // 2
        with plan.without(row for row, rate in rates.items() if rate > better[middle]):
            found = plan.probe(slot, start, start + 1)
        low, high = (low, middle) if found == start else (middle + 1, high)
    if low < len(better):
        with plan.without(row for row, rate in rates.items() if rate > better[low]):
            plan.place(slot, start, start + 1)
        before = sum(rates.get(row, 0.0) for row in {take.row for take in takes})
        after = sum(rates.get(row, 0.0) for row in {take.row for take in plan.takes(slot)})
        if after < before:
            return True
        plan.take_back(slot)
    plan.put(slot, start, takes)
    return False
