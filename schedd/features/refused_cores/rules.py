"""Detection of cores that a server lists as free, but refuses.

A server may lose count of a node: TORQUE 4.2.10 never frees the cores of a job that ran while ``np`` of its
node was lowered, and refuses starts there as busy until it is restarted. The list of nodes does not show it,
so it is learned from the refusals: if ``free`` cores should be free and a job that needs ``n`` of them is
refused for longer than nodes need to become free, at least ``free - n + 1`` cores are lost. The plan leaves
these out for a pause. The next start then tries them; each refusal doubles the pause.

Only starts of jobs that request nothing but cores of one node are evidence.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from schedd.engine.facts.explanations import format_moment
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.shares import held_shares, planned_shares
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import displace_for, place_unplaced
from schedd.features.refused_cores.state import RefusedCores, refused_cores
from schedd.model import FOREVER, Chunk, Place, Request
from schedd.name_list import name_node
from schedd.plan.columns import CPUS, SHARE
from schedd.plan.records import Take
from schedd.wire import Event, NodeChanged, ShareFacts, Snapshot

_FIRST_PAUSE_S: Final = 60
_LONGEST_PAUSE_S: Final = 3600
_NOTHING: Final = Request((Chunk(cpus=0),), Place.FREE)


def note_busy_node(state: EngineState, record: JobRecord, share: ShareFacts, event: str) -> None:
    """Learn from a start that was refused as busy. A first refusal has no effect, since a job may just have
    ended. Cores that were refused before are tried only once.
    """
    nodes, node = refused_cores(state), state.plan.nodes.get(share.node)
    known = nodes.get(share.node)
    if node is None or not _asks_for_cores_alone(record):
        return
    if known is None and record.back_off.busy < state.settings.busy_retries:
        return
    free = node.cpus - _used_cores(state, share.node)
    lost = min(free, max(free - share.cpus + 1, known.cores if known is not None else 0))
    if lost < 1:
        return
    since, pause = state.now, _FIRST_PAUSE_S
    if known is not None:
        since = known.since
        pause = known.pause if known.slot >= 0 else min(2 * known.pause, _LONGEST_PAUSE_S)
        _release(state, known)
    one = RefusedCores(share.node, node.cpus, lost, since, state.now + pause, pause)
    words = (
        f"the server refuses starts on {name_node(one.node)} as busy, although it lists {free} of the "
        f"{one.of} cores as free; the plan does not use {one.cores} of them until "
        f"{format_moment(one.again_at)}"
    )
    state.alert(event, "refused_cores", f"{words}; a restart of the server frees them", one.node)
    _hold(state, one, event, words)


def _asks_for_cores_alone(record: JobRecord) -> bool:
    understood, request = record.understood, record.understood.request
    if request is None or request.exclusive:
        return False
    mem = sum(one.count * one.mem for one in request.chunks) - understood.assumed_mem
    return not mem and not any(one.gpus or one.vmem or one.resources for one in request.chunks)


def _used_cores(state: EngineState, name: str) -> int:
    """Return the cores of a node that running and starting jobs hold."""
    used = 0
    for record in state.records.values():
        if record.phase is Phase.RUNNING:
            shares: Sequence[ShareFacts] = held_shares(record.facts)
        elif record.phase is Phase.DISPATCHED:
            shares = planned_shares(state.plan, record.slot)
        else:
            continue
        used += sum(share.cpus for share in shares if share.node == name)
    return used


def _hold(state: EngineState, one: RefusedCores, event: str, words: str) -> None:
    """Keep jobs off the cores until the pause is over."""
    plan = state.plan
    slot = state.new_slot(_NOTHING, one.again_at - state.now)
    amounts = [0] * len(plan.resource_columns)
    amounts[CPUS], amounts[SHARE] = one.cores, 1  # a whole-node job needs all shares
    plan.fix(slot, state.now, [Take(plan.node_rows[one.node], 0, 1, tuple(amounts))])
    refused_cores(state)[one.node] = replace(one, slot=slot)
    displace_for(state, [slot], event, Cause.NODE_LOST, words)


def _release(state: EngineState, one: RefusedCores) -> None:
    if one.slot >= 0:
        state.drop_slot(one.slot)


def _forget(state: EngineState, name: str) -> None:
    _release(state, refused_cores(state).pop(name))


def note_start(state: EngineState, before: JobRecord | None, record: JobRecord) -> None:
    """Forget the refused cores of a node if a job runs on one of them."""
    nodes = refused_cores(state)
    if not nodes or record.phase is not Phase.RUNNING:
        return
    if before is not None and before.phase is Phase.RUNNING and before.facts.shares == record.facts.shares:
        return
    for share in record.facts.shares:
        one = nodes.get(share.node)
        if one is not None and _used_cores(state, one.node) > one.of - one.cores:
            _forget(state, one.node)


def follow_nodes(state: EngineState, events: Sequence[NodeChanged], _: frozenset[str]) -> None:
    """Forget the refused cores of nodes that are not up, or have another number of cores now. In a rebuilt
    plan, keep jobs off the refused cores of other nodes.
    """
    for event in events:
        one = refused_cores(state).get(event.node.name)
        if one is None:
            continue
        if event.node.cpus != one.of or event.node.state != "up":
            _forget(state, one.node)
        elif one.slot < 0 and state.now < one.again_at:
            _hold(state, one, event.id, f"the server refuses cores of {name_node(one.node)}")


def follow_server_start(state: EngineState, snapshot: Snapshot) -> list[Event]:
    """Forget all refused cores if the server was started after the first refusals: it has counted again."""
    if snapshot.server_age is not None:
        started = snapshot.time - snapshot.server_age
        for name in [name for name, one in refused_cores(state).items() if one.since < started]:
            _forget(state, name)
    return []


def follow_pauses(state: EngineState, event: str) -> None:
    """Let starts try refused cores after their pause. Forget cores that are not refused again for as long."""
    for name, one in list(refused_cores(state).items()):
        if state.now < one.again_at:
            continue
        if one.slot >= 0:
            _release(state, one)
            refused_cores(state)[name] = replace(one, slot=-1)
            place_unplaced(state, event, f"a start may try the refused cores of {name_node(name)}")
        elif state.now >= one.again_at + max(one.pause, _LONGEST_PAUSE_S):
            del refused_cores(state)[name]


def next_pause_end(state: EngineState) -> int:
    """When a pause is over, or is forgotten; FOREVER: never."""
    return min(
        (
            one.again_at if one.slot >= 0 else one.again_at + max(one.pause, _LONGEST_PAUSE_S)
            for one in refused_cores(state).values()
        ),
        default=FOREVER,
    )


def hold_slots(state: EngineState) -> list[int]:
    """Return the slots that keep jobs off refused cores."""
    return [one.slot for one in refused_cores(state).values() if one.slot >= 0]


def slot_names(state: EngineState) -> dict[int, str]:
    """Names for these slots."""
    return {
        one.slot: f"refused cores of {one.node}" for one in refused_cores(state).values() if one.slot >= 0
    }


def is_held(state: EngineState, node: str) -> bool:
    """Whether cores of a node are left out of the plan."""
    one = refused_cores(state).get(node)
    return one is not None and one.slot >= 0
