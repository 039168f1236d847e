"""Clusters and administration: reservations, holds, policies, searches, objectives.

Written by ``make docs`` from the API's description, which says what each field means.
"""

from typing import Any, Literal, TypedDict

from schedd.client.answers.jobs import JobCounts, OpenAlert
from schedd.client.answers.plan import ReservationView

__all__ = [
    "AlertsView",
    "ClusterView",
    "ClustersView",
    "ConflictingJob",
    "CriterionChange",
    "CriterionValue",
    "DispatchState",
    "EvaluationSample",
    "EvaluationView",
    "HoldView",
    "HoldsView",
    "JobCostView",
    "NodeCost",
    "ObjectiveChange",
    "ObjectiveValue",
    "ObjectivesView",
    "PolicyPreview",
    "PolicyView",
    "PreemptedRun",
    "PreviewView",
    "PreviewedMove",
    "ReservationResult",
    "ResourceFacts",
    "SearchResult",
    "SearchView",
    "SearchesView",
    "ServerFacts",
]


class ResourceFacts(TypedDict):
    """A resource as defined by the server.

    ``type`` is ``long``, ``size``, ``float``, ``boolean``, ``string`` or ``string_array``; ``flags`` are
    qmgr's letters: ``h`` for host level, ``n`` and ``f`` for consumable on nodes, ``q`` on queues and server.
    """

    type: str
    flags: str


class ServerFacts(TypedDict):
    """The server: scheduling flag, defaults, limits and version.

    ``open`` means that users may see each other's jobs. ``family`` is its dialect; older adapters do not
    report it. ``resources`` are the server's resource definitions by name; empty if not reported.
    ``attributes`` are further attributes that a scheduler follows, as printed, with those of its scheduler
    object: ``job_sort_formula``, ``job_sort_formula_threshold``.
    """

    scheduling: bool
    open: bool
    version: str
    defaults: dict[str, str]
    limits: dict[str, str]
    family: str
    resources: dict[str, ResourceFacts]
    attributes: dict[str, str]


class ClusterView(TypedDict):
    """One cluster and how its planner is doing. Times are seconds since the epoch (UTC)."""

    name: str
    policy: str
    now: int
    as_of: int
    generation: int
    mode: Literal["shadow", "adviser", "scheduler"]
    paused: str
    foreign: str
    halted: str
    stale: str
    trouble: str
    jobs: JobCounts
    nodes: int
    cpus: int
    events_waiting: int
    arriving: int
    breaches: int
    at_risk: int
    alerts: int
    heard: int | None
    adapter_version: str
    adapter_ahead: float | None
    clocks: str
    server: ServerFacts
    end_allowance: int


class ClustersView(TypedDict):
    """All clusters of this daemon."""

    clusters: list[ClusterView]


class AlertsView(TypedDict):
    """Open alerts, oldest first."""

    as_of: int
    generation: int
    stale: str
    alerts: list[OpenAlert]


class DispatchState(TypedDict):
    """Whether jobs are started."""

    paused: str
    generation: int


class ReservationResult(TypedDict):
    """What came of it."""

    as_of: int
    generation: int
    stale: str
    reservation: ReservationView | None
    at_risk: int


class PreviewedMove(TypedDict):
    """Waiting job with another planned start; null: no start."""

    job: str
    owner: str
    before: int | None
    after: int | None
    promised: int | None
    broken: bool


class ConflictingJob(TypedDict):
    """A running job that still holds nodes when they are to be reserved; nothing is done to it."""

    job: str
    owner: str
    nodes: list[str]
    until: int


class PreemptedRun(TypedDict):
    """A running job that would be preempted at ``time`` for the job ``preemptor``; ``lost`` are
    core-seconds of work.
    """

    job: str
    owner: str
    preemptor: str
    time: int
    lost: int


class PreviewView(TypedDict):
    """What would follow; nothing was done. Lists are cut after 1,000 entries."""

    as_of: int
    generation: int
    stale: str
    moved: list[PreviewedMove]
    moves: int
    broken: int
    running: list[ConflictingJob]
    preempted: list[PreemptedRun]
    alerts: list[str]


class HoldView(TypedDict):
    """A held node or queue."""

    kind: Literal["node", "queue"]
    name: str
    reason: str
    since: int
    by: str


class HoldsView(TypedDict):
    """All held nodes and queues."""

    as_of: int
    generation: int
    stale: str
    holds: list[HoldView]


class PolicyView(TypedDict):
    """The site's policy in force."""

    as_of: int
    generation: int
    stale: str
    version: int
    site: dict[str, Any]


class CriterionChange(TypedDict):
    """One criterion before and after a search; `docs/developers/optimisation.md` has the formulas."""

    criterion: str
    unit: str
    before: float
    after: float


class ObjectiveChange(TypedDict):
    """An objective before and after a change of the plan; only if both values are known."""

    objective: str
    unit: str
    before: float
    after: float


class SearchView(TypedDict):
    """One search for a better plan."""

    number: int
    started: int
    why: Literal["periodic", "room was freed", "jobs came", "jobs fit", "not at its end", "asked for"]
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
    objectives: list[ObjectiveChange]


class PolicyPreview(TypedDict):
    """The preview of a policy, with the result of a search under its criteria, on a fork of the plan."""

    as_of: int
    generation: int
    stale: str
    moved: list[PreviewedMove]
    moves: int
    broken: int
    running: list[ConflictingJob]
    preempted: list[PreemptedRun]
    alerts: list[str]
    search: SearchView | None


class CriterionValue(TypedDict):
    """Value of one criterion for the plan; `docs/developers/optimisation.md` has the formulas."""

    criterion: str
    value: float
    unit: str


class EvaluationView(TypedDict):
    """What the plan is worth."""

    as_of: int
    generation: int
    stale: str
    criteria: list[CriterionValue]
    walltime_use: float


class EvaluationSample(TypedDict):
    """What the plan was worth at a moment."""

    time: int
    generation: int
    jobs: int
    values: dict[str, float]


class ObjectiveValue(TypedDict):
    """One objective; less is better. `docs/administrators/alternatives.md` has the formulas."""

    objective: str
    value: float | None
    unit: str
    why: str
    expected: float | None


class ObjectivesView(TypedDict):
    """What the plan is worth by each objective."""

    as_of: int
    generation: int
    stale: str
    objectives: list[ObjectiveValue]
    expected_as_of: int | None


class NodeCost(TypedDict):
    """Cost and energy of a job on one node; null without configured prices or watts."""

    node: str
    cpus: int
    gpus: int
    cost: float | None
    kwh: float | None


class JobCostView(TypedDict):
    """What a job costs from its start, actual or planned, to the end of its walltime."""

    as_of: int
    generation: int
    stale: str
    job: str
    planned_start: int | None
    cost: float | None
    kwh: float | None
    loss: float | None
    limit: float | None
    over: bool
    currency: str
    nodes: list[NodeCost]


class SearchResult(TypedDict):
    """The outcome of a requested search."""

    search: SearchView | None


class SearchesView(TypedDict):
    """Searches, newest first."""

    searches: list[SearchView]
    next: str | None
