"""Rules of switched nodes: their availability in the plan, and the outcomes of switching orders.

A node that was switched off is not lost: jobs are planned on it from its earliest return. Until then a
*block*, a slot of the plan that takes the whole node, keeps jobs away. While no job is planned on the node,
the end of the block moves with time. Once a job is planned there, the end is fixed, and the node is switched
on ahead of that job.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from schedd.engine.facts.explanations import format_length, format_moment
from schedd.engine.facts.records import Cause
from schedd.engine.facts.shares import block_takes
from schedd.engine.facts.state import EngineState
from schedd.engine.machine.nodes import refresh_node
from schedd.engine.place.placement import displace_for
from schedd.features.power.settings import PowerSavingSettings
from schedd.features.power.state import NodePower, power_state
from schedd.model import FOREVER, Chunk, Node, NodeState, Place, Request
from schedd.name_list import name_node
from schedd.wire import NodeChanged, PowerRequested, Switch, Switched

_BLOCK: Final = Request((Chunk(cpus=0),), Place.FREE, exclusive=True)
_COUNTED_BOOTS: Final = 10  # latest boots of a kind of nodes that count
_MOST_FAILURES: Final = 5  # number of consecutive failures after which the node is no longer switched
_ORDER_EXPIRES_S: Final = 120  # an order that was not begun after this time is void
_LEAST_STOP_S: Final = 600
"""Minimum time for which the server may show a node as up after it was switched off: the server notices late.
"""
_DAY: Final = 86_400


# ---- how long switching takes -------------------------------------------------------------------


def _node_kind(state: EngineState, name: str) -> str:
    """Return the node's kind: its cores and its properties without values. Nodes of a kind boot
    equally fast.
    """
    kinds = power_state(state).kinds
    kind = kinds.get(name)
    if kind is None:
        facts = state.node_facts[name]
        properties = sorted(one for one in facts.properties if "=" not in one)
        kind = kinds[name] = " ".join([str(facts.cpus), *properties])
    return kind


def boot_time(state: EngineState, name: str) -> int:
    """Return the seconds from the order until the server shows the node up: the longest of the latest boots
    of its kind, or ``boot_time`` of the settings.
    """
    boots = power_state(state).boots.get(_node_kind(state, name))
    return max(boots) if boots else state.site.part(PowerSavingSettings).boot_time


def lead_time(state: EngineState, name: str) -> int:
    """Return by how many seconds a node is switched on early, which is also the least move of a block."""
    return max(1, min(60, boot_time(state, name) // 4))


def time_to_return(state: EngineState, one: NodePower) -> int:
    """Seconds until a node that is off, or on its way down, would be up if it were switched on now."""
    stopping = state.site.part(PowerSavingSettings).stop_time if one.phase == "stopping" else 0
    return stopping + boot_time(state, one.node)


# ---- what the plan sees -------------------------------------------------------------------------


def planned_node(state: EngineState, name: str, node: Node) -> Node:
    """Return the node for the plan: a node that was switched off counts as up, and its block has its earliest
    return; a node with an admin's order to be off gets no new jobs.
    """
    one = power_state(state).nodes.get(name)
    if one is None:
        return node
    if one.wish == "off" or (one.wish == "hold" and one.phase != "on"):
        return replace(node, state=NodeState.DRAIN)
    if one.expected_down and node.state is NodeState.DOWN:
        return replace(node, state=NodeState.UP)
    return node


def is_expected_down(state: EngineState, name: str) -> bool:
    """Return whether the node is down because it was switched off or is booting."""
    one = power_state(state).nodes.get(name)
    return one is not None and one.expected_down


def closed_because(state: EngineState, name: str) -> str:
    """Return why a node gets no new jobs, as a continuation of "node n1 is"; empty without an admin's
    order.
    """
    one = power_state(state).nodes.get(name)
    closes = one is not None and (one.wish == "off" or (one.wish == "hold" and one.phase != "on"))
    if one is None or not closes or one.phase == "failed":
        return ""
    return f"switched off by {one.by}" + (f": {one.reason}" if one.reason else "")


def closing_nodes(state: EngineState) -> Mapping[str, str]:
    """Return the nodes that are up although an admin ordered them off, each with the reason."""
    return {
        one.node: "to be switched off" + (f": {one.reason}" if one.reason else "")
        for one in power_state(state).nodes.values()
        if one.wish == "off" and not one.expected_down
    }


def block_slots(state: EngineState) -> Iterator[int]:
    """The slots that keep jobs off nodes."""
    return (one.block for one in power_state(state).nodes.values() if one.block >= 0)


def has_failed(state: EngineState, name: str) -> bool:
    """Whether the last order to switch the node failed."""
    one = power_state(state).nodes.get(name)
    return one is not None and one.failures > 0


def awaits_switch(state: EngineState, decision: Switch) -> bool:
    """Whether this order is the node's latest, and open."""
    one = power_state(state).nodes.get(decision.node)
    return one is not None and one.decision == decision.id


