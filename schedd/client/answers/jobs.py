"""Jobs: state, explanation, history, and changes of the plan.

Written by ``make docs`` from the API's description, which says what each field means.
"""

from typing import Any, Literal, TypedDict

__all__ = [
    "ArrayView",
    "BlockedResource",
    "Blocker",
    "Breach",
    "ChainJob",
    "ChainLink",
    "Change",
    "EndedJobView",
    "EndedPromise",
    "Explanation",
    "JobColumns",
    "JobCounts",
    "JobMoment",
    "JobPage",
    "JobSummary",
    "JobView",
    "JobsAhead",
    "OpenAlert",
    "PastError",
    "PlanUpdate",
    "RateOn",
    "Risk",
    "RunTimeView",
    "ShareFacts",
    "StartHistory",
]


class ShareFacts(TypedDict):
    """Resources of one node held by a job; ``mem`` in KiB."""

    node: str
    cpus: int
    mem: int
    gpus: int


class Risk(TypedDict):
    """A promise that cannot be kept as planned now: since when, and what made it so."""

    time: int
    event: str
    cause: str


class Breach(TypedDict):
    """Broken promise: the job had not started at ``time``, or started later than promised.

    ``event`` and ``cause`` first put the promise at risk; ``planned`` is the start planned at that time, or
    the late start itself; -1: unknown.
    """

    time: int
    event: str
    cause: str
    promised: int
    planned: int


class Change(TypedDict):
    """A move of a planned start; a start that is null was not known."""

    time: int
    generation: int
    event: str
    cause: str
    words: str
    before: int | None
    after: int | None


class JobView(TypedDict):
    """A job as readers see it. Times are seconds since the epoch (UTC), amounts of memory KiB."""

    id: str
    name: str
    owner: str
    group: str
    account: str
    queue: str
    job_state: str
    state: Literal["running", "starting", "planned", "waiting", "never"]
    priority: int
    submitted: int
    eligible_since: int | None
    not_before: int | None
    holds: str
    depend: str
    resources: dict[str, str]
    labels: dict[str, str]
    cpus: int | None
    walltime: int
    walltime_assumed: bool
    started: int | None
    planned_start: int | None
    displayed_start: int | None
    planned_end: int | None
    planned_nodes: list[ShareFacts]
    node_sets: list[str]
    expected_start: int | None
    expected_by: int | None
    expected_as_of: int | None
    predicted: bool
    promised_start: int | None
    headline: str
    limited_by: list[str]
    deadline: int | None
    deadline_state: Literal["", "on_track", "at_risk", "missed"]
    conditional: list[str]
    weak: bool
    answer: Literal["start_known", "waiting", "never"]
    waiting_for: str
    requirement: str
    notes: list[str]
    why: str
    at_risk: Risk | None
    breaches: list[Breach]
    last_change: Change | None
    changed: int
    as_of: int
    generation: int
    stale: str


class JobPage(TypedDict):
    """Some jobs by (planned) start; those without one come last."""

    as_of: int
    generation: int
    stale: str
    next: str | None
    jobs: list[JobView]


class JobColumns(TypedDict):
    """The same column by column."""

    as_of: int
    generation: int
    stale: str
    next: str | None
    jobs: dict[str, list[Any]]


class EndedPromise(TypedDict):
    """A promise that ended without being broken: the job was held, enlarged, moved or requeued."""

    time: int
    event: str
    words: str
    promised: int


class JobMoment(TypedDict):
    """Something that happened to a job."""

    time: int
    kind: Literal["event", "decision", "published", "promise", "risk", "breach"]
    words: str
    start: int | None
    decision: str


class EndedJobView(TypedDict):
    """A job that has left the plan, from the database."""

    name: str
    owner: str
    queue: str
    resources: dict[str, str]
    submitted: int
    runs: int
    started: int | None
    nodes: list[str]
    ended: int | None
    exit_status: int | None
    how: Literal["", "ended", "deleted", "gone"]
    displayed_start: int | None
    promised_start: int | None
    moments: list[JobMoment]


class StartHistory(TypedDict):
    """The moves of a job's planned start, with its promises."""

    as_of: int
    generation: int
    stale: str
    job: str
    changes: list[Change]
    promised_start: int | None
    at_risk: Risk | None
    breaches: list[Breach]
    promise_ended: EndedPromise | None
    past: EndedJobView | None


