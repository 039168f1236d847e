"""Reasons why an eligible job has no start: unusable nodes, or a request that can never be met."""

from schedd.engine.component.placement_hooks import job_restriction
from schedd.engine.component.registry import components
from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.state import EngineState
from schedd.model import Never, Request, WaitingFor
from schedd.name_list import name_node
from schedd.plan.views import find_unmet_requirement, has_room_for_a_chunk
from schedd.wire import NodeFacts

_NAMED = 3


def explain_missing_start(state: EngineState, record: JobRecord) -> WaitingFor | Never:
    """Return the answer for a job without a start although each part of its request fits some node."""
    request = record.understood.request
    restriction = job_restriction(state, record.facts)
    if restriction is not None and restriction.pool:
        return WaitingFor("reservation", f"room in {restriction.place}")
    if request is not None and restriction is not None:
        request = state.planned_request(record.facts, request)
    never = (
        find_unmet_requirement(state.empty_plan(), request, state.limits.types.units)
        if request is not None
        else None
    )
    return never or WaitingFor("node", _list_unusable_nodes(state, record.slot, request))


def _list_unusable_nodes(state: EngineState, slot: int, request: Request | None) -> str:
    """Return the nodes that the job could use if they were usable, a few of them by name."""
    plan = state.plan
    closed = [plan.node_names[row] for row in plan.unusable_candidates(slot).tolist()]
    partly = [name for name in _nodes_with_unusable_parts(state, request) if name not in closed]
    words = [f"{name_node(name)}, which is {describe_closed_node(state, name)}" for name in closed[:_NAMED]]
    words += [
        f"{name_node(name)}, of which {describe_unusable_parts(state.node_facts[name])} cannot be used now"
        for name in partly[:_NAMED]
    ]
    if not words:
        words = [name for one in components() if one.endless is not None for name in one.endless(state)]
    more = max(len(words), len(closed) + len(partly)) - _NAMED
    tail = f" and {more} more" if more > 0 else ""
    return (", or ".join(words[:_NAMED]) + tail) or "nodes that can take it"


def _nodes_with_unusable_parts(state: EngineState, request: Request | None) -> list[str]:
    """Return the nodes that could hold a part of the request if all their parts could be used."""
    names = (
        [name for name, facts in state.node_facts.items() if facts.unusable] if request is not None else []
    )
    complete = state.empty_plan().nodes if names else {}
    return [
        name
        for name in names
        if request is not None
        and has_room_for_a_chunk(complete[name], request)
        and not has_room_for_a_chunk(state.plan.nodes[name], request)
    ]


def describe_unusable_parts(facts: NodeFacts) -> str:
    """Return the amounts of a node's parts that cannot be used now, to follow "of which"."""
    counted = [f"{facts.unusable[name]} {name}" for name in ("cpus", "gpus") if facts.unusable.get(name)]
    return " and ".join(counted) or "parts"


def describe_closed_node(state: EngineState, name: str) -> str:
    """Return why a node gets no new jobs, to follow "node n1 is"."""
    if name in state.blocked:
        jobs = ", ".join(state.blocked[name])
        return f"blocked by job {jobs}, long past its walltime"
    held = state.holds.get(("node", name))
    if held is not None:
        return f"held: {held.reason}"
    for one in components():
        if one.closed_because is not None and (reason := one.closed_because(state, name)):
            return reason
    if name in state.black_holes:
        return "not used, since jobs fail on it"
    facts = state.node_facts.get(name)
    return "offline" if facts is not None and facts.state == "drain" else "down"
