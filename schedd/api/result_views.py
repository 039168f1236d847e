"""What the API answers to questions and acts: what-if, the plan's worth, searches, reservations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from schedd.api.replies import api_answer, documented
from schedd.api.views import ReservationView, SnapshotAnswer
from schedd.engine import SearchReason
from schedd.plan.views import StartWindow
from schedd.predict import AccuracyFigures
from schedd.service.background.plan_metrics_log import SearchRun
from schedd.service.questions.cheapest_start import CheapestStart
from schedd.service.questions.objectives import ObjectiveChange
from schedd.service.questions.smaller_requests import SmallerRequest
from schedd.service.questions.summaries import CriterionValue, UserSummary
from schedd.service.questions.trial import TasksEnd
from schedd.wire import ShareFacts

_VIEWS: tuple[type, ...] = (
    CheapestStart,
    SmallerRequest,
    StartWindow,
    UserSummary,
    CriterionValue,
    ObjectiveChange,
)
for _view_class in _VIEWS:
    documented(_view_class)


@api_answer
class UsersView(SnapshotAnswer):
    """Each user's jobs, counted."""

    users: tuple[UserSummary, ...]


@api_answer
class EvaluationView(SnapshotAnswer):
    """What the plan is worth."""

    criteria: tuple[CriterionValue, ...]
    walltime_use: float
    """Share of requested cpu-seconds that the latest runs used (1 before any); searches scale by it."""


@documented
@dataclass(frozen=True, slots=True)
class EvaluationSample:
    """What the plan was worth at a moment."""

    time: int
    generation: int
    """The plan that was evaluated."""
    jobs: int
    """Jobs that were planned, over which the criteria are."""
    criteria: Mapping[str, float]
    """By criterion, in the units above."""


@documented
@dataclass(frozen=True, slots=True)
class EvaluationsView:
    """What the plan was worth over time."""

    units: Mapping[str, str]
    """Of each criterion: `s`, `jobs`, or `1` for a plain number."""
    evaluations: tuple[EvaluationSample, ...]
    """In the order of time."""
    next: int | None
    """The value of `since` for the next page; null on the last one."""


@documented
@dataclass(frozen=True, slots=True)
class StartErrorView:
    """Errors of start estimates: actual minus estimated, in seconds; positive is later than estimated."""

    lead: int
    """Minimum seconds from the estimate to the start of the job (up to the next lead)."""
    count: int
    """How many such tellings there were."""
    mean: float
    median_absolute: float
    p90_absolute: float


documented(AccuracyFigures)


@documented
@dataclass(frozen=True, slots=True)
class HorizonAccuracy:
    """How right expected starts of one horizon were."""

    kind: Literal["submission", "waiting", "hour"]
    """Time of the estimate: at `submission`; at half of the expected wait, or for jobs found `waiting`;
    within an `hour` of the start. Each job counts once in each.
    """
    lead: int | None
    """Least seconds from the estimate to the expected start (up to the next lead); null: all of the kind."""
    figures: AccuracyFigures
    halted: int = 0
    """Further estimates of the kind, which do not count: during their wait no job could start for a minute
    and a twentieth of the time to P90, as in a pause or while the daemon was down. 0 in rows of one lead.
    """


@documented
@dataclass(frozen=True, slots=True)
class DeadlineAccuracy:
    """Forecasts for deadlines with a probability between `low` and `high`."""

    jobs: str
    """When the forecast was made: of `waiting` or of `running` jobs."""
    low: float
    high: float
    count: int
    predicted: float
    """Their mean predicted probability."""
    observed: float
    """The share of the jobs that ended in time."""