def forget_kinds(state: EngineState) -> None:
    """Forget the kinds of nodes after a change of nodes."""
    power_state(state).kinds.clear()


def move_blocks(state: EngineState, event: str) -> None:
    """Move the ends of blocks on with time, end orders that were not carried out in time, and count the
    energy saved. To be called before events are handled: nothing may be planned on a node before it could be
    back.
    """
    _count_saved_energy(state)
    first_starts = _FirstStarts(state)
    power = power_state(state)
    for name in list(power.nodes):
        one = power.nodes[name]
        if name not in state.node_facts or name not in state.plan.nodes:
            continue  # the next snapshot says more
        if one.phase == "stopping" and state.now >= one.since + _most_stop_time(state):
            _fail(state, one, "the server still shows it up", event)
        elif one.phase == "booting" and state.now >= one.since + 2 * boot_time(state, name) + 60:
            took = state.now - one.since
            _fail(state, one, f"{took} s after it was switched on, the server still shows it down", event)
        elif one.expected_down:
            _update_block(state, one, event, first_starts)


def _most_stop_time(state: EngineState) -> int:
    return max(_LEAST_STOP_S, 3 * state.site.part(PowerSavingSettings).stop_time)


class _FirstStarts:
    """By node: when the first job that is planned there starts. Computed for all nodes when first needed: a
    batch may ask for each of many nodes.
    """

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._by_row: dict[int, int] | None = None

    def on(self, name: str) -> int:
        """Return the first start in seconds since the epoch; FOREVER without a planned job."""
        plan = self._state.plan
        if self._by_row is None:
            slots = plan.planned()
            held = plan.read_view().held(slots)
            held = held.select(~held.are_pools)
            starts = plan.starts(slots)[held.owner]
            self._by_row = {}
            for row, start in zip(held.rows.tolist(), starts.tolist(), strict=True):
                if start < self._by_row.get(row, FOREVER):
                    self._by_row[row] = start
        return self._by_row.get(plan.node_rows[name], FOREVER)

    def forget(self) -> None:
        """Forget the starts after jobs were moved."""
        self._by_row = None


def _update_block(state: EngineState, one: NodePower, event: str, first_starts: _FirstStarts) -> None:
    """Let the node's block end when the node could be back, or when the first job planned there starts."""
    nodes = power_state(state).nodes
    if one.wish == "off" or (one.wish == "hold" and one.phase != "booting"):
        nodes[one.node] = _unblocked(state, one)
        return
    lead = lead_time(state, one.node)
    if one.phase == "booting":
        until = one.since + boot_time(state, one.node)
        if state.now >= max(until, one.until):  # it is late
            until = state.now + lead
        if until > one.until or one.block < 0:
            nodes[one.node] = _blocked(state, one, until, event, first_starts)
        return
    soonest = state.now + time_to_return(state, one)
    wanted = soonest + lead + state.site.part(PowerSavingSettings).delay
    if one.block >= 0:
        first = first_starts.on(one.node)
        if first < wanted:
            wanted = max(one.until, min(first, wanted), soonest)
        if abs(wanted - one.until) <= lead // 2 and one.until >= soonest:
            return
    nodes[one.node] = _blocked(state, one, wanted, event, first_starts)


def _blocked(
    state: EngineState, one: NodePower, until: int, event: str, first_starts: _FirstStarts
) -> NodePower:
    """Keep jobs off the node until then. Jobs planned there earlier are replanned."""
    plan, slot = state.plan, one.block
    if slot < 0:
        slot = state.new_slot(_BLOCK, max(1, until - state.now))
        plan.fix(slot, state.now, block_takes(plan, [one.node], ""))
    else:
        plan.set_duration(slot, max(1, until - plan.start(slot)), state.now)
    if one.block < 0 or (until > one.until and first_starts.on(one.node) < until):
        words = f"{name_node(one.node)} can be on at {format_moment(until)} at the earliest"
        displace_for(state, [slot], event, Cause.NODE_LOST, words)
        first_starts.forget()
    state.next_due = None
    return replace(one, block=slot, until=until)


def _unblocked(state: EngineState, one: NodePower) -> NodePower:
    if one.block >= 0:
        state.drop_slot(one.block)
        state.next_due = None
    return replace(one, block=-1, until=0)


# ---- orders and their outcomes ------------------------------------------------------------------


