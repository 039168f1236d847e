"""Points and ranks of nodes by the preferences of a site. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from schedd.features.node_choice.settings import NodePreferences
from schedd.model import Node
from schedd.policy.expressions import Columns, Floats, parse_formula

_TERMS = {
    "cpus": lambda node: node.cpus,
    "gpus": lambda node: node.gpus,
    "mem": lambda node: node.mem,
    "vmem": lambda node: node.vmem,
    "speed": lambda node: node.speed,
}
"""Numbers of each node; memory in KiB."""
_WHOLE: Final = re.compile(r"-?[0-9]{1,15}")


def rank_nodes(preferences: NodePreferences, nodes: Sequence[Node]) -> dict[str, int]:
    """Return the rank of each node by name: 0 for those with the most points; empty if all are equal."""
    points = np.zeros(len(nodes))
    if preferences.prefer:
        given = preferences.prefer
        points += [sum(given.get(name, 0.0) for name in node.all_features) for node in nodes]
    if preferences.expression.strip():
        points += _formula_points(preferences.expression, nodes)
    distinct, where = np.unique(-np.round(points, 6), return_inverse=True)
    if distinct.shape[0] < 2:
        return {}
    return {node.name: rank for node, rank in zip(nodes, where.tolist(), strict=True)}


def _formula_points(text: str, nodes: Sequence[Node]) -> Floats:
    """The value of a formula for each node; 0 where it has none."""
    expression = parse_formula(text.strip())
    numbers = {name: np.array([_number(node, name) for node in nodes], float) for name in expression.names}
    texts = {name: [_text(node, name) for node in nodes] for name in expression.text_names}
    values = expression.values(Columns(len(nodes), numbers, texts))
    return np.where(np.isnan(values), 0.0, values)


def _number(node: Node, name: str) -> float:
    """Return a number of a node: a term of ``_TERMS``, the amount of a resource, or the largest number that
    it has as a property; else 1 if it has a property of this name, or 0.
    """
    if name in _TERMS:
        return float(_TERMS[name](node))
    amounts: Mapping[str, int] = dict(node.resources)
    if name in amounts:
        return float(amounts[name])
    prefix = f"{name.lower()}="
    numbers = [one[len(prefix) :] for one in node.features if one.lower().startswith(prefix)]
    return max(
        (float(text) for text in numbers if _WHOLE.fullmatch(text)), default=float(name in node.features)
    )


def _text(node: Node, name: str) -> str:
    """Return the node's name, or the value of a text resource; empty if it has none."""
    if name == "name":
        return node.name
    prefix = f"{name.lower()}="
    return next((one[len(prefix) :] for one in sorted(node.features) if one.lower().startswith(prefix)), "")
