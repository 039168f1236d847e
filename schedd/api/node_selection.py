"""Which nodes a text means: by name, range, pattern, property or state. Pages and API have this one rule."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Final

from schedd.dialect.node_properties import property_name
from schedd.wire import NodeFacts

_BRACKET_PATTERN: Final = re.compile(r"\[([^\]]*)\]")
_LAST_NUMBER: Final = re.compile(r"(.*?)(\d{1,9})(\D*)")
_NAME_PARTS: Final = re.compile(r"\d+|\D+")
_SPAN_PATTERN: Final = re.compile(r"(\d+)-(\d+)")
_MAX_EXPANDED_NAMES: Final = 100_000
_MAX_WORDS: Final = 200
_HUNDRED: Final = 100
_MAX_FOLDED: Final = 60  # characters of folded names in brief
_STATE_WORDS: Final = {"up": "up", "down": "down", "drain": "drain", "draining": "drain", "drained": "drain"}


def match_nodes(nodes: Mapping[str, NodeFacts], text: str) -> list[str]:
    """The names of nodes that fit, in natural order.

    Words apart by spaces must all fit, of those apart by commas any. A word is a name, `n[001-020,031]`, a
    glob (`gpu*`), a property, a state (`up`, `down`, `draining`), else a part of a name. Case does not count.
    """
    tests = [
        [_compile_pattern(word, nodes) for word in _split_words(part)]
        for part in _split_alternatives(text.lower())
        if part.strip()
    ]
    order = _natural_order(tuple(nodes))
    if not tests:
        return list(order)
    return [name for name in order if any(all(one(nodes[name]) for one in part) for part in tests)]


def select_nodes(nodes: Mapping[str, NodeFacts], text: str) -> list[str]:
    """The same for an act upon nodes: a part of a name does not do, and each of the words must fit a node.

    Raises ValueError.
    """
    if len(text.replace(",", " ").split()) > _MAX_WORDS:
        raise ValueError(f"at most {_MAX_WORDS} words: use ranges, patterns or properties")
    known = {name.lower() for name in nodes} | set(_STATE_WORDS)
    for properties in {node.properties for node in nodes.values()}:
        known.update(_property_words(properties))
    found: set[str] = set()
    for part in _split_alternatives(text):
        for word in _split_words(part.lower()):
            if word not in known and not any(sign in word for sign in "*?["):
                raise ValueError(f"no node, property or state {word}")
        if part.strip():
            fitting = match_nodes(nodes, part)
            if not fitting:
                raise ValueError(f"no node fits {part.strip()}")
            found.update(fitting)
    if not found:
        raise ValueError("name nodes: n1, n[001-020], gpu*, or a property")
    return sorted(found, key=natural_key)


def narrow_selection(text: str, word: str) -> str:
    """The text with one more word for each of its alternatives: what fits must fit this word too."""
    parts = [part.strip() for part in _split_alternatives(text) if part.strip()]
    return ", ".join(f"{part} {word}" for part in parts) or word


def fold_hundreds(names: Iterable[str]) -> dict[str, list[str]]:
    """The names by hundreds of their last number, in their order: `n[0100-0199]` to those that exist.

    ``match_nodes`` reads the keys. A name without a number is a key of its own.
    """
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(_name_hundred(name), []).append(name)
    return found


@lru_cache(maxsize=20_000)
def _name_hundred(name: str) -> str:
    parts = _LAST_NUMBER.fullmatch(name)
    if parts is None:
        return name
    head, digits, tail = parts.groups()
    width = len(digits)  # a range has numbers of one width: n7 is in n[0-9], n07 in n[00-99]
    first = int(digits) // _HUNDRED * _HUNDRED
    last = min(first + _HUNDRED, 10**width) - 1
    return f"{head}[{first:0{width}}-{last:0{width}}]{tail}"


def fold_names(names: Iterable[str]) -> str:
    """The names in natural order, consecutive numbers as a range: `gpu1, n[001-003,007]`, `node[8-12]`.

    `select_nodes` reads the result.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for name in sorted(names, key=natural_key):
        found = _LAST_NUMBER.fullmatch(name)
        if found is None:
            groups[name, ""] = []
            continue
        head, digits, tail = found.groups()
        groups.setdefault((head, tail), []).append(digits)
    return ", ".join(
        f"{head}{_fold_numbers(numbers)}{tail}" if numbers else head
        for (head, tail), numbers in groups.items()
    )


