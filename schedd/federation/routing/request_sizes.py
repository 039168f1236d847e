"""Which of two jobs asks for no more than the other: it starts no later in the same plan.

So what a plan said of a smaller job bounds what it can say of a larger one, before it is asked.
"""

import re
from functools import lru_cache
from typing import Final

from schedd.dialect import RequestError, parse_size, parse_walltime
from schedd.federation.routing.jobs import PlanQuestion

__all__ = ["RequestSize", "is_no_larger", "request_size"]

RequestSize = tuple[tuple[object, ...], tuple[int, ...]]
"""What must be alike in two requests to compare them, and how much is asked for of what."""
_COUNTED: Final = frozenset({"procs", "ncpus", "ngpus", "gpus", "ppn"})
_DIGITS: Final = 18
"""A count with more digits is none."""
_SIZES: Final = frozenset({"mem", "pmem", "vmem", "pvmem"})
_UNITS: Final = re.compile(r"([1-9]\d{0,8})(:[^+#]*)?")
"""One kind of units: what stands behind the first colon is of each."""


def request_size(question: PlanQuestion) -> RequestSize:
    """The size of what is asked for."""
    alike, amounts = _size(question.resources)
    return (question.queue, question.user, question.tasks, *alike), amounts


def is_no_larger(one: RequestSize, other: RequestSize) -> bool:
    """Whether ``one`` asks for no more of anything than ``other``, and they can be compared."""
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
    """An amount where it is one that counts; else it must be alike."""
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
