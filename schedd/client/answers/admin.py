"""What is told of a cluster as a whole, of what the plan is worth, and of acts of admins."""

from typing import Any, Literal, TypedDict

from schedd.client.answers.jobs import Counts, OpenAlert
from schedd.client.answers.plan import ReservationView

__all__ = [
    "AlertsView",
    "ClusterView",
    "ClustersView",
    "CriterionChange",
    "CriterionValue",
    "Dispatch",
    "EvaluatedView",
    "EvaluationView",
    "HoldView",
    "HoldsView",
    "InTheWay",
    "JobCostView",
    "Moved",
    "NodeCost",
    "ObjectiveChange",
    "ObjectiveValue",
    "ObjectivesView",
    "PolicyPreview",
    "PolicyView",
    "PreviewView",
    "ReservationDone",
    "SearchView",
    "Searched",
    "SearchesView",
    "ServerFacts",
]


class ServerFacts(TypedDict):
    """What the server says of itself."""

    scheduling: bool
    open: bool
    version: str
    defaults: dict[str, str]
    limits: dict[str, str]


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
    jobs: Counts
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


class AlertsView(TypedDict):
    """What is wrong and not over yet, the oldest first."""

    as_of: int
    generation: int
    stale: str
    alerts: list[OpenAlert]


class ClustersView(TypedDict):
    """All clusters of this daemon."""

    clusters: list[ClusterView]


class Dispatch(TypedDict):
    """Whether jobs are started."""

    paused: str
    generation: int


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


class ObjectiveChange(TypedDict):
    """One objective before and after the plan changed; only what is known of both."""

    objective: str
    unit: str
    before: float
    after: float


class ObjectiveValue(TypedDict):
    """One objective; less is better. `docs/choices.md` has the formulas."""

    objective: str
    value: float | None
    unit: str
    why: str


class ObjectivesView(TypedDict):
    """What the plan is worth by each objective."""

    as_of: int
    generation: int
    stale: str
    objectives: list[ObjectiveValue]


class NodeCost(TypedDict):
    """What a job costs and draws on one node; null where the site says no prices or watts."""

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
    objectives: list[ObjectiveChange]


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
    walltime_use: float


class EvaluatedView(TypedDict):
    """What the plan was worth at a moment; by criterion, in the units of `EvaluationView`."""

    time: int
    generation: int
    jobs: int
    values: dict[str, float]


class Searched(TypedDict):
    """What became of a search that was asked for."""

    search: SearchView | None


class ReservationDone(TypedDict):
    """What came of it."""

    as_of: int
    generation: int
    stale: str
    reservation: ReservationView | None
    at_risk: int
