"""The rows of a chart: nodes, or groups of nodes until they are opened."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from schedd.api.node_selection import natural_key
from schedd.dashboard.filters import format_memory
from schedd.dialect.node_properties import property_name, resource_name
from schedd.model import NodeSets
from schedd.wire import NodeFacts

_NO_GROUPING: Final = "none"

Grouping = str
"""`class`, `property`, `state`, `set` (the site's), or a resource of nodes such as `rack` or `switch`."""
ChartRow = tuple[str, str]  # ("group", its name) or ("node", its name)


def list_groupings(nodes: Collection[NodeFacts], sets: NodeSets | None) -> list[Grouping]:
    """The groupings that distinguish these nodes."""
    distinct = {one for node in nodes for one in node.properties}
    keys = {resource_name(one) for one in distinct}
    found = sorted(keys - {""})
    if sets is not None:
        found.append("set")
    if "" in keys:
        found.append("property")
    return [*found, "class", "state"]


def _group_function(by: Grouping, sets: NodeSets | None) -> Callable[[NodeFacts], str]:
    def key_group(node: NodeFacts) -> str:
        return next((one for one in node.properties if one.startswith(f"{by}=")), _NO_GROUPING)

    def set_group(node: NodeFacts) -> str:
        if sets is None:
            return _NO_GROUPING
        if sets.by:
            return next((one for one in node.properties if one.startswith(f"{sets.by}=")), _NO_GROUPING)
        has = {node.name, *node.properties}
        return next((name for name, features in sets.named if features & has), _NO_GROUPING)

    def class_group(node: NodeFacts) -> str:
        parts = [f"{node.cpus} cpus"]
        parts += [format_memory(node.mem)] if node.mem else []
        parts += [f"{node.gpus} gpus"] if node.gpus else []
        return ", ".join(parts)

    def property_group(node: NodeFacts) -> str:
        named = (property_name(one) for one in node.properties if not resource_name(one))
        return ", ".join(named) or _NO_GROUPING

    known: dict[Grouping, Callable[[NodeFacts], str]] = {
        "set": set_group,
        "class": class_group,
        "property": property_group,
        "state": lambda node: {"drain": "draining"}.get(node.state, node.state),
    }
    return known.get(by, key_group)


def build_rows(
    names: Sequence[str],
    nodes: Mapping[str, NodeFacts],
    by: Grouping,
    opened: Collection[str],
    sets: NodeSets | None,
) -> tuple[list[ChartRow], dict[str, list[str]]]:
    """The rows of a chart, and the nodes of each group: groups by name, those ``opened`` with their nodes."""
    if not by:
        return [("node", name) for name in names], {}
    of = _group_function(by, sets)
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(of(nodes[name]), []).append(name)
    rows: list[ChartRow] = []
    for group in sorted(groups, key=lambda one: (one == _NO_GROUPING, natural_key(one))):
        rows.append(("group", group))
        if group in opened:
            rows += [("node", name) for name in groups[group]]
    return rows, groups
