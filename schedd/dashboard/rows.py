"""Which nodes a chart or a list shows, in which order and groups: found by name, property or state."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from schedd.dashboard.words import kib, natural
from schedd.model import NodeSets
from schedd.wire import NodeFacts

__all__ = ["Grouping", "Row", "groupings", "lined_up", "matching", "named"]

_BRACKET: Final = re.compile(r"\[([^\]]*)\]")
_SPAN: Final = re.compile(r"(\d+)-(\d+)")
_MOST_NAMES: Final = 100_000
_MOST_WORDS: Final = 200
_STATES: Final = {"up": "up", "down": "down", "drain": "drain", "draining": "drain", "drained": "drain"}
_NONE: Final = "none"

Grouping = str
"""`class`, `property`, `state`, `set` (the site's), or a resource of nodes such as `rack` or `switch`."""
Row = tuple[str, str]
"""("group", its name) or ("node", its name)."""


def matching(nodes: Mapping[str, NodeFacts], text: str) -> list[str]:
    """The names of nodes that fit, in natural order.

    Words apart by spaces must all fit, of those apart by commas any. A word is a name, `n[001-020,031]`, a
    glob (`gpu*`), a property, a state (`up`, `down`, `draining`), else a part of a name. Case does not count.
    """
    tests = [[_test(word, nodes) for word in _words(part)] for part in _parts(text.lower()) if part.strip()]
    order = sorted(nodes, key=natural)
    if not tests:
        return order
    return [name for name in order if any(all(one(nodes[name]) for one in part) for part in tests)]


def named(nodes: Mapping[str, NodeFacts], text: str) -> list[str]:
    """The same for an act upon nodes: a part of a name does not do, and each of the words must fit a node.

    Raises ValueError.
    """
    if len(text.replace(",", " ").split()) > _MOST_WORDS:
        raise ValueError(f"at most {_MOST_WORDS} words: use ranges, patterns or properties")
    known = {name.lower() for name in nodes} | set(_STATES)
    known.update(one.lower() for node in nodes.values() for one in node.properties)
    found: set[str] = set()
    for part in _parts(text):
        for word in _words(part.lower()):
            if word not in known and not any(sign in word for sign in "*?["):
                raise ValueError(f"no node, property or state {word}")
        if part.strip():
            fitting = matching(nodes, part)
            if not fitting:
                raise ValueError(f"no node fits {part.strip()}")
            found.update(fitting)
    if not found:
        raise ValueError("name nodes: n1, n[001-020], gpu*, or a property")
    return sorted(found, key=natural)


def _parts(text: str) -> list[str]:
    """Split at commas that are not within brackets."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += letter
    return found


def _words(part: str) -> list[str]:
    return part.split()


def _test(word: str, nodes: Mapping[str, NodeFacts]) -> Callable[[NodeFacts], bool]:
    if _BRACKET.search(word):
        names = _expanded(word)
        return lambda node: node.name.lower() in names or node.name.lower().partition(".")[0] in names
    if any(sign in word for sign in "*?"):
        return lambda node: fnmatchcase(node.name.lower(), word)
    if any(node.name.lower() == word for node in nodes.values()):
        return lambda node: node.name.lower() == word
    if any(word in (one.lower() for one in node.properties) for node in nodes.values()):
        return lambda node: word in (one.lower() for one in node.properties)
    if word in _STATES:
        return lambda node: node.state == _STATES[word]
    return lambda node: word in node.name.lower()


def _expanded(word: str) -> frozenset[str]:
    """The names of ``n[001-020,031]``; numbers keep their zeros."""
    names = [""]
    at = 0
    for bracket in _BRACKET.finditer(word):
        choices: list[str] = []
        for one in bracket[1].split(","):
            span = _SPAN.fullmatch(one.strip())
            if span is None:
                choices.append(one.strip())
                continue
            low, high = int(span[1]), int(span[2])
            if high - low >= _MOST_NAMES // max(1, len(names)):
                high = low + _MOST_NAMES // max(1, len(names)) - 1
            choices += [str(number).zfill(len(span[1])) for number in range(low, high + 1)]
        between = word[at : bracket.start()]
        names = [name + between + choice for name in names for choice in choices][:_MOST_NAMES]
        at = bracket.end()
    return frozenset(name + word[at:] for name in names)


# ---- groups --------------------------------------------------------------------------------------


def groupings(nodes: Collection[NodeFacts], sets: NodeSets | None) -> list[Grouping]:
    """By what these nodes can be told apart."""
    keys = {one.partition("=")[0] for node in nodes for one in node.properties if "=" in one}
    found = sorted(keys)
    if sets is not None:
        found.append("set")
    if any("=" not in one for node in nodes for one in node.properties):
        found.append("property")
    return [*found, "class", "state"]


def _group_of(by: Grouping, sets: NodeSets | None) -> Callable[[NodeFacts], str]:
    def of_key(node: NodeFacts) -> str:
        return next((one for one in node.properties if one.startswith(f"{by}=")), _NONE)

    def of_set(node: NodeFacts) -> str:
        if sets is None:
            return _NONE
        if sets.by:
            return next((one for one in node.properties if one.startswith(f"{sets.by}=")), _NONE)
        has = {node.name, *node.properties}
        return next((name for name, features in sets.named if features & has), _NONE)

    def of_class(node: NodeFacts) -> str:
        parts = [f"{node.cpus} cpus"]
        parts += [kib(node.mem)] if node.mem else []
        parts += [f"{node.gpus} gpus"] if node.gpus else []
        return ", ".join(parts)

    def of_property(node: NodeFacts) -> str:
        return ", ".join(one for one in node.properties if "=" not in one) or _NONE

    known: dict[Grouping, Callable[[NodeFacts], str]] = {
        "set": of_set,
        "class": of_class,
        "property": of_property,
        "state": lambda node: {"drain": "draining"}.get(node.state, node.state),
    }
    return known.get(by, of_key)


def lined_up(
    names: Sequence[str],
    nodes: Mapping[str, NodeFacts],
    by: Grouping,
    opened: Collection[str],
    sets: NodeSets | None,
) -> tuple[list[Row], dict[str, list[str]]]:
    """The rows of a chart, and the nodes of each group: groups by name, those ``opened`` with their nodes."""
    if not by:
        return [("node", name) for name in names], {}
    of = _group_of(by, sets)
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(of(nodes[name]), []).append(name)
    rows: list[Row] = []
    for group in sorted(groups, key=lambda one: (one == _NONE, natural(one))):
        rows.append(("group", group))
        if group in opened:
            rows += [("node", name) for name in groups[group]]
    return rows, groups
