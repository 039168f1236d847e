"""The component protocol: what a feature adds to the engine.

A feature's folder has a module ``component``, which declares a ``Component`` with the name ``COMPONENT``.
The engine calls components at fixed points, in the order of ``schedd/feature_list.py``, and knows none by
name. An error in a component follows the same rules as one in the engine: see ``recovery.py``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from schedd.engine.facts.bookkeeping import Bookkeeping
from schedd.feature_list import feature_modules
from schedd.model import FOREVER, Features, Never, Node, WaitingFor
from schedd.plan.columns import Ints
from schedd.plan.plan import Plan, Take
from schedd.plan.schema import Arrays, arrays_below, fork_part, load_part, save_part
from schedd.policy.access import Access
from schedd.policy.economy import Draw
from schedd.policy.limits import Limit, label_scope
from schedd.policy.protocol import Breakdown, OwnerShares
from schedd.predict import Prediction
from schedd.wire import (
    JobDeleted,
    JobEnded,
    JobFacts,
    NodeChanged,
    NodeFacts,
    QueueFacts,
    Reserve,
    ServerFacts,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from schedd.engine.facts.job_requests import ParsedRequest
    from schedd.engine.facts.records import Cause, JobRecord
    from schedd.engine.facts.state import EngineState
    from schedd.engine.show.plan_snapshot import PlanSnapshot

__all__ = [
    "AlertKind",
    "Component",
    "Confinement",
    "EarlierStart",
    "ForecastRounds",
    "NodeClaim",
    "PreemptedRun",
    "PricedUse",
    "Restriction",
    "RunTimeSource",
    "UseBegan",
    "added_features",
    "awaits",
    "charge_factor",
    "charged_jobs",
    "choose_alternatives",
    "comment_remarks",
    "component_blocks",
    "component_breakdown",
    "component_calls",
    "component_claim",
    "component_confinement",
    "component_handlers",
    "component_limits",
    "component_notes",
    "component_ranks",
    "component_slots",
    "component_wait",
    "components",
    "earlier_start_in_what_if",
    "empty_parts",
    "first_estimates",
    "forecast_rounds",
    "fork_parts",
    "gets_no_promise",
    "guaranteed_start",
    "is_known_reservation",
    "is_own_reservation",
    "is_planned_on_hold",
    "is_requeued_on_purpose",
    "job_details",
    "job_labels",
    "job_refusal",
    "job_restriction",
    "job_scopes",
    "judge_run",
    "label_points",
    "last_place_checks",
    "lasting_fields",
    "lasting_value",
    "leave_components",
    "load_parts",
    "measured_draws",
    "node_details",
    "node_order",
    "note_dispatch",
    "note_end_of_promise",
    "note_record",
    "owner_shares",
    "preempted_runs",
    "present_shares",
    "promise_ends",
    "published_parts",
    "rank_in_what_if",
    "ranking_setting",
    "rearrange_nodes",
    "reason_to_replan",
    "rebuild_components",
    "rebuilt_part",
    "run_time_predictions",
    "save_parts",
    "slots_named",
    "unmovable_jobs",
    "usage_history",
    "variants_in_what_if",
    "what_if_details",
    "withdraw_nodes",
]

_S = TypeVar("_S")
Floats = npt.NDArray[np.float64]
RunTimeSource = Callable[[str], Prediction | None]
"""Returns the predicted run time of the job with this id; None: unknown."""


@dataclass(frozen=True, slots=True)
class AlertKind:
    """Kind of alert: its meaning, and a check whether the cause is still present.

    Without ``lasts`` the alert is about a single event, and closes after a while.
    """

    text: str
    lasts: Callable[["EngineState", str], bool] | None = None


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """Nodes that are taken from jobs from ``start`` to ``end`` (None: without an end), in seconds since the
    epoch, except from the jobs of an access list.
    """

    nodes: frozenset[str]
    start: int
    end: int | None = None
    access: Access = field(default_factory=Access)


@dataclass(frozen=True, slots=True)
class PricedUse:
    """Use of resources at a cost, other than by a job: it costs ``share`` times the cost of a job with these
    facts. No job has the id ``key``.
    """

    key: str
    facts: JobFacts
    understood: "ParsedRequest"
    share: float


@dataclass(frozen=True, slots=True)
class UseBegan:
    """A priced use begins; it lasts from ``start`` to ``end``."""

    key: str
    owner: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Restriction:
    """Nodes and times to which a job is restricted; it is planned ahead within these.

    ``nodes`` are alternatives of names and features: a node must meet one of each. ``pool`` is a pool of the
    plan that is full at all other times; empty: no restriction of time. ``place`` is its name in texts:
    "reservation school". ``remedy`` is what a user may do if the place is too small.
    """

    place: str
    nodes: Features
    pool: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class PreemptedRun:
    """A running job that would be preempted at ``time`` for the job ``preemptor``; ``lost`` are
    core-seconds of work.
    """

    job: str
    owner: str
    preemptor: str
    time: int
    lost: int


@dataclass(frozen=True, slots=True)
class EarlierStart:
    """A start of a hypothetical job by other means than a gap of the plan, its placement, and a remark that
    names these means.
    """

    start: int
    takes: Sequence[Take]
    note: str


class Confinement(Protocol):
    """The only place and time of a job. The job is placed when it may start, not ahead."""

    @property
    def missing_room(self) -> str:
        """What the job waits for when ``place`` found no room."""

    @property
    def keeps_place(self) -> bool:
        """Whether a job that starts late keeps its place, whatever it conflicts with."""

    @property
    def start_by(self) -> int:
        """The latest start; FOREVER: any time."""

    def place(self, state: "EngineState", record: "JobRecord") -> bool:
        """Place an unplaced job, to start now. Return False if there is no room now."""

    def start_late(self, state: "EngineState") -> None:
        """Note that a placed job was moved to a later start."""


@dataclass(frozen=True, slots=True)
class ForecastRounds:
    """When expected starts were computed, and how well earlier ones came true.

    Times are seconds since the epoch; -1: never.
    """

    as_of: int = -1
    """Time of the last round of all expected starts."""
    near: tuple[int, int] = (-1, -1)
    """Time of the last round of near starts, and the start up to which it went."""
    held: Mapping[str, tuple[int, float, float]] = field(default_factory=dict)
    """By kind of estimate: number of recent outcomes, and the shares covered by P50 and P90."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component(Generic[_S]):
    """What one feature adds to the engine. All but name and state may be left out."""

    name: str
    """Unique. It is also the name of the feature's step, which is left out for a while after it failed."""
    state: type[_S]
    """A dataclass with defaults for all fields, each declared with its rule for copying and saving: see
    ``declared`` in ``plan/schema.py``. A field with ``carried`` is kept in a rebuild of the plan, one with
    ``lasting`` is kept even if the checkpoint cannot be read. Both may be functions, which return the value
    to keep.
    """
    handlers: Mapping[type[Any], Callable[["EngineState", Any], None]] = field(default_factory=dict)
    """Handlers by type of event. A type of event has one handler in the whole engine."""
    begin: Callable[["EngineState"], None] | None = None
    """Called when the engine begins: with nothing, or with lasting facts of an earlier one."""
    is_blank: Callable[[_S], bool] | None = None
    """Whether the state knows nothing of earlier times: then it may be replaced by the one that the feature's
    module ``earlier`` makes of the server's logs."""
    restored: Callable[["EngineState"], None] | None = None
    """Called when the state was restored from a checkpoint, perhaps under other settings."""
    before_events: Callable[["EngineState", str], None] | None = None
    """Called in each batch before its events are handled, with the batch's first event: time has passed."""
    nodes_reported: Callable[["EngineState", Sequence[NodeChanged]], None] | None = None
    """Called before the plan takes over what the server reports of nodes."""
    nodes_taken: Callable[["EngineState", Sequence[NodeChanged]], None] | None = None
    """Called when the plan has taken over what the server reports of nodes."""
    nodes_withdrawn: Callable[["EngineState", Sequence[str], str, str], None] | None = None
    """Called with the nodes, event and cause when nodes can be used no longer: they are lost, closed, or kept
    free."""
    nodes_replaced: Callable[["EngineState"], None] | None = None
    """Called when the plan has other nodes than before."""
    node_features: Callable[["EngineState", NodeFacts], Iterable[str]] | None = None
    """Returns features that the component adds to a node of the plan, for its restrictions of jobs."""
    planned_node: Callable[["EngineState", str, Node], Node] | None = None
    """Returns the node for the plan, from the node without the component's effect."""
    will_return: Callable[["EngineState", str], bool] | None = None
    """Whether a node that cannot be used now is known to return: it is planned for."""
    is_expected_down: Callable[["EngineState", str], bool] | None = None
    """Whether a node is down on purpose, and comes back when a job needs it."""
    closed_because: Callable[["EngineState", str], str] | None = None
    """Why a node gets no new jobs, to follow "node n1 is"; empty where the component does not close it."""
    node_closed: Callable[["EngineState", str], str] | None = None
    """Called when a node is closed since jobs fail on it. Returns what opens it again, to follow "until";
    empty: nothing."""
    is_open_for_trial: Callable[["EngineState", str], bool] | None = None
    """Whether a node that was closed since jobs fail on it may be used all the same, to try it."""
    run_judged: Callable[["EngineState", "JobRecord", Sequence[str], str, bool], None] | None = None
    """Called with a job, its nodes, an event, and whether the job failed early there or was refused."""
    job_dispatched: Callable[["EngineState", "JobRecord", Sequence[str], str], None] | None = None
    """Called with a job, its nodes and the event when a run decision was made for the job."""
    closing: Callable[["EngineState"], Mapping[str, str]] | None = None
    """Nodes that are up and get no new jobs, each with why."""
    site_changed: Callable[["EngineState"], None] | None = None
    """Called when another policy of the site is in force."""
    limits: Callable[["EngineState"], Iterable[tuple[Limit, ...]]] | None = None
    """Limits by source: within one, a limit of a named user precedes the limit of each user. After changes
    the component calls ``gather_limits`` of the state, and then ``limits_changed``.
    """
    queue_changed: Callable[["EngineState", QueueFacts | None, QueueFacts, str], None] | None = None
    """Called with the former queue, the present queue, and the event."""
    server_changed: Callable[["EngineState", ServerFacts, str], None] | None = None
    """Called with the server's former facts, and the event."""
    labels: Callable[["EngineState | PlanSnapshot", JobFacts], Mapping[str, str]] | None = None
    """Labels of a job, by kind: ``{"qos": "high"}``. Limits may count only the jobs with a label; views show
    them."""
    refusal: Callable[["EngineState | PlanSnapshot", JobFacts], Never | None] | None = None
    """Why a job can never run as it was submitted, whatever the state of the cluster; None: it can."""
    label_points: Callable[["EngineState | PlanSnapshot", JobFacts], float] | None = None
    """Points of a job for the priority term ``qos``."""
    charge_factor: Callable[["EngineState | PlanSnapshot", JobFacts], float] | None = None
    """Factor of the cost of a job; 1: the usual cost."""
    node_order: Callable[["EngineState | PlanSnapshot", JobFacts], str] | None = None
    """The name of the order of nodes that is preferred for a job (``Plan.set_node_orders``); empty: none."""
    after_placement: Callable[["EngineState", "JobRecord"], None] | None = None
    """Called when a job was placed and no reader has seen it yet: it may move to other nodes at its start."""
    before_placement: Callable[["EngineState", "JobRecord"], None] | None = None
    """Called before an unplaced job is placed: the component chooses among alternatives of its request."""
    variants_in_what_if: Callable[["PlanSnapshot", JobFacts], Sequence[JobFacts]] | None = None
    """The alternatives of a hypothetical job, of which the one with the earliest start counts; none: the job
    has no alternatives."""
    must_wait: Callable[["EngineState", "JobRecord"], WaitingFor | Never | None] | None = None
    """Called before the placement of a job: the condition that it waits for, or the reason why it can never
    run; None: it may be planned.
    """
    ends_promise: frozenset[str] = frozenset()
    """Kinds of waiting, from ``must_wait``, that end the promise of a job."""
    must_wait_in_what_if: (
        Callable[["PlanSnapshot", JobFacts, "ParsedRequest", str], WaitingFor | None] | None
    ) = None
    """The same for a job that is only asked about, instead of the job with this id (empty: of none)."""
    must_wait_if_named: (
        Callable[["PlanSnapshot", JobFacts, "ParsedRequest"], WaitingFor | Never | None] | None
    ) = None
    """For a hypothetical job: why its named place leaves it without a planned start; None: no effect."""
    ranks: Callable[["EngineState", Sequence["JobRecord"]], Sequence[int] | None] | None = None
    """The ranks of these jobs, in place of the sum of weighted terms; None: the component ranks no jobs now.
    Called for one job, or for some hundred."""
    priority_breakdown: Callable[["EngineState", "JobRecord"], Breakdown | None] | None = None
    """How the rank of a job comes about; None: the component ranks no jobs now."""
    preempted_in_preview: Callable[["EngineState"], Sequence[PreemptedRun]] | None = None
    """Called with a copy of the state, for a preview: the running jobs that would be preempted, which the
    plan of the copy then takes into account."""
    earlier_in_what_if: (
        Callable[["PlanSnapshot", Plan, int, JobFacts, int, Ints], EarlierStart | None] | None
    ) = None
    """Called with a plan, the slot and the facts of a hypothetical job that is planned there, the time, and
    the ranks of jobs by slot: an earlier start for it; None: there is none. The plan may not be changed."""
    rank_in_what_if: Callable[["PlanSnapshot", JobFacts, "ParsedRequest"], int | None] | None = None
    """The rank of a hypothetical job; None: the component ranks no jobs now."""
    ranked_by: Callable[["PlanSnapshot"], str] | None = None
    """The setting by which the component ranks jobs; empty: it ranks no jobs now."""
    owner_shares: Callable[["EngineState"], OwnerShares | None] | None = None
    """The fair shares of owners as of the last ranking; None: there is no fair share."""
    present_shares: Callable[["EngineState", bool], OwnerShares | None] | None = None
    """The same as of now; with True they are those of the ranking that begins now."""
    usage_history: Callable[["EngineState"], Floats | None] | None = None
    """By number of user, see ``EngineState.owners``: (seconds waited, cpu-seconds used) of earlier jobs, as
    of a fixed time; None: unknown."""
    goes_last: Callable[["EngineState", str], bool] | None = None
    """Whether a job is planned after all others, whatever its priority."""
    job_holds_resources: Callable[["EngineState", "JobRecord"], None] | None = None
    """Called when a job is dispatched or runs, and when its amounts change."""
    record_changed: Callable[["EngineState", "JobRecord | None", "JobRecord"], None] | None = None
    """Called when a job is new or was changed, with its former record (None: new) and its present one."""
    run_ended: Callable[["EngineState", "JobRecord", int], None] | None = None
    """Called when a run ended, with the moment."""
    job_removed: Callable[["EngineState", "JobRecord", int, bool], None] | None = None
    """Called when a known job is gone and its resources were freed, with the moment, and whether it ended by
    itself, at its walltime, or by its owner's order."""
    run_time_predictions: Callable[["EngineState"], RunTimeSource | None] | None = None
    """Returns a function from a job's id to the prediction at its submission; None: nothing is predicted."""
    forecast_rounds: Callable[["EngineState"], ForecastRounds | None] | None = None
    """When the expected starts of the state were computed; None: the component computes none."""
    first_estimates: Callable[["EngineState", str], Mapping[str, int]] | None = None
    """By kind of estimate: the first expected start of the job with this id."""
    charged_jobs: Callable[["EngineState", "JobRecord"], Sequence[JobFacts] | None] | None = None
    """Called for a run that ended: the jobs whose owners are charged with it in the fair share; empty:
    nobody; None: its own owner, unless another component says otherwise."""
    requeued_on_purpose: Callable[["EngineState", "JobRecord"], bool] | None = None
    """Whether a running job that is back in its queue was requeued by the component: this says nothing
    against the job or its nodes."""
    promises_nothing: Callable[["EngineState", "JobRecord"], bool] | None = None
    """Whether a job gets no promise."""
    guaranteed_start: Callable[["EngineState", "JobRecord", int], int] | None = None
    """Called with an eligible job and its planned start: the latest start that the component guarantees, from
    then on; FOREVER: none. The component may decide on it here. The promise of the job is no later."""
    promise_ended: Callable[["EngineState", "JobRecord"], None] | None = None
    """Called when the promise of a job ended without being broken: the job was held, enlarged, moved, or
    requeued. Guarantees end with it."""
    comment_remarks: Callable[["EngineState", "JobRecord", int], Sequence[str]] | None = None
    """Called with a job and its planned start: remarks for the comment that the server shows with it."""
    job_details: Callable[["PlanSnapshot", "JobRecord", int], Mapping[str, Any]] | None = None
    """Called with a job and its planned start (-1: none). Returns by field of the job's view a value that is
    not the default one."""
    what_if_details: (
        Callable[["PlanSnapshot", JobFacts, "ParsedRequest", int, int], Mapping[str, Any]] | None
    ) = None
    """Called with a hypothetical job, its planned start (-1: none) and its promised one (FOREVER: none).
    Returns by field of the what-if result a value that is not the default one."""
    notes: Callable[["PlanSnapshot", "JobRecord"], Sequence[str]] | None = None
    """Remarks on a job for its readers, each a clause without a full stop."""
    job_left_plan: Callable[["EngineState", str], None] | None = None
    """Called when a job, or a use by its key, has no place in the plan any more and does not run."""
    job_gone: Callable[["EngineState", JobDeleted | JobEnded], None] | None = None
    """Called when a job is gone from the server, after its resources were freed."""
    planned_on_hold: Callable[["EngineState", "JobRecord"], bool] | None = None
    """Whether a job on hold has a place in the plan. It gets no promise, and starts after its release."""
    confinement: Callable[["EngineState", "JobRecord"], "Confinement | None"] | None = None
    """Returns the only place and time of a job; None: any. Such a job is not planned ahead."""
    restriction: Callable[["EngineState | PlanSnapshot", JobFacts], Restriction | None] | None = None
    """Returns the nodes and times to which a job is restricted; None: to none."""
    knows_reservation: Callable[["EngineState | PlanSnapshot", str], bool] | None = None
    """Whether the component has, or had, a reservation of this name that jobs may name."""
    owns_reservation: Callable[["EngineState | PlanSnapshot", JobFacts, str], bool] | None = None
    """Whether the owner of a job has a reservation of this name for himself: then the job means that one."""
    reason_to_replan: Callable[["EngineState", "JobRecord"], "tuple[Cause, str] | None"] | None = None
    """Called before a due job is started: why it must be planned again instead; None: it may start."""
    unmovable_jobs: Callable[["EngineState"], Iterable[str]] | None = None
    """Planned jobs that backfilling may not move."""
    use_requested: Callable[["EngineState", "PricedUse"], str] | None = None
    """Called before a component grants a use that costs something: why it cannot be paid; empty: it can."""
    use_began: Callable[["EngineState", "UseBegan"], None] | None = None
    """Called when such a use begins."""
    time_passed: Callable[["EngineState", str], None] | None = None
    """Called at the end of each batch, before anything else: effects of time."""
    before_dispatch: Callable[["EngineState", str], None] | None = None
    """Called at the end of each batch, before jobs that are due are started."""
    now_and_then: Callable[["EngineState"], None] | None = None
    """Called about once a minute, to drop past data."""
    settle: Callable[["EngineState", str], None] | None = None
    """Called at the end of each batch, after all jobs that are due were started."""
    batch_ended: Callable[["EngineState", str], None] | None = None
    """Called last in each batch, with the batch's first event, under each policy."""
    next_wake: Callable[["EngineState"], int] | None = None
    """When the engine is to be called again though no event arrives; FOREVER: never."""
    slots: Callable[["EngineState"], Iterable[int]] | None = None
    """Slots of the plan that the component holds: each takes nodes for a time, and is no job."""
    slot_names: Callable[["EngineState"], Mapping[int, str]] | None = None
    """By slot: its name for readers."""
    slots_named: Callable[["PlanSnapshot", str, str], Sequence[int] | None] | None = None
    """Slots of a caller's object with a name, for a question without it; None: unknown name."""
    node_blocks: Callable[["EngineState"], Iterable[Reserve]] | None = None
    """Nodes that are kept free, or for some jobs, for a time, as readers see them."""
    node_claims: Mapping[type[Any], Callable[["EngineState", Any], NodeClaim]] = field(default_factory=dict)
    """By type of event: the nodes that it takes from jobs."""
    endless: Callable[["EngineState"], Iterable[str]] | None = None
    """What keeps nodes from jobs without an end, to follow "the job waits for"."""
    alerts: Mapping[str, "AlertKind"] = field(default_factory=dict)
    """The kinds of alerts that the component raises, by name."""
    alert_subjects: Mapping[str, Callable[["EngineState", str], bool]] = field(default_factory=dict)
    """By kind of alerts of a moment: whether the subject of one is still there. When no component knows the
    subject any more, the alert is over."""
    published: Callable[["EngineState"], object] | None = None
    """A frozen value that other threads may read, found again by its type."""
    measured_draws: Callable[["EngineState"], Mapping[str, Draw]] | None = None
    """By node: measured watts, which precede configured ones."""
    node_details: Callable[["EngineState"], Mapping[str, Mapping[str, Any]]] | None = None
    """By node and field of its view: a value that is not the default one."""
    open_decisions: Mapping[type[Any], Callable[["EngineState", Any], bool]] = field(default_factory=dict)
    """By type of decision: whether its result is still pending."""
    without_plan: Callable[[_S], None] | None = None
    """Removes references to slots from the state: the plan is rebuilt without them."""
    plan_rebuilt: Callable[["EngineState"], None] | None = None
    """Called when the plan was rebuilt, with the nodes that are known by now."""