class BlockedResource(TypedDict):
    """A resource that a blocker holds and the job lacks."""

    name: str
    what: list[str]


class Blocker(TypedDict):
    """A job, reservation, node or condition that delays a job."""

    kind: str
    name: str
    owner: str
    state: Literal["running", "starting", "planned", "waiting", "never"] | None
    start: int | None
    until: int | None
    on: list[BlockedResource]
    sooner: bool
    words: str
    ranked_by: str


class ChainJob(TypedDict):
    """A job in a link of the chain."""

    id: str
    owner: str
    until: int
    right: Literal["priority", "earlier", "promise", "placement"] | None


class ChainLink(TypedDict):
    """What keeps the job off its planned nodes from `start` until `until`. Links are contiguous."""

    kind: Literal["eligible", "running", "queued", "reservation", "limit", "node", "free"]
    start: int
    until: int
    nodes: list[str]
    name: str
    jobs: list[ChainJob]
    count: int
    words: str


class JobsAhead(TypedDict):
    """Number of planned jobs that hold nodes of this job before its start, by their right to go first."""

    right: Literal["priority", "earlier", "promise", "placement"]
    count: int


class Explanation(TypedDict):
    """Why a job does not start sooner. Times are seconds since the epoch (UTC).

    Without all `blockers` it would start at `earliest`, but not if any of them stays. Without the `sooner`
    blockers it would start at `without`, before its planned start, but not if any of them stays. A job that
    may not be planned yet has no `earliest`; its blockers are its conditions.
    """

    job: str
    state: Literal["running", "starting", "planned", "waiting", "never"]
    planned_start: int | None
    expected_start: int | None
    expected_by: int | None
    earliest: int | None
    earliest_why: str
    without: int | None
    node_choice: str
    has_room_sooner: bool
    blockers: list[Blocker]
    hidden: int
    chain: list[ChainLink]
    ahead: list[JobsAhead]
    why: str
    last_change: Change | None
    as_of: int
    generation: int
    stale: str


class RateOn(TypedDict):
    """Rate and run time of the job on a group of nodes. A job on several groups runs as long as on the
    slowest.
    """

    rate: float
    run_time: int
    nodes: int
    some: list[str]


class PastError(TypedDict):
    """Errors of past predictions from a throughput, for ended jobs of the same owner."""

    jobs: int
    median_error: float | None
    longer: float | None


class RunTimeView(TypedDict):
    """How long a job runs, as predicted; the plan holds its nodes for the walltime all the same."""

    as_of: int
    generation: int
    stale: str
    job: str
    walltime: int
    source: str
    p50: int | None
    p90: int | None
    units: float | None
    on: list[RateOn]
    too_short: bool
    past: PastError | None


class ArrayView(TypedDict):
    """Number of tasks of a job array by state.

    Ended tasks are counted from the database, which has them some minutes later; without a database they are
    unknown.
    """

    as_of: int
    generation: int
    stale: str
    array: str
    owner: str
    submitted: int
    waiting: int
    planned: int
    running: int
    ended: int
    failed: int
    deleted: int
    first_end: int | None
    last_end: int | None
    stretch_s: int | None
    stretch: float | None


class OpenAlert(TypedDict):
    """An alert that is not over yet. Times are seconds since the epoch (UTC)."""

    kind: str
    about: str
    text: str
    since: int
    last: int
    times: int
    until: int | None


class JobCounts(TypedDict):
    """Number of jobs by state."""

    running: int
    starting: int
    planned: int
    without_start: int


class JobSummary(TypedDict):
    """Summary of a job, for a row of a table or a bar of a chart."""

    id: str
    name: str
    owner: str
    queue: str
    state: Literal["running", "starting", "planned", "waiting", "never"]
    planned_start: int | None
    displayed_start: int | None
    planned_end: int | None
    expected_start: int | None
    expected_by: int | None
    promised_start: int | None
    nodes: list[str]


class PlanUpdate(TypedDict):
    """Changes of a plan since the previous event."""

    as_of: int
    generation: int
    stale: str
    paused: str
    halted: str
    alerts: list[OpenAlert]
    jobs: JobCounts
    changed: list[JobSummary]
    gone: list[str]
