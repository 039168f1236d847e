"""What a priority is computed from and what it comes to: the agreement between the engine and the terms.

The engine asks ``Priority`` for every job that waits, at its arrival and every few minutes, and compares
totals alone. A total is a whole number, so that jobs whose priorities differ by less than a point are equal:
among equals nobody gives way.
"""

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Applicant", "Breakdown", "Priority", "Shares", "Term", "Weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicant:
    """A waiting job as terms see it. Times are seconds since the epoch, ``walltime`` is in seconds.

    ``eligible`` is since when it may be planned, None when it may not yet. ``cpus`` and ``nodes`` are totals
    of its request (``nodes``: an upper bound where units may share nodes). ``priority`` is its owner's wish
    (``-p``, -1024 to 1023), ``queue_priority`` the server's for its queue. ``licences`` are names and
    amounts.
    """

    id: str
    owner: str
    queue: str
    submitted: int
    group: str = ""
    account: str = ""
    project: str = ""
    eligible: int | None = None
    priority: int = 0
    queue_priority: int = 0
    cpus: int = 1
    nodes: int = 1
    mem: int = 0
    walltime: int = 0
    deadline: int | None = None
    licences: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a sum: ``points`` is what it adds, ``value`` what it found before it was weighted."""

    name: str
    weight: float
    value: float
    points: float


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A priority and what it is the sum of; ``total`` is the sum of the points, rounded."""

    total: int
    terms: tuple[Term, ...] = ()


class Shares(Protocol):
    """What all jobs together come to at one moment: what terms need to know beside the job itself."""

    @property
    def shortest(self) -> int:
        """The least walltime of all waiting jobs, in seconds; 0 when none waits."""
        ...

    @property
    def relaxed(self) -> int:
        """How many licences waiting jobs ask for that are asked for no more than there is of them."""
        ...

    def usage(self, job: Applicant) -> float:
        """What the job's user, group and account have used of their share, in [0, 1]: 0.5 is just so much."""
        ...

    def pressure(self, licence: str) -> float:
        """What is asked of a licence by all jobs, running ones included, over how much of it there is."""
        ...


class Weights(Protocol):
    """The site's weights; their fields are the affair of the terms."""


class Priority(Protocol):
    """Pure: the same job, moment, shares and weights give the same breakdown."""

    def __call__(self, job: Applicant, now: int, shares: Shares, weights: Weights) -> Breakdown:
        """The priority of ``job`` at ``now``."""
        ...