def order_switch(state: EngineState, name: str, event: str, *, on: bool) -> None:
    """Order to switch a node; from now on the plan assumes that it is switched."""
    power = power_state(state)
    one = power.nodes.get(name) or NodePower(name)
    decision = state.next_decision()
    expires = state.now + _ORDER_EXPIRES_S
    state.decisions.append(
        Switch(id=decision, cause=event, time=state.now, node=name, on=on, expires=expires)
    )
    one = replace(one, decision=decision, code=0, text="")
    if one.phase == "failed":  # the plan does not use it before it is up
        failures = one.failures + 1
        power.nodes[name] = replace(one, again=state.now + _retry_wait(state, failures), failures=failures)
        return
    one = replace(one, phase="booting" if on else "stopping", since=state.now)
    power.free_since.pop(name, None)
    power.nodes[name] = one
    _update_block(state, one, event, _FirstStarts(state))


def note_switched(state: EngineState, event: Switched) -> None:
    """Record the end of the site's command. The server shows later whether the node is on or off."""
    one = power_state(state).nodes.get(event.node)
    if one is None or one.decision != event.decision_id:
        return
    one = replace(one, decision="", code=event.code, text=event.text)
    power_state(state).nodes[one.node] = one
    if not event.done and one.phase in ("stopping", "booting"):
        _fail(state, one, event.text or f"the command ended with status {event.code}", event.id)


def note_reported_nodes(state: EngineState, events: Sequence[NodeChanged]) -> None:
    """Record which of the switched nodes the server now shows as up or down."""
    power = power_state(state)
    if not power.nodes:
        return
    for event in events:
        one = power.nodes.get(event.node.name)
        if one is None:
            continue
        settled = replace(one, since=state.now, decision="", failures=0, again=0)
        if one.phase == "stopping" and event.node.state == "down":
            power.nodes[one.node] = replace(settled, phase="off")
        elif one.phase in ("off", "booting", "failed") and event.node.state == "up":
            if one.phase == "booting" and one.node in state.node_facts:
                boots = power.boots.setdefault(_node_kind(state, one.node), [])
                boots.append(max(1, state.now - one.since))
                del boots[:-_COUNTED_BOOTS]
            state.frees += 1
            power.nodes[one.node] = _unblocked(state, replace(settled, phase="on"))


def _fail(state: EngineState, one: NodePower, why: str, event: str) -> None:
    """Record a failed order: the node keeps its present state, and the order is repeated later."""
    on, failures = one.phase == "booting", one.failures + 1
    wait = _retry_wait(state, failures)
    one = replace(
        _unblocked(state, one),
        phase="failed" if on else "on",
        since=state.now,
        decision="",
        failures=failures,
        again=state.now + wait,
        text=one.text or why,
    )
    power_state(state).nodes[one.node] = one
    if gives_up(one):
        then = "it is not tried again until the node is up"
    else:
        then = f"the next try is in {format_length(wait)}"
    words = f"{name_node(one.node)} could not be switched {'on' if on else 'off'}: {why}; {then}"
    state.alert(event, "power", words, one.node)
    if one.node in state.plan.nodes:
        refresh_node(state, one.node, event, words)


def _retry_wait(state: EngineState, failures: int) -> int:
    """Seconds until the next try: retry * 2^(failures - 1), at most a day."""
    return int(min(_DAY, state.site.part(PowerSavingSettings).retry * 2 ** min(failures - 1, 16)))


def gives_up(one: NodePower) -> bool:
    """Return whether switching the node failed too often for another attempt."""
    return one.failures >= _MOST_FAILURES


def set_power_aim(state: EngineState, event: PowerRequested) -> None:
    """Store an admin's order for the power of a node. Nodes are switched at the end of the batch."""
    power = power_state(state)
    one = power.nodes.get(event.node) or NodePower(event.node)
    one = replace(one, wish=event.wish, by=event.by, reason=event.reason, failures=0, again=0)
    if event.wish == "auto":
        one = replace(one, by="", reason="")
    power.nodes[event.node] = one
    power.due = state.now
    if event.node not in state.plan.nodes:
        return
    if one.expected_down:
        _update_block(state, one, event.id, _FirstStarts(state))
    words = f"{name_node(event.node)}: an admin set its power to {event.wish}"
    refresh_node(state, event.node, event.id, words)


def _count_saved_energy(state: EngineState) -> None:
    """Add the energy saved by nodes that are off since the last count."""
    power = power_state(state)
    seconds, power.saved_until = state.now - power.saved_until, state.now
    if not 0 < seconds < _DAY:
        return
    for name, one in power.nodes.items():
        facts = state.node_facts.get(name)
        if one.phase == "off" and facts is not None:
            draw = state.economy.draw(name, facts.properties)
            if draw is not None:
                power.saved_joules += round((draw.idle - draw.off) * seconds)
