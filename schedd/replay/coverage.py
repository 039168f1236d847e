"""Coverage of a quantile in parts of a log: by time, and by tenth of the users."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

FEWEST_OF_USER: Final = 30  # minimum number of jobs; users with fewer are in no tenth

Bools = npt.NDArray[np.bool_]
Names = npt.NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class CoveragePart:
    """A part with at least one job: ``number`` from 1, ``jobs``, covered share ``p90_coverage``."""

    number: int
    jobs: int
    p90_coverage: float


def by_time(held: Bools, since: npt.ArrayLike, length: float) -> tuple[CoveragePart, ...]:
    """Return the coverage by spans of ``length`` seconds, ``since`` from the first one's begin."""
    span = (np.asarray(since, np.float64) // length).astype(np.int64)
    return tuple(_covered(held[span == one], one + 1) for one in np.unique(span).tolist())


def tenths(users: Names) -> tuple[Names, ...]:
    """Return users with ``FEWEST_OF_USER`` jobs in ten parts, fewest jobs first (empty below ten)."""
    names, counts = np.unique(users, return_counts=True)
    order = np.lexsort((names, counts))
    often = names[order[counts[order] >= FEWEST_OF_USER]]
    return tuple(np.array_split(often, 10))


def by_tenth(held: Bools, users: Names, parts: Sequence[Names]) -> tuple[CoveragePart, ...]:
    """Return the coverage by the ``parts`` of the users."""
    of = [np.isin(users, part) for part in parts]
    return tuple(_covered(held[which], i) for i, which in enumerate(of, 1) if which.any())


def _covered(held: Bools, number: int) -> CoveragePart:
    return CoveragePart(number, int(held.size), float(held.mean()))
