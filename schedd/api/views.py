"""Responses of the API besides the views of engine and service: documented dataclasses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

from pydantic import Field

from schedd.api.replies import api_answer, documented
from schedd.engine import Breach, Change, EndedPromise, JobView, PlanSnapshot, Risk
from schedd.service.cluster.plan_feed import JobSummary
from schedd.service.questions.explain import BlockedResource, Blocker, Explanation
from schedd.service.questions.explanation_chain import ChainJob, ChainLink, JobsAhead
from schedd.service.read.current_faults import AlertView, JobStartState
from schedd.service.read.gaps import CapacityStep, Gap
from schedd.service.read.plan_lists import Bar, JobCounts, NodeView
from schedd.wire import Decision, ServerFacts

_VIEWS: tuple[type, ...] = (
    *(JobView, Change, Breach, EndedPromise, Risk, JobSummary, Bar, JobCounts, NodeView, CapacityStep, Gap),
    *(BlockedResource, Blocker, JobsAhead, ChainJob, ChainLink, Explanation, AlertView, JobStartState),
)
for _view_class in _VIEWS:
    documented(_view_class)


class _SnapshotFields(TypedDict):
    as_of: int
    generation: int
    stale: str


def snapshot_fields(published: PlanSnapshot) -> _SnapshotFields:
    """The plan behind a response."""
    return {"as_of": published.as_of, "generation": published.generation, "stale": published.stale}


# The docstrings of inherited fields would be lost.
@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotAnswer:
    """An answer that is read from one plan."""

    as_of: Annotated[int, Field(description="When the plan was brought up to date.")]
    generation: Annotated[int, Field(description="Counts the batches of events that the plan has taken in.")]
    stale: Annotated[
        str, Field(description="Why the plan may not show the server's present state; empty when it does.")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedAnswer(SnapshotAnswer):
    """One page of a list."""

    next: Annotated[str | None, Field(description="The cursor of the next page; null on the last.")]


@documented
@dataclass(frozen=True, slots=True)
class ClusterView:
    """One cluster and how its planner is doing. Times are seconds since the epoch (UTC)."""

    name: str
    policy: str
    """`conservative` plans every job; the others are queue policies, which plan no starts."""
    now: int
    """The present second by the daemon's clock."""
    as_of: int
    """When the plan was brought up to date."""
    generation: int
    """Counts the batches of events that the plan has taken in."""
    mode: Literal["shadow", "adviser", "scheduler"]
    """Use of the plan: none, written to the server, or also to start jobs."""
    paused: str
    """Why an admin stopped starting jobs; empty when none did."""
    foreign: str
    """Evidence of another scheduler that starts jobs; empty without one. Reset by `resume`."""
    halted: str
    """Why no jobs are started, for whatever reason; empty when they are."""
    starts_refused: str
    """Since when and why no start succeeds, though jobs are started; empty otherwise."""
    stale: str
    """Why the plan may not show the server's present state; empty when it does."""
    trouble: str
    """Why the planner stopped or waits; empty while it works."""
    jobs: JobCounts
    nodes: int
    cpus: int
    events_waiting: int
    """Events that came and are not handled yet."""
    arriving: int
    """New jobs of a snapshot that the planner has not handled yet: the plan does not contain them."""
    breaches: int
    """Promises that were not kept, in all: a restart of the daemon does not begin again."""
    at_risk: int
    """Promises that cannot be kept as planned now, of jobs that wait."""
    alerts: int
    """How many alerts are open."""
    job_starts: JobStartState
    """Whether due jobs are started, and the command that helps."""
    heard: int | None
    """Last contact of the adapter; null: none since this daemon leads."""
    adapter_version: str
    """The adapter's version; empty where it did not say."""
    adapter_ahead: float | None
    """Seconds that the adapter's clock is ahead of the daemon's; null if it is unknown."""
    clocks: str
    """Which clocks of daemon, adapter and server are apart, or that one was set; empty when none are."""
    server: ServerFacts
    """What the server says of itself: whether it wants to be scheduled, its version, defaults and limits."""
    end_allowance: int
    """How long the plan keeps the nodes of a job that overruns its walltime."""


@documented
@dataclass(frozen=True, slots=True)
class ClustersView:
    """All clusters of this daemon."""

    clusters: tuple[ClusterView, ...]


@documented
@dataclass(frozen=True, slots=True)
class EventsAccepted:
    """The events are kept and handled; a plan of this generation or a later one shows what came of them. With
    `pending` they are kept, and will be handled in their order.
    """

    accepted: int
    """How many were new; with `pending` all of them."""
    duplicates: tuple[str, ...]
    """The ids of events that had been handled before; they changed nothing."""
    generation: int
    decisions: tuple[Decision, ...] = ()
    """Decisions after the position in the header `Schedd-After`; none without it."""
    last: str = ""
    """The position after these decisions; empty without the header, and if the position is unknown: then ask
    for decisions."""
    pending: bool = False
    """Whether the planner has not handled the events yet; `duplicates` is empty then."""


@documented
@dataclass(frozen=True, slots=True)
class DecisionBatch:
    """Decisions in order."""

    decisions: tuple[Decision, ...]
    last: str
    """The position for the next request."""
    missed: bool
    """True when decisions after the place that was asked for are gone, or the place is not known: those
    listed are all that still count."""


