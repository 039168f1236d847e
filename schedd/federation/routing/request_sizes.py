"""Partial order of requests by size: in the same plan, a smaller request starts no later than a larger one.

A plan's answer for a smaller request is therefore a lower bound for a larger request.
"""

import re
from functools import lru_cache
from typing import Final

from schedd.dialect import RequestError, parse_size, parse_walltime
from schedd.federation.routing.jobs import PlanQuestion

RequestSize = tuple[tuple[object, ...], tuple[int, ...]]
"""Parts of a request that must be equal for a comparison, and the requested amounts."""
_COUNTED: Final = frozenset({"procs", "ncpus", "ngpus", "gpus", "ppn"})
_DIGITS: Final = 18  # maximum digits of a count
_SIZES: Final = frozenset({"mem", "pmem", "vmem", "pvmem"})
_UNITS: Final = re.compile(r"([1-9]\d{0,8})(:[^+#]*)?")
"""A single chunk of units; the resources after the first colon are per unit."""


def request_size(question: PlanQuestion) -> RequestSize:
    alike, amounts = _size(question.resources)
    return (question.queue, question.user, question.tasks, *alike), amounts


def is_no_larger(one: RequestSize, other: RequestSize) -> bool:
    """Return whether the sizes are comparable and ``one`` requests no more of any resource than ``other``."""
    return one[0] == other[0] and all(a <= b for a, b in zip(one[1], other[1], strict=True))


@lru_cache(4_096)
def _size(resources: tuple[tuple[str, str], ...]) -> RequestSize:
    alike: list[object] = []
    amounts: list[int] = []
    for name, text in resources:
        key = name.lower()
        units = _UNITS.fullmatch(text) if key in ("nodes", "select") else None
        if units is None:
            _add(key, text, alike, amounts)
            continue
        alike.append(key)
        amounts.append(int(units[1]))
        for part in (units[2] or "").split(":")[1:]:
            of, equals, much = part.partition("=")
            _add(of.lower() if equals else of, much, alike, amounts)
    return tuple(alike), tuple(amounts)


def _add(key: str, text: str, alike: list[object], amounts: list[int]) -> None:
    """Add the value as an amount if it is countable, otherwise as a part that must be equal."""
    amount: int | None = None
    try:
        if key == "walltime":
            amount = parse_walltime(text)
        elif key in _SIZES:
            amount = parse_size(text)
        elif key in _COUNTED and text.isdecimal() and len(text) <= _DIGITS:
            amount = int(text)
    except RequestError:
        amount = None
    if amount is None:
        alike.append((key, text))
    else:
        alike.append(key)
        amounts.append(amount)
