"""What the API answers with, beside the views of engine and service: documented dataclasses."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

from pydantic import Field

from schedd.api.replies import documented
from schedd.engine.job_view import Change, JobView
from schedd.engine.records import Breach, Ended
from schedd.engine.view import Published
from schedd.plan.views import Window
from schedd.service.explain import Blocker, Explanation, On
from schedd.service.feed import JobLine
from schedd.service.gaps import Gap, Step
from schedd.service.reading import Bar, Counts, NodeView
from schedd.service.searching import SearchRun
from schedd.service.smaller import Smaller
from schedd.service.summaries import CriterionValue, UserSummary
from schedd.wire import Decision, ShareFacts

__all__ = [
    "AccuracyView",
    "Bars",
    "Batch",
    "ClusterView",
    "ClustersView",
    "Dispatch",
    "ErrorView",
    "EvaluationView",
    "GapsView",
    "Health",
    "History",
    "JobPage",
    "News",
    "NodePage",
    "Ready",
    "ReservationDone",
    "ReservationView",
    "ReservationsView",
    "Searched",
    "SearchesView",
    "Taken",
    "UsersView",
    "VariantAnswer",
    "WhatIfAnswer",
    "dated",
    "search_view",
]

_VIEWS: tuple[type, ...] = (
    *(JobView, Change, Breach, Ended, JobLine, Bar, Counts, NodeView, Step, Gap),
    *(On, Blocker, Explanation, Smaller, Window, UserSummary, CriterionValue),
)
for _kind in _VIEWS:
    documented(_kind)


class _Dates(TypedDict):
    as_of: int
    generation: int
    stale: str


def dated(published: Published) -> _Dates:
    """Of which plan an answer tells."""
    return {"as_of": published.as_of, "generation": published.generation, "stale": published.stale}


# The docstrings of inherited fields would be lost.
@dataclass(frozen=True, slots=True, kw_only=True)
class Dated:
    """An answer that is read from one plan."""

    as_of: Annotated[int, Field(description="When the plan was brought up to date.")]
    generation: Annotated[int, Field(description="Counts the batches of events that the plan has taken in.")]
    stale: Annotated[
        str, Field(description="Why the plan may not show the server's present state; empty when it does.")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paged(Dated):
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
    paused: str
    """Why an admin stopped starting jobs; empty when none did."""
    foreign: str
    """By which sign another scheduler starts jobs; empty when none does. Ended by `resume`."""
    halted: str
    """Why no jobs are started, for whatever reason; empty when they are."""
    stale: str
    """Why the plan may not show the server's present state; empty when it does."""
    trouble: str
    """Why the planner stopped or waits; empty while it works."""
    jobs: Counts
    nodes: int
    cpus: int
    events_waiting: int
    """Events that came and are not handled yet."""
    breaches: int
    """Promises that were not kept since the daemon started."""
    end_allowance: int
    """Seconds for which the plan keeps the nodes of a job past its walltime."""


@documented
@dataclass(frozen=True, slots=True)
class ClustersView:
    """All clusters of this daemon."""

    clusters: tuple[ClusterView, ...]


@documented
@dataclass(frozen=True, slots=True)
class Taken:
    """The events are kept and handled; a plan of this generation or a later one shows what came of them."""

    accepted: int
    """How many were new."""
    duplicates: tuple[str, ...]
    """The ids of those that had been handled before; they changed nothing."""
    generation: int


@documented
@dataclass(frozen=True, slots=True)
class Batch:
    """Decisions in order."""

    decisions: tuple[Decision, ...]
    last: str
    """Ask for what comes after this."""
    missed: bool
    """True when decisions after the place that was asked for are gone, or the place is not known: those
    listed are all that still count."""


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage(Paged):
    """Some jobs by (planned) start; those without one come last."""

    jobs: tuple[JobView, ...]


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class History(Dated):
    """How a job's planned start moved, and what was promised on the way."""

    job: str
    changes: tuple[Change, ...]
    """The newest first. The oldest moves of a busy cluster are forgotten; a job that was altered so that it
    asks for other nodes begins anew."""
    promised_start: int | None
    breaches: tuple[Breach, ...]
    """Promises that were not kept, each with its cause: the first and the latest."""
    promise_ended: Ended | None
    """The last promise that ended without being broken: the job was held, enlarged, moved or requeued."""


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class News(Dated):
    """What became of a plan since the event before."""

    paused: str
    """Why no jobs are started; empty when they are."""
    jobs: Counts
    changed: tuple[JobLine, ...]
    """Jobs of which anything changed, and new ones."""
    gone: tuple[str, ...]
    """Ids of jobs that ended or were deleted."""


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class UsersView(Dated):
    """Each user's jobs, counted."""

    users: tuple[UserSummary, ...]


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationView(Dated):
    """What the plan is worth."""

    criteria: tuple[CriterionValue, ...]


@documented
@dataclass(frozen=True, slots=True)
class ErrorView:
    """By how much told starts were wrong: actual less told, in seconds; positive is later than told."""

    lead: int
    """Of starts that were told at least so many seconds before the job started (up to the next lead)."""
    count: int
    """How many such tellings there were."""
    mean: float
    median_absolute: float
    p90_absolute: float


