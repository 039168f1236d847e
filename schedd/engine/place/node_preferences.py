"""Choice among the nodes that are free at a job's start: nodes that fail less often, or use less power.

No job starts later because of it. Long jobs avoid unreliable nodes, as far as the site wants it. All other
jobs go to the nodes with the lowest power for their work; jobs close to their deadline to the fastest.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from schedd.engine.facts.records import JobRecord
from schedd.engine.place.reliability import failure_rates_by_row
from schedd.model import FOREVER
from schedd.plan.work_limits import WorkSpent
from schedd.policy.energy_placement import joules_for_work

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

_FAST: Final = "fast"
_KEPT: Final = 32


def move_to_better_nodes(state: "EngineState", record: JobRecord, *, placed_now: bool) -> bool:
    """Move a planned job to preferred nodes that are also free at its start. Return whether it moved.

    ``placed_now``: no reader has seen its present placement yet.
    """
    least = state.site.reliability.avoid
    if not (least or state.site.thrift.prefer) or state.plan.start(record.slot) < state.now:
        return False
    if least and record.understood.walltime >= least and (rates := failure_rates_by_row(state)):
        return _move(state, record, rates, placed_now=placed_now)
    if not state.site.thrift.prefer:
        return False
    return _move(state, record, _draws(state, record), placed_now=placed_now)


def _draws(state: "EngineState", record: JobRecord) -> Mapping[int, float]:
    """Return by row the energy for the job's work or, close to its deadline, its relative run time."""
    key = _FAST if _is_urgent(state, record) else _gpus_per_core(record)
    if state.row_watts is None or len(state.row_watts) >= _KEPT:
        state.row_watts = {}
    found = state.row_watts.get(key)
    if found is None:
        plan, economy = state.plan, state.economy
        speeds = {name: plan.nodes[name].speed for name in state.node_facts if name in plan.node_rows}
        if key == _FAST:
            rates = {name: 1.0 / speed for name, speed in speeds.items()}
        else:
            draws = {name: economy.draw(name, state.node_facts[name].properties) for name in speeds}
            rates = joules_for_work(draws, speeds, float(key))
        found = state.row_watts[key] = {plan.node_rows[name]: rate for name, rate in rates.items()}
    return found


def _is_urgent(state: "EngineState", record: JobRecord) -> bool:
    due = int(state.due_by[record.slot])
    if due >= FOREVER or len({node.speed for node in state.plan.nodes.values()}) < 2:
        return False
    return due - state.plan.start(record.slot) - record.understood.walltime < state.site.thrift.urgent


def _gpus_per_core(record: JobRecord) -> str:
    """Return the job's gpus per core, as a key."""
    request = record.understood.request
    if request is None:
        return "0"
    cores = sum(chunk.count * chunk.cpus for chunk in request.chunks)
    gpus = sum(chunk.count * chunk.gpus for chunk in request.chunks)
    return f"{gpus / max(cores, 1):.6g}"


def _move(state: "EngineState", record: JobRecord, rates: Mapping[int, float], *, placed_now: bool) -> bool:
    """Move a job to nodes with lower ``rates`` (by row): the worst as low as possible at that start."""
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
    try:
        low, high = (
            0,
            len(better),
        )  # index of the first rate in ``better`` that allows a placement; len(better): none
        while low < high:
            middle = (low + high) // 2
            with plan.excluding(row for row, rate in rates.items() if rate > better[middle]):
                found = plan.fits_at_start(slot, start, state.now)
            low, high = (low, middle) if found else (middle + 1, high)
        if low < len(better):
            with plan.excluding(row for row, rate in rates.items() if rate > better[low]):
                plan.place_at_start(slot, start, state.now)
            before = sum(rates.get(row, 0.0) for row in {take.row for take in takes})
            after = sum(rates.get(row, 0.0) for row in {take.row for take in plan.takes(slot)})
            if after < before:
                return True
            plan.undo_place(slot)
    except WorkSpent:  # the job keeps the nodes that it has
        pass
    plan.place_at(slot, start, takes)
    return False
