"""Nodes and queues whose planning an admin holds: nothing new there, what runs goes on."""

from schedd.engine.nodes import refresh
from schedd.engine.places import replan
from schedd.engine.records import Cause, Phase
from schedd.engine.state import EngineState
from schedd.wire import PlanningHeld, PlanningReleased

__all__ = ["hold", "release"]


def hold(state: EngineState, event: PlanningHeld) -> None:
    """Planned jobs leave the node, or those of the queue lose their starts, by an admin's order."""
    state.holds[event.kind, event.name] = event
    words = f"planning of {event.kind} {event.name} is held: {event.reason}"
    _follow(state, event, Cause.ADMIN, words)


def release(state: EngineState, event: PlanningReleased) -> None:
    """The node, or the queue, is planned for again."""
    if state.holds.pop((event.kind, event.name), None) is not None:
        words = f"planning of {event.kind} {event.name} was released"
        _follow(state, event, Cause.RELEASED, words)


def _follow(state: EngineState, event: PlanningHeld | PlanningReleased, cause: Cause, words: str) -> None:
    if event.kind == "node":
        if event.name in state.plan.nodes:
            state.frees += 1
            refresh(state, event.name, event.id, words)
        return
    for record in [one for one in state.records.values() if one.facts.queue == event.name]:
        if record.phase in (Phase.WAITING, Phase.BLOCKED):
            replan(state, record, event.id, cause, words)
