"""Nodes and queues held by an administrator: nothing new is planned there; running jobs continue."""

from collections.abc import Sequence

from schedd.engine.facts.state import EngineState
from schedd.engine.machine.nodes import refresh_nodes
from schedd.engine.run.reevaluation import follow_queue
from schedd.wire import PlanningHeld, PlanningReleased

Held = PlanningHeld | PlanningReleased


def held_or_released(state: EngineState, events: Sequence[Held]) -> None:
    """Displace planned jobs from held nodes, unplace jobs of held queues, or plan for released ones again.
    Many nodes are processed together.
    """
    nodes: dict[str, Held] = {}
    for event in events:
        if isinstance(event, PlanningHeld):
            state.holds[event.kind, event.name] = event
        elif state.holds.pop((event.kind, event.name), None) is None:
            continue
        if event.kind == "queue":
            follow_queue(state, event.id, event.name, _describe(event))
        elif event.name in state.plan.nodes:
            nodes[event.name] = event
    if nodes:
        last = list(nodes.values())[-1]
        state.frees += len(nodes)
        refresh_nodes(state, nodes, last.id, _describe(last, len(nodes)))


def _describe(event: Held, nodes: int = 1) -> str:
    what = f"{event.kind} {event.name}" if nodes == 1 else f"{nodes} nodes"
    tail = f"is held: {event.reason}" if isinstance(event, PlanningHeld) else "was released"
    return f"planning of {what} {tail}"
