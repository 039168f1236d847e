"""Hooks about nodes, limits, slots of the plan, and published states of components."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from schedd.engine.component.hook_values import NodeClaim
from schedd.engine.component.registry import components, working_calls
from schedd.policy.economy import Draw
from schedd.policy.limits import Limit
from schedd.wire import NodeFacts, Reserve

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState


def added_features(state: "EngineState", facts: NodeFacts) -> frozenset[str]:
    """The features that components add to a node of the plan."""
    return frozenset(feature for adds in _feature_sources() for feature in adds(state, facts))


@cache
def _feature_sources() -> tuple[Callable[["EngineState", NodeFacts], Iterable[str]], ...]:
    """The functions ``node_features`` of all components: they are called for each node."""
    return tuple(one.node_features for one in components() if one.node_features is not None)


def component_limits(state: "EngineState") -> tuple[tuple[Limit, ...], ...]:
    """The limits of all components, by their source."""
    return tuple(limits for one in components() if one.limits is not None for limits in one.limits(state))


def rebuild_components(state: "EngineState") -> None:
    """Let the components restore their slots in a rebuilt plan."""
    for one in components():
        if one.plan_rebuilt is not None:
            one.plan_rebuilt(state)


def withdraw_nodes(state: "EngineState", names: Sequence[str], event: str, words: str) -> None:
    """Report to the components that nodes are no longer usable, and why."""
    for one in components():
        if one.nodes_withdrawn is not None:
            one.nodes_withdrawn(state, names, event, words)


def component_blocks(state: "EngineState") -> list[Reserve]:
    """Nodes that components keep free, or for some jobs, for a time."""
    return [block for one in components() if one.node_blocks is not None for block in one.node_blocks(state)]


def component_claim(state: "EngineState", event: Any) -> NodeClaim | None:
    """The nodes that an event of a component takes from jobs; None: of no component."""
    for one in components():
        claim = one.node_claims.get(type(event))
        if claim is not None:
            return claim(state, event)
    return None


def component_slots(state: "EngineState") -> list[int]:
    return [slot for _, call in working_calls(state, "slots") for slot in call(state)]


def deferred_slots(state: "EngineState") -> list[int]:
    """The slots of running jobs that hold their resources only from their start in the plan on."""
    return [slot for _, call in working_calls(state, "deferred_slots") for slot in call(state)]


def published_parts(state: "EngineState") -> dict[type[Any], object]:
    """What other threads may read of the components, by its type."""
    found = [one.published(state) for one in components() if one.published is not None]
    return {type(value): value for value in found}


def measured_draws(state: "EngineState") -> dict[str, Draw]:
    """By node: the watts that components measured."""
    found: dict[str, Draw] = {}
    for one in components():
        if one.measured_draws is not None:
            found |= one.measured_draws(state)
    return found


def node_details(state: "EngineState") -> dict[str, dict[str, Any]]:
    """By node: additional fields of its views."""
    found: dict[str, dict[str, Any]] = {}
    for one in components():
        for name, values in one.node_details(state).items() if one.node_details is not None else ():
            found[name] = {**found.get(name, {}), **values}
    return found
