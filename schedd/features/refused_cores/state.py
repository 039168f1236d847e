"""State of refused cores: for each node what the server refused, and until when the plan leaves it out."""

from dataclasses import asdict, dataclass, replace
from typing import Final

from schedd.engine.facts.state import EngineState
from schedd.plan.schema import FieldRule, declared


@dataclass(frozen=True, slots=True)
class RefusedCores:
    """Cores of a node that the server lists as free and refuses. Times are seconds since the epoch (UTC).

    Until ``again_at``, ``pause`` seconds after the last refusal, ``slot`` keeps ``cores`` of the node's
    ``of`` from jobs; then it is -1, and the next start tries them.
    """

    node: str
    of: int
    cores: int
    since: int
    again_at: int
    pause: int
    slot: int = -1


_NODES: Final = FieldRule(
    dict,
    lambda nodes: list(nodes.values()),
    lambda saved: {one["node"]: RefusedCores(**one) for one in saved},
    each=asdict,
    kind=RefusedCores,
)


@dataclass(slots=True)
class NodesWithRefusedCores:
    """The component's part of the engine's state."""

    nodes: dict[str, RefusedCores] = declared(_NODES, make=dict, carried=True, lasting=True)  # by node


def refused_cores(state: EngineState) -> dict[str, RefusedCores]:
    """The refused cores by node."""
    return state.part(NodesWithRefusedCores).nodes


def shift_pauses(part: NodesWithRefusedCores, _: int, back: int) -> None:
    """Keep the remaining pauses when the clock was set back."""
    part.nodes = {
        name: replace(one, since=one.since - back, again_at=one.again_at - back)
        for name, one in part.nodes.items()
    }


def without_slots(part: NodesWithRefusedCores) -> None:
    """Forget slots: the plan is rebuilt without them."""
    part.nodes = {name: replace(one, slot=-1) for name, one in part.nodes.items()}
