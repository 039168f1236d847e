"""What one search did: kept and shown for every run."""

from dataclasses import dataclass
from enum import StrEnum

from schedd.optimize.settings import Kind
from schedd.plan.evaluate import Criterion

__all__ = ["Change", "Report", "WhyEnded"]


class WhyEnded(StrEnum):
    """Why a search came to its end."""

    MOVES = "moves"
    """All moves allowed were tried."""
    SECONDS = "seconds"
    """Its time was up."""
    STOPPED = "stopped"
    """It was told to stop."""
    MOVED_ENOUGH = "moved enough"
    """It moved as many jobs as one search may."""
    NOTHING_LEFT = "nothing left"
    """All that there was to try was tried."""
    NOTHING_TO_DO = "nothing to do"
    """Fewer than two jobs wait that may be moved."""


@dataclass(frozen=True, slots=True)
class Change:
    """One criterion before and after, in ``unit`` (``s``, ``jobs``, or ``1`` for a plain number)."""

    criterion: Criterion
    unit: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Report:
    """One run of a search.

    ``jobs`` might be moved, ``moved`` were. ``too_late`` counts the moves given up since a job would have
    passed its latest start; ``pulled_left`` the jobs that moved up of themselves after accepted moves.
    ``gain`` is the weighted mean of what the criteria that count have gained, as shares of what they were,
    both as they are expected where jobs use less than their walltimes (see ``as_expected``); ``changes``
    tell of the plan as it stands.
    """

    kind: Kind
    seed: int
    jobs: int
    tried: int
    accepted: int
    too_late: int
    pulled_left: int
    moved: int
    gain: float
    changes: tuple[Change, ...]
    why_ended: WhyEnded
    elapsed_s: float