@cache
def components() -> tuple[Component[Any], ...]:
    """The components of all features."""
    return tuple(cast("Component[Any]", module.COMPONENT) for module in feature_modules("component"))


@cache
def component_calls(hook: str) -> tuple[tuple[str, Callable[..., Any]], ...]:
    """The functions of a hook, each with the name of its component: a call costs nothing for the components
    without the hook.
    """
    found = ((one.name, getattr(one, hook)) for one in components())
    return tuple((name, call) for name, call in found if call is not None)


@cache
def last_place_checks() -> tuple[Callable[["EngineState", str], bool], ...]:
    """The functions ``goes_last`` of all components: they are asked for each job that is ranked."""
    return tuple(one.goes_last for one in components() if one.goes_last is not None)


@cache
def component_handlers() -> Mapping[type[Any], Callable[["EngineState", Any], None]]:
    """By type of event: the handler of a component."""
    return {kind: handler for one in components() for kind, handler in one.handlers.items()}


def component_wait(state: "EngineState", record: "JobRecord") -> WaitingFor | Never | None:
    """What a job must wait for before it may be planned, or why it can never run; None: it may be planned."""
    for name, check in component_calls("must_wait"):
        wait: WaitingFor | Never | None = check(state, record)
        if wait is not None:
            for other, leave in component_calls("job_left_plan"):
                if other != name:  # what the others hold for the job is not needed while it waits
                    leave(state, record.id)
            return wait
    return None


