"""Work and throughput of a job, given by its owner."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_PREFIXES: Final = ("", "x.")  # prefixes of the names: none for resources of the site, `x.` for `qsub -W x=`
_LARGEST: Final = 1e15  # maximum number; the minimum is its reciprocal


@dataclass(frozen=True, slots=True)
class Work:
    """``units`` of work, such as iterations, of each of a job's concurrent processes.

    ``rates``: units per second by node or property. ``plain``: the rate of a node of speed 1, for all other
    nodes; 0: not given. With ``app``, the site's measured rates of the application are used.
    """

    units: float
    plain: float = 0.0
    rates: tuple[tuple[str, float], ...] = ()
    app: str = ""


def parse_rates(text: str) -> tuple[float, tuple[tuple[str, float], ...]]:
    """Parse ``epyc/10.87+old/5.8+7``: the plain rate (0: none), and the rates by node or property.

    Raises ValueError.
    """
    plain, rates = 0.0, {}
    for part in text.split("+"):
        name, slash, number = part.rpartition("/")
        rate = _above_0(number)
        if rate is None or (slash and not name) or name in rates or (not slash and plain):
            raise ValueError(
                f"work_rate {text[:40]!r} is not understood: units a second, by property or node where they "
                "differ, such as 7.5 or epyc/10.87+old/5.8"
            )
        if slash:
            rates[name] = rate
        else:
            plain = rate
    return plain, tuple(rates.items())


def _above_0(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) and 1 / _LARGEST <= found <= _LARGEST else None


def read_work(resources: Mapping[str, str]) -> Work | None:
    """Return the work in a job's resources; None if the amount or the rate is absent or invalid."""
    said = _find_value(resources, "work_units")
    units = _above_0(said) if said else None
    if units is None:
        return None
    rate, app = _find_value(resources, "work_rate"), _find_value(resources, "work_app")
    if not (rate or app):
        return None
    try:
        plain, rates = parse_rates(rate) if rate else (0.0, ())
    except ValueError:
        return None
    return Work(units, plain, rates, app)


def work_names(resources: Mapping[str, str]) -> set[str]:
    """Return the resources that contain work and throughput, if they are valid."""
    if read_work(resources) is None:
        return set()
    words = ("work_units", "work_rate", "work_app")
    return {prefix + name for prefix in _PREFIXES for name in words if prefix + name in resources}


def _find_value(resources: Mapping[str, str], name: str) -> str:
    return next((resources[prefix + name] for prefix in _PREFIXES if prefix + name in resources), "")
