"""Interface between the engine and the priority terms.

The engine calls ``priority`` for every waiting job, at its arrival and every few minutes, and compares only
totals. A total is an integer, so that jobs within one point are equal: equal jobs never displace each other.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from schedd.wire.quick_init import quick_init

FAIR_SHARE_TERMS: Final = frozenset(
    {"fairshare_perc", "fair_share_perc", "fairshare_tree_usage", "fairshare_factor"}
)
"""Terms of a priority formula that take their values from fair share."""


class JobOwner(Protocol):
    """The owner attributes of a job."""

    @property
    def owner(self) -> str:
        """The user, perhaps with a host."""

    @property
    def group(self) -> str:
        """The user's group."""

    @property
    def account(self) -> str:
        """The account it is charged to."""

    @property
    def project(self) -> str:
        """The project it belongs to."""

    @property
    def queue(self) -> str:
        """The queue it is in."""


@dataclass(frozen=True, slots=True)
class OwnerShare:
    """Fair share of a job's owner: ``target`` and ``effective_usage`` are parts of the whole, 0 to 1.

    ``factor`` is 1 without usage, 0.5 for usage equal to the target, and approaches 0.
    """

    target: float = 0.0
    effective_usage: float = 0.0
    factor: float = 0.0
    used: float = 0.0  # charged cpu-seconds, with decay


class OwnerShares(Protocol):
    """Fair shares of all owners at one time. Immutable; any thread may use it."""

    @property
    def tree(self) -> object:
        """The settings that define the keys: equal for as long as the keys of jobs are."""

    @property
    def at(self) -> int:
        """The time of the usage, in seconds since the epoch."""

    def key(self, job: JobOwner) -> Hashable:
        """Return the key of the job's owner."""

    def share(self, key: Any) -> OwnerShare:
        """Return the share of the owner with this key."""


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Applicant:
    """A waiting job as terms see it. Times are seconds since the epoch, ``walltime`` is in seconds.

    ``eligible`` is the time since which it may be planned, or None. ``cpus`` and ``nodes`` are totals of its
    request (``nodes``: an upper bound if units may share nodes). ``priority`` is the owner's (``-p``, -1024
    to 1023), ``queue_priority`` the server's for its queue, ``label_points`` the
    points of its QOS. ``licences`` are names and amounts.
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
    label_points: float = 0.0
    cpus: int = 1
    nodes: int = 1
    mem: int = 0
    walltime: int = 0
    deadline: int | None = None
    licences: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a sum: ``points`` after weighting, ``value`` before."""

    name: str
    weight: float
    value: float
    points: float


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A priority with its terms. ``total`` is the sum of the points, rounded to whole points if it is one of
    weights.

    By a formula, the terms are the addends of its outermost sum. ``failing`` is the part that has no value;
    the total is 0 then. ``threshold``: jobs with no larger total are not planned.
    """

    total: float
    terms: tuple[Term, ...] = ()
    formula: str = ""
    formula_source: str = ""  # the setting that holds the formula
    values: tuple[tuple[str, float], ...] = ()  # of the names in the formula
    texts: tuple[tuple[str, str], ...] = ()
    threshold: float | None = None
    failing: str = ""


class Shares(Protocol):
    """Aggregate facts about all jobs at one time, as needed by the terms."""

    @property
    def shortest(self) -> int:
        """Minimum walltime of the waiting jobs in seconds; 0 without any."""
        ...

    @property
    def relaxed(self) -> int:
        """Number of licences whose requested copies do not exceed the existing ones."""
        ...

    def usage(self, job: Applicant) -> float:
        """Return the used part of the share of user, group and account, in [0, 1]; 0.5 is the target."""
        ...

    def pressure(self, licence: str) -> float:
        """Return the demand for a licence, including running jobs, over its copies."""
        ...
