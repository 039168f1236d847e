"""Nodes: their availability, and the replanning after changes of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from schedd.engine.component.cluster_hooks import added_features, withdraw_nodes
from schedd.engine.component.registry import components
from schedd.engine.facts.explanations import format_moment
from schedd.engine.facts.job_requests import planner_node
from schedd.engine.facts.records import Cause, JobRecord
from schedd.engine.facts.reevaluation_queue import queue_if_many
from schedd.engine.facts.shares import held_shares
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import (
    place_unplaced,
    ready_time,
    recheck_impossible,
    replan_jobs,
    replan_overcommitted,
)
from schedd.engine.place.reliability import note_node_failure, note_node_state
from schedd.model import Node, NodeState
from schedd.name_list import name_node
from schedd.plan.columns import MOST_RESOURCES
from schedd.plan.gates import gate_capacity
from schedd.wire import NodeChanged, NodeFacts

_MOST_COUNTED = MOST_RESOURCES - 22
"""Kinds of resources in addition to cpus, memory and gpus; the others are for access lists."""
_SHOWN = 8

# ---- nodes --------------------------------------------------------------------------------------


def apply_node_changes(state: EngineState, events: Sequence[NodeChanged]) -> bool:
    """Take over what nodes are now; returns whether requests may read differently since.

    All at once, since understanding what a cluster offers costs as much for one changed node as for many.
    """
    latest: dict[str, NodeChanged] = {}
    other_parts = False
    for event in events:
        known = state.node_facts.get(event.node.name)
        facts = with_known_memory(known, event.node)
        state.node_facts[facts.name] = facts
        if known is not None and known.unusable != facts.unusable:
            other_parts = True
            state.bare = None
            state.nevers.clear()
        _count(state, event.id, known, facts)
        note_node_state(state, facts.name, facts.state, away=_is_expected_down(state, facts.name))
        latest[facts.name] = event
        if facts.state != "up" and state.black_holes.pop(facts.name, None) is not None:
            state.failures.pop(facts.name, None)  # an admin takes care of it
        if facts.state == "down" and not _is_expected_down(state, facts.name):
            state.down_since.setdefault(facts.name, state.now)
        else:
            state.down_since.pop(facts.name, None)
    before = {name: state.plan.nodes.get(name) for name in latest}
    changed = state.set_nodes(_planned_node(state, name) for name in latest)
    last = events[-1]
    if _follow(state, before, last.id) or other_parts:
        recheck_impossible(state, last.id, f"{name_node(last.node.name)} is new or changed")
    if any(state.plan.nodes[name].state is NodeState.UP for name in latest):
        place_unplaced(state, last.id, f"{name_node(last.node.name)} can be used")
    return changed


def _count(state: EngineState, event: str, before: NodeFacts | None, facts: NodeFacts) -> None:
    """Count the node's resources in the plan as far as columns are left; raise an alert for the others."""
    if before is not None and before.resources.keys() == facts.resources.keys():
        return
    counted = state.counted
    for name in sorted(facts.resources):
        if name not in counted and name not in state.uncounted:
            (counted if len(counted) < _MOST_COUNTED else state.uncounted)[name] = None
    left = [name for name in sorted(facts.resources) if name in state.uncounted]
    if left:
        shown = ", ".join(left[:_SHOWN]) + (", ..." if len(left) > _SHOWN else "")
        words = (
            f"{name_node(facts.name)}: {len(left)} of its {len(facts.resources)} resources are not counted "
            f"(the plan counts at most {_MOST_COUNTED} kinds); jobs that request these are not planned: "
            f"{shown}"
        )
        state.alert(event, "node", words)


def with_known_memory(before: NodeFacts | None, facts: NodeFacts) -> NodeFacts:
    """Return the facts with the last known memory: a silent node reports none."""
    if before is None or (facts.mem and facts.vmem):
        return facts
    return replace(facts, mem=facts.mem or before.mem, vmem=facts.vmem or before.vmem)


