"""Readings of management boards: recorded at once, applied every ten minutes."""

from collections.abc import Collection
from typing import Final

import numpy as np

from schedd.engine.facts.state import EngineState
from schedd.engine.run.reevaluation import limits_changed
from schedd.features.power.meter import Meter
from schedd.features.power.state import power_state
from schedd.plan.columns import CPUS, FIXED, GPUS
from schedd.wire import WattsRead

_EVERY_S: Final = 600
"""Minimum interval in seconds between updates of measured draws, which change power caps."""


def note_readings(state: EngineState, event: WattsRead) -> None:
    """Record readings in watts. Unknown nodes are ignored."""
    known = [
        (name, watts)
        for name, watts in zip(event.nodes, event.watts, strict=True)
        if name in state.node_facts and name in state.plan.node_rows
    ]
    busy = _busy_resources(state, {name for name, _ in known})
    for name, watts in known:
        _note_reading(state, name, watts, event.time, *busy[name])
    power = power_state(state)
    if state.now < power.meters_due:
        return
    power.meters_due = state.now + _EVERY_S
    if _update_draws(state):
        state.economy_in_force = state.row_watts = None
        if state.note_power():
            limits_changed(state, event.id, "what nodes draw was measured")


def _note_reading(state: EngineState, name: str, watts: float, time: int, cores: int, gpus: int) -> None:
    meters, one = power_state(state).meters, power_state(state).nodes.get(name)
    if one is not None and one.phase in ("booting", "stopping"):
        return  # neither on nor off
    meter, facts = meters.get(name, Meter(as_of=time, last=watts)), state.node_facts[name]
    if facts.state == "down":
        if one is not None and one.phase == "off":
            meters[name] = meter.read_off(watts, time)
        return
    draw = state.economy.draw_set(name, facts.properties)
    meters[name] = meter.read(watts, time, cores, gpus * draw.gpu if draw is not None else 0.0)


def _busy_resources(state: EngineState, names: Collection[str]) -> dict[str, tuple[int, int]]:
    """By node: how many cores and gpus running jobs hold."""
    plan, jobs = state.plan, state.plan.jobs
    runs = (jobs.states == FIXED) & (jobs.starts <= state.now) & (state.owner_number >= 0)
    held = plan.held(np.flatnonzero(runs))
    held = held.select(~held.are_pools)
    rows = {name: plan.node_rows[name] for name in names}
    size = 1 + max(max(rows.values(), default=-1), int(held.rows.max(initial=-1)))
    cores = np.bincount(held.rows, held.amounts[:, CPUS], minlength=size)
    gpus = np.bincount(held.rows, held.amounts[:, GPUS], minlength=size)
    return {name: (int(cores[row]), int(gpus[row])) for name, row in rows.items()}


def _update_draws(state: EngineState) -> bool:
    """Let measured values take effect where they differ enough; returns whether any does."""
    meters, changed = power_state(state).meters, False
    for name, meter in list(meters.items()):
        facts = state.node_facts.get(name)
        if facts is None:
            del meters[name]
            continue
        settled = meter.settled(state.economy.draw_set(name, facts.properties), facts.cpus)
        if settled is not meter:
            meters[name], changed = settled, True
    return changed
