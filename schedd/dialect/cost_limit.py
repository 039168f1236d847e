"""What a job may cost at most, as its owner says it."""

import math
from collections.abc import Mapping
from typing import Final

from schedd.dialect.span import Span

__all__ = ["cost_limit_names", "read_cost_limit"]

_NAMES = ("cost_limit", "x.cost_limit")
"""Where it stands among a job's resources: a resource of the site, or ``qsub -W x=cost_limit:…``."""

_LARGEST: Final = 1e15
"""The largest limit that is read, in the site's currency."""


def read_cost_limit(resources: Mapping[str, str]) -> float | None:
    """The limit in the site's currency; None without one, and for what is no number from 0 to 1e15."""
    for name in _NAMES:
        if name in resources:
            try:
                found = float(resources[name])
            except ValueError:
                return None
            return found if math.isfinite(found) and 0 <= found <= _LARGEST else None
    return None


def cost_limit_names(resources: Mapping[str, str]) -> set[str]:
    """The names under which a limit stands. Raises RequestError for one that is not understood."""
    found = {name for name in _NAMES if resources.get(name, "").strip()}
    for name in found:
        if read_cost_limit({name: resources[name]}) is None:
            raise Span.of(resources[name], name).error(
                f"{Span.of(resources[name]).shown()} is no limit of a cost",
                "a number of at least 0, for example 12.50",
            )
    return found
