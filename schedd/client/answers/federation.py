"""Federation: jobs, co-allocations, bags, bookings, clusters and reports.

Written by ``make docs`` from the API's description, which says what each field means.
"""

from typing import Literal, TypedDict

from schedd.client.answers.quality import LicenceReport, QueueReport

__all__ = [
    "ArrayFigures",
    "BagFigures",
    "BagOfferView",
    "BagShareView",
    "BagView",
    "BagsView",
    "BalanceView",
    "BookingAttemptView",
    "BookingFigures",
    "ClusterBalance",
    "ClusterOfferView",
    "ClusterWhatIf",
    "CoAllocationSearches",
    "CoAllocationView",
    "CoAllocationsView",
    "ComponentView",
    "CounterOfferView",
    "DeadlineFigures",
    "FederatedBookingMove",
    "FederatedBookingView",
    "FederatedBookingsView",
    "FederatedClusterView",
    "FederatedClustersView",
    "FederatedJobView",
    "FederatedJobsView",
    "FederatedLicenceView",
    "FederatedLicencesView",
    "FederatedWhatIfResult",
    "FederationHealth",
    "FederationReadiness",
    "FederationReport",
    "JobFigures",
    "LicenceShareView",
    "RoundView",
    "StretchFigures",
    "TaskCounts",
    "TaskSplitView",
    "TransferAttemptView",
]


class TaskCounts(TypedDict):
    """Number of tasks of an array by state.

    ``first_end`` is the actual or planned end of the first task, ``last_end`` the end of the last ended one.
    """

    tasks: int
    planned: int
    running: int
    ended: int
    failed: int
    deleted: int
    first_end: int | None
    last_end: int | None


class TransferAttemptView(TypedDict):
    """Transfer of a job to one cluster. ``start`` and ``end`` are the plan's offer when it was chosen; the
    planned and promised times are null if the cluster does not disclose its plan.
    """

    number: int
    cluster: str
    user: str
    phase: Literal[
        "submitting",
        "held",
        "releasing",
        "released",
        "started",
        "booked",
        "confirmed",
        "withdrawing",
        "withdrawn",
        "refused",
        "ended",
    ]
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


class FederatedJobView(TypedDict):
    """A job of the federation.

    ``bag`` is the number of its bag, ``booking`` the name of its booking; both may be empty. ``tasks`` are
    the first and last index of an array, empty for a single job; ``standing`` counts its tasks, null if that
    is unknown.
    """

    id: str
    owner: str
    name: str
    resources: dict[str, str]
    submitted: int
    cluster: str
    server_job: str
    over: Literal["", "ended", "deleted", "cancelled", "lost", "refused", "failed"]
    over_at: int | None
    exit_status: int | None
    cancelled: bool
    moves: int
    bag: str
    booking: str
    tasks: str
    standing: TaskCounts | None
    text: str
    attempts: list[TransferAttemptView]


class FederatedJobsView(TypedDict):
    """Jobs of the federation that the caller may see."""

    jobs: list[FederatedJobView]


class ClusterWhatIf(TypedDict):
    """Answer of one cluster's plan. ``late_by`` is the time between the deadline and a later end; null
    without a deadline or an end.
    """

    cluster: str
    start: int | None
    end: int | None
    cost: float | None
    why: str
    late_by: int | None


class FederatedWhatIfResult(TypedDict):
    """Answers of the clusters' plans, earliest end first.

    ``fits`` is whether a cluster ends the job by the deadline, ``late_by`` the least delay.
    """

    clusters: list[ClusterWhatIf]
    deadline: int | None
    fits: bool | None
    late_by: int | None


class ComponentView(TypedDict):
    """A component of a co-allocation, with its job at the cluster."""

    component: int
    resources: dict[str, str]
    optional: bool
    cluster: str
    job: str
    phase: str
    state: str
    started: int | None
    exit_status: int | None
    text: str


class RoundView(TypedDict):
    """A start with a place for each component. ``clusters``, ``units`` and ``plans`` are by component."""

    number: int
    start: int
    end: int
    clusters: dict[str, str]
    units: dict[str, int]
    phase: str
    since: int
    why: str
    plans: dict[str, int]
    text: str