@documented
@dataclass(frozen=True, slots=True)
class AccuracyView:
    """How right told starts were."""

    kept: bool
    """False where the daemon has no database, and so keeps none."""
    overall: ErrorView | None
    by_lead: tuple[ErrorView, ...]


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class NodePage(Paged):
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
    """Jobs of these may use the nodes all the same, and those of the groups, accounts and queues."""
    groups: tuple[str, ...]
    accounts: tuple[str, ...]
    queues: tuple[str, ...]


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationsView(Dated):
    """All reservations by start."""

    reservations: tuple[ReservationView, ...]


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationDone(Dated):
    """What came of it."""

    reservation: ReservationView | None
    """As it is now; null when it was lifted, or could not be made: the log has an alert then."""
    breaches: int
    """Promises that were broken meanwhile."""


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class Bars(Paged):
    """What is placed in a window of time, by start."""

    begin: int
    end: int
    jobs: tuple[Bar, ...]
    reservations: tuple[ReservationView, ...]
    """All that touch the window, on every page."""


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class GapsView(Paged):
    """What is free in a window of time on nodes that are up."""

    begin: int
    end: int
    totals: tuple[Step, ...]
    """All nodes together, on every page."""
    gaps: tuple[Gap, ...]
    """Node by node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantAnswer:
    """When the job would start if it were submitted so, now, and nothing else changed."""

    request: Annotated[str, Field(description="What is asked for, in canonical words.")]
    answer: Literal["start_known", "waiting", "never"]
    planned_start: int | None
    planned_end: int | None
    planned_nodes: tuple[ShareFacts, ...]
    waiting_for: Annotated[str, Field(description="When `waiting`: the kind of what must happen first.")]
    why: Annotated[
        str, Field(description="In words: what it waits for, or the first requirement that nothing can meet.")
    ]
    walltime: Annotated[int, Field(description="Seconds that the answer counts with.")]
    walltime_assumed: Annotated[
        bool, Field(description="True when neither the job nor a default names a walltime.")
    ]
    notes: Annotated[tuple[str, ...], Field(description="Remarks on how the request was understood.")]


@documented
@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAnswer(VariantAnswer):
    """The same for the question itself, with all else that was asked."""

    windows: tuple[Window, ...]
    """Where it could start, from the earliest on."""
    changes: tuple[Smaller, ...]
    """Changes that let it start at once, each by itself, in no order of merit."""
    variants: tuple[VariantAnswer, ...]
    """In the order of the question."""
    as_of: int
    """The moment at which the job was thought to arrive."""
    generation: int
    """The plan that was asked."""


@documented
@dataclass(frozen=True, slots=True)
class Dispatch:
    """Whether jobs are started."""

    paused: str
    """Why not; empty when they are."""
    generation: int


@documented
@dataclass(frozen=True, slots=True)
class Health:
    """The process answers."""

    status: Literal["ok"]
    version: str


@documented
@dataclass(frozen=True, slots=True)
class Ready:
    """All planners can do their work."""

    status: Literal["ready"]


@documented
@dataclass(frozen=True, slots=True)
class CriterionChange:
    """One criterion before and after a search; `docs/optimisation.md` has the formulas."""

    criterion: str
    unit: str
    """`s`, `jobs`, or `1` for a plain number."""
    before: float
    after: float


@documented
@dataclass(frozen=True, slots=True)
class SearchView:
    """One search for a better plan."""

    number: int
    """Searches are numbered from the daemon's start on."""
    started: int
    why: Literal["periodic", "room was freed", "not at its end", "asked for"]
    kind: str
    """How moves were proposed."""
    seconds: float
    """How long it took."""
    ended: str
    """Why it ended."""
    jobs: int
    """Jobs that might be moved."""
    tried: int
    """Moves that were tried."""
    accepted: int
    too_late: int
    """Moves given up since a job would have passed its promise or waited longer than any other."""
    moved: int
    """Jobs that it moved on its copy of the plan."""
    taken: int
    """Jobs that were moved in the plan itself, which had gone on meanwhile."""
    gain: float
    """Weighted mean of what the criteria that count gained on the copy, as shares of what they were."""
    criteria: tuple[CriterionChange, ...]


@documented
@dataclass(frozen=True, slots=True)
class SearchesView:
    """The latest searches, newest first."""

    searches: tuple[SearchView, ...]


@documented
@dataclass(frozen=True, slots=True)
class Searched:
    """What became of a search that was asked for."""

    search: SearchView | None
    """Null when there was nothing to search: fewer than two jobs could be moved."""


def search_view(run: SearchRun) -> SearchView:
    """A search as readers see it."""
    report = run.report
    return SearchView(
        number=run.number,
        started=run.started,
        why=run.why,
        kind=report.kind.value,
        seconds=round(report.elapsed_s, 3),
        ended=report.why_ended.value,
        jobs=report.jobs,
        tried=report.tried,
        accepted=report.accepted,
        too_late=report.too_late,
        moved=report.moved,
        taken=run.taken,
        gain=round(report.gain, 6),
        criteria=tuple(
            CriterionChange(change.criterion.value, change.unit, change.before, change.after)
            for change in report.changes
        ),
    )
