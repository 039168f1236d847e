"""The API's answers as typed dictionaries; a test compares them with its description.

What each field means is told by the API itself (``/docs``). Fields may be added there: see docs/api.md.
"""

from typing import Any, Literal, TypedDict

__all__ = [
    "Bar",
    "Bars",
    "Blocker",
    "Breach",
    "Change",
    "ClusterView",
    "ClustersView",
    "Counts",
    "CriterionChange",
    "CriterionValue",
    "Dispatch",
    "Ended",
    "EvaluatedView",
    "EvaluationView",
    "Explanation",
    "Gap",
    "GapsView",
    "History",
    "HoldView",
    "HoldsView",
    "InTheWay",
    "JobColumns",
    "JobLine",
    "JobPage",
    "JobView",
    "Moved",
    "News",
    "NodePage",
    "NodeView",
    "On",
    "Past",
    "PastMoment",
    "PolicyPreview",
    "PolicyView",
    "PreviewView",
    "ReservationDone",
    "ReservationView",
    "ReservationsView",
    "SearchView",
    "Searched",
    "SearchesView",
    "ShareFacts",
    "Smaller",
    "Step",
    "VariantAnswer",
    "WhatIfAnswer",
    "Window",
]


class Counts(TypedDict):
    """How many jobs stand where."""

    running: int
    starting: int
    planned: int
    without_start: int


class ClusterView(TypedDict):
    """One cluster and how its planner is doing. Times are seconds since the epoch (UTC)."""

    name: str
    policy: str
    now: int
    as_of: int
    generation: int
    paused: str
    halted: str
    stale: str
    trouble: str
    jobs: Counts
    nodes: int
    cpus: int
    events_waiting: int
    breaches: int
    end_allowance: int


class ClustersView(TypedDict):
    """All clusters of this daemon."""

    clusters: list[ClusterView]


class Dispatch(TypedDict):
    """Whether jobs are started."""

    paused: str
    generation: int


class ShareFacts(TypedDict):
    """What a job holds, or is to hold, of one node; memory in KiB."""

    node: str
    cpus: int
    mem: int
    gpus: int


class Breach(TypedDict):
    """A promise that was not kept: the start moved from before `promised` to `planned`."""

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
    cpus: int | None
    walltime: int
    walltime_assumed: bool
    started: int | None
    planned_start: int | None
    planned_end: int | None
    planned_nodes: list[ShareFacts]
    promised_start: int | None
    node_sets: list[str]
    limited_by: list[str]
    conditional: list[str]
    deadline: int | None
    deadline_state: Literal["", "on_track", "at_risk", "missed"]
    weak: bool
    answer: Literal["start_known", "waiting", "never"]
    waiting_for: str
    why: str
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
    """The same column by column: by field, in the order of the jobs."""

    as_of: int
    generation: int
    stale: str
    next: str | None
    jobs: dict[str, list[Any]]


class Ended(TypedDict):
    """A promise that ended without being broken: the job was held, enlarged, moved or requeued."""

    time: int
    event: str
    words: str
    promised: int


class PastMoment(TypedDict):
    """Something that happened to a job."""

    time: int
    kind: Literal["event", "decision", "told", "promise", "breach"]
    words: str
    start: int | None


class Past(TypedDict):
    """What became of a job that has left the plan, as the database has it."""

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
    told_start: int | None
    promised_start: int | None
    moments: list[PastMoment]


class History(TypedDict):
    """How a job's planned start moved, and what was promised on the way."""

    as_of: int
    generation: int
    stale: str
    job: str
    changes: list[Change]
    promised_start: int | None
    breaches: list[Breach]
    promise_ended: Ended | None
    past: Past | None


class On(TypedDict):
    """What a blocker holds where the job lacks it."""

    name: str
    what: list[str]


class Blocker(TypedDict):
    """One thing that is in a job's way."""

    kind: str
    name: str
    owner: str
    state: Literal["running", "starting", "planned", "waiting", "never"] | None
    start: int | None
    until: int | None
    on: list[On]
    sooner: bool
    words: str


class Explanation(TypedDict):
    """Why a job does not start sooner. Times are seconds since the epoch (UTC)."""

    job: str
    state: Literal["running", "starting", "planned", "waiting", "never"]
    planned_start: int | None
    earliest: int | None
    earliest_why: str
    without: int | None
    blockers: list[Blocker]
    hidden: int
    why: str
    last_change: Change | None
    as_of: int
    generation: int
    stale: str


class NodeView(TypedDict):
    """A node and what is free of it now. Memory in KiB; a memory of 0 is not known."""

    name: str
    state: str
    held: str
    cpus: int
    mem: int
    gpus: int
    free_cpus: int
    free_mem: int
    free_gpus: int
    properties: list[str]
    jobs: list[str]


class NodePage(TypedDict):
    """Some nodes by name."""

    as_of: int
    generation: int
    stale: str
    next: str | None
    nodes: list[NodeView]


class Bar(TypedDict):
    """A job's place in the plan: over `[start, end)` it holds these nodes."""

    job: str
    owner: str
    queue: str
    state: Literal["running", "starting", "planned", "waiting", "never"]
    start: int
    end: int
    nodes: list[ShareFacts]


class ReservationView(TypedDict):
    """Nodes that are kept free of planned jobs over `[start, end)`; an end of null: until it is lifted."""

    name: str
    nodes: list[str]
    start: int
    end: int | None
    reason: str
    features: list[str]
    everywhere: bool
    users: list[str]
    groups: list[str]
    accounts: list[str]
    queues: list[str]