class CoAllocationView(TypedDict):
    """A co-allocation. ``cores`` is the total of a divided one, otherwise null."""

    id: str
    owner: str
    submitted: int
    state: str
    start: int | None
    end: int | None
    displayed_start: int | None
    published_end: int | None
    moves: int
    cores: int | None
    components: list[ComponentView]
    rounds: list[RoundView]
    over: Literal["", "ended", "deleted", "cancelled", "lost", "refused", "failed"]
    over_at: int | None
    cancelled: bool
    text: str


class CoAllocationsView(TypedDict):
    """Co-allocations that the caller may see."""

    coallocations: list[CoAllocationView]


class BagShareView(TypedDict):
    """An array of a bag's tasks at one cluster. ``first_end`` is the actual or planned end of its first task;
    null if it is unknown or not disclosed.
    """

    job: str
    cluster: str
    server_job: str
    array: str
    tasks: int
    phase: str
    state: str
    planned_start: int | None
    published_end: int
    end: int | None
    first_end: int | None
    stretch_s: int | None
    waiting: int
    running: int
    ended: int
    failed: int
    deleted: int
    over: Literal["", "ended", "deleted", "cancelled", "lost", "refused", "failed"]
    text: str


class BagView(TypedDict):
    """A bag of tasks.

    ``end`` is the expected or actual end of the last task, ``first_end`` the end of the first known one.
    ``stretch_s`` is the time between them, ``stretch`` its share of the response time.
    """

    id: str
    owner: str
    name: str
    resources: dict[str, str]
    submitted: int
    tasks: int
    deadline: int
    published_end: int
    end: int | None
    first_end: int | None
    stretch_s: int | None
    stretch: float | None
    deadline_kept: bool | None
    without_cluster: int
    waiting: int
    running: int
    ended: int
    failed: int
    deleted: int
    state: str
    over: str
    over_at: int | None
    cancelled: bool
    text: str
    shares: list[BagShareView]


class BagsView(TypedDict):
    """Bags that the caller may see."""

    bags: list[BagView]


class ClusterOfferView(TypedDict):
    """A cluster's offer: this number of tasks ends by this time."""

    provider: str
    tasks: int
    end: int


class TaskSplitView(TypedDict):
    """Number of tasks by cluster; ``met`` is whether all end by the deadline."""

    shares: dict[str, int]
    end: int
    met: bool


class BagOfferView(TypedDict):
    """An offer for a bag of tasks, valid until it ``expires``. ``why`` are the reasons for missing offers, by
    cluster.
    """

    id: str
    expires: int
    tasks: int
    deadline: int
    offers: list[ClusterOfferView]
    split: TaskSplitView | None
    plans: dict[str, int]
    why: dict[str, str]


class FederatedBookingMove(TypedDict):
    """A move of the planned start; ``before`` is null for the first one."""

    time: int
    before: int | None
    after: int


class BookingAttemptView(TypedDict):
    """A booking at one cluster; ``name`` is its name there."""

    number: int
    cluster: str
    user: str
    name: str
    phase: Literal[
        "submitting",
        "held",
        "releasing",
        "released",
        "started",
        "booked",
        "confirmed",
        "withdrawing",
        "withdrawn",
        "refused",
        "ended",
    ]
    since: int
    ready: int
    deadline: int
    why: str
    text: str


class CounterOfferView(TypedDict):
    """A counter-offer of one cluster; ``stretch`` is its distance from the window, in lengths."""

    option: int
    cluster: str
    start: int
    end: int
    stretch: float


class FederatedBookingView(TypedDict):
    """A booking of the federation. ``away`` is the reason why its cluster does not answer."""

    id: str
    name: str
    owner: str
    state: str
    cluster: str
    away: str
    resources: dict[str, str]
    cpus: int | None
    duration: int
    ready: int
    deadline: int
    start: int | None
    end: int | None
    spare: int | None
    freezes: int | None
    clusters: list[str]
    submitted: int
    jobs: list[str]
    moves: list[FederatedBookingMove]
    attempts: list[BookingAttemptView]
    options: list[CounterOfferView]
    cancelled: bool
    over: Literal["", "ended", "deleted", "cancelled", "lost", "refused", "failed"]
    over_at: int | None
    text: str


