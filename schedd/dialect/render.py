"""Formatting of requests: the canonical form for users and comparisons, and the servers' notations."""

import re
from collections.abc import Callable
from dataclasses import replace

from schedd.dialect.node_properties import describe_property
from schedd.dialect.nodespec import NAME
from schedd.dialect.units import format_size, format_walltime
from schedd.model.request import Chunk, NodeSets, Place, Request
from schedd.wire.resources import OF_QUEUE, is_adapter_amount, is_adapter_property

_WORD = re.compile(r"[^\s\"'|,;()+]+")
_RESOURCE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_PLAIN = re.compile(r"[^\s\"'+:=(),]+")
_NO_FEATURES = frozenset({"ncpus", "mem", "vmem", "ngpus", "host", "vnode"})
"""Resources of a chunk with an amount or the name of a node as their value."""


def canonical(request: Request) -> str:
    """Return a stable, readable form. Different requests have different forms.

    ``2 x (4 cpus, 8gb on bigmem, !old) + 1 x (8 cpus, 2 gpus); scatter; exclusive; 01:00:00``
    """
    return _format_request(request, _unit)


def request_words(request: Request) -> str:
    """Return the same for people, with the site's names: without what the adapter adds to requests."""
    return _format_request(request, _unit_words)


def _format_request(request: Request, unit: Callable[[Chunk], str]) -> str:
    words = [" + ".join(f"{chunk.count} x ({unit(chunk)})" for chunk in request.chunks), request.place.value]
    if request.exclusive:
        words.append("exclusive")
    if request.together is not None:
        words.append(_format_node_sets(request.together))
    words.append("no walltime" if request.walltime is None else format_walltime(request.walltime))
    return "; ".join(words)


def _format_node_sets(sets: NodeSets) -> str:
    names = [f"{name} ({'|'.join(sorted(map(_quoted, of)))})" for name, of in sets.named]
    number = "one" if sets.most == 1 else f"at most {sets.most}"
    where = f"{number} {sets.by}" if sets.by else f"{number} of {', '.join(names)}"
    return where if sets.wait is None else f"{where} if that is at most {sets.wait} s later"


def _unit(chunk: Chunk) -> str:
    words = [_counted(chunk.cpus, "cpu")]
    words += [format_size(chunk.mem)] if chunk.mem else []
    words += [f"{format_size(chunk.vmem)} vmem"] if chunk.vmem else []
    words += [_counted(chunk.gpus, "gpu")] if chunk.gpus else []
    words += [f"{_quoted(name)}={amount}" for name, amount in chunk.resources]
    features = ["|".join(sorted(map(_quoted, alternatives))) for alternatives in chunk.features]
    return ", ".join(words) + (f" on {', '.join(features)}" if features else "")


def _unit_words(chunk: Chunk) -> str:
    amounts = tuple([one for one in chunk.resources if not is_adapter_amount(one[0])])
    own = [f"!{OF_QUEUE}=True"]
    added = [[one for one in names if is_adapter_property(one)] for names in chunk.features]
    features = tuple([names for names, some in zip(chunk.features, added, strict=True) if not some])
    more = ["|".join(map(describe_property, some)) for some in added if some and some != own]
    found = _unit(replace(chunk, resources=amounts, features=features))
    if not more:
        return found
    return f"{found}{', ' if features else ' on '}{', '.join(more)}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _quoted(name: str) -> str:
    """Return the name, in quotes if it is ambiguous."""
    return name if _WORD.fullmatch(name) else repr(name)


def torque_nodes(request: Request) -> str | None:
    """Return the value of ``nodes=`` with an explicit ``ppn`` in every part; None if there is no equivalent.

    Memory, walltime and exclusiveness are not part of it. There is an equivalent if all units are on distinct
    nodes, have cores, and all their features are valid TORQUE names.
    """
    if request.units > 1 and request.place is not Place.SCATTER:
        return None
    parts = []
    for chunk in request.chunks:
        names = [name.removeprefix("!") for alternatives in chunk.features for name in alternatives]
        amounts = [name for name, _ in chunk.resources]
        sayable = all(NAME.fullmatch(name) for name in names + amounts) and not {"ppn", "gpus"} & set(amounts)
        if chunk.cpus < 1 or not all(chunk.features) or not sayable:
            return None
        words = [str(chunk.count), f"ppn={chunk.cpus}"]
        words += ["|".join(sorted(alternatives)).replace("!", "^") for alternatives in chunk.features]
        words += [f"{name}={amount}" for name, amount in chunk.resources]
        words += [f"gpus={chunk.gpus}"] if chunk.gpus else []  # last: a property after it may be a gpu mode
        parts.append(":".join(words))
    return "+".join(parts)


def openpbs_select(request: Request) -> tuple[str, str] | None:
    """Return the values of ``select=`` and ``place=``; None if a chunk has alternative features.

    A feature without ``=`` is the name of a vnode.
    """
    parts = []
    for chunk in request.chunks:
        words = [str(chunk.count), f"ncpus={chunk.cpus}"]
        words += [f"mem={format_size(chunk.mem)}"] if chunk.mem else []
        words += [f"vmem={format_size(chunk.vmem)}"] if chunk.vmem else []
        words += [f"ngpus={chunk.gpus}"] if chunk.gpus else []
        words += [f"{name}={amount}" for name, amount in chunk.resources]
        for alternatives in chunk.features:
            word = _condition(*alternatives) if len(alternatives) == 1 else None
            if word is None:
                return None
            words.append(word)
        parts.append(":".join(words))
    return "+".join(parts), request.place.value + (":excl" if request.exclusive else "")


def _condition(feature: str) -> str | None:
    """Return a feature as a resource of a chunk; None if ``select`` has no equivalent."""
    if feature.startswith("!"):
        name, _, value = feature[1:].partition("=")
        return f"{name}=False" if value == "True" and _RESOURCE.fullmatch(name) else None
    name, separator, value = feature.partition("=")
    if not separator:
        name, value = "vnode", feature
    elif not _RESOURCE.fullmatch(name) or name.lower() in _NO_FEATURES:
        return None
    if _PLAIN.fullmatch(value):
        return f"{name}={value}"
    quote = "'" if '"' in value else '"'
    return f"{name}={quote}{value}{quote}" if value and quote not in value else None