class HoldView(TypedDict):
    """A node or queue whose planning is held."""

    kind: Literal["node", "queue"]
    name: str
    reason: str
    since: int
    by: str


class HoldsView(TypedDict):
    """All nodes and queues whose planning is held."""

    as_of: int
    generation: int
    stale: str
    holds: list[HoldView]


class InTheWay(TypedDict):
    """A running job that holds nodes which are to be kept free; nothing is done to it."""

    job: str
    owner: str
    nodes: list[str]
    until: int


class Moved(TypedDict):
    """A waiting job whose planned start would be another; null: it would have, or has, none."""

    job: str
    owner: str
    before: int | None
    after: int | None
    promised: int | None
    broken: bool


class PolicyView(TypedDict):
    """The site's policy in force."""

    as_of: int
    generation: int
    stale: str
    version: int
    site: dict[str, Any]


class PreviewView(TypedDict):
    """What would follow; nothing was done."""

    as_of: int
    generation: int
    stale: str
    moved: list[Moved]
    moves: int
    broken: int
    running: list[InTheWay]
    alerts: list[str]


class CriterionChange(TypedDict):
    """A criterion before and after a search."""

    criterion: str
    unit: str
    before: float
    after: float


class SearchView(TypedDict):
    """A search for a better plan, and what became of it."""

    number: int
    started: int
    why: str
    kind: str
    seconds: float
    ended: str
    jobs: int
    tried: int
    accepted: int
    too_late: int
    moved: int
    taken: int
    gain: float
    criteria: list[CriterionChange]


class PolicyPreview(PreviewView):
    """The same of a policy, with what a search under its criteria would find then, on a copy of the plan."""

    search: SearchView | None


class SearchesView(TypedDict):
    """Searches, newest first."""

    searches: list[SearchView]
    next: str | None


class CriterionValue(TypedDict):
    """What the plan is worth by one criterion; `docs/optimisation.md` has the formulas."""

    criterion: str
    value: float
    unit: str


class EvaluationView(TypedDict):
    """What the plan is worth."""

    as_of: int
    generation: int
    stale: str
    criteria: list[CriterionValue]


class EvaluatedView(TypedDict):
    """What the plan was worth at a moment; by criterion, in the units of `EvaluationView`."""

    time: int
    generation: int
    jobs: int
    values: dict[str, float]


class Searched(TypedDict):
    """What became of a search that was asked for."""

    search: SearchView | None


class ReservationsView(TypedDict):
    """All reservations by start."""

    as_of: int
    generation: int
    stale: str
    reservations: list[ReservationView]


class ReservationDone(TypedDict):
    """What came of it."""

    as_of: int
    generation: int
    stale: str
    reservation: ReservationView | None
    breaches: int


class Bars(TypedDict):
    """What is placed in a window of time, by start."""

    as_of: int
    generation: int
    stale: str
    next: str | None
    begin: int
    end: int
    jobs: list[Bar]
    reservations: list[ReservationView]


class Step(TypedDict):
    """Over `[start, end)` so much is free on all usable nodes together."""

    start: int
    end: int
    cpus: int
    idle_nodes: int


class Gap(TypedDict):
    """Over `[start, end)` so much is free on one node. A memory of null is not known."""

    node: str
    start: int
    end: int
    cpus: int
    mem: int | None
    gpus: int


class GapsView(TypedDict):
    """What is free in a window of time on nodes that are up."""

    as_of: int
    generation: int
    stale: str
    next: str | None
    begin: int
    end: int
    totals: list[Step]
    gaps: list[Gap]


class Window(TypedDict):
    """The request may start at any second of ``[first, last]``; the nodes may differ from start to start."""

    first: int
    last: int


class Smaller(TypedDict):
    """One change that lets the job start at once: nothing nearer to what was asked for does."""

    change: Literal["walltime", "cpus", "mem", "nodes", "feature"]
    asked: str
    enough: str
    value: int | None


class VariantAnswer(TypedDict):
    """When the job would start if it were submitted so, now, and nothing else changed."""

    request: str
    answer: Literal["start_known", "waiting", "never"]
    planned_start: int | None
    planned_end: int | None
    planned_nodes: list[ShareFacts]
    waiting_for: str
    why: str
    walltime: int
    walltime_assumed: bool
    notes: list[str]


class WhatIfAnswer(TypedDict):
    """The same for the question itself, with all else that was asked."""

    request: str
    answer: Literal["start_known", "waiting", "never"]
    planned_start: int | None
    planned_end: int | None
    planned_nodes: list[ShareFacts]
    waiting_for: str
    why: str
    walltime: int
    walltime_assumed: bool
    notes: list[str]
    windows: list[Window]
    changes: list[Smaller]
    variants: list[VariantAnswer]
    as_of: int
    generation: int


class JobLine(TypedDict):
    """A job in short: enough for a row of a table or a bar of a chart."""

    id: str
    name: str
    owner: str
    queue: str
    state: Literal["running", "starting", "planned", "waiting", "never"]
    planned_start: int | None
    planned_end: int | None
    promised_start: int | None
    nodes: list[str]


class News(TypedDict):
    """What became of a plan since the event before."""

    as_of: int
    generation: int
    stale: str
    paused: str
    jobs: Counts
    changed: list[JobLine]
    gone: list[str]
