"""The grammar of ``nodes=``: parts joined by ``+``, each a count or a name, then ``:`` and its conditions.

After the servers' own reader (``proplist`` and ``mod_spec`` in TORQUE's ``node_manager.c``): what follows a
``#`` holds for every part, ``#excl`` and ``#shared`` for the job.
"""

import re
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from schedd.dialect.asked import parse_amount
from schedd.dialect.errors import RequestError
from schedd.dialect.span import Span, whole_number
from schedd.model.request import Features

__all__ = [
    "NAME",
    "NodeSpec",
    "NodeSpecPart",
    "gpu_modes",
    "normal_form",
    "parse_alternatives",
    "parse_nodes",
]

NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
"""What the servers take for a property or a node's name."""

_VIRTUAL_PROCESSOR = re.compile(r"(.+)/[0-9]*")
"""``node1/0``: the servers skip the number of the virtual processor."""

_GPU_MODES = frozenset(
    {"exclusive", "exclusive_thread", "exclusive_process", "default", "shared", "reseterr"}
)


@dataclass(slots=True)
class NodeSpecPart:
    """One part of a list of nodes: ``count`` units of ``ppn`` times ``cpp`` cores each.

    ``host`` is the known node that the part names, or empty; ``amounts`` are per unit.
    """

    count: int = 1
    ppn: int = 1
    cpp: int = 1
    gpus: int = 0
    host: str = ""
    amounts: dict[str, int] = field(default_factory=dict)
    features: list[frozenset[str]] = field(default_factory=list)
    given: set[str] = field(default_factory=set)
    """The ``name=`` conditions it states itself."""

    @property
    def cores(self) -> int:
        """The cores of one unit."""
        return self.ppn * self.cpp


@dataclass(slots=True)
class NodeSpec:
    """All parts in their order; ``exclusive`` is True for ``#excl``, False for ``#shared``, else None."""

    parts: list[NodeSpecPart]
    exclusive: bool | None = None
    gpu_modes: set[str] = field(default_factory=set)


def normal_form(features: Collection[frozenset[str]]) -> Features:
    """The conjunction without repetitions, in a stable order, so that equal wishes compare equal."""
    return tuple(sorted(set(features), key=sorted))


def parse_alternatives(span: Span) -> frozenset[str]:
    """``a|b``: any of these properties; ``^a`` or ``!a``: a node without it."""
    names = set()
    for piece in span.split("|"):
        text = str(piece)
        negated = text[:1] in ("^", "!")
        name = text[1:] if negated else text
        if not NAME.fullmatch(name):
            raise piece.error(
                f"{piece.shown()} is no property and no node's name",
                "letters, digits and . _ - after a first letter; a|b for either, ^a for nodes without a",
            )
        names.add(f"!{name}" if negated else name)
    return frozenset(names)


def parse_nodes(span: Span, *, known_nodes: Collection[str] = (), amounts: Collection[str] = ()) -> NodeSpec:
    """The parts of a ``nodes=`` value.

    A name of ``known_nodes`` may begin a part whatever its characters; ``amounts`` are the names (in lower
    case) that a part may give a number to besides ``ppn`` and ``gpus``. Raises RequestError.
    """
    known_nodes = known_nodes if isinstance(known_nodes, AbstractSet) else frozenset(known_nodes)
    listing, *everywhere = span.split("#")
    spec = NodeSpec([])
    for piece in listing.split("+"):
        part, rest = _head(piece, known_nodes)
        _conditions(rest, part, spec, amounts)
        spec.parts.append(part)
    for piece in everywhere:
        if (word := str(piece).lower()) in ("excl", "shared"):
            spec.exclusive = word == "excl"
        else:
            for part in spec.parts:
                _conditions(piece.split(":"), part, spec, amounts)
    return spec


def _head(span: Span, known_nodes: Collection[str]) -> tuple[NodeSpecPart, list[Span]]:
    """A part with the count or the name it begins with, and the conditions that remain to be read."""
    first, *rest = span.split(":")
    text = str(first)
    if not text:
        raise first.error(
            "a part of the list is empty", "a count or a name, for example 2:ppn=4 or node1:ppn=4"
        )
    if text.isascii() and text.isdigit():
        return NodeSpecPart(count=whole_number(first, "the number of nodes")), rest
    host = next((name for name in (text, _without_processor(text)) if name in known_nodes), "")
    if host:
        return NodeSpecPart(host=host, features=[frozenset({host})]), rest
    if text[0].isdigit():
        raise first.error(
            f"{first.shown()} is neither a count nor a name", "a count, then : and its conditions"
        )
    return NodeSpecPart(), [first, *rest]


def _conditions(pieces: list[Span], part: NodeSpecPart, spec: NodeSpec, amounts: Collection[str]) -> None:
    for piece in pieces:
        name, value = piece.partition("=")
        key = str(name).lower()
        if value is None:
            _word(piece, key, part, spec)
            continue
        if key in part.given:
            raise piece.error(f"{key}= is given twice for one part")
        part.given.add(key)
        if key == "ppn":
            part.ppn = whole_number(value, "ppn=")
        elif key == "gpus":
            part.gpus = whole_number(value, "gpus=")
        elif key in ("cpp", "ncpus") and key in amounts:
            part.cpp = whole_number(value, f"{key}=")
        elif key in amounts:
            part.amounts[key] = parse_amount(value)
        else:
            raise _unknown(piece, amounts)


def _word(piece: Span, word: str, part: NodeSpecPart, spec: NodeSpec) -> None:
    """A condition without a value: a property, or after ``gpus=`` how the server is to set them up."""
    if "gpus" in part.given and word in {*_GPU_MODES, "prohibited"}:
        spec.gpu_modes.update(gpu_modes(piece))
    else:
        bare = _without_processor(str(piece))
        part.features.append(frozenset({bare}) if NAME.fullmatch(bare) else parse_alternatives(piece))


def gpu_modes(span: Span) -> tuple[str, ...]:
    """How the server is to set up gpus: modes joined by ``:``. Raises RequestError."""
    for piece in span.split(":"):
        if str(piece).lower() not in _GPU_MODES:
            what = (
                "the servers refuse the gpu mode"
                if str(piece).lower() == "prohibited"
                else "there is no gpu mode"
            )
            raise piece.error(f"{what} {piece.shown()}", ", ".join(sorted(_GPU_MODES)))
    return tuple(sorted({str(piece).lower() for piece in span.split(":")}))


def _without_processor(text: str) -> str:
    match = _VIRTUAL_PROCESSOR.fullmatch(text)
    return match[1] if match else text


def _unknown(piece: Span, amounts: Collection[str]) -> RequestError:
    known = ", ".join(f"{name}=" for name in ["ppn", "gpus", *sorted(amounts)])
    return piece.error(f"{piece.shown()} is no condition on a node", f"{known}, a property or a node's name")