@documented
@dataclass(frozen=True, slots=True)
class AccuracyView:
    """Accuracy of start estimates."""

    kept: bool
    """False where the daemon has no database, and so keeps none."""
    overall: StartErrorView | None
    by_lead: tuple[StartErrorView, ...]
    expected: tuple[HorizonAccuracy, ...]
    """Of expected starts of the selected jobs, published in the period."""
    breaches: int | None
    """Promises of the same that were broken in the period; null where none are kept."""
    planned_since: int | None = None
    """Time of the first of the latest 100,000 planned starts; only these count. Null: all count."""
    expected_since: int | None = None
    """The same of expected starts."""
    deadlines: tuple[DeadlineAccuracy, ...] = ()
    """Of forecasts for deadlines: the latest 500 of each kind with a past deadline, of all jobs."""


@api_answer
class ReservationsView(SnapshotAnswer):
    """All reservations by start."""

    reservations: tuple[ReservationView, ...]


@api_answer
class ReservationResult(SnapshotAnswer):
    """What came of it."""

    reservation: ReservationView | None
    """Its present state; null if it was deleted, or could not be made: then the log has an alert."""
    at_risk: int
    """How many promises more than before are at risk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfVariantResult:
    """When the job would start if it were submitted so, now, and nothing else changed."""

    request: Annotated[str, Field(description="The request, in canonical form.")]
    answer: Literal["start_known", "waiting", "never"]
    planned_start: int | None
    planned_end: int | None
    planned_nodes: tuple[ShareFacts, ...]
    expected_start: Annotated[
        int | None, Field(description="P50 by predicted run times: half of such jobs start by then.")
    ]
    expected_by: Annotated[
        int | None,
        Field(
            description="P90: 90 % of such jobs start by then; null also where the job would have a promise "
            "that is as early."
        ),
    ]
    expected_as_of: Annotated[
        int | None, Field(description="When the plan with predicted run times was made.")
    ]
    predicted: Annotated[bool, Field(description="Whether starts of its queue are predicted.")]
    starts_stopped: Annotated[
        bool,
        Field(description="Whether no jobs are started at present, although this scheduler is to."),
    ]
    promised_start: Annotated[
        int | None,
        Field(description="It would be promised to start then at the latest; null: nothing would be."),
    ]
    headline: Annotated[str, Field(description="Its start in one sentence; times in UTC.")]
    predicted_run_time: Annotated[
        int | None, Field(description="Seconds: half of such jobs run no longer; null: not known.")
    ]
    cost: Annotated[
        float | None,
        Field(description="Its price there for the full walltime; null: no start, or no prices."),
    ]
    currency: str
    over: Annotated[bool, Field(description="Whether that is more than its `cost_limit`.")]
    deadline: Annotated[
        int | None, Field(description="Until when it is to have ended, where that is asked for.")
    ]
    late_by: Annotated[
        int | None,
        Field(
            description="Seconds by which the deadline would need to be later; 0: it is met as "
            "planned; null: no deadline, or no known start."
        ),
    ]
    start_by: Annotated[int | None, Field(description="The wished latest start; null: none was given.")]
    start_late_by: Annotated[
        int | None,
        Field(
            description="Seconds by which the planned start is later than `start_by`; 0: it is in time; "
            "null: no wish, or no known start."
        ),
    ]
    refusals: Annotated[
        tuple[str, ...],
        Field(
            description="All reasons for which `qsub` (or `qalter`) would refuse it; `requirement` has them "
            "in one sentence."
        ),
    ]
    deadline_state: Annotated[
        Literal["", "accepted", "wished", "at_risk", "missed"],
        Field(
            description="What becomes of the deadline if the job is submitted now: `accepted`, or `wished`: "
            "nothing is guaranteed. The answer about a queued job at its planned start has its present state."
        ),
    ]
    deadline_required: Annotated[
        float | None,
        Field(description="The probability with which the deadline must be kept; null: none is requested."),
    ]
    deadline_probability: Annotated[
        float | None,
        Field(
            description="The probability that the job ends by its deadline, by the latest forecast; null: no "
            "deadline, or no forecast."
        ),
    ]
    earliest_deadline: Annotated[
        int | None,
        Field(description="If the deadline would be refused: the earliest one that would be accepted."),
    ]
    waiting_for: Annotated[str, Field(description="If `waiting`: the kind of event that must happen first.")]
    requirement: Annotated[
        str, Field(description="When `never`: the first requirement that nothing on this cluster can meet.")
    ]
    why: Annotated[
        str, Field(description="In words: what it waits for, or the first requirement that nothing can meet.")
    ]
    walltime: Annotated[int, Field(description="Seconds that the answer counts with.")]
    walltime_assumed: Annotated[
        bool, Field(description="True when neither the job nor a default names a walltime.")
    ]
    notes: Annotated[tuple[str, ...], Field(description="Remarks on how the request was understood.")]


@api_answer
class DestinationView:
    """A destination of a routing queue."""

    queue: str
    chosen: bool
    """Whether the server would route the job to it."""
    refusals: tuple[str, ...]
    """All its reasons against the job; empty: it does."""
    planned_start: int | None
    """Start in this queue; null: refused, unknown, or there are more than 20 destinations."""
    expected_start: int | None
    """P50."""
    expected_by: int | None
    """P90; null also where a promise is as early."""
    headline: str
    """The start in one sentence; times in UTC."""


@api_answer
class ArrayEnd:
    """A hypothetical job array."""

    subjobs: int
    slot_limit: int | None
    """How many may run at once; null: no limit."""
    planned_end: int | None
    """When all would have ended at their full walltimes; null: not known, or too many to compute."""


@api_answer
class WhatIfResult(WhatIfVariantResult):
    """The same for the question itself, with all else that was asked."""

    windows: tuple[StartWindow, ...]
    """Where it could start, from the earliest on."""
    changes: tuple[SmallerRequest, ...]
    """Changes that let it start by `changes_by`, each by itself, in no order of merit."""
    changes_by: int | None
    """The latest start that `changes` allow; null: no changes were requested."""
    sooner_changes: tuple[SmallerRequest, ...]
    """Changes that let it start by `sooner_by`, each by itself."""
    sooner_by: int | None
    """A little before the planned start; null: no known start, or `sooner` was not requested."""
    halted: str
    """Why no jobs are started at present, whatever the plan says; empty: they are."""
    destinations: tuple[DestinationView, ...]
    """Of a routing queue: each destination, in its order. The job is routed to the first that accepts it."""
    array: ArrayEnd | None
    """The array as a whole; null for a single job. `planned_start` is that of its first subjob."""
    cheapest: CheapestStart | None
    """Where it would cost least and end by `cheapest_by`; null where that was not asked or cannot be, and
    where the site has no prices."""
    variants: tuple[WhatIfVariantResult, ...]
    """In the order of the question."""
    tasks: tuple[TasksEnd, ...]
    """The end of all jobs for each requested number of them, each placed in turn; numbers without
    capacity, or with too long a computation, are left out.
    """
    as_of: int
    """The assumed arrival of the job."""
    generation: int
    """The plan that was asked."""


@documented
@dataclass(frozen=True, slots=True)
class CriterionChange:
    """One criterion before and after a search; `docs/developers/optimisation.md` has the formulas."""

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
    """Searches are numbered from 1 on; without a database, from the daemon's start."""
    started: int
    why: SearchReason
    """Why it began."""
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
    """Moves given up since a job would have passed its promise, or the guard of `search_patience`."""
    moved: int
    """Jobs that it moved on its copy of the plan."""
    taken: int
    """Jobs that were moved in the plan itself, which had gone on meanwhile."""
    gain: float
    """Weighted mean of the relative gains of the criteria on the fork."""
    criteria: tuple[CriterionChange, ...]
    objectives: tuple[ObjectiveChange, ...]
    """The criteria of the live plan before and after it was moved; empty if nothing was moved."""


@documented
@dataclass(frozen=True, slots=True)
class SearchesView:
    """Searches, newest first."""

    searches: tuple[SearchView, ...]
    next: Annotated[str | None, Field(description="The cursor of the next page; null on the last.")]


@documented
@dataclass(frozen=True, slots=True)
class SearchResult:
    """The outcome of a requested search."""

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
        objectives=run.objectives,
    )
