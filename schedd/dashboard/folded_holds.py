"""Rows of drained nodes and held queues: nodes drained by one action are one row."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from schedd.api.node_selection import fold_names, natural_key
from schedd.wire import PlanningHeld

MAX_ROWS: Final = 200
_MAX_PARTS: Final = 100  # names and ranges of one row: a release reads at most 200 words


@dataclass(frozen=True, slots=True)
class HoldRow:
    """Nodes drained together, or a queue; ``names`` is a text that releases them."""

    kind: str
    names: str
    count: int
    time: int
    by: str
    reason: str


def fold_holds(holds: Iterable[PlanningHeld]) -> list[HoldRow]:
    """Return the rows by kind and first name."""
    together: dict[tuple[str, int, str, str, str], list[str]] = {}
    for one in sorted(holds, key=lambda hold: (hold.kind, natural_key(hold.name))):
        queue = one.name if one.kind == "queue" else ""
        together.setdefault((one.kind, one.time, one.by, one.reason, queue), []).append(one.name)
    return [
        HoldRow(kind, queue or fold_names(piece), len(piece), time, by, reason)
        for (kind, time, by, reason, queue), names in together.items()
        for piece in _split(names)
    ]


def _split(names: list[str]) -> list[list[str]]:
    if fold_names(names).count(",") < _MAX_PARTS:
        return [names]
    return [names[i : i + _MAX_PARTS] for i in range(0, len(names), _MAX_PARTS)]