@cache
def promise_ends() -> frozenset[str]:
    """The kinds of waiting for a condition of a component that end the promise of a job."""
    return frozenset().union(*(one.ends_promise for one in components()))


def rank_in_what_if(published: "PlanSnapshot", facts: JobFacts, understood: "ParsedRequest") -> int | None:
    """The rank of a hypothetical job by the first component that ranks jobs now; None: unknown."""
    for one in components():
        found = None
        if one.rank_in_what_if is not None:
            found = one.rank_in_what_if(published, facts, understood)
        if found is not None:
            return found
    return None


def preempted_runs(state: "EngineState") -> list[PreemptedRun]:
    """Return the running jobs that would be preempted; ``state`` is a copy for a preview."""
    calls = (one.preempted_in_preview for one in components())
    return [run for call in calls if call is not None for run in call(state)]


def earlier_start_in_what_if(
    published: "PlanSnapshot", plan: Plan, slot: int, facts: JobFacts, now: int, ranks: Ints
) -> EarlierStart | None:
    """Return an earlier start of a hypothetical job by the first component that has one."""
    for one in components():
        found = None
        if one.earlier_in_what_if is not None:
            found = one.earlier_in_what_if(published, plan, slot, facts, now, ranks)
        if found is not None:
            return found
    return None