def _planned_node(state: EngineState, name: str) -> Node:
    """Return the node for the plan.

    A node that is down but will return is planned for. A blocked node, or one under a planning hold, gets no
    new jobs.
    """
    node = planner_node(state.node_facts[name])
    if state.uncounted:
        counted = tuple(one for one in node.resources if one[0] not in state.uncounted)
        node = replace(node, resources=counted)
    added = added_features(state, state.node_facts[name])
    if added:
        node = replace(node, features=node.features | added)
    if state.site.speeds:
        node = replace(node, speed=state.site.speed(name, node.features, node.speed))
    if state.gates:
        gates = tuple((gate, gate_capacity(gate, node)) for gate in state.gates)
        node = replace(node, resources=(*node.resources, *gates))
    failing = name in state.black_holes and not _is_open_for_trial(state, name)
    shunned = failing and node.state is NodeState.UP
    if name in state.blocked or ("node", name) in state.holds or shunned:
        return replace(node, state=NodeState.DRAIN)
    for one in components():
        if one.planned_node is not None:
            changed = one.planned_node(state, name, node)
            if changed is not node:
                return changed
    if node.state is not NodeState.UP and is_to_return(state, name):
        return replace(node, state=NodeState.UP)
    return node


def _is_open_for_trial(state: EngineState, name: str) -> bool:
    checks = (one.is_open_for_trial for one in components())
    return any(check(state, name) for check in checks if check is not None)


def _is_expected_down(state: EngineState, name: str) -> bool:
    return any(one.is_expected_down is not None and one.is_expected_down(state, name) for one in components())


def refresh_all_nodes(state: EngineState) -> None:
    """Update all nodes in the plan, after a new gate or other speeds."""
    state.set_nodes([_planned_node(state, name) for name in state.node_facts])


def is_to_return(state: EngineState, name: str) -> bool:
    """Whether a node that cannot be used now is known to return."""
    return any(one.will_return is not None and one.will_return(state, name) for one in components())


def _follow(state: EngineState, before: Mapping[str, Node | None], event: str) -> bool:
    """Replan jobs on nodes that became unusable; returns whether some nodes have other resources now.

    For all nodes at once: finding the jobs of one node takes as long as finding the jobs of thousands.
    """
    old = {name: node for name, node in before.items() if node is not None}
    new = {name: state.plan.nodes[name] for name in old}
    closed = [name for name, node in new.items() if _became(NodeState.DRAIN, old[name], node)]
    back = [name for name, node in new.items() if _became(NodeState.UP, old[name], node)]
    other = [name for name, node in new.items() if _offered_resources(old[name]) != _offered_resources(node)]
    gone = [name for name in other if not new[name].cpus]
    if closed:
        replan_jobs(
            state, state.plan.jobs_on_nodes(closed), event, Cause.ADMIN, f"{_are(closed)} set offline"
        )
    if back:
        state.note_freed(event, f"{_are(back)} back in use")
        state.frees += len(back)
        _release_due_jobs(state, back)
    if gone:
        _refit(state, gone, event, Cause.NODE_LOST, f"{_are(gone, 'is', 'are')} gone")
    if len(other) > len(gone):
        smaller = [name for name in other if new[name].cpus]
        words = f"{_are(smaller, 'has', 'have')} other resources than before"
        state.note_freed(event, words)
        _refit(state, smaller, event, Cause.ADMIN, words)
    return bool(other) or len(old) < len(before)


def _became(now: NodeState, before: Node, node: Node) -> bool:
    return node.state is now and before.state is not now


def _are(names: Sequence[str], one: str = "was", more: str = "were") -> str:
    """The beginning of a sentence about nodes."""
    return f"{name_node(names[0])} {one}" if len(names) == 1 else f"{len(names)} nodes {more}"


def _refit(state: EngineState, names: Sequence[str], event: str, cause: Cause, words: str) -> None:
    """Nodes offer other things: those planned there that do not fit any more leave."""
    plan = state.plan
    on_them = plan.jobs_on_nodes(names)
    if queue_if_many(state, on_them, event, words, cause):
        return
    replan_overcommitted(state, np.ascontiguousarray(on_them[::-1]), event, cause, words)
    replan_jobs(state, plan.misplaced(plan.jobs_on_nodes(names)), event, cause, words)


