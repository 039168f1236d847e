"""The nodes that are down, for an alert."""

from typing import Final

from schedd.engine import PlanSnapshot

_NAMED: Final = 5


def describe_down_nodes(published: PlanSnapshot) -> str:
    """Return `2 nodes are down: n1, n7`; empty if no node is. Nodes that an administrator holds, or that are
    switched off to save power, do not count.
    """
    held, details = published.held_nodes, published.node_details
    down = [
        name
        for name, node in published.nodes.items()
        if node.state == "down" and name not in held and details.get(name, {}).get("power", "on") == "on"
    ]
    if not down:
        return ""
    more = f" and {len(down) - _NAMED} more" if len(down) > _NAMED else ""
    count = "1 node is" if len(down) == 1 else f"{len(down)} nodes are"
    return f"{count} down: {', '.join(down[:_NAMED])}{more}"
