"""Walltimes stated for nodes of a reference speed, and the scaled walltimes on other nodes.

A job's planned resource list has the scaled walltime, and under ``SCALE`` the original one.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

from schedd.dialect.errors import RequestError
from schedd.dialect.resource_names import find_spellings
from schedd.dialect.units import LONGEST_TIME, format_walltime, parse_walltime

SCALE: Final = "scaled walltime"  # no user can request it: it has a blank
_SCALED: Final = frozenset({"walltime", "soft_walltime"})


def scale_seconds(seconds: int, speed: float) -> int:
    """Return the duration at this relative speed: ``ceil(seconds / speed)``, at least 1 second."""
    if speed == 1.0:
        return seconds
    # Rounding first hides the error of the division: 21 / 0.7 is 30.000000000000004.
    return max(1, math.ceil(round(min(seconds / speed, LONGEST_TIME), 6)))


class WalltimeScale(NamedTuple):
    """A walltime of ``stated`` seconds on nodes of speed ``reference``, as planned on nodes of at least
    ``speed``.
    """

    stated: int
    reference: float
    speed: float

    @classmethod
    def from_text(cls, text: str) -> Self:
        stated, reference, speed = text.split()
        return cls(int(stated), float(reference), float(speed))

    @property
    def text(self) -> str:
        """Itself as a resource."""
        return f"{self.stated} {self.reference!r} {self.speed!r}"

    @property
    def walltime(self) -> int:
        """The planned walltime in seconds."""
        return self.planned(self.stated)

    def planned(self, seconds: int) -> int:
        """Return the seconds that mean this walltime on the planned nodes."""
        return scale_seconds(seconds, self.speed / self.reference)

    def requested(self, seconds: int) -> int:
        """Return the longest walltime to request for at most ``seconds`` on the planned nodes; at least 1."""
        return max(1, math.floor(round(seconds * self.speed / self.reference, 6)))

    def limit_at(self, speed: float) -> int:
        """Return the walltime in seconds on nodes of this speed."""
        return scale_seconds(self.stated, speed / self.reference)

    def describe(self) -> str:
        """Return a clause about both walltimes."""
        stated, walltime = format_walltime(self.stated), format_walltime(self.walltime)
        return (
            f"its walltime of {stated} is for nodes of speed {self.reference:g}: "
            f"it is {walltime} on nodes of speed {self.speed:g}"
        )


def with_scale(resources: Mapping[str, str], scale: WalltimeScale) -> dict[str, str]:
    """Return the resources with their walltimes scaled, and marked as such."""
    found = {**resources, "walltime": str(scale.walltime), SCALE: scale.text}
    for name in find_spellings(tuple(resources), _SCALED):
        text = resources[name]
        if name != "walltime":
            try:
                found[name] = str(scale.planned(parse_walltime(text)))
            except RequestError:
                continue  # the reader of requests reports it
    return found
