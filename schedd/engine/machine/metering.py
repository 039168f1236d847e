"""What boards of nodes measure: taken in reading by reading, in force for the plan a few times an hour."""

from collections.abc import Collection

import numpy as np

from schedd.engine.facts.state import EngineState
from schedd.plan.columns import CPUS, FIXED, GPUS
from schedd.policy.metering import Meter
from schedd.wire import WattsRead

__all__ = ["read"]

_EVERY = 600
"""What was measured comes into force so often at most, in seconds: a power cap is counted anew by it."""


def read(state: EngineState, event: WattsRead) -> bool:
    """Take in readings; those of nodes that are not known count for nothing.

    Returns whether power caps leave jobs something else than before.
    """
    known = [
        (name, watts)
        for name, watts in zip(event.nodes, event.watts, strict=True)
        if name in state.node_facts and name in state.plan.row_of
    ]
    busy = _busy(state, {name for name, _ in known})
    for name, watts in known:
        _read(state, name, watts, event.time, *busy[name])
    if state.now < state.metered_due:
        return False
    return _settle(state)


def _read(state: EngineState, name: str, watts: float, time: int, cores: int, gpus: int) -> None:
    meter = state.meters.get(name, Meter(as_of=time, last=watts))
    facts, power = state.node_facts[name], state.power.get(name)
    if power is not None and power.phase in ("booting", "stopping"):
        return  # neither on nor off
    if facts.state == "down":
        if power is not None and power.phase == "off":
            state.meters[name] = meter.read_off(watts, time)
        return
    draw = state.economy.draw_set(name, facts.properties)
    state.meters[name] = meter.read(watts, time, cores, gpus * draw.gpu if draw is not None else 0.0)


def _busy(state: EngineState, names: Collection[str]) -> dict[str, tuple[int, int]]:
    """How many cores and gpus of each node are held by what runs now."""
    plan, jobs = state.plan, state.plan.jobs
    runs = (jobs.states == FIXED) & (jobs.starts <= state.now) & (state.owner_of >= 0)
    held = plan.held(np.flatnonzero(runs))
    held = held.of(~held.of_pools)
    rows = {name: plan.row_of[name] for name in names}
    size = max(rows.values(), default=-1) + 1
    size = max(size, int(held.rows.max(initial=-1)) + 1)
    cores = np.bincount(held.rows, held.amounts[:, CPUS], minlength=size)
    gpus = np.bincount(held.rows, held.amounts[:, GPUS], minlength=size)
    return {name: (int(cores[row]), int(gpus[row])) for name, row in rows.items()}


def _settle(state: EngineState) -> bool:
    """Let what was measured come into force where it is news."""
    state.metered_due = state.now + _EVERY
    news = False
    for name, meter in list(state.meters.items()):
        facts = state.node_facts.get(name)
        if facts is None:
            del state.meters[name]
            continue
        settled = meter.settled(state.economy.draw_set(name, facts.properties), facts.cpus)
        if settled is not meter:
            state.meters[name], news = settled, True
    if not news:
        return False
    state.spending = state.thrifty = None
    return state.note_power()
