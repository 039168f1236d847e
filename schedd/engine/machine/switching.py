"""Which nodes are switched off and on, and when: by what the plan needs, never by a guess.

It is looked at every few seconds, of all nodes at once. A node that is off is switched on ahead of the first
job planned there; one that is free, and that nothing needs for long, is switched off.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from schedd.engine.facts.records import NodePower
from schedd.engine.facts.state import EngineState
from schedd.engine.machine.power import away_for, boot_time, gives_up, order, step
from schedd.model import FOREVER
from schedd.policy.economy import ALL_OTHERS

__all__ = ["switch"]

_LOOK = 30
"""Seconds between two looks."""


@dataclass(frozen=True, slots=True)
class _Use:
    """By name of a node: when it is first needed from now on; who is not there is never needed."""

    first: dict[str, int]

    def needed(self, name: str) -> int:
        return self.first.get(name, FOREVER)


def switch(state: EngineState, event: str) -> None:
    """Order what is to be switched now."""
    saving = state.site.power_saving
    if state.now < state.power_due or state.policy is not None:
        return
    wished = any(one.wish != "auto" or one.away for one in state.power.values())
    if saving.mode == "off" and not wished:
        return
    state.power_due = state.now + max(1, min(_LOOK, saving.boot_time // 4))
    if state.halted or state.arriving or state.since < 0:
        return  # what is needed is not known, or nothing is started anyway
    use = _next_use(state)
    _note_free(state, use)
    _switch_on(state, use, event)
    _switch_off(state, use, event)


def _next_use(state: EngineState) -> _Use:
    """When each node is first needed: by what runs, is planned, or is reserved."""
    plan, jobs = state.plan, state.plan.jobs
    slots = np.flatnonzero(jobs.starts >= 0)
    own = [one.block for one in state.power.values() if one.block >= 0]
    slots = slots[~np.isin(slots, own)]
    held = plan.readable().held(slots)
    held = held.of(~held.of_pools)
    begins = jobs.starts[slots][held.owner]
    ends = begins + jobs.durations[slots][held.owner]
    left = ends > state.now
    first: dict[str, int] = {}
    for row, begin in zip(held.rows[left].tolist(), begins[left].tolist(), strict=True):
        name = plan.name_of[row]
        if begin < first.get(name, FOREVER):
            first[name] = begin
    for record in state.slotless.values():  # they run, though their requests are not understood
        for share in record.facts.shares:
            first[share.node] = state.now
    return _Use(first)


def _note_free(state: EngineState, use: _Use) -> None:
    for name in state.node_facts:
        if use.needed(name) <= state.now:
            state.free_since.pop(name, None)
        else:
            state.free_since.setdefault(name, state.now)
    for name in state.free_since.keys() - state.node_facts.keys():
        del state.free_since[name]


# ---- on -----------------------------------------------------------------------------------------


def _switch_on(state: EngineState, use: _Use, event: str) -> None:
    room = state.site.power_saving.at_once - sum(one.phase == "booting" for one in state.power.values())
    wanted: list[tuple[int, str]] = []
    short = _spares_missing(state, use)
    for name, one in state.power.items():
        if name not in state.plan.nodes or state.now < one.again:
            continue
        if one.phase == "failed" and one.wish not in ("off", "hold") and not gives_up(one):
            wanted.append((FOREVER, name))
        if one.phase != "off" or one.wish in ("off", "hold"):
            continue
        needed = use.needed(name)
        if one.wish == "on" or state.site.power_saving.mode != "on":
            wanted.append((state.now, name))
        elif needed - away_for(state, one) - step(state, name) <= state.now:
            wanted.append((needed, name))
        elif needed == FOREVER and (ours := _in(short, _kinds(state, name))):
            for kind in ours:
                short[kind] -= 1
            wanted.append((FOREVER, name))
    for _, name in sorted(wanted)[: max(0, room)]:
        order(state, name, event, on=True)


def _kinds(state: EngineState, name: str) -> tuple[str, ...]:
    """The properties by which spares of it are counted."""
    known = {name, *state.node_facts[name].properties, ALL_OTHERS}
    return tuple(kind for kind in state.site.power_saving.spares if kind in known)


def _in(counts: dict[str, int], kinds: tuple[str, ...]) -> list[str]:
    return [kind for kind in kinds if counts.get(kind, 0) > 0]


def _spares(state: EngineState, use: _Use) -> dict[str, int]:
    """How many free nodes there are of each property of which spares are to be kept; those that boot for no
    job count.
    """
    found = dict.fromkeys(state.site.power_saving.spares, 0)
    if not found:
        return found
    for name in state.node_facts:
        one = state.power.get(name)
        coming = one is not None and one.phase == "booting" and use.needed(name) == FOREVER
        if coming or (_is_on(state, name) and use.needed(name) > state.now + boot_time(state, name)):
            for kind in _kinds(state, name):
                found[kind] += 1
    return found


def _spares_missing(state: EngineState, use: _Use) -> dict[str, int]:
    if not state.site.power_saving.spares:
        return {}
    there = _spares(state, use)
    return {kind: count - there[kind] for kind, count in state.site.power_saving.spares.items()}


def _is_on(state: EngineState, name: str) -> bool:
    one = state.power.get(name)
    return state.node_facts[name].state == "up" and (one is None or one.phase == "on")


# ---- off ----------------------------------------------------------------------------------------


def _switch_off(state: EngineState, use: _Use, event: str) -> None:
    saving = state.site.power_saving
    room = saving.at_once - sum(one.phase == "stopping" for one in state.power.values())
    for name, one in list(state.power.items()):
        if one.wish == "off" and room > 0 and _may_stop(state, name) and use.needed(name) > state.now:
            order(state, name, event, on=False)
            room -= 1
    if saving.mode == "off":
        return
    free = sorted(_not_needed(state, use), key=lambda name: (-_watts(state, name), name))
    there = _spares(state, use)
    would: list[str] = []
    for name in free:
        kinds = _kinds(state, name)
        if any(there[kind] <= saving.spares[kind] for kind in kinds):
            continue
        for kind in kinds:
            there[kind] -= 1
        if saving.mode == "dry":
            would.append(name)
        elif room > 0:
            order(state, name, event, on=False)
            room -= 1
    state.power_would = tuple(would)


def _not_needed(state: EngineState, use: _Use) -> Iterator[str]:
    saving = state.site.power_saving
    never = frozenset(saving.never)
    for name, facts in state.node_facts.items():
        one = state.power.get(name) or NodePower(name)
        if one.wish != "auto" or not _may_stop(state, name) or never & {name, *facts.properties}:
            continue
        if state.now < one.since + saving.min_up or state.now < one.again:
            continue
        if state.now < state.free_since.get(name, state.now) + saving.idle:
            continue
        back = state.now + saving.stop_time + boot_time(state, name) + step(state, name) + saving.delay
        if use.needed(name) >= back + saving.min_off:
            yield name


def _may_stop(state: EngineState, name: str) -> bool:
    """Whether nobody but us has anything to do with the node: no admin, no job that runs on."""
    closed = name in state.blocked or name in state.holes or ("node", name) in state.holds
    return name in state.plan.nodes and _is_on(state, name) and not closed


def _watts(state: EngineState, name: str) -> float:
    draw = state.economy.draw(name, state.node_facts[name].properties)
    return draw.idle - draw.off if draw is not None else 0.0