def ranking_setting(published: "PlanSnapshot") -> str:
    """The setting by which a component ranks jobs; empty: jobs are ranked by weights."""
    found = (one.ranked_by(published) for one in components() if one.ranked_by is not None)
    return next(filter(None, found), "")


def component_ranks(state: "EngineState", records: Sequence["JobRecord"]) -> Sequence[int] | None:
    """The ranks of these jobs by the first component that ranks jobs now; None: none does."""
    for _, call in component_calls("ranks"):
        found: Sequence[int] | None = call(state, records)
        if found is not None:
            return found
    return None


def owner_shares(state: "EngineState") -> OwnerShares | None:
    """The fair shares of owners as of the last ranking; None: there is no fair share."""
    found = (one.owner_shares(state) for one in components() if one.owner_shares is not None)
    return next((shares for shares in found if shares is not None), None)


def present_shares(state: "EngineState", *, keep: bool = False) -> OwnerShares | None:
    """The fair shares of owners as of now; None: there is no fair share. ``keep``: they are those of the
    ranking that begins now.
    """
    found = (one.present_shares(state, keep) for one in components() if one.present_shares is not None)
    return next((shares for shares in found if shares is not None), None)


def usage_history(state: "EngineState") -> Floats | None:
    """By number of user: (seconds waited, cpu-seconds used) of earlier jobs; None: unknown."""
    found = (one.usage_history(state) for one in components() if one.usage_history is not None)
    return next((history for history in found if history is not None), None)


