"""Nodes and queues whose planning an admin holds: nothing new there, what runs goes on."""

from schedd.engine.nodes import refresh
from schedd.engine.rereading import follow_queue
from schedd.engine.state import EngineState
from schedd.wire import PlanningHeld, PlanningReleased

__all__ = ["hold", "release"]


def hold(state: EngineState, event: PlanningHeld) -> None:
    """Planned jobs leave the node, or those of the queue lose their starts, by an admin's order."""
    state.holds[event.kind, event.name] = event
    words = f"planning of {event.kind} {event.name} is held: {event.reason}"
    _follow(state, event, words)


def release(state: EngineState, event: PlanningReleased) -> None:
    """The node, or the queue, is planned for again."""
    if state.holds.pop((event.kind, event.name), None) is not None:
        words = f"planning of {event.kind} {event.name} was released"
        _follow(state, event, words)


def _follow(state: EngineState, event: PlanningHeld | PlanningReleased, words: str) -> None:
    if event.kind == "node":
        if event.name in state.plan.nodes:
            state.frees += 1
            refresh(state, event.name, event.id, words)
        return
    follow_queue(state, event.id, event.name, words)
