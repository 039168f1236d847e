"""Utilisation over a period: use relative to the available and the requested amount; pure."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schedd.plan.columns import Ints

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spans:
    """(n,) amounts, each from a begin up to an end, in seconds."""

    begin: Ints
    end: Ints
    amount: Ints


@dataclass(frozen=True, slots=True)
class UsageShare:
    """Means over a period of the available (``there``) and the used amount (``used``), and the ``share`` in
    use, ``mean(used) / mean(min(available, requested))``; None if the divisor is 0.

    Source of the share: multilevel.md §4; the divisor shrinks where less is requested than available.
    """

    there: float
    used: float
    share: float | None


def measure_usage(there: Spans, asked: Spans, used: Spans, since: int, until: int) -> UsageShare:
    """Return the usage over ``[since, until)``; ``asked`` includes the used amount.

    Use beyond the available amount (jobs on nodes that went down) does not count in the share. Raises
    ValueError for an empty period.
    """
    if since >= until:
        raise ValueError(f"from {since} to {until}: that is no time at all")
    kinds = (there, asked, used)
    edges = [np.clip(times, since, until) for one in kinds for times in (one.begin, one.end)]
    moments = np.unique(np.concatenate([np.array([since, until]), *edges]))
    width = np.diff(moments).astype(np.float64)
    have, want, hold = (_level(one, moments, since, until) for one in kinds)
    floor = np.minimum(have, want)
    whole = float((floor * width).sum())
    long = float(until - since)
    return UsageShare(
        there=float((have * width).sum()) / long,
        used=float((hold * width).sum()) / long,
        share=float((np.minimum(hold, floor) * width).sum()) / whole if whole else None,
    )


def _level(spans: Spans, moments: Ints, since: int, until: int) -> _Floats:
    """Return the total amount between each two ``moments``."""
    change = np.zeros(moments.shape[0], np.float64)
    np.add.at(change, np.searchsorted(moments, np.clip(spans.begin, since, until)), spans.amount)
    np.add.at(change, np.searchsorted(moments, np.clip(spans.end, since, until)), -spans.amount)
    level: _Floats = np.cumsum(change)[:-1]
    return level
