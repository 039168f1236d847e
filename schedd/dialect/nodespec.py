"""The grammar of ``nodes=``: parts joined by ``+``, each a count or a name, then ``:`` and its conditions.

As parsed by the servers (``proplist`` and ``mod_spec`` in TORQUE's ``node_manager.c``): conditions after a
``#`` apply to every part, ``#excl`` and ``#shared`` to the job.
"""

import re
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from schedd.dialect.errors import RequestError
from schedd.dialect.requested_resources import RequestedResources, parse_amount
from schedd.dialect.span import Span, parse_integer
from schedd.model.request import Features

NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")  # valid names of properties and nodes

_VIRTUAL_PROCESSOR = re.compile(r"(.+)/[0-9]*")
"""``node1/0``: the servers skip the number of the virtual processor."""

_GPU_MODES = frozenset(
    {"exclusive", "exclusive_thread", "exclusive_process", "default", "shared", "reseterr"}
)
_SHARING_MODES = frozenset({"default", "shared"})


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
    given: set[str] = field(default_factory=set)  # names of its explicit `name=` conditions

    @property
    def cores(self) -> int:
        return self.ppn * self.cpp


@dataclass(slots=True)
class NodesRequest:
    """All parts in their order; ``exclusive`` is True for ``#excl``, False for ``#shared``, else None."""

    parts: list[NodeSpecPart]
    exclusive: bool | None = None
    gpu_modes: set[str] = field(default_factory=set)


def normal_form(features: Collection[frozenset[str]]) -> Features:
    """Return the conjunction without repetitions, in a stable order, so that equal requests compare equal."""
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


def parse_nodes(
    span: Span, *, known_nodes: Collection[str] = (), amounts: Collection[str] = ()
) -> NodesRequest:
    """Parse a ``nodes=`` value.

    A name in ``known_nodes`` may contain any characters; ``amounts`` are the resources (in lower case) that a
    part may request besides ``ppn`` and ``gpus``. Raises RequestError.
    """
    known_nodes = known_nodes if isinstance(known_nodes, AbstractSet) else frozenset(known_nodes)
    listing, *everywhere = span.split("#")
    spec = NodesRequest([])
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
    """Return a part with its initial count or name, and its unparsed conditions."""
    first, *rest = span.split(":")
    text = str(first)
    if not text:
        raise first.error(
            "a part of the list is empty", "a count or a name, for example 2:ppn=4 or node1:ppn=4"
        )
    if text.isascii() and text.isdigit():
        return NodeSpecPart(count=parse_integer(first, "the number of nodes")), rest
    host = next((name for name in (text, _without_processor(text)) if name in known_nodes), "")
    if host:
        return NodeSpecPart(host=host, features=[frozenset({host})]), rest
    if text[0].isdigit():
        raise first.error(
            f"{first.shown()} is neither a count nor a name", "a count, then : and its conditions"
        )
    return NodeSpecPart(), [first, *rest]


def _conditions(pieces: list[Span], part: NodeSpecPart, spec: NodesRequest, amounts: Collection[str]) -> None:
    for piece in pieces:
        name, value = piece.partition("=")
        key = str(name).lower()
        if value is None:
            _add_condition(piece, key, part, spec)
            continue
        if key in part.given:
            raise piece.error(f"{key}= is given twice for one part")
        part.given.add(key)
        if key == "ppn":
            part.ppn = parse_integer(value, "ppn=")
        elif key == "gpus":
            part.gpus = parse_integer(value, "gpus=")
        elif key in ("cpp", "ncpus") and key in amounts:
            part.cpp = parse_integer(value, f"{key}=")
        elif key in amounts:
            part.amounts[key] = parse_amount(value)
        else:
            raise _unknown(piece, amounts)


def _add_condition(piece: Span, word: str, part: NodeSpecPart, spec: NodesRequest) -> None:
    """Add a condition without a value: a property, or after ``gpus=`` a gpu mode."""
    if "gpus" in part.given and word in {*_GPU_MODES, "prohibited"}:
        _refuse_prohibited(piece)
        spec.gpu_modes.add(word)
    else:
        bare = _without_processor(str(piece))
        part.features.append(frozenset({bare}) if NAME.fullmatch(bare) else parse_alternatives(piece))


def parse_gpu_options(span: Span) -> tuple[frozenset[str], Features]:
    """Parse what follows ``gpus=N:``, joined by ``:``: gpu modes, and types as properties of the nodes.

    A type is also accepted in upper case, since nodes report types in lower case. Raises RequestError.
    """
    modes, types = set(), []
    for piece in span.split(":"):
        _refuse_prohibited(piece)
        if (word := str(piece).lower()) in _GPU_MODES:
            modes.add(word)
        else:
            names = parse_alternatives(piece)
            types.append(names | {name.lower() for name in names})
    return frozenset(modes), tuple(types)


def note_gpu_modes(requested: RequestedResources, modes: AbstractSet[str]) -> None:
    """Add a remark if the job would share its gpus: no other job is planned on them."""
    if sharing := sorted(modes & _SHARING_MODES):
        requested.note(f"gpu mode {', '.join(sharing)}: planned as gpus of its own, which is stricter")


def _refuse_prohibited(piece: Span) -> None:
    if str(piece).lower() == "prohibited":
        allowed = ", ".join(sorted(_GPU_MODES))
        raise piece.error(f"the servers refuse the gpu mode {piece.shown()}", allowed)


def _without_processor(text: str) -> str:
    match = _VIRTUAL_PROCESSOR.fullmatch(text)
    return match[1] if match else text


def _unknown(piece: Span, amounts: Collection[str]) -> RequestError:
    known = ", ".join(f"{name}=" for name in ["ppn", "gpus", *sorted(amounts)])
    return piece.error(f"{piece.shown()} is no condition on a node", f"{known}, a property or a node's name")
