"""Switching of nodes by the needs of the plan.

All nodes are examined every few seconds. A node that is off is switched on ahead of the first job planned
there. A node that is idle, and not needed for long, is switched off.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from schedd.engine.component.cluster_hooks import deferred_slots
from schedd.engine.facts.state import EngineState
from schedd.features.power.rules import (
    block_slots,
    boot_time,
    gives_up,
    lead_time,
    order_switch,
    time_to_return,
)
from schedd.features.power.settings import PowerSavingSettings
from schedd.features.power.state import NodePower, power_state
from schedd.model import FOREVER
from schedd.policy.economy import ALL_OTHERS

_EVERY_S: Final = 30  # maximum seconds between two examinations


@dataclass(frozen=True, slots=True)
class _NextUses:
    """By node: the next time when it is needed. An absent node is never needed."""

    first: dict[str, int]

    def next_use(self, name: str) -> int:
        return self.first.get(name, FOREVER)


def switch_nodes(state: EngineState, event: str) -> None:
    """Order all due switches."""
    saving, power = state.site.part(PowerSavingSettings), power_state(state)
    if state.now < power.due or state.policy is not None:
        return
    if saving.mode == "off" and not _needs_examination(state):
        return
    power.due = state.now + max(1, min(_EVERY_S, saving.boot_time // 4))
    if state.halted or state.arriving or state.first_snapshot < 0:
        return  # the needs are unknown, or no jobs are started
    uses = _next_uses(state)
    _note_idle_nodes(state, uses)
    _switch_on(state, uses, event)
    _switch_off(state, uses, event)


def follow_settings(state: EngineState) -> None:
    """Note whether the site's settings let nodes be switched."""
    power, mode = power_state(state), state.site.part(PowerSavingSettings).mode
    power.saves = mode != "off"
    if mode != "dry":
        power.would_be_off = ()


def next_examination(state: EngineState) -> int:
    """Return the time of the next examination of nodes; FOREVER: never."""
    examines = state.policy is None and (
        state.site.part(PowerSavingSettings).mode != "off" or _needs_examination(state)
    )
    return max(state.now + 1, power_state(state).due) if examines and state.node_facts else FOREVER


def _needs_examination(state: EngineState) -> bool:
    """Return whether a node is off, or has an admin's order."""
    nodes = power_state(state).nodes
    return bool(nodes) and any(one.wish != "auto" or one.expected_down for one in nodes.values())


def _next_uses(state: EngineState) -> _NextUses:
    """Return when each node is needed next by a running or planned job, or by a reservation."""
    plan, jobs = state.plan, state.plan.jobs
    slots = np.flatnonzero(jobs.starts >= 0)
    slots = slots[~np.isin(slots, list(block_slots(state)))]
    held = plan.read_view().held(slots)
    held = held.select(~held.are_pools)
    begins = jobs.starts[slots][held.owner]
    ends = begins + jobs.durations[slots][held.owner]
    begins[np.isin(slots, deferred_slots(state))[held.owner]] = state.now  # a suspended job is on its nodes
    left = ends > state.now
    first: dict[str, int] = {}
    for row, begin in zip(held.rows[left].tolist(), begins[left].tolist(), strict=True):
        name = plan.node_names[row]
        if begin < first.get(name, FOREVER):
            first[name] = begin
    for record in state.slotless.values():  # jobs that run although their requests are not understood
        for share in record.facts.shares:
            first[share.node] = state.now
    return _NextUses(first)


def _note_idle_nodes(state: EngineState, uses: _NextUses) -> None:
    free_since = power_state(state).free_since
    for name in state.node_facts:
        if uses.next_use(name) <= state.now:
            free_since.pop(name, None)
        else:
            free_since.setdefault(name, state.now)
    for name in free_since.keys() - state.node_facts.keys():
        del free_since[name]


# ---- on -----------------------------------------------------------------------------------------


def _switch_on(state: EngineState, uses: _NextUses, event: str) -> None:
    saving, nodes = state.site.part(PowerSavingSettings), power_state(state).nodes
    room = saving.at_once - sum(one.phase == "booting" for one in nodes.values())
    wanted: list[tuple[int, str]] = []
    missing = _missing_spares(state, uses)
    for name, one in nodes.items():
        if name not in state.plan.nodes or state.now < one.again:
            continue
        if one.phase == "failed" and one.wish not in ("off", "hold") and not gives_up(one):
            wanted.append((FOREVER, name))
        if one.phase != "off" or one.wish in ("off", "hold"):
            continue
        needed = uses.next_use(name)
        if one.wish == "on" or saving.mode != "on":
            wanted.append((state.now, name))
        elif needed - time_to_return(state, one) - lead_time(state, name) <= state.now:
            wanted.append((needed, name))
        elif needed == FOREVER:
            kinds = [kind for kind in _spare_kinds(state, name) if missing.get(kind, 0) > 0]
            for kind in kinds:
                missing[kind] -= 1
            if kinds:
                wanted.append((FOREVER, name))
    for _, name in sorted(wanted)[: max(0, room)]:
        order_switch(state, name, event, on=True)


