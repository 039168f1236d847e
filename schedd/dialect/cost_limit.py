"""Cost limits of jobs, requested by their owners."""

import math
from collections.abc import Mapping
from typing import Final

from schedd.dialect.span import Span

_NAMES = ("cost_limit", "x.cost_limit")
"""Resources with the limit: a resource of the site, or ``qsub -W x=cost_limit:…``."""

_LARGEST: Final = 1e15  # maximum limit, in the site's currency


def read_cost_limit(resources: Mapping[str, str]) -> float | None:
    """Return the limit in the site's currency; None if it is absent or not a number from 0 to 1e15."""
    for name in _NAMES:
        if name in resources:
            try:
                found = float(resources[name])
            except ValueError:
                return None
            return found if math.isfinite(found) and 0 <= found <= _LARGEST else None
    return None


def cost_limit_names(resources: Mapping[str, str]) -> set[str]:
    """Return the resources that contain a limit. Raises RequestError for an invalid limit."""
    if resources.keys().isdisjoint(_NAMES):
        return set()
    found = {name for name in _NAMES if resources.get(name, "").strip()}
    for name in found:
        if read_cost_limit({name: resources[name]}) is None:
            raise Span.from_text(resources[name], name).error(
                f"{Span.from_text(resources[name]).shown()} is no limit of a cost",
                "a number of at least 0, for example 12.50",
            )
    return found