def component_breakdown(state: "EngineState", record: "JobRecord") -> Breakdown | None:
    """How the rank of a job comes about by the first component that ranks jobs now; None: none does."""
    for one in components():
        found = one.priority_breakdown(state, record) if one.priority_breakdown is not None else None
        if found is not None:
            return found
    return None


def component_confinement(state: "EngineState", record: "JobRecord") -> Confinement | None:
    """Return the only place and time of a job; None: any."""
    for check in _confinements():
        found = check(state, record)
        if found is not None:
            return found
    return None


@cache
def _confinements() -> tuple[Callable[["EngineState", "JobRecord"], Confinement | None], ...]:
    """The functions ``confinement`` of all components: they are called for each job that is placed."""
    return tuple(one.confinement for one in components() if one.confinement is not None)


def note_record(state: "EngineState", before: "JobRecord | None", record: "JobRecord") -> None:
    """Report a new or changed job to the components."""
    for name, call in component_calls("record_changed"):
        with Bookkeeping(state, record.id, f"its change in the component {name}"):
            call(state, before, record)


def run_time_predictions(state: "EngineState") -> RunTimeSource | None:
    """Return the source of predicted run times of the first component that has one; None: none has."""
    for _, call in component_calls("run_time_predictions"):
        found: RunTimeSource | None = call(state)
        if found is not None:
            return found
    return None