@api_answer
class JobPage(PagedAnswer):
    """Some jobs by (planned) start; those without one come last."""

    jobs: tuple[JobView, ...]


@api_answer
class JobColumns(PagedAnswer):
    """The same column by column."""

    jobs: Mapping[str, tuple[Any, ...]]
    """By field, in the order of the jobs; what each means says `JobView`."""


@documented
@dataclass(frozen=True, slots=True)
class JobMoment:
    """Something that happened to a job."""

    time: int
    kind: Literal["event", "decision", "published", "forecast", "promise", "risk", "breach"]
    words: str
    start: int | None
    """The start that was published, predicted (P50), promised or planned."""
    decision: str
    """Of a decision its id; otherwise empty."""


@api_answer
class EndedJobView:
    """A job that has left the plan, from the database."""

    name: str
    owner: str
    queue: str
    resources: Mapping[str, str]
    submitted: int
    runs: int
    """How often it was started."""
    started: int | None
    """Its last start."""
    nodes: tuple[str, ...]
    """Where it ran then."""
    ended: int | None
    """Null where that is not noted yet."""
    exit_status: int | None
    how: Literal["", "ended", "deleted", "moved", "gone"]
    """`ended` by itself, `deleted`, `moved` to another server, or `gone` from the server's state."""
    moved_to: str
    """Of a moved job the destination, `queue@server`; otherwise empty."""
    displayed_start: int | None
    """The planned start published last."""
    expected_start: int | None
    """The likely start (P50) predicted last."""
    promised_start: int | None
    """The start that was promised last."""
    moments: tuple[JobMoment, ...]
    """Its stored events in order, at most the latest 500."""


@api_answer
class StartHistory(SnapshotAnswer):
    """The moves of a job's planned start, with its promises."""

    job: str
    changes: tuple[Change, ...]
    """Newest first. Old moves are forgotten; the list starts again when the request changes its nodes."""
    promised_start: int | None
    at_risk: Risk | None
    """Why the promise cannot be kept as planned now; null while it can, or nothing is promised."""
    breaches: tuple[Breach, ...]
    """Promises that were not kept, each with its cause: the first and the latest."""
    promise_ended: EndedPromise | None
    """The last promise that ended without being broken: the job was held, enlarged, moved or requeued."""
    past: EndedJobView | None
    """Of a job that has left the plan, all that is known; the rest is empty then."""


@api_answer
class PlanUpdate(SnapshotAnswer):
    """Changes of a plan since the previous event."""

    paused: str
    """Why an admin stopped starting jobs; empty when none did."""
    halted: str
    """Why no jobs are started, for whatever reason; empty when they are."""
    alerts: tuple[AlertView, ...]
    """All open alerts that concern the caller."""
    jobs: JobCounts
    changed: tuple[JobSummary, ...]
    """Jobs that changed in any way, and new ones."""
    gone: tuple[str, ...]
    """Ids of jobs that ended or were deleted."""


@api_answer
class NodePage(PagedAnswer):
    """Some nodes by name."""

    nodes: tuple[NodeView, ...]


@documented
@dataclass(frozen=True, slots=True)
class ReservationView:
    """Nodes that are kept free of planned jobs over `[start, end)`; an end of null: until it is lifted."""

    name: str
    nodes: tuple[str, ...]
    start: int
    end: int | None
    reason: str
    features: tuple[str, ...]
    """Nodes that have all of these are kept, too."""
    everywhere: bool
    """All nodes are kept."""
    users: tuple[str, ...]
    """Users whose jobs may use the nodes all the same; likewise groups, accounts and queues."""
    groups: tuple[str, ...]
    accounts: tuple[str, ...]
    queues: tuple[str, ...]
    shorter: int
    """Jobs with a walltime up to this, in seconds, may, too; 0: no such exception."""
    cores: int
    """Number of cores kept of each node; 0, like `gpus` and `mem`: whole nodes."""
    gpus: int
    mem: int
    """KiB."""
    total: bool
    """`cores`, `gpus` and `mem` are sums over all the nodes."""
    amounts: str
    """The same in words: `2 cores of each node`; empty for whole nodes."""


@api_answer
class PlanPage(PagedAnswer):
    """Jobs and reservations in a period, by start."""

    begin: int
    end: int
    jobs: tuple[Bar, ...]
    reservations: tuple[ReservationView, ...]
    """All that touch the window, on every page."""


@api_answer
class GapsView(PagedAnswer):
    """Free capacity in a period on nodes that are up."""

    begin: int
    end: int
    totals: tuple[CapacityStep, ...]
    """All nodes together, on every page."""
    gaps: tuple[Gap, ...]
    """Node by node."""


@documented
@dataclass(frozen=True, slots=True)
class DispatchState:
    """Whether jobs are started."""

    paused: str
    """Why not; empty when they are."""
    generation: int


@documented
@dataclass(frozen=True, slots=True)
class HealthView:
    """The process answers."""

    status: Literal["ok"]
    version: str


@documented
@dataclass(frozen=True, slots=True)
class ReadinessView:
    """All planners can do their work."""

    status: Annotated[
        str,
        Field(description="`ready`, or `ready, but` with the reason for slow starts.", examples=["ready"]),
    ]
