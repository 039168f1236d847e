"""What node choice adds to the engine."""

from typing import Final

from schedd.dialect.topology import TOPOLOGY_NAMES
from schedd.engine.component.declaration import Component
from schedd.features.node_choice.rules import (
    arrange_job,
    idle_hooks,
    level_features,
    node_order,
    order_nodes,
    refuse_unknown_level,
)
from schedd.features.node_choice.state import NodeChoiceState, publish_node_choice

COMPONENT: Final = Component(
    name="node_choice",
    state=NodeChoiceState,
    idle_hooks=idle_hooks,
    named_by=TOPOLOGY_NAMES,
    nodes_replaced=order_nodes,
    site_changed=order_nodes,
    node_features=level_features,
    refusal=refuse_unknown_level,
    node_order=node_order,
    after_placement=arrange_job,
    published=publish_node_choice,
)