def forecast_rounds(state: "EngineState") -> ForecastRounds:
    """Return when expected starts were computed, by the first component that computes them."""
    for _, call in component_calls("forecast_rounds"):
        found: ForecastRounds | None = call(state)
        if found is not None:
            return found
    return ForecastRounds()


def first_estimates(state: "EngineState", job: str) -> dict[str, int]:
    """Return the first expected start of a job by kind of estimate."""
    found: dict[str, int] = {}
    for _, call in component_calls("first_estimates"):
        found |= call(state, job)
    return found


def judge_run(
    state: "EngineState", record: "JobRecord", nodes: Sequence[str], event: str, *, failed: bool
) -> None:
    """Report to the components whether a job failed early on nodes, or was refused there."""
    for _, call in component_calls("run_judged"):
        call(state, record, nodes, event, failed)


def note_dispatch(state: "EngineState", record: "JobRecord", nodes: Sequence[str], event: str) -> None:
    """Report to the components a run decision for a job on these nodes."""
    for _, call in component_calls("job_dispatched"):
        call(state, record, nodes, event)


@cache
def _label_sources() -> tuple[Callable[["EngineState | PlanSnapshot", JobFacts], Mapping[str, str]], ...]:
    """The functions ``labels`` of all components: they are called for each job that is read."""
    return tuple(one.labels for one in components() if one.labels is not None)


def job_labels(known: "EngineState | PlanSnapshot", facts: JobFacts) -> dict[str, str]:
    """The labels of a job, by kind."""
    return {kind: name for find in _label_sources() for kind, name in find(known, facts).items()}


def job_scopes(known: "EngineState | PlanSnapshot", facts: JobFacts) -> frozenset[str]:
    """The labels of a job as the scopes of limits that count it: see ``Limit.scope``."""
    labels = job_labels(known, facts)
    return frozenset(map(label_scope, labels, labels.values()))


def job_refusal(known: "EngineState | PlanSnapshot", facts: JobFacts) -> Never | None:
    """Why a job can never run as it was submitted; None: it can."""
    for find in _refusals():
        found = find(known, facts)
        if found is not None:
            return found
    return None


@cache
def _refusals() -> tuple[Callable[["EngineState | PlanSnapshot", JobFacts], Never | None], ...]:
    """The functions ``refusal`` of all components: they are called for each job that is placed."""
    return tuple(one.refusal for one in components() if one.refusal is not None)


def label_points(known: "EngineState | PlanSnapshot", facts: JobFacts) -> float:
    """The points of a job by its labels, for the priority term ``qos``."""
    return sum(one.label_points(known, facts) for one in components() if one.label_points is not None)


def charge_factor(known: "EngineState | PlanSnapshot", facts: JobFacts) -> float:
    """The factor of the cost of a job: the product of all components' factors."""
    factor = 1.0
    for one in components():
        if one.charge_factor is not None:
            factor *= one.charge_factor(known, facts)
    return factor


def job_restriction(known: "EngineState | PlanSnapshot", facts: JobFacts) -> Restriction | None:
    """The nodes and times to which a job is restricted; None: to none.

    If several components restrict it, all restrictions hold. At most one of them has a pool.
    """
    found: Restriction | None = None
    for restricts in _restrictions():
        other = restricts(known, facts)
        if other is not None and found is not None:
            found = Restriction(
                f"{found.place} in {other.place}",
                (*found.nodes, *other.nodes),
                found.pool or other.pool,
                " or ".join(filter(None, (found.remedy, other.remedy))),
            )
        elif other is not None:
            found = other
    return found


def added_features(state: "EngineState", facts: NodeFacts) -> frozenset[str]:
    """The features that components add to a node of the plan."""
    return frozenset(feature for adds in _feature_sources() for feature in adds(state, facts))


@cache
def _feature_sources() -> tuple[Callable[["EngineState", NodeFacts], Iterable[str]], ...]:
    """The functions ``node_features`` of all components: they are called for each node."""
    return tuple(one.node_features for one in components() if one.node_features is not None)


def choose_alternatives(state: "EngineState", record: "JobRecord") -> None:
    """Let components choose among alternatives of a job's request, before it is placed."""
    for chooses in _choices():
        chooses(state, record)


@cache
def _choices() -> tuple[Callable[["EngineState", "JobRecord"], None], ...]:
    """The functions ``before_placement`` of all components: they are called for each job that is placed."""
    return tuple(one.before_placement for one in components() if one.before_placement is not None)


def node_order(known: "EngineState | PlanSnapshot", facts: JobFacts) -> str:
    """The name of the order of nodes that is preferred for a job; empty: none."""
    return next((name for find in _node_orders() if (name := find(known, facts))), "")


@cache
def _node_orders() -> tuple[Callable[["EngineState | PlanSnapshot", JobFacts], str], ...]:
    """The functions ``node_order`` of all components: they are called for each job that is read."""
    return tuple(one.node_order for one in components() if one.node_order is not None)


