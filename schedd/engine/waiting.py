"""Why a job that may be planned has no start: which nodes it waits for, or that it never can have one."""

from schedd.engine.records import JobRecord
from schedd.engine.state import EngineState
from schedd.model import Never, WaitingFor
from schedd.plan.views import bare, why_never

__all__ = ["no_node", "state_of"]

_NAMED = 3


def no_node(state: EngineState, record: JobRecord) -> WaitingFor | Never:
    """The answer for a job that finds no start though each part of its request fits some node."""
    request = record.understood.request
    if state.bare is None:
        state.bare = bare(state.plan)
    never = why_never(state.bare, request) if request is not None else None
    return never or WaitingFor("node", _nodes_in_the_way(state, record.slot))


def _nodes_in_the_way(state: EngineState, slot: int) -> str:
    """The nodes that the job could use but that cannot be used, a few of them by name."""
    plan = state.plan
    found: dict[str, None] = {}
    for chunk in plan.chunks_of(slot):
        for row in chunk.rows:
            name = plan.name_of[row]
            if not plan.is_usable(row):
                found[f"node {name}, which is {state_of(state, name)}"] = None
    if not found:
        for reservation in state.reservations.values():
            if reservation.event.end is None:
                found[f"reservation {reservation.event.name}, which has no end"] = None
    words = list(found)
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return (", or ".join(words[:_NAMED]) + more) or "nodes that can take it"


def state_of(state: EngineState, name: str) -> str:
    """Why a node gets no new jobs, to follow "node n1 is"."""
    if name in state.blocked:
        jobs = ", ".join(state.blocked[name])
        return f"blocked by job {jobs}, long past its walltime"
    held = state.holds.get(("node", name))
    if held is not None:
        return f"held: {held.reason}"
    if name in state.holes:
        return "not used, since jobs fail on it"
    one = state.power.get(name)
    if one is not None and one.wish in ("off", "hold") and one.phase != "failed":
        return f"switched off by {one.by}" + (f": {one.reason}" if one.reason else "")
    facts = state.node_facts.get(name)
    return "offline" if facts is not None and facts.state == "drain" else "down"
