"""The component protocol: the declaration of a feature's hooks."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from schedd.engine.component.hook_values import (
    AlertKind,
    Confinement,
    Floats,
    ForecastRounds,
    FormOffer,
    NodeClaim,
    PreemptedRun,
    PricedUse,
    Restriction,
    RunTimeSource,
    StartBarrier,
    UseBegan,
)
from schedd.model import Never, Node, WaitingFor
from schedd.policy.economy import Draw
from schedd.policy.limits import Limit
from schedd.policy.protocol import Breakdown, OwnerShares
from schedd.predict import DelayRisk, EndForecast, ProbabilityBin
from schedd.wire import (
    Event,
    JobDeleted,
    JobEnded,
    JobFacts,
    NodeChanged,
    NodeFacts,
    QueueFacts,
    Reserve,
    ServerFacts,
    ShareFacts,
    Snapshot,
)

if TYPE_CHECKING:
    from schedd.engine.facts.job_requests import ParsedRequest
    from schedd.engine.facts.records import Cause, JobRecord
    from schedd.engine.facts.state import EngineState
    from schedd.engine.show.plan_snapshot import PlanSnapshot

_S = TypeVar("_S")


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
    work_fields: tuple[str, ...] = ()
    """Fields of the state that hold work. While all of them are empty, the hooks of each batch
    are not called: ``before_events``, ``time_passed``, ``before_dispatch``, ``settle``, ``batch_ended``, and
    ``next_wake``. Without such fields they are called in each batch."""
    hook_fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The same for single hooks, by name: those about one job, ``slots``, and ``now_and_then``."""
    idle_hooks: Callable[["EngineState"], Collection[str]] | None = None
    """Returns the hooks about one job with nothing to do under the policy of the site, its queues and server,
    and after the events of the component until now: they are called only for jobs that name it."""
    named_by: frozenset[str] = frozenset()
    """Names of resources, in lower case. For a job that requests one, all hooks are called."""
    handlers: Mapping[type[Any], Callable[["EngineState", Any], None]] = field(default_factory=dict)
    """Handlers by type of event. A type of event has one handler in the whole engine."""
    begin: Callable[["EngineState"], None] | None = None
    """Called when the engine begins: with nothing, or with lasting facts of an earlier one."""
    is_blank: Callable[[_S], bool] | None = None
    """Whether the state knows nothing of earlier times: then it may be replaced by a state that the
    feature's module ``earlier`` makes from the server's logs."""
    restored: Callable[["EngineState"], None] | None = None
    """Called when the state was restored from a checkpoint, perhaps under other settings."""
    before_events: Callable[["EngineState", str], None] | None = None
    """Called in each batch before its events are handled, with the batch's first event: time has passed."""
    snapshot_changes: Callable[["EngineState", Snapshot], Iterable[Event]] | None = None
    """Returns the events that lead from the component's state to a snapshot of the server. They are handled
    after the snapshot's nodes and before its jobs, which are then placed and get their promises."""
    nodes_reported: Callable[["EngineState", Sequence[NodeChanged]], None] | None = None
    """Called before the plan takes over the server's report of nodes."""
    nodes_taken: Callable[["EngineState", Sequence[NodeChanged], frozenset[str]], None] | None = None
    """Called when the plan has taken over the server's report of nodes; the names are of nodes that are new
    or have a changed offer. The others differ in their state at most."""
    nodes_withdrawn: Callable[["EngineState", Sequence[str], str, str], None] | None = None
    """Called with the nodes, event and cause when nodes can be used no longer: they are lost, closed, or kept
    free."""
    nodes_replaced: Callable[["EngineState"], None] | None = None
    """Called when the plan has other nodes than before, or nodes that offer something else."""
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
    node_closed: Callable[["EngineState", str, str], str] | None = None
    """Called with a node that is closed and the job that failed there last. Returns what opens it again, to
    follow "until"; empty: nothing."""
    is_open_for_trial: Callable[["EngineState", str], bool] | None = None
    """Whether a node that is closed because jobs fail on it may get a trial job."""
    run_judged: Callable[["EngineState", "JobRecord", Sequence[str], str, bool], None] | None = None
    """Called with a job, its nodes, an event, and whether the job failed early there or was refused."""
    refused_as_busy: Callable[["EngineState", "JobRecord", ShareFacts, str], None] | None = None
    """Called when the server refused a job's start on one node as busy, with the job before that start, its
    share of the node, and the event. The job has returned to the queue by then, and may be planned there
    again."""
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
    """Why a job's request can never run, whatever the state of the cluster; None: it can."""
    label_points: Callable[["EngineState | PlanSnapshot", JobFacts], float] | None = None
    """Points of a job for the priority term ``qos``."""
    charge_factor: Callable[["EngineState | PlanSnapshot", JobFacts], float] | None = None
    """Factor of the cost of a job; 1: the usual cost."""
    node_order: Callable[["EngineState | PlanSnapshot", JobFacts], str] | None = None
    """The name of the order of nodes that is preferred for a job (``Plan.set_node_orders``); empty: none."""
    after_placement: Callable[["EngineState", "JobRecord"], None] | None = None
    """Called when a job was placed and no reader has seen it yet: it may move to other nodes at its start."""
    planned_facts: Callable[["EngineState", JobFacts], JobFacts] | None = None
    """Returns the facts of a job with the alternative of its request that the component chose."""
    request_forms: Callable[["EngineState", "JobRecord"], FormOffer | None] | None = None
    """Called before an unplaced job is placed: the forms of its request among which the engine chooses; None:
    the component has none, or the job has to keep its present one."""
    form_must_wait: Callable[["EngineState", "JobRecord"], bool] | None = None
    """Whether ``must_wait`` would let an unplaced job wait with the request of this record, which is noted as
    chosen. Changes nothing."""
    latest_end: Callable[["EngineState | PlanSnapshot", JobFacts], int] | None = None
    """The time by which a job should end with the walltime that is chosen from its range; FOREVER: any."""
    may_lengthen: Callable[["EngineState", "JobRecord"], bool] | None = None
    """Whether a planned or running job may take the amounts that the component counts for the walltime in its
    record, which is longer than the present one."""
    before_start: Callable[["EngineState", "JobRecord"], "JobRecord | None"] | None = None
    """Called before a due job is started, while it is placed at the present time. Returns the stored record
    if the component gave the job another request or placement; None: it did not."""
    walltime_at_start: Callable[["EngineState", "JobRecord"], int | None] | None = None
    """Called with a job that is started now, after ``before_start``: the walltime that is set on the server
    right before the run; None: the job's own."""
    variants_in_what_if: Callable[["PlanSnapshot", JobFacts], Sequence[JobFacts]] | None = None
    """The forms of a hypothetical job, in the order of ``request_forms``; none: it has only one."""
    walltimes_in_what_if: Callable[["PlanSnapshot", JobFacts], tuple[int, int] | None] | None = None
    """The shortest and the longest walltime in seconds of a hypothetical job with a range; None: no range."""
    must_wait: Callable[["EngineState", "JobRecord"], WaitingFor | Never | None] | None = None
    """Called before the placement of a job: the condition that it waits for, or the reason why it can never
    run; None: it may be planned.
    """
    lost_by_alteration: Callable[["EngineState | PlanSnapshot", str], str] | None = None
    """Why an altered request of a waiting job, given by id, cannot keep its place and so ends its promise,
    even if it asks for less; empty: it can."""
    ends_promise: frozenset[str] = frozenset()
    """Kinds of waiting, from ``must_wait``, that end the promise of a job."""
    wait_causes: Mapping[str, "Cause"] = field(default_factory=dict)
    """Kinds of waiting, from ``must_wait``, that take a promised job its start, whatever event brings them to
    light, each with the cause."""
    must_wait_in_what_if: (
        Callable[["PlanSnapshot", JobFacts, "ParsedRequest", str], WaitingFor | None] | None
    ) = None
    """The same for a job that is only asked about, instead of the job with this id (empty: of none)."""
    present_wait: Callable[["PlanSnapshot", "JobRecord"], WaitingFor | None] | None = None
    """What a waiting job waits for in the words of the present, for readers; None: what ``must_wait``
    returned holds, or another component returned it."""
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
    arrival_note: Callable[["EngineState", "JobRecord"], str] | None = None
    """Called with a copy of the state after the arrival of a hypothetical job: what the component does to
    others for it, as a clause; empty: nothing."""
    rank_in_what_if: Callable[["PlanSnapshot", JobFacts, "ParsedRequest"], int | None] | None = None
    """The rank of a hypothetical job; None: the component ranks no jobs now."""
    ranked_by: Callable[["PlanSnapshot"], str] | None = None
    """The setting that makes the component rank jobs; empty: it ranks no jobs now."""
    policy_note: Callable[["PlanSnapshot"], str] | None = None
    """What replaces parts of the policy now, as a sentence; empty: nothing."""
    owner_shares: Callable[["EngineState"], OwnerShares | None] | None = None
    """The fair shares of owners as of the last ranking; None: there is no fair share."""
    present_shares: Callable[["EngineState", bool], OwnerShares | None] | None = None
    """The fair shares of owners as of now; with True for the ranking that begins now."""
    usage_history: Callable[["EngineState"], Floats | None] | None = None
    """By number of user, see ``EngineState.owners``: (seconds waited, cpu-seconds used) of earlier jobs, as
    of a fixed time; None: unknown."""
    goes_last: Callable[["EngineState", str], bool] | None = None
    """Whether a job is planned after all others, whatever its priority."""
    job_holds_resources: Callable[["EngineState", "JobRecord"], None] | None = None
    """Called when a job starts to run, and when its walltime or its nodes change while it runs."""
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
    delay_risk: Callable[["PlanSnapshot", JobFacts, bool], DelayRisk | None] | None = None
    """The risk that jobs which arrive later delay a job while it waits or, with True, while it runs; None:
    none is known. It is part of the expected start and end."""
    first_estimates: Callable[["EngineState", str], Mapping[str, int]] | None = None
    """By kind of estimate: the first expected start of the job with this id."""
    charged_jobs: Callable[["EngineState", "JobRecord"], Sequence[JobFacts] | None] | None = None
    """Called for a run that ended. Returns the jobs whose owners are charged with it in the fair share;
    empty: no owner is charged; None: its own owner, unless another component decides otherwise."""
    requeued_on_purpose: Callable[["EngineState", "JobRecord"], bool] | None = None
    """Whether a running job that is back in its queue was requeued by the component: this says nothing
    against the job or its nodes."""
    promises_nothing: Callable[["EngineState | PlanSnapshot", JobFacts], bool] | None = None
    """Whether a job gets no promise; also of a hypothetical job."""
    start_barrier: Callable[["PlanSnapshot", "JobRecord"], StartBarrier | None] | None = None
    """Why the component lets a planned job start no earlier; None: it does not keep it."""
    guaranteed_start: Callable[["EngineState", "JobRecord", int], int] | None = None
    """Called with an eligible job and its planned start: the latest start that the component guarantees, from
    then on; FOREVER: none. The component may decide on it here. The promise of the job is no later."""
    promise_ended: Callable[["EngineState", "JobRecord"], None] | None = None
    """Called when the promise of a job ended without being broken, or would have if it had one: the job was
    held, enlarged, moved, or requeued. Guarantees end with it."""
    comment_remarks: Callable[["EngineState", "JobRecord", int], Sequence[str]] | None = None
    """Called with a job and its planned start: remarks for the comment that the server shows with it."""
    job_details: Callable[["PlanSnapshot", "JobRecord", int], Mapping[str, Any]] | None = None
    """Called with a job and its planned start (-1: none). Returns by field of the job's view a value that is
    not the default one."""
    what_if_details: (
        Callable[["PlanSnapshot", JobFacts, "ParsedRequest", int, int, EndForecast | None], Mapping[str, Any]]
        | None
    ) = None
    """Called with a hypothetical job, its planned start (-1: none), its promised one (FOREVER: none) and the
    forecast of its end. Returns by field of the what-if result a value that is not the default one."""
    deadline_accuracy: Callable[["PlanSnapshot"], Mapping[str, Sequence[ProbabilityBin]]] | None = None
    """By kind of forecast: predicted probabilities of ends in time against observed ones."""
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
    """Returns a job's restriction to nodes and times; None: no restriction."""
    knows_reservation: Callable[["EngineState | PlanSnapshot", str], bool] | None = None
    """Whether the component has, or had, a reservation of this name that jobs may name."""
    owns_reservation: Callable[["EngineState | PlanSnapshot", JobFacts, str], bool] | None = None
    """Whether the owner of a job has a reservation of this name for himself: then the job means that one."""
    reason_to_replan: Callable[["EngineState", "JobRecord"], "tuple[Cause, str] | None"] | None = None
    """Called before a due job is started: why it must be planned again instead; None: it may start."""
    unmovable_jobs: Callable[["EngineState | PlanSnapshot"], Iterable[str]] | None = None
    """Planned jobs that backfilling, other forms, and classes that break promises may not move."""
    use_requested: Callable[["EngineState", "PricedUse"], str] | None = None
    """Called before a component grants a use that costs something: why it cannot be paid; empty: it can."""
    use_began: Callable[["EngineState", "UseBegan"], None] | None = None  # called when such a use begins
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
    deferred_slots: Callable[["EngineState"], Iterable[int]] | None = None
    """Slots of running jobs that hold their resources only from their start in the plan on."""
    slot_names: Callable[["EngineState"], Mapping[int, str]] | None = None  # by slot: its name for readers
    jobs_of_slots: Callable[["PlanSnapshot"], Mapping[int, str]] | None = None
    """The job that each slot held by the component serves; without that job the slot would be free."""
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
    clock_set_back: Callable[[_S, int, int], None] | None = None
    """Called with the component's state, the new time and how many seconds the clock was set back, before
    the plan is rebuilt: moments that are kept become earlier, or would be too far in the future."""
    plan_rebuilt: Callable[["EngineState"], None] | None = None
    """Called when the plan was rebuilt, with the nodes that are known by now."""