def rearrange_nodes(state: "EngineState", record: "JobRecord") -> None:
    """Let components move a job that was placed just now to other nodes at its start."""
    for arranges in _arrangements():
        arranges(state, record)


@cache
def _arrangements() -> tuple[Callable[["EngineState", "JobRecord"], None], ...]:
    """The functions ``after_placement`` of all components: they are called for each job that is placed."""
    return tuple(one.after_placement for one in components() if one.after_placement is not None)


def variants_in_what_if(published: "PlanSnapshot", facts: JobFacts) -> Sequence[JobFacts]:
    """The alternatives of a hypothetical job; the job itself if it has none."""
    found: Sequence[JobFacts] = (facts,)
    for one in components():
        if one.variants_in_what_if is not None:
            found = [other for job in found for other in one.variants_in_what_if(published, job) or (job,)]
    return found


@cache
def _restrictions() -> tuple[Callable[["EngineState | PlanSnapshot", JobFacts], Restriction | None], ...]:
    """The functions ``restriction`` of all components: they are called for each job that is read."""
    return tuple(one.restriction for one in components() if one.restriction is not None)


def is_known_reservation(known: "EngineState | PlanSnapshot", name: str) -> bool:
    """Whether a component has, or had, a reservation of this name that jobs may name."""
    checks = (one.knows_reservation for one in components())
    return any(check(known, name) for check in checks if check is not None)


def is_own_reservation(known: "EngineState | PlanSnapshot", facts: JobFacts, name: str) -> bool:
    """Whether the owner of a job has a reservation of this name for himself."""
    checks = (one.owns_reservation for one in components())
    return any(check(known, facts, name) for check in checks if check is not None)


def reason_to_replan(state: "EngineState", record: "JobRecord") -> "tuple[Cause, str] | None":
    """Why a due job must be planned again instead of started; None: it may start."""
    for _, call in component_calls("reason_to_replan"):
        found: tuple[Cause, str] | None = call(state, record)
        if found is not None:
            return found
    return None


def slots_named(published: "PlanSnapshot", name: str, caller: str) -> Sequence[int] | None:
    """Return the slots of a caller's object with a name; None: unknown to all components."""
    for one in components():
        found = one.slots_named(published, name, caller) if one.slots_named is not None else None
        if found is not None:
            return found
    return None


def unmovable_jobs(state: "EngineState") -> list[str]:
    """Planned jobs that components keep where they are."""
    return [
        job for one in components() if one.unmovable_jobs is not None for job in one.unmovable_jobs(state)
    ]


@cache
def _on_hold_checks() -> tuple[Callable[["EngineState", "JobRecord"], bool], ...]:
    """The functions ``planned_on_hold`` of all components: they are called for each job that is placed."""
    return tuple(one.planned_on_hold for one in components() if one.planned_on_hold is not None)


def is_planned_on_hold(state: "EngineState", record: "JobRecord") -> bool:
    """Whether a job that is on hold has a place in the plan all the same."""
    return any(check(state, record) for check in _on_hold_checks())


def charged_jobs(state: "EngineState", record: "JobRecord") -> Sequence[JobFacts]:
    """Return the jobs whose owners are charged with a run that ended; usually the job itself."""
    for one in components():
        found = one.charged_jobs(state, record) if one.charged_jobs is not None else None
        if found is not None:
            return found
    return (record.facts,)


def is_requeued_on_purpose(state: "EngineState", record: "JobRecord") -> bool:
    """Whether a component requeued a running job that is back in its queue."""
    checks = (one.requeued_on_purpose for one in components())
    return any(check(state, record) for check in checks if check is not None)


@cache
def _promise_checks() -> tuple[Callable[["EngineState", "JobRecord"], bool], ...]:
    """The functions ``promises_nothing`` of all components: they are called for each job that is placed."""
    return tuple(one.promises_nothing for one in components() if one.promises_nothing is not None)


def gets_no_promise(state: "EngineState", record: "JobRecord") -> bool:
    """Whether a component wants no promise for a job."""
    return any(check(state, record) for check in _promise_checks())


@cache
def _guarantees() -> tuple[Callable[["EngineState", "JobRecord", int], int], ...]:
    """The functions ``guaranteed_start`` of all components: they are called for each job that is placed."""
    return tuple(one.guaranteed_start for one in components() if one.guaranteed_start is not None)


def guaranteed_start(state: "EngineState", record: "JobRecord", planned: int) -> int:
    """The latest start that components guarantee to a job that is planned for then; FOREVER: none."""
    return min((find(state, record, planned) for find in _guarantees()), default=FOREVER)


def note_end_of_promise(state: "EngineState", record: "JobRecord") -> None:
    """Report to the components that the promise of a job ended without being broken."""
    for one in components():
        if one.promise_ended is not None:
            one.promise_ended(state, record)


def comment_remarks(state: "EngineState", record: "JobRecord", start: int) -> list[str]:
    """Remarks of all components for the comment of a job with a planned start."""
    calls = (one.comment_remarks for one in components())
    return [remark for call in calls if call is not None for remark in call(state, record, start)]


@cache
def _detail_sources() -> tuple[Callable[["PlanSnapshot", "JobRecord", int], Mapping[str, Any]], ...]:
    """The functions ``job_details`` of all components: they are called for each job that is read."""
    return tuple(one.job_details for one in components() if one.job_details is not None)