def name_nodes(names: Sequence[str], most: int = 6) -> str:
    """The names in brief: up to ``most`` one by one; more are folded, or the first ones and a count."""
    if len(names) <= most:
        return ", ".join(names)
    folded = fold_names(names)
    if len(folded) <= _MAX_FOLDED:
        return f"{folded} ({len(names)} nodes)"
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def _fold_numbers(numbers: Sequence[str]) -> str:
    """`[001-003,007]`, for numbers in order; a range has the zeros of its first number: `[08-12]`."""
    if len(numbers) == 1:
        return numbers[0]
    spans: list[list[str]] = []
    for digits in numbers:
        if spans and str(int(spans[-1][-1]) + 1).zfill(len(spans[-1][0])) == digits:
            spans[-1][1:] = [digits]
        else:
            spans.append([digits])
    return f"[{','.join('-'.join(span) for span in spans)}]"


def _split_alternatives(text: str) -> list[str]:
    """Split at commas that are not within brackets."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += letter
    return found


def _split_words(part: str) -> list[str]:
    return part.split()


def _compile_pattern(word: str, nodes: Mapping[str, NodeFacts]) -> Callable[[NodeFacts], bool]:
    if _BRACKET_PATTERN.search(word):
        names = _expand_brackets(word)
        return lambda node: node.name.lower() in names or node.name.lower().partition(".")[0] in names
    if any(sign in word for sign in "*?"):
        fits = re.compile(translate(word)).match
        return lambda node: fits(node.name.lower()) is not None
    if any(name.lower() == word for name in nodes):
        return lambda node: node.name.lower() == word
    # many nodes have equal properties
    having = {
        properties
        for properties in {node.properties for node in nodes.values()}
        if word in _property_words(properties)
    }
    if having:
        return lambda node: node.properties in having
    if word in _STATE_WORDS:
        return lambda node: node.state == _STATE_WORDS[word]
    return lambda node: word in node.name.lower()


def _property_words(properties: tuple[str, ...]) -> set[str]:
    """Return the words for these properties: a boolean resource also without its value."""
    return {name.lower() for one in properties for name in (one, property_name(one))}


def _expand_brackets(word: str) -> frozenset[str]:
    """The names of ``n[001-020,031]``; numbers keep their zeros."""
    names = [""]
    at = 0
    for bracket in _BRACKET_PATTERN.finditer(word):
        choices: list[str] = []
        for one in bracket[1].split(","):
            span = _SPAN_PATTERN.fullmatch(one.strip())
            if span is None:
                choices.append(one.strip())
                continue
            low, high = int(span[1]), int(span[2])
            if high - low >= _MAX_EXPANDED_NAMES // max(1, len(names)):
                high = low + _MAX_EXPANDED_NAMES // max(1, len(names)) - 1
            choices += [str(number).zfill(len(span[1])) for number in range(low, high + 1)]
        between = word[at : bracket.start()]
        names = [name + between + choice for name in names for choice in choices][:_MAX_EXPANDED_NAMES]
        at = bracket.end()
    return frozenset(name + word[at:] for name in names)


def natural_key(name: str) -> list[tuple[int, int | str]]:
    """A key that puts ``node2`` before ``node10``."""
    parts = _NAME_PARTS.findall(name)
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts]


@lru_cache(maxsize=8)
def _natural_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a cluster's nodes in natural order: many requests sort the same names."""
    return tuple(sorted(names, key=natural_key))
