"""Nodes that are switched off and on: what the plan knows of them, and what comes of orders.

A node that was switched off is no lost node: the plan counts on it from the moment on at which it could be
back. A *block*, which takes all of it, keeps jobs away until then. While no job is planned there the block
moves on with time; once one is, it stays, and the node is switched on ahead of that job.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from schedd.engine.facts.records import Cause, NodePower
from schedd.engine.facts.state import EngineState
from schedd.engine.facts.words import moment_in_words
from schedd.engine.machine.nodes import refresh
from schedd.engine.machine.reservations import block_takes
from schedd.engine.place.places import make_way
from schedd.model import FOREVER, Chunk, Place, Request
from schedd.wire import NodeChanged, PowerWish, Switch, Switched

__all__ = [
    "advance",
    "away_for",
    "boot_time",
    "gives_up",
    "kind_of",
    "next_switch",
    "order",
    "seen",
    "step",
    "switched",
    "wish",
]

_BLOCK = Request((Chunk(cpus=0),), Place.FREE, exclusive=True)
_KEPT: Final = 10
"""Boots of a kind of nodes that count."""
_TRIES: Final = 5
"""So often in a row a node is switched on that does not come up."""
_EXPIRES: Final = 120
"""Seconds until which the command must have been begun."""
_STOPS: Final = 600
"""Seconds at least that a node has to go down: a server notices some time later."""
_DAY: Final = 86_400


# ---- how long it takes --------------------------------------------------------------------------


def kind_of(state: EngineState, name: str) -> str:
    """Nodes of one kind boot alike: as many cpus, the same properties but those that have values."""
    known = state.kinds.get(name)
    if known is None:
        facts = state.node_facts[name]
        words = sorted(one for one in facts.properties if "=" not in one)
        known = state.kinds[name] = " ".join([str(facts.cpus), *words])
    return known


def boot_time(state: EngineState, name: str) -> int:
    """Seconds from the order until the server shows the node up: the longest of the latest of its kind."""
    found = state.boots.get(kind_of(state, name))
    return max(found) if found else state.site.power_saving.boot_time


def step(state: EngineState, name: str) -> int:
    """Seconds by which a node is switched on early, and blocks are moved on at once."""
    return max(1, min(60, boot_time(state, name) // 4))


def away_for(state: EngineState, one: NodePower) -> int:
    """Seconds until a node that is off, or goes off, could be back, were it switched on now."""
    stopping = state.site.power_saving.stop_time if one.phase == "stopping" else 0
    return stopping + boot_time(state, one.node)


# ---- what the plan sees -------------------------------------------------------------------------


def advance(state: EngineState, event: str) -> None:
    """Move on what hangs on time: blocks, deadlines of orders, the energy saved. To be called before events
    are taken, so that nothing is planned on a node before it could be there.
    """
    _count(state)
    firsts = _Firsts(state)
    for name in list(state.power):
        one = state.power[name]
        if name not in state.node_facts or name not in state.plan.nodes:
            continue  # the next snapshot tells of it
        if one.phase == "stopping" and state.now >= one.since + _stops(state):
            _failed(state, one, "the server still shows it up", event)
        elif one.phase == "booting" and state.now >= one.since + 2 * boot_time(state, name) + 60:
            took = state.now - one.since
            _failed(state, one, f"the server does not show it up {took} s after it was switched on", event)
        elif one.away:
            _keep_blocked(state, one, event, firsts)


def _stops(state: EngineState) -> int:
    return max(_STOPS, 3 * state.site.power_saving.stop_time)


class _Firsts:
    """When the first job planned on a node starts, worked out for all nodes at once when it is first asked
    for: many are off, and each batch asks for all of them.
    """

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._known: dict[int, int] | None = None

    def of(self, name: str) -> int:
        """FOREVER without one."""
        plan = self._state.plan
        if self._known is None:
            slots = plan.planned()
            held = plan.readable().held(slots)
            held = held.of(~held.of_pools)
            starts = plan.starts(slots)[held.owner]
            self._known = {}
            for row, start in zip(held.rows.tolist(), starts.tolist(), strict=True):
                if start < self._known.get(row, FOREVER):
                    self._known[row] = start
        return self._known.get(plan.row_of[name], FOREVER)

    def forget(self) -> None:
        """Jobs were moved."""
        self._known = None


def _keep_blocked(state: EngineState, one: NodePower, event: str, firsts: _Firsts) -> None:
    """Let the node's block end when it could be back, or at the first job that it is switched on for."""
    if one.wish == "off" or (one.wish == "hold" and one.phase != "booting"):
        _put(state, _unblocked(state, one))
        return
    early = step(state, one.node)
    if one.phase == "booting":
        until = one.since + boot_time(state, one.node)
        if state.now >= max(until, one.until):  # it is late
            until = state.now + early
        if until > one.until or one.block < 0:
            _put(state, _blocked(state, one, until, event, firsts))
        return
    soonest = state.now + away_for(state, one)
    wanted = soonest + early + state.site.power_saving.delay
    if one.block >= 0:
        first = firsts.of(one.node)
        if first < wanted:
            wanted = max(one.until, min(first, wanted), soonest)
        if abs(wanted - one.until) <= early // 2 and one.until >= soonest:
            return
    _put(state, _blocked(state, one, wanted, event, firsts))