class FederatedBookingsView(TypedDict):
    """Bookings that the caller may see, by their start."""

    bookings: list[FederatedBookingView]


class FederatedClusterView(TypedDict):
    """A cluster of the federation; undisclosed values are null.

    ``away`` is the reason why it is not used, ``trouble`` an error in its settings. ``ours`` counts the
    federation's jobs there. ``load`` (cpu-seconds) and ``count`` are of its waiting jobs, by priority from 0
    on: those of this priority or a higher one.
    """

    name: str
    away: str
    since: int
    trouble: str
    disclosure: str
    cpus: int | None
    jobs: dict[str, int] | None
    ours: int
    running: int
    load: list[int]
    count: list[int]


class FederatedClustersView(TypedDict):
    """The clusters of the federation."""

    clusters: list[FederatedClusterView]


class LicenceShareView(TypedDict):
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


class FederatedLicenceView(TypedDict):
    """A floating licence that the clusters share."""

    name: str
    copies: int
    free: int
    clusters: list[LicenceShareView]


class FederatedLicencesView(TypedDict):
    """Floating licences that the clusters share."""

    licences: list[FederatedLicenceView]


class DeadlineFigures(TypedDict):
    """Deadline metrics of jobs or bags that have a deadline.

    ``late`` is the number of items that ended after their deadline, ``late_work`` their share of all
    cpu-seconds. ``tw_delay`` sums ``100 * cpus * ((end - submitted) / (deadline - submitted) - 1)`` over the
    late items.
    """

    with_deadline: int
    late: int
    late_work: float
    tw_delay: float


class JobFigures(TypedDict):
    """Metrics of ended jobs. ``moved`` jobs waited at more than one cluster.

    ``clusters`` is the mean number of clusters used by a job; None if no job ended.
    """

    ended: int
    moved: int
    clusters: float | None
    deadlines: DeadlineFigures


class StretchFigures(TypedDict):
    """Mean stretch of the items with two ``known`` ends; the means are None if there are no such items."""

    known: int
    stretch_s: float | None
    stretch: float | None


class ArrayFigures(TypedDict):
    """Metrics of ended job arrays that do not belong to a bag."""

    ended: int
    stretch: StretchFigures


class CoAllocationSearches(TypedDict):
    """Figures of co-allocations, and the searches for an earlier end since this daemon leads."""

    ended: int
    failed: int
    clusters: float | None
    shifts: int
    remaps: int
    refused: int
    several: int
    to_one: int
    to_one_share: float | None
    earlier: int
    earlier_share: float | None
    gap_searches: int
    gaps_found: int


class BagFigures(TypedDict):
    """Metrics of ended bags, including the distance between the first and the last end of their tasks."""

    ended: int
    moved: int
    clusters: float | None
    deadlines: DeadlineFigures
    stretch: StretchFigures


class BookingFigures(TypedDict):
    """Metrics of all requested bookings.

    ``booked`` bookings got a place, ``by_offer`` of these through a counter-offer. ``declined`` counts
    attempts at clusters without room. ``moves`` counts changes of the planned start, as reported by the
    clusters.
    """

    asked: int
    booked: int
    by_offer: int
    refused: int
    declined: int
    ended: int
    cancelled: int
    lost: int
    moves: int


class FederationReport(TypedDict):
    """Outcomes of the kept jobs, arrays, co-allocations, bags and bookings."""

    jobs: JobFigures
    arrays: ArrayFigures
    coallocations: CoAllocationSearches
    bags: BagFigures
    bookings: BookingFigures


class ClusterBalance(TypedDict):
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
    kept: bool | None
    cpus_used: float | None
    processors: float | None
    ended: int | None
    with_deadline: int | None
    late: int | None
    slowdown: float | None
    licences: list[LicenceReport]
    queues: list[QueueReport]


class BalanceView(TypedDict):
    """The clusters over the period ``[since, until)``."""

    since: int
    until: int
    clusters: list[ClusterBalance]


class FederationHealth(TypedDict):
    """The process answers."""

    status: str
    version: str


class FederationReadiness(TypedDict):
    """The federation leads and accepts jobs.

    ``trouble`` is by cluster an error in its settings here. ``background`` is background work that failed
    recently and was restarted; empty if there is none.
    """

    status: str
    trouble: dict[str, str]
    background: str
