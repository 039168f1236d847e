"""What the engine knows of node choice: nothing that lasts; readers get the settings in force."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.node_choice.settings import NodeChoiceSettings
from schedd.plan.columns import Ints
from schedd.plan.schema import FieldRule, declared

_MEMO: Final = FieldRule(lambda _: {}, saved=False)


@dataclass(slots=True)
class NodeChoiceState:
    """The component's part of the engine's state."""

    ranks: dict[str, tuple[Mapping[str, int], Ints]] = declared(_MEMO, make=dict)
    """By name of an order of nodes: the order, and its ranks by row. A cache."""


@dataclass(frozen=True, slots=True)
class PublishedNodeChoice:
    """What other threads may read of the component."""

    settings: NodeChoiceSettings


def node_choice_settings(known: EngineState | PlanSnapshot) -> NodeChoiceSettings:
    if isinstance(known, EngineState):
        return known.site.part(NodeChoiceSettings)
    return known.part(PublishedNodeChoice).settings


def publish_node_choice(state: EngineState) -> PublishedNodeChoice:
    """A value for other threads."""
    return PublishedNodeChoice(state.site.part(NodeChoiceSettings))
