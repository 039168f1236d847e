"""How much a job is to do, and how fast nodes do it, as its owner says it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["Work", "parse_rates", "read_work", "work_names"]

_PREFIXES: Final = ("", "x.")
"""Before the names under which it stands among a job's resources: those of the site, or of ``qsub -W x=``."""
_LARGEST: Final = 1e15
"""The largest number that is read; the smallest is one over it."""


@dataclass(frozen=True, slots=True)
class Work:
    """``units`` of work, such as iterations, of each of a job's processes, which run at once.

    ``rates``: units a second by node or property. ``plain`` is that of a node of speed 1, for all others.
    With ``app`` both are those that the site has measured of the application. 0: the owner does not say it.
    """

    units: float
    plain: float = 0.0
    rates: tuple[tuple[str, float], ...] = ()
    app: str = ""


def parse_rates(text: str) -> tuple[float, tuple[tuple[str, float], ...]]:
    """The plain rate (0: there is none), and those by node or property, of ``epyc/10.87+old/5.8+7``.

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
    """What a job's resources say of it; None where they do not say both how much and how fast, or it is not
    understood.
    """
    said = _said(resources, "work_units")
    units = _above_0(said) if said else None
    if units is None:
        return None
    rate, app = _said(resources, "work_rate"), _said(resources, "work_app")
    if not (rate or app):
        return None
    try:
        plain, rates = parse_rates(rate) if rate else (0.0, ())
    except ValueError:
        return None
    return Work(units, plain, rates, app)


def work_names(resources: Mapping[str, str]) -> set[str]:
    """The names under which work and throughput stand, where they are understood."""
    if read_work(resources) is None:
        return set()
    words = ("work_units", "work_rate", "work_app")
    return {prefix + name for prefix in _PREFIXES for name in words if prefix + name in resources}


def _said(resources: Mapping[str, str], name: str) -> str:
    return next((resources[prefix + name] for prefix in _PREFIXES if prefix + name in resources), "")
