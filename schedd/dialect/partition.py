"""Requests for partitions: ``-l partition=a:b``, ``-W x=PARTITION:a``; OpenPBS: ``-l node_partition=a``."""

import re
from collections.abc import Mapping
from typing import Final

from schedd.dialect.nodespec import NAME
from schedd.dialect.resource_names import find_spellings
from schedd.dialect.span import Span
from schedd.wire.job_extensions import extension_resources

PARTITION: Final = "partition"
NODE_PARTITION: Final = "node_partition"
"""For OpenPBS, whose own resource ``partition`` only managers may request."""
PARTITION_REQUESTS: Final = frozenset({PARTITION, NODE_PARTITION})
_KEYS: Final = (*sorted(PARTITION_REQUESTS), f"x.{PARTITION}")
_NAMES: Final = frozenset(_KEYS)
_ANY: Final = frozenset({"all", "any", "default", "base"})  # names that mean any partition


def parse_names(span: Span) -> tuple[str, ...]:
    """Parse names joined by ``:``, ``,``, ``+`` or ``|``, in this order. Raises RequestError."""
    names = [name for name in re.split(r"[:,+|]", span.unquoted().strip("[]")) if name]
    if not names or not all(NAME.fullmatch(name) for name in names):
        raise span.error(f"{span.shown()} is no list of names", "names joined by :")
    return tuple(dict.fromkeys(names))


def parse_partitions(span: Span) -> frozenset[str]:
    """Parse the value of ``partition``; empty: any partition. Raises RequestError."""
    if span.unquoted().strip("[]").lower() in _ANY:
        return frozenset()
    return frozenset(parse_names(span))


def read_partitions(resources: Mapping[str, str]) -> tuple[str, ...]:
    """Return the partitions that a job names, in its order; none: any. Raises RequestError."""
    for key in find_spellings(tuple(resources), _NAMES):
        if text := resources[key].strip():
            span = Span.from_text(text, PARTITION)
            return parse_names(span) if parse_partitions(span) else ()
    return ()


def logged_partition(values: Mapping[str, str]) -> str:
    """Return the requested partition of a run in an accounting log of TORQUE or OpenPBS, by its keys, as it
    is written; empty: none.
    """
    for key in _KEYS[:-1]:
        if found := values.get(f"Resource_List.{key}", "").strip():
            return found
    return extension_resources(values.get("x", "")).get(f"x.{PARTITION}", "")


def replace_resource(resources: dict[str, str], name: str, value: str) -> None:
    """Replace a requested resource; an empty value removes it. A request for partitions replaces one by the
    other name of the resource, too.
    """
    if name.lower() in PARTITION_REQUESTS:
        for other in [one for one in resources if one.lower() in PARTITION_REQUESTS]:
            del resources[other]
    resources.pop(name, None)
    if value:
        resources[name] = value
