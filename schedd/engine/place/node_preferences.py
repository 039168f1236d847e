"""Of the nodes that are free at a job's start, those that suit it: that fail less, or draw less for its work.

No job starts later for it. Long jobs leave nodes that fail, as far as the site wants that; all others go to
the thriftiest, those whose deadline is near to the fastest.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from schedd.engine.facts.records import JobRecord
from schedd.engine.place.reliability import failure_rates_by_row
from schedd.model import FOREVER
from schedd.policy.energy_placement import joules_for_work

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

__all__ = ["move_to_better_nodes"]

_FAST: Final = "fast"
_KEPT: Final = 32


def move_to_better_nodes(state: "EngineState", record: JobRecord, *, placed_now: bool) -> bool:
    """Move a planned job to nodes that suit it better and are free at its start, too; returns whether it
    moved.

    ``placed_now``: nobody has seen its present place yet.
    """
    if state.plan.start(record.slot) < state.now:
        return False
    least = state.site.reliability.avoid
    if least and record.understood.walltime >= least and (rates := failure_rates_by_row(state)):
        return _move(state, record, rates, placed_now=placed_now)
    if not state.site.thrift.prefer:
        return False
    return _move(state, record, _draws(state, record), placed_now=placed_now)


def _draws(state: "EngineState", record: JobRecord) -> Mapping[int, float]:
    """By row, what a node draws for the job's work or, where its deadline is near, how long it takes."""
    key = _FAST if _is_urgent(state, record) else _gpus_per_core(record)
    if state.thrifty is None or len(state.thrifty) >= _KEPT:
        state.thrifty = {}
    found = state.thrifty.get(key)
    if found is None:
        plan, economy = state.plan, state.economy
        speeds = {name: plan.nodes[name].speed for name in state.node_facts if name in plan.node_rows}
        if key == _FAST:
            rates = {name: 1.0 / speed for name, speed in speeds.items()}
        else:
            draws = {name: economy.draw(name, state.node_facts[name].properties) for name in speeds}
            rates = joules_for_work(draws, speeds, float(key))
        found = state.thrifty[key] = {plan.node_rows[name]: rate for name, rate in rates.items()}
    return found


def _is_urgent(state: "EngineState", record: JobRecord) -> bool:
    due = int(state.due_by[record.slot])
    if due >= FOREVER or len({node.speed for node in state.plan.nodes.values()}) < 2:
        return False
    return due - state.plan.start(record.slot) - record.understood.walltime < state.site.thrift.urgent


def _gpus_per_core(record: JobRecord) -> str:
    """How many gpus the job holds for each of its cores."""
    request = record.understood.request
    if request is None:
        return "0"
    cores = sum(chunk.count * chunk.cpus for chunk in request.chunks)
    gpus = sum(chunk.count * chunk.gpus for chunk in request.chunks)
    return f"{gpus / max(cores, 1):.6g}"


def _move(state: "EngineState", record: JobRecord, rates: Mapping[int, float], *, placed_now: bool) -> bool:
    """Nodes are the better the lower their ``rates``, by row. The worst of the job's nodes is then the best
    that can be had at that start.
    """
    plan, slot = state.plan, record.slot
    takes, start = plan.takes(slot), plan.start(slot)
    worst = max((rates.get(take.row, 0.0) for take in takes), default=0.0)
    better = sorted({rate for rate in rates.values() if rate < worst})
    if not better:
        return False
    if placed_now:
        plan.undo_place(slot)
    else:
        plan.remove(slot, state.now)
    low, high = 0, len(better)  # the first of ``better`` that is enough for a place; all of them: none is
    while low < high:
        middle = (low + high) // 2
        with plan.excluding(row for row, rate in rates.items() if rate > better[middle]):
            found = plan.probe(slot, start, start + 1)
        low, high = (low, middle) if found == start else (middle + 1, high)
    if low < len(better):
        with plan.excluding(row for row, rate in rates.items() if rate > better[low]):
            plan.place(slot, start, start + 1)
        before = sum(rates.get(row, 0.0) for row in {take.row for take in takes})
        after = sum(rates.get(row, 0.0) for row in {take.row for take in plan.takes(slot)})
        if after < before:
            return True
        plan.undo_place(slot)
    plan.place_at(slot, start, takes)
    return False