def _offered_resources(node: Node) -> tuple[object, ...]:
    return (node.cpus, node.mem, node.vmem, node.gpus, node.resources, node.features)


def _release_due_jobs(state: EngineState, names: Sequence[str]) -> None:
    """Due jobs that waited for the nodes need wait no longer."""
    for slot in state.plan.jobs_on_nodes(names).tolist():
        record = state.by_slot[slot]
        if record is not None and state.plan.ready(slot) > state.plan.start(slot):
            state.plan.set_ready(slot, ready_time(state, record))


def await_reports(state: EngineState, until: int) -> None:
    """Keep nodes that are down until ``until``: the restarted server has no report of them yet."""
    latest = until - state.settings.node_grace
    for name, since in state.down_since.items():
        state.down_since[name] = max(since, latest)


def unexpectedly_down(state: EngineState) -> list[tuple[str, int]]:
    """Return the nodes that are down and not known to return, each with the time since when."""
    nodes = state.plan.nodes  # nodes that are known to return are planned as up
    return [
        (name, since)
        for name, since in state.down_since.items()
        if not (name in nodes and nodes[name].state is NodeState.UP) and not is_to_return(state, name)
    ]


def leave_lost_nodes(state: EngineState, event: str) -> None:
    """Planned jobs leave nodes that are down for longer than the grace."""
    grace = state.settings.node_grace
    lost = {name: since for name, since in unexpectedly_down(state) if state.now >= since + grace}
    if not lost:
        return
    for name in lost:
        del state.down_since[name]
        note_node_failure(state, name)
    names = list(lost)
    words = f"{_are(names, 'is', 'are')} down"
    since = f"{words} since {format_moment(min(lost.values()))}"
    replan_jobs(state, state.plan.jobs_on_nodes(names), event, Cause.NODE_LOST, since)
    withdraw_nodes(state, names, event, words)


# ---- nodes that count as blocked ----------------------------------------------------------------


def block_nodes(state: EngineState, record: JobRecord, event: str, words: str) -> bool:
    """A job should have ended long ago: its nodes get no new jobs while it stays. False: they got none."""
    names = [
        share.node
        for share in held_shares(record.facts)
        if share.node in state.plan.nodes and record.id not in state.blocked.get(share.node, {})
    ]
    if not names:
        return False
    for name in names:
        state.blocked.setdefault(name, {})[record.id] = None
    state.set_nodes([_planned_node(state, name) for name in dict.fromkeys(names)])
    replan_jobs(state, state.plan.jobs_on_nodes(names), event, Cause.OVERRUN, words)
    return True


def unblock_nodes(state: EngineState, job_id: str, event: str) -> None:
    """The job no longer blocks any node."""
    free = []
    for name in [name for name, jobs in state.blocked.items() if job_id in jobs]:
        del state.blocked[name][job_id]
        if not state.blocked[name]:
            del state.blocked[name]
            free.append(name)
    if free:
        refresh_nodes(state, free, event, f"{_are(free, 'is', 'are')} no longer blocked")


# ---- use ----------------------------------------------------------------------------------------


def refresh_node(state: EngineState, name: str, event: str, words: str) -> None:
    """A node's use changed without an event of its own."""
    refresh_nodes(state, [name], event, words)


def refresh_nodes(
    state: EngineState, names: Iterable[str], event: str, words: str, cause: Cause = Cause.ADMIN
) -> None:
    """Let nodes be used as they may be by now. Jobs leave closed nodes for this cause."""
    before = {name: state.plan.nodes[name].state for name in names if name in state.plan.nodes}
    state.set_nodes([_planned_node(state, name) for name in before])
    now = {name: state.plan.nodes[name].state for name in before}
    other = [name for name in before if now[name] is not before[name]]
    closed = [name for name in other if now[name] is NodeState.DRAIN]
    if closed:
        replan_jobs(state, state.plan.jobs_on_nodes(closed), event, cause, words)
    for name in other:
        if now[name] is NodeState.DOWN:
            state.down_since.setdefault(name, state.now - state.settings.node_grace)
    if any(now[name] is NodeState.UP for name in other):
        place_unplaced(state, event, words)
