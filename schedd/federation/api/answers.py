"""Answers of a federation's HTTP interface about clusters and single jobs. Times are seconds since the epoch.

They are the types of the client's answers, too (schedd/client/answers.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from schedd.federation.items import AttemptPhase, ItemOutcome
from schedd.federation.report import (
    ArrayFigures,
    BagFigures,
    BookingFigures,
    CoAllocationFigures,
    JobFigures,
)
from schedd.service.read.cluster_report import LicenceReport, QueueReport
from schedd.store import AuditRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationHealth:
    """The process answers."""

    status: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationReadiness:
    """The federation leads and accepts jobs.

    ``trouble`` is by cluster an error in its settings here, a clock that differs, or jobs that it lost.
    ``background`` is background work that failed recently and was restarted, ``settings`` a fault of the
    settings: the next start would fail. Empty if there is none.
    """

    status: str
    trouble: Mapping[str, str]
    background: str
    settings: str


# ---- clusters -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedClusterView:
    """A cluster of the federation; undisclosed values are null.

    ``away`` is the reason why it is not used, ``trouble`` an error in its settings, a clock that differs, or
    lost jobs. ``ours`` counts the federation's jobs there, ``dashboard`` is the address of its pages.
    ``load`` (cpu-seconds) and ``count`` are of its waiting jobs, by priority from 0 on: those of this
    priority or a higher one.
    """

    name: str
    away: str
    since: int
    trouble: str
    disclosure: str
    cpus: int | None
    jobs: Mapping[str, int] | None
    ours: int
    running: int
    load: Sequence[int]
    count: Sequence[int]
    dashboard: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedClustersView:
    """The clusters of the federation; ``now`` is the time by its clock, in epoch seconds."""

    clusters: Sequence[FederatedClusterView]
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenceShareView:
    """Share of a cluster in a licence.

    ``most`` is the maximum number of copies that it may be using, ``why`` the reason for a refusal. The
    others are null if the cluster has not reported them.
    """

    cluster: str
    most: int
    copies: int | None
    held: int | None
    wanted: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedLicenceView:
    """A floating licence that the clusters share."""

    name: str
    copies: int
    free: int
    clusters: Sequence[LicenceShareView]


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedLicencesView:
    """Floating licences that the clusters share."""

    licences: Sequence[FederatedLicenceView]


# ---- audit ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationAuditView:
    """Actions and refused attempts, newest first."""

    entries: Sequence[AuditRecord]


# ---- reports --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationSearches(CoAllocationFigures):
    """Figures of co-allocations, and the searches for an earlier end since this daemon leads."""

    gap_searches: int
    gaps_found: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationReport:
    """Outcomes of the kept jobs, arrays, co-allocations, bags and bookings."""

    jobs: JobFigures
    arrays: ArrayFigures
    coallocations: CoAllocationSearches
    bags: BagFigures
    bookings: BookingFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBalance:
    """A cluster over a period, as its daemon reports it.

    ``why`` is the reason for a missing report; the report's values are then null. ``share`` and ``optimal``
    are its shares of the work and of the cpus. ``ours`` are the kept jobs of the federation that ended there.
    """

    cluster: str
    why: str
    work: float | None
    cpus: float | None
    share: float | None
    optimal: float | None
    ours: JobFigures
    kept: bool | None = None
    cpus_used: float | None = None
    processors: float | None = None
    ended: int | None = None
    with_deadline: int | None = None
    late: int | None = None
    slowdown: float | None = None
    licences: Sequence[LicenceReport] = ()
    queues: Sequence[QueueReport] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceView:
    """The clusters over the period ``[since, until)``."""

    since: int
    until: int
    clusters: Sequence[ClusterBalance]


# ---- jobs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferAttemptView:
    """Transfer of a job to one cluster. ``start`` and ``end`` are the plan's offer when it was chosen.

    The planned, expected and promised times are null if the cluster does not disclose its plan.
    ``expected_start`` is the P50, ``expected_by`` the P90, ``expected_as_of`` the time of the forecast.
    ``predicted`` is whether starts are predicted for the job's queue, ``starts_stopped`` whether the cluster
    starts no jobs at present, ``at_risk`` whether its promise cannot be kept as planned now. ``dashboard`` is
    the address of the job's page at the cluster, ``refusal`` why the cluster refuses a request about the job
    that is repeated; empty if it does not.
    """

    number: int
    cluster: str
    user: str
    phase: AttemptPhase
    since: int
    start: int | None
    end: int | None
    why: str
    server_job: str
    release_requested: bool
    text: str
    state: str
    planned_start: int | None
    planned_end: int | None
    promised_start: int | None
    started: int | None
    displayed_start: int | None
    expected_start: int | None
    expected_by: int | None
    expected_as_of: int | None
    predicted: bool
    starts_stopped: bool
    at_risk: bool
    dashboard: str
    refusal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCounts:
    """Number of tasks of an array by state.

    ``first_end`` is the actual or planned end of the first task, ``last_end`` the end of the last ended one.
    """

    tasks: int = 0
    planned: int = 0
    running: int = 0
    ended: int = 0
    failed: int = 0
    deleted: int = 0
    first_end: int | None = None
    last_end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedJobView:
    """A job of the federation.

    ``bag`` is the number of its bag, ``booking`` the name of its booking; both may be empty. ``tasks`` are
    the first and last index of an array, empty for a single job; ``standing`` counts its tasks, null if that
    is unknown. ``deadline_state`` is that of its cluster, ``wished`` before, ``kept`` or ``missed`` in the
    end; a refused deadline has the ``earliest_deadline`` that can be kept.
    """

    id: str
    owner: str
    name: str
    resources: Mapping[str, str]
    submitted: int
    cluster: str
    server_job: str
    over: ItemOutcome
    over_at: int | None
    exit_status: int | None
    cancelled: bool
    moves: int
    bag: str
    booking: str
    tasks: str
    deadline: int | None
    deadline_state: Literal["", "accepted", "wished", "at_risk", "missed", "kept"]
    earliest_deadline: int | None
    standing: TaskCounts | None
    text: str
    attempts: Sequence[TransferAttemptView]


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedJobsView:
    """Jobs of the federation that the caller may see."""

    jobs: Sequence[FederatedJobView]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWhatIf:
    """Answer of one cluster's plan. ``late_by`` is the time between the deadline and a later end; null
    without a deadline or an end. ``never`` is whether the cluster can never run the job, ``why`` the reason.
    ``expected_start`` is the P50, ``expected_by`` the P90, ``promised_start`` the promise that the job would
    get.
    """

    cluster: str
    start: int | None = None
    end: int | None = None
    cost: float | None = None
    why: str = ""
    late_by: int | None = None
    never: bool = False
    expected_start: int | None = None
    expected_by: int | None = None
    expected_as_of: int | None = None
    promised_start: int | None = None
    predicted: bool = False
    starts_stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedWhatIfResult:
    """Answers of the clusters' plans, earliest end first.

    ``fits`` is whether a cluster ends the job by the deadline, ``late_by`` the least delay.
    """

    clusters: Sequence[ClusterWhatIf]
    deadline: int | None
    fits: bool | None
    late_by: int | None