def _blocked(state: EngineState, one: NodePower, until: int, event: str, firsts: _Firsts) -> NodePower:
    """Keep jobs off the node until then; those planned there before are planned anew."""
    plan, slot = state.plan, one.block
    if slot < 0:
        slot = state.new_slot(_BLOCK, max(1, until - state.now))
        plan.fix(slot, state.now, block_takes(plan, [one.node], ""))
    else:
        plan.set_duration(slot, max(1, until - plan.start(slot)), state.now)
    if one.block < 0 or (until > one.until and firsts.of(one.node) < until):
        words = f"node {one.node} is not on before {moment_in_words(until)}"
        make_way(state, [slot], event, Cause.NODE_LOST, words)
        firsts.forget()
    state.due = None
    return replace(one, block=slot, until=until)


def _unblocked(state: EngineState, one: NodePower) -> NodePower:
    if one.block >= 0:
        state.drop_slot(one.block)
        state.due = None
    return replace(one, block=-1, until=0)


def _put(state: EngineState, one: NodePower) -> None:
    state.power[one.node] = one


# ---- orders and what becomes of them ------------------------------------------------------------


def order(state: EngineState, name: str, event: str, *, on: bool) -> None:
    """Have a node switched; from here on the plan counts with it."""
    one = state.power.get(name) or NodePower(name)
    decision = state.next_decision()
    state.decisions.append(
        Switch(id=decision, cause=event, time=state.now, node=name, on=on, expires=state.now + _EXPIRES)
    )
    one = replace(one, decision=decision, code=0, text="")
    if one.phase == "failed":  # not counted with before it is seen
        _put(state, replace(one, again=state.now + _wait(state, one.failures + 1), failures=one.failures + 1))
        return
    one = replace(one, phase="booting" if on else "stopping", since=state.now)
    state.free_since.pop(name, None)
    state.power[name] = one
    _keep_blocked(state, one, event, _Firsts(state))


def switched(state: EngineState, event: Switched) -> None:
    """The command came to its end; that the node is on or off the server shows later."""
    one = state.power.get(event.node)
    if one is None or one.decision != event.decision_id:
        return
    one = replace(one, decision="", code=event.code, text=event.text)
    _put(state, one)
    if not event.done and one.phase in ("stopping", "booting"):
        _failed(state, one, event.text or f"the command ended with {event.code}", event.id)


def seen(state: EngineState, events: Sequence[NodeChanged]) -> None:
    """What the server shows of nodes that were switched; before the plan takes it over."""
    for event in events:
        one = state.power.get(event.node.name)
        if one is None:
            continue
        state_now = event.node.state
        if one.phase == "stopping" and state_now == "down":
            _put(state, replace(one, phase="off", since=state.now, decision="", failures=0, again=0))
        elif one.phase in ("off", "booting", "failed") and state_now == "up":
            if one.phase == "booting":
                kind = kind_of(state, one.node) if one.node in state.node_facts else ""
                if kind:
                    known = state.boots.setdefault(kind, [])
                    known.append(max(1, state.now - one.since))
                    del known[:-_KEPT]
            one = _unblocked(state, one)
            state.frees += 1
            _put(state, replace(one, phase="on", since=state.now, decision="", failures=0, again=0))


def _failed(state: EngineState, one: NodePower, why: str, event: str) -> None:
    """A node could not be switched: it counts as it is, and is tried again later."""
    on, failures = one.phase == "booting", one.failures + 1
    wait = _wait(state, failures)
    one = _unblocked(state, one)
    one = replace(
        one,
        phase="failed" if on else "on",
        since=state.now,
        decision="",
        failures=failures,
        again=state.now + wait,
        text=one.text or why,
    )
    state.power[one.node] = one
    then = (
        f"the next try is in {wait} s"
        if failures < _TRIES
        else "there is no further try until the node is up"
    )
    words = f"node {one.node} could not be switched {'on' if on else 'off'}: {why}; {then}"
    state.alert(event, "power", words, one.node)
    if one.node in state.plan.nodes:
        refresh(state, one.node, event, words)


def _wait(state: EngineState, failures: int) -> int:
    return int(min(_DAY, state.site.power_saving.retry * 2 ** min(failures - 1, 16)))


def gives_up(one: NodePower) -> bool:
    """Whether it was tried so often that nothing more is tried."""
    return one.failures >= _TRIES


def wish(state: EngineState, event: PowerWish) -> None:
    """An admin says what is to become of a node; what is done for it waits for the next look."""
    one = state.power.get(event.node) or NodePower(event.node)
    one = replace(one, wish=event.wish, by=event.by, reason=event.reason, failures=0, again=0)
    if event.wish == "auto":
        one = replace(one, by="", reason="")
    state.power[event.node] = one
    state.power_due = state.now
    if event.node not in state.plan.nodes:
        return
    if one.away:
        _keep_blocked(state, one, event.id, _Firsts(state))
    words = f"node {event.node}: an admin wants its power {event.wish}"
    refresh(state, event.node, event.id, words)


# ---- time ---------------------------------------------------------------------------------------


def next_switch(state: EngineState) -> int:
    """When it must be looked again at nodes that are switched; FOREVER: never."""
    saving = state.site.power_saving
    looks = state.policy is None and (
        saving.mode != "off" or any(one.away or one.wish != "auto" for one in state.power.values())
    )
    return max(state.now + 1, state.power_due) if looks and state.node_facts else FOREVER


def _count(state: EngineState) -> None:
    """Add what nodes that are off did not draw since it was last counted."""
    seconds, state.power_seen = state.now - state.power_seen, state.now
    if not 0 < seconds < _DAY:
        return
    for name, one in state.power.items():
        facts = state.node_facts.get(name)
        if one.phase == "off" and facts is not None:
            draw = state.economy.draw(name, facts.properties)
            if draw is not None:
                state.power_saved += round((draw.idle - draw.off) * seconds)
