"""Requests for resources of the whole cluster, such as floating licences.

Formats: like any resource (``matlab=2``), or lists as in Moab and Maui: ``gres=matlab:2%ansys``,
``software=matlab:2``, ``-W x=GRES:matlab+2``. Names are compared case-insensitively. A request for
a wrong string or boolean of the server or a queue becomes a resource that does not exist: ``color other than
red``.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Final

from schedd.dialect.errors import RequestError
from schedd.dialect.requested_resources import parse_typed
from schedd.dialect.resource_names import find_spellings
from schedd.dialect.span import LARGEST, Span
from schedd.dialect.units import LARGEST_SIZE, TIME_RESOURCES, parse_walltime
from schedd.wire import NO_TYPES, ResourceTypes

OTHER_THAN: Final = " other than "
_TRUE = frozenset({"true", "t", "yes", "y", "1"})
_LISTS = ("gres", "software", "x.gres")
_ITEM = re.compile(r"([^:+=]+)(?:[:+=](\d+))?")


def shared_amounts(
    resources: Mapping[str, str], names: Collection[str], types: ResourceTypes = NO_TYPES
) -> dict[str, int]:
    """Return the requested amounts of the resources in ``names``, with their spelling; sizes are in KiB and
    floats in parts, by the ``types`` of the server's resources.

    An amount above the maximum is returned as the maximum plus one: see ``check_shared``.
    """
    known, keys = _known_names(frozenset(names))
    found = {name: 1 for name in names if OTHER_THAN in name and _asks_other(resources, name, types)}
    if not find_spellings(tuple(resources), keys):
        return found
    for key, value in resources.items():
        if key.lower() in known and (amount := _amount(key, value.strip(), types)) is not None:
            found[known[key.lower()]] = amount
    for _, wanted, amount in _listed(resources):
        if wanted.lower() in known:
            name = known[wanted.lower()]
            found[name] = min(found.get(name, 0) + amount, LARGEST + 1)
    return found


@lru_cache(maxsize=100)
def _known_names(names: frozenset[str]) -> tuple[dict[str, str], frozenset[str]]:
    """Return the ``names`` by their spelling in lower case, and the resources by which a job may request
    them, in lower case.
    """
    known = {name.lower(): name for name in names}
    return known, frozenset({*known, *_LISTS, *(name.partition(OTHER_THAN)[0] for name in known)})


def _asks_other(resources: Mapping[str, str], name: str, types: ResourceTypes) -> bool:
    """Return whether a job requests another value of a resource than those in ``name``."""
    resource, _, allowed = name.partition(OTHER_THAN)
    for key, asked in resources.items():
        if key.lower() == resource.lower():
            if types.resource_type(resource) == "boolean":
                return (asked.lower() in _TRUE) != (allowed.lower() in _TRUE)
            return not set(map(str.strip, asked.split(","))) <= set(map(str.strip, allowed.split(",")))
    return False


def check_shared(
    resources: Mapping[str, str], names: Collection[str], types: ResourceTypes = NO_TYPES
) -> None:
    """Raise RequestError if a requested amount is above the maximum."""
    known = {name.lower() for name in names}
    for name, amount in shared_amounts(resources, names, types).items():
        most = _most(types.resource_type(name))
        if amount > most:
            keys = [key for key in resources if key.lower() == name.lower()]
            keys += [key for key, wanted, _ in _listed(resources) if wanted.lower() in known]
            span = Span.from_text(resources[keys[0]], keys[0])
            raise span.error(f"the amount of {name} is too large", f"at most {most}")


def _most(kind: str) -> int:
    return LARGEST_SIZE - 1 if kind in ("size", "float") else LARGEST


def _amount(name: str, text: str, types: ResourceTypes) -> int | None:
    if name.lower() in TIME_RESOURCES:
        try:
            return min(parse_walltime(text), LARGEST + 1)
        except RequestError:
            return None
    kind = types.resource_type(name)
    if kind not in ("size", "float"):
        return _bounded(text) if text.isascii() and text.isdecimal() else None
    try:
        return parse_typed(Span.from_text(text), kind)
    except RequestError as error:
        return LARGEST_SIZE if "too large" in error.what else None


def shared_names(resources: Mapping[str, str], names: Collection[str]) -> set[str]:
    """Return the keys of ``resources`` that contain only resources of the whole cluster."""
    known, keys = _known_names(frozenset(names))
    return {
        key
        for key in find_spellings(tuple(resources), keys)
        if key.lower() in known or all(name.lower() in known for _, name, _ in _listed({key: resources[key]}))
    }


def _listed(resources: Mapping[str, str]) -> Iterator[tuple[str, str, int]]:
    """Yield (key of the list, name, amount) of each item."""
    for key, value in resources.items():
        if key.lower() not in _LISTS:
            continue
        for item in re.split(r"[%&,]", value):
            match = _ITEM.fullmatch(item.strip())
            if match is not None:
                yield key, match[1], _bounded(match[2] or "1")


def _bounded(digits: str) -> int:
    """Return the number, at most ``LARGEST + 1``."""
    digits = digits.lstrip("0") or "0"
    return min(int(digits), LARGEST + 1) if len(digits) <= 10 else LARGEST + 1