def _spare_kinds(state: EngineState, name: str) -> tuple[str, ...]:
    """Return the properties in ``spares`` of the settings that this node has."""
    known = {name, *state.node_facts[name].properties, ALL_OTHERS}
    return tuple(kind for kind in state.site.part(PowerSavingSettings).spares if kind in known)


def _count_spares(state: EngineState, uses: _NextUses) -> dict[str, int]:
    """Return idle nodes by property in the setting ``spares``, with nodes that boot without a job."""
    found = dict.fromkeys(state.site.part(PowerSavingSettings).spares, 0)
    if not found:
        return found
    for name in state.node_facts:
        one = power_state(state).nodes.get(name)
        coming = one is not None and one.phase == "booting" and uses.next_use(name) == FOREVER
        if coming or (_is_on(state, name) and uses.next_use(name) > state.now + boot_time(state, name)):
            for kind in _spare_kinds(state, name):
                found[kind] += 1
    return found


def _missing_spares(state: EngineState, uses: _NextUses) -> dict[str, int]:
    if not state.site.part(PowerSavingSettings).spares:
        return {}
    idle = _count_spares(state, uses)
    return {kind: count - idle[kind] for kind, count in state.site.part(PowerSavingSettings).spares.items()}


def _is_on(state: EngineState, name: str) -> bool:
    one = power_state(state).nodes.get(name)
    return state.node_facts[name].state == "up" and (one is None or one.phase == "on")


# ---- off ----------------------------------------------------------------------------------------


def _switch_off(state: EngineState, uses: _NextUses, event: str) -> None:
    saving, nodes = state.site.part(PowerSavingSettings), power_state(state).nodes
    room = saving.at_once - sum(one.phase == "stopping" for one in nodes.values())
    for name, one in list(nodes.items()):
        if (
            one.wish == "off"
            and room > 0
            and state.now >= one.again
            and _may_switch_off(state, name)
            and uses.next_use(name) > state.now
        ):
            order_switch(state, name, event, on=False)
            room -= 1
    if saving.mode == "off":
        return
    candidates = sorted(_unneeded_nodes(state, uses), key=lambda name: (-_saved_watts(state, name), name))
    idle = _count_spares(state, uses)
    would_be_off: list[str] = []
    for name in candidates:
        kinds = _spare_kinds(state, name)
        if any(idle[kind] <= saving.spares[kind] for kind in kinds):
            continue
        for kind in kinds:
            idle[kind] -= 1
        if saving.mode == "dry":
            would_be_off.append(name)
        elif room > 0:
            order_switch(state, name, event, on=False)
            room -= 1
    power_state(state).would_be_off = tuple(would_be_off)


def _unneeded_nodes(state: EngineState, uses: _NextUses) -> Iterator[str]:
    """Nodes that were idle for long enough, and that nothing needs soon."""
    saving, power = state.site.part(PowerSavingSettings), power_state(state)
    never = frozenset(saving.never)
    for name, facts in state.node_facts.items():
        one = power.nodes.get(name) or NodePower(name)
        if one.wish != "auto" or not _may_switch_off(state, name) or never & {name, *facts.properties}:
            continue
        if state.now < one.since + saving.min_up or state.now < one.again:
            continue
        if state.now < power.free_since.get(name, state.now) + saving.idle:
            continue
        back = state.now + saving.stop_time + boot_time(state, name) + lead_time(state, name) + saving.delay
        if uses.next_use(name) >= back + saving.min_off:
            yield name


def _may_switch_off(state: EngineState, name: str) -> bool:
    """Whether the node is on, and neither an admin nor a job past its walltime keeps it closed."""
    closed = name in state.blocked or name in state.black_holes or ("node", name) in state.holds
    return name in state.plan.nodes and _is_on(state, name) and not closed


def _saved_watts(state: EngineState, name: str) -> float:
    draw = state.economy.draw(name, state.node_facts[name].properties)
    return draw.idle - draw.off if draw is not None else 0.0
