"""Wishes for nodes that are close together: ``topology=LEVEL[:N][@WAIT]``."""

import re
from collections.abc import Mapping
from typing import Final

from schedd.dialect.errors import RequestError
from schedd.dialect.span import Span
from schedd.dialect.units import parse_walltime
from schedd.model.request import NodeSets

TOPOLOGY: Final = "topology"
_KEYS: Final = (TOPOLOGY, f"x.{TOPOLOGY}")
TOPOLOGY_NAMES: Final = frozenset(_KEYS)
_FORM: Final = re.compile(r"([A-Za-z][A-Za-z0-9._-]{0,62})(?::([1-9][0-9]{0,3}))?(?:@(.+))?")


def parse_topology(span: Span) -> NodeSets:
    """Parse a wish: nodes of one set of the level, or of at most N. With a wait (as a walltime) the job takes
    any nodes if they are free by more than that earlier; without one it waits. Raises RequestError.
    """
    match = _FORM.fullmatch(str(span))
    if match is None:
        raise span.error(
            f"{span.shown()} names no level of the network",
            "LEVEL, LEVEL:N, LEVEL@WAIT or LEVEL:N@WAIT, such as switch:2@1:00:00",
        )
    wait = parse_walltime(match[3]) if match[3] is not None else None
    return NodeSets(by=match[1].lower(), wait=wait, most=int(match[2] or 1))


def read_level(resources: Mapping[str, str]) -> str:
    """Return the level of the network that a job names; empty: none, or its wish cannot be read."""
    for key, text in resources.items():
        if len(key) <= len(_KEYS[-1]) and key.lower() in _KEYS and text.strip():
            try:
                return parse_topology(Span.from_text(text.strip(), TOPOLOGY)).by
            except RequestError:
                return ""
    return ""