def job_details(published: "PlanSnapshot", record: "JobRecord", start: int) -> dict[str, Any]:
    """By field of a job's view: the values of components."""
    found: dict[str, Any] = {}
    for find in _detail_sources():
        found |= find(published, record, start)
    return found


def what_if_details(
    published: "PlanSnapshot", facts: JobFacts, understood: "ParsedRequest", start: int, promised: int
) -> dict[str, Any]:
    """By field of a what-if result: the values of components."""
    found: dict[str, Any] = {}
    for one in components():
        if one.what_if_details is not None:
            found |= one.what_if_details(published, facts, understood, start, promised)
    return found


def component_notes(published: "PlanSnapshot", record: "JobRecord") -> list[str]:
    """Remarks of all components on a job."""
    return [note for one in components() if one.notes is not None for note in one.notes(published, record)]


def leave_components(state: "EngineState", key: str) -> None:
    """Report to the components that a job or use left the plan and does not run."""
    for _, call in component_calls("job_left_plan"):
        call(state, key)


def component_limits(state: "EngineState") -> tuple[tuple[Limit, ...], ...]:
    """The limits of all components, by their source."""
    return tuple(limits for one in components() if one.limits is not None for limits in one.limits(state))


def rebuild_components(state: "EngineState") -> None:
    """Let the components restore their slots in a rebuilt plan."""
    for one in components():
        if one.plan_rebuilt is not None:
            one.plan_rebuilt(state)


def withdraw_nodes(state: "EngineState", names: Sequence[str], event: str, words: str) -> None:
    """Report to the components that nodes are no longer usable, and why."""
    for one in components():
        if one.nodes_withdrawn is not None:
            one.nodes_withdrawn(state, names, event, words)


def component_blocks(state: "EngineState") -> list[Reserve]:
    """Nodes that components keep free, or for some jobs, for a time."""
    return [block for one in components() if one.node_blocks is not None for block in one.node_blocks(state)]


def component_claim(state: "EngineState", event: Any) -> NodeClaim | None:
    """The nodes that an event of a component takes from jobs; None: of no component."""
    for one in components():
        claim = one.node_claims.get(type(event))
        if claim is not None:
            return claim(state, event)
    return None


def component_slots(state: "EngineState") -> list[int]:
    """The slots that components hold."""
    return [slot for one in components() if one.slots is not None for slot in one.slots(state)]


def published_parts(state: "EngineState") -> dict[type[Any], object]:
    """What other threads may read of the components, by its type."""
    found = [one.published(state) for one in components() if one.published is not None]
    return {type(value): value for value in found}


def measured_draws(state: "EngineState") -> dict[str, Draw]:
    """By node: the watts that components measured."""
    found: dict[str, Draw] = {}
    for one in components():
        if one.measured_draws is not None:
            found |= one.measured_draws(state)
    return found


def node_details(state: "EngineState") -> dict[str, dict[str, Any]]:
    """By node: additional fields of its views."""
    found: dict[str, dict[str, Any]] = {}
    for one in components():
        for name, values in one.node_details(state).items() if one.node_details is not None else ():
            found[name] = {**found.get(name, {}), **values}
    return found


def awaits(state: "EngineState", decision: Any) -> bool | None:
    """Whether what the decision led to is still awaited; None for a decision of no component."""
    for one in components():
        check = one.open_decisions.get(type(decision))
        if check is not None:
            return check(state, decision)
    return None


# ---- their states -------------------------------------------------------------------------------


def empty_parts() -> dict[type[Any], Any]:
    """The states of all components in an engine that knows nothing yet, by their types."""
    return {one.state: one.state() for one in components()}


def fork_parts(parts: Mapping[type[Any], Any]) -> dict[type[Any], Any]:
    """Copies that go on independently."""
    return {kind: fork_part(part) for kind, part in parts.items()}


def save_parts(
    parts: Mapping[type[Any], Any],
) -> "Generator[bytes, None, tuple[dict[str, Any], Arrays]]":
    """Plain values by name of component, and arrays by ``component.field``; see ``save_part``."""
    plain: dict[str, Any] = {}
    arrays: Arrays = {}
    for one in components():
        plain[one.name], found = yield from save_part(parts[one.state])
        arrays |= {f"{one.name}.{name}": array for name, array in found.items()}
    return plain, arrays


def load_parts(plain: Mapping[str, Any], arrays: Arrays) -> dict[type[Any], Any]:
    """The states that ``save_parts`` saved; a component that was not there then begins empty."""
    return {
        one.state: load_part(one.state, plain.get(one.name, {}), arrays_below(one.name, arrays))
        for one in components()
    }


def lasting_value(one: Component[_S], part: _S, name: str) -> Any:
    """Return the value of a lasting field that is to be kept."""
    keep = next(each.metadata["lasting"] for each in fields(cast("Any", one.state)) if each.name == name)
    value = getattr(part, name)
    return keep(value) if callable(keep) else value


def lasting_fields(one: Component[Any]) -> list[str]:
    """Return the names of the fields that are kept even if the checkpoint cannot be read."""
    return [each.name for each in fields(one.state) if each.metadata.get("lasting")]


def rebuilt_part(one: Component[_S], before: _S) -> _S:
    """Return the component's state for a rebuilt plan: fields that are not carried over are reset."""
    part = one.state()
    for each in fields(cast("Any", one.state)):
        keep, value = each.metadata.get("carried"), getattr(before, each.name)
        if keep:
            setattr(part, each.name, keep(value) if callable(keep) else value)
    if one.without_plan is not None:
        one.without_plan(part)
    return part
