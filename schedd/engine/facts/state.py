"""State of the engine: the plan, a record per job, columns by slot, and facts about the cluster.

All changes happen in ``Engine.handle``; no code here reads a clock. Starts, promises and generations are in
columns by slot; other facts about a job are in its record.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from schedd.dialect.cost_limit import read_cost_limit
from schedd.dialect.deadline import read_deadline
from schedd.engine.component.cluster_hooks import component_limits, measured_draws
from schedd.engine.component.hook_values import Restriction
from schedd.engine.component.job_hooks import job_scopes, note_record
from schedd.engine.component.parts import empty_parts, fork_parts
from schedd.engine.component.placement_hooks import job_restriction, node_order, planned_facts
from schedd.engine.component.ranking_hooks import usage_history
from schedd.engine.component.registry import components
from schedd.engine.facts.alerts import OpenAlert, raise_alert
from schedd.engine.facts.arrays import hash_array
from schedd.engine.facts.carried_jobs import CARRIED_JOBS, CarriedJob
from schedd.engine.facts.dependents import Dependents
from schedd.engine.facts.displayed_start import mark_requeued
from schedd.engine.facts.encoding import (
    ALERTS,
    ARRIVING,
    BLOCKED,
    DOUBTED,
    ENDS,
    FAILURES,
    GATES,
    HOLDS,
    LIST,
    LIVES,
    REREADING,
    SERVER,
    UNRESOLVED,
    facts_by_name,
)
from schedd.engine.facts.job_numbers import JobNumbers
from schedd.engine.facts.job_requests import (
    ParsedRequest,
    RequestReader,
    as_planned_request,
    holds_resources,
    open_gates,
    queue_stop_reason,
)
from schedd.engine.facts.pools import NO_SCOPES, LimitBook, power_cap_limits
from schedd.engine.facts.records import (
    ChangeSet,
    EndedPromise,
    JobRecord,
    Phase,
    RankingProgress,
    UnresolvedStart,
)
from schedd.engine.facts.shares import planned_shares
from schedd.engine.facts.slot_columns import SlotColumns
from schedd.engine.facts.walltimes import WalltimeUse
from schedd.model import FOREVER, Never, Node, Request
from schedd.plan.columns import VACANT
from schedd.plan.criteria import Criterion
from schedd.plan.evaluate import ScoringColumns
from schedd.plan.job_order import ArrayEnds
from schedd.plan.plan import Plan
from schedd.plan.schema import (
    FOUND,
    KEYS,
    MOMENT,
    NAMES,
    NUMBER,
    OWN,
    SHARED,
    FieldRule,
    declared,
    fork_part,
)
from schedd.policy.access import Access
from schedd.policy.affordable_places import Tariff
from schedd.policy.economy import Economy
from schedd.policy.engine_settings import EngineSettings
from schedd.policy.protocol import Applicant
from schedd.policy.queue_policies import QUEUE_POLICIES, QueuePolicy
from schedd.policy.reliability import Life
from schedd.policy.site import Placing, SitePolicy
from schedd.wire import (
    Alert,
    Decision,
    JobFacts,
    JobQueued,
    Mode,
    NodeFacts,
    PlanningHeld,
    QueueFacts,
    ServerFacts,
)

_MODES: Final[tuple[Mode, ...]] = ("shadow", "adviser", "scheduler")
HORIZON = 1 << 35
"""Seconds ahead beyond which nothing is planned: a start after an open-ended reservation is no start."""
NEVER: Final = FOREVER + 1  # later than the unknown start of a job that waits for nodes


_NEVERS = 20_000
_Part = TypeVar("_Part")


@dataclass(slots=True)
class EngineState(SlotColumns):
    """All that the engine knows. Each field says how it is copied and saved: see ``plan/schema.py``."""

    settings: EngineSettings = declared(SHARED)
    """``settings.site`` is the whole policy of the site, with all its periods; ``site`` the one in force."""
    plan: Plan = declared(FieldRule(lambda plan: plan.fork(), saved=False))
    now: int = declared(NUMBER)
    requests: RequestReader = declared(OWN)
    policy: QueuePolicy | None = declared(SHARED)
    site: SitePolicy = declared(SHARED)
    walltime_use: WalltimeUse = declared(
        FieldRule(load=lambda saved: WalltimeUse(*saved)), default=WalltimeUse()
    )
    """Used share of requested walltimes in recent runs."""
    applicants: dict[str, tuple[tuple[object, ...], Applicant]] = declared(FOUND, make=dict)
    """Jobs as inputs of priorities, each with the facts that it was made from."""
    configured: Mapping[str, Any] = declared(NAMES, make=dict)
    """The policy of the settings, while another is in force."""
    policy_version: int = declared(NUMBER, default=0)
    """Version of the policy that was set at run time; 0: the policy of the settings is in force."""
    site_changed: bool = declared(NUMBER, default=False)
    """The site's policy has changed since jobs were planned: the change must be applied first."""

    # ---- jobs -----------------------------------------------------------------------------------
    records: dict[str, JobRecord] = declared(FOUND, make=dict)
    numbers: JobNumbers = declared(OWN, make=JobNumbers)  # of the same jobs
    by_slot: list[JobRecord | None] = declared(OWN, make=list)
    slotless: dict[str, JobRecord] = declared(FOUND, make=dict)
    """Jobs that have no slot, since their request was not understood."""
    unexplained: dict[str, None] = declared(KEYS, make=dict)
    """Jobs without a slot and without a published reason."""
    ranking: RankingProgress = declared(OWN, make=RankingProgress)
    owners: dict[str, int] = declared(NAMES, make=dict)  # a number for every owner of a job there was
    chained: dict[str, None] = declared(KEYS, make=dict)
    """Jobs that are planned behind others which they wait for, or will be when these have a start."""
    without_place: dict[str, None] = declared(KEYS, make=dict)
    """Jobs that may be planned but have no start, in the order of its loss."""
    queue: dict[int, None] = declared(KEYS, make=dict)
    """Under a queue policy: waiting slots in order of arrival."""
    assumed: set[int] = declared(FieldRule(set, sorted, set), make=set)
    """Slots of jobs with an assumed walltime."""
    dispatched: dict[str, None] = declared(KEYS, make=dict)  # jobs with an open run decision
    refused_since: int = declared(NUMBER, default=-1)
    """Since when the server has refused all starts in a row for the same reason; -1: it does not."""
    refused_code: int = declared(NUMBER, default=0)  # the common error code of these refusals; -1: an outage
    refused_jobs: dict[str, None] = declared(KEYS, make=dict)  # the jobs of these refusals
    starts_refused: str = declared(NUMBER, default="")
    """Why no start succeeds, as soon as single jobs cannot be the cause; empty otherwise."""
    unresolved: dict[str, UnresolvedStart] = declared(UNRESOLVED, make=dict)
    """By job: run decisions that are followed no longer, though they may still be carried out, or were, in an
    event that is still to come."""
    risks: dict[str, None] = declared(KEYS, make=dict)  # jobs with a promise at risk
    ends: list[tuple[int, int, str]] = declared(ENDS, make=list)
    """Heap of (when a job's resources count as free, slot, job); entries may be out of date."""

    # ---- the cluster ----------------------------------------------------------------------------
    node_facts: dict[str, NodeFacts] = declared(facts_by_name(NodeFacts), make=dict)
    counted: dict[str, None] = declared(KEYS, make=dict)
    """Node resources that the plan counts, apart from cpus, memory and gpus; the first ones reported."""
    uncounted: dict[str, None] = declared(KEYS, make=dict)
    """Resources of nodes that the plan has no room to count: no job that asks for one is planned."""
    queues: dict[str, QueueFacts] = declared(facts_by_name(QueueFacts), make=dict)
    server: ServerFacts = declared(SERVER, default=ServerFacts())
    limits: LimitBook = declared(OWN, make=LimitBook)
    gates: dict[str, Access] = declared(GATES, make=dict)
    """Access list by name of the gate. Gates are reused, never removed."""
    down_since: dict[str, int] = declared(NAMES, make=dict)
    """Nodes that are down and that planned jobs have not left yet."""
    holds: dict[tuple[str, str], PlanningHeld] = declared(HOLDS, make=dict)
    """Nodes and queues under an admin's planning hold, by kind and name."""
    blocked: dict[str, dict[str, None]] = declared(BLOCKED, make=dict)
    """Nodes that count as blocked, with the jobs that should have ended there long ago."""
    paused: str = declared(NUMBER, default="")  # why dispatch is paused; empty when it is not
    foreign: str = declared(NUMBER, default="")
    """Evidence of another scheduler that starts jobs; empty if there is none."""
    adapter_mode: Mode | None = declared(NUMBER, default=None)
    """The adapter's mode as last reported; None before the first report."""
    adapter_returned: int = declared(NUMBER, default=-1)
    """Time of the first contact with the adapter after run decisions had expired during an outage."""
    event_lag: int = declared(FieldRule(lambda _: 0, saved=False), default=0)
    """Age in seconds of the newest event of the adapter in this call; 0 without one. Later ones may wait."""
    unexplained_starts: list[int] = declared(LIST, make=list)  # times of recent starts of unknown origin
    unsure_until: int = declared(NUMBER, default=-1)
    """Jobs started before this may be ours without a record: decisions lost, or of a skipped batch."""
    first_snapshot: int = declared(NUMBER, default=-1)
    """Time of the first snapshot: jobs that ran then started before this engine."""
    adapter_run: str = declared(NUMBER, default="")
    """The run of the adapter that sent the last accepted snapshot: the epoch of its event."""
    failures: dict[str, deque[tuple[str, str, int]]] = declared(FAILURES, make=dict)
    """By node: jobs that failed soon after their start, one after another, with their owners and times."""
    excused_at: int = declared(NUMBER, default=-1)
    """Time of the last failures on several nodes at once: those until then close no node."""
    black_holes: dict[str, str] = declared(NAMES, make=dict)
    """Nodes that get no new jobs since jobs fail there, with why."""
    lives: dict[str, Life] = declared(LIVES, make=dict)
    """By node: how long it was up, and how often it failed."""
    failure_rates: tuple[int, dict[int, float]] | None = declared(MOMENT, default=None)
    """Failures per second by row, with the time of their computation; computed on demand."""
    row_watts: dict[str, dict[int, float]] | None = declared(MOMENT, default=None)
    """What nodes draw for work of a kind, by row; made when needed."""
    economy_in_force: Economy | None = declared(MOMENT, default=None)
    """Watts and prices of the site, with measured values; computed on demand."""
    halt_published_until: int = declared(NUMBER, default=-1)
    """Jobs planned to start by this time had the halt published; -1: no halt."""
    stale: str = declared(NUMBER, default="")
    """Why the plan is not believed to show the server's present state; empty when it is."""
    arriving: dict[str, JobQueued] = declared(ARRIVING, make=dict)
    """New jobs of a snapshot that are not yet added to the plan; jobs that hold resources come first."""
    to_reevaluate: dict[str, Sequence[str]] = declared(REREADING, make=dict)
    """Jobs with changed requests since defaults or nodes changed, with the event and the reason."""
    lost: str = declared(NUMBER, default="")
    """Missing part of the log; empty if nothing is missing or a snapshot has replaced it."""
    doubted_loss: tuple[int, frozenset[str]] | None = declared(DOUBTED, default=None)
    """Time since which snapshots repeat a doubted loss, and the lost jobs and nodes."""

    # ---- components -----------------------------------------------------------------------------
    parts: dict[type[Any], Any] = declared(FieldRule(fork_parts, saved=False), make=dict)
    """The states of components, by their types: see ``Component.state``."""

    # ---- prices -----------------------------------------------------------------------------------
    capped: dict[str, None] = declared(KEYS, make=dict)
    """Jobs with a hard cost limit that restricts their placement."""
    cost_check_due: int = declared(NUMBER, default=0)
    """When earlier places are looked for that they can pay for."""
    tariff: Tariff | None = declared(MOMENT, default=None)  # cache of today's prices of nodes

    # ---- work that fails ------------------------------------------------------------------------
    at_event: str = declared(SHARED, default="")  # the id of the event that is being handled
    at_job: str = declared(SHARED, default="")
    at_step: str = declared(SHARED, default="")
    """Job and step in progress, or the last ones of an aborted call."""
    diverged: dict[str, None] = declared(FieldRule(lambda _: {}, saved=False), make=dict)
    """Jobs with an error that was confined to them since the last freeze ("": no single job): the error may
    not recur in a replay.
    """
    aside: dict[str, int] = declared(NAMES, make=dict)
    """Jobs that made the planner hang, with the times of their quarantine."""
    skipped_steps: dict[str, Sequence[int]] = declared(NAMES, make=dict)
    """Failed steps: the end and the length of each one's pause."""
    carried_jobs: dict[str, CarriedJob] = declared(CARRIED_JOBS, make=dict)
    """Jobs that were known before the plan was rebuilt and that the server has not listed since."""

    # ---- what happened --------------------------------------------------------------------------
    generation: int = declared(NUMBER, default=0)
    decisions: list[Decision] = declared(FieldRule(lambda _: [], saved=False), make=list)
    decision_number: int = declared(NUMBER, default=0)
    moves: list[ChangeSet] = declared(FieldRule(lambda _: [], saved=False), make=list)
    """What this call of the engine moved."""
    jobs_moved_by: dict[str, int] = declared(FieldRule(lambda _: {}, saved=False), make=dict)
    """By event: how many jobs what a search found, or a plan that was chosen, moved in this call."""
    ended_promises: list[tuple[str, EndedPromise]] = declared(FieldRule(lambda _: [], saved=False), make=list)
    """Jobs whose promises this call ended without breaking them."""
    changes: deque[ChangeSet] = declared(OWN, make=deque)
    changes_kept: int = declared(SHARED, default=0)
    change_number: int = declared(NUMBER, default=0)
    backfilled: int = declared(NUMBER, default=-1)  # number of the last change set with backfilling; -1: none
    last_backfill: int = declared(NUMBER, default=-1)  # when that was;
    backfill_due: int = declared(NUMBER, default=FOREVER)
    """and when it is done again though nothing happens: something happened in the same second."""
    breaches: int = declared(NUMBER, default=0)
    alerts: dict[str, OpenAlert] = declared(ALERTS, make=dict)  # open alerts, by kind and subject
    next_due: int | None = declared(SHARED, default=None)
    """When the first planned job is due; None: to be found again."""
    updates_marked: bool = declared(FieldRule(lambda _: True, saved=False), default=True)
    """Whether ``update_due`` may have a mark; if not, it is not scanned."""
    next_updated: int = declared(FieldRule(lambda _: -1, saved=False), default=-1)
    """The slot that was found last as the next to get an attribute written; -1: unknown."""
    first_start_ahead: tuple[int, int] | None = declared(MOMENT, default=None)
    """The earliest published start that has not passed, with its slot; None: to be found again."""
    write_second: int = declared(NUMBER, default=0)
    writes_in_second: int = declared(NUMBER, default=0)
    start_second: int = declared(NUMBER, default=0)
    starts_in_second: int = declared(NUMBER, default=0)
    starts_by_node: dict[str, int] = declared(NAMES, make=dict)
    """Run decisions of the second ``started_at``: how many, and how many on each node."""
    freed_by: tuple[str, str] = declared(FieldRule(load=tuple), default=("", ""))
    """The event that first freed something since the last repair ended, and its words."""
    frees: int = declared(SHARED, default=0)
    """Counts jobs that gave their room back before the plan had it free, and nodes that came back, since the
    engine began."""
    nevers: dict[Request, Never | None] = declared(FieldRule(lambda _: {}, saved=False), make=dict)
    """Cache by request: the reason why the present nodes can never meet it, or None."""
    array_members: dict[str, dict[str, None]] = declared(
        FieldRule(lambda value: {array: dict(jobs) for array, jobs in value.items()}, saved=False), make=dict
    )
    """The known jobs of each array, by its name."""
    dependents: Dependents = declared(FieldRule(lambda _: Dependents(), saved=False), make=Dependents)
    """Which jobs wait for others, and which of them are to be examined; a copy examines all of them once."""
    bare: Plan | None = declared(MOMENT, default=None)
    """An empty plan of all nodes as if they were up: what does not fit there never can. Made when needed."""

    @classmethod
    def empty(cls, settings: EngineSettings, now: int) -> "EngineState":
        """Return the state for an unknown cluster."""
        policy = None if settings.policy == "conservative" else QUEUE_POLICIES[settings.policy]
        state = cls(settings, Plan([], now), now, RequestReader(settings), policy, settings.site)
        state.plan.spare_scarce(settings.site.spare_scarce)
        state.fit_columns()
        state.parts = empty_parts()
        for one in components():
            if one.begin is not None:
                one.begin(state)
        state.gather_limits()
        state.update_request_reader()
        return state

    def part(self, kind: type[_Part]) -> _Part:
        """Return the component's part of the state, by its type."""
        found: _Part = self.parts[kind]
        return found

    def fork(self) -> "EngineState":
        """A state of its own that goes on as this one would. Frozen values are shared.

        To be called between two batches; then any thread may use it.
        """
        return fork_part(self)

    # ---- records and columns --------------------------------------------------------------------

    def store_record(self, record: JobRecord) -> JobRecord:
        """Keep ``record`` as the job's present one."""
        before = self.records.get(record.facts.id)
        if before is None:
            self.numbers.add(record.facts.id)
        self.records[record.facts.id] = record
        if before is None or before.facts.array != record.facts.array:
            self.note_array(before, record)
        self.dependents.note_record(before, record)
        if record.risk is not None:
            self.risks[record.facts.id] = None
        elif self.risks:
            self.risks.pop(record.facts.id, None)
        if record.slot >= 0:
            self.by_slot[record.slot] = record
            self.changed[record.slot] = self.generation
            if before is None or before.facts is not record.facts or before.slot != record.slot:
                self.describe(record)
            else:
                self._note_wait(record)
            self.slotless.pop(record.id, None)
            self.unexplained.pop(record.id, None)
            if before is not None:
                mark_requeued(self, before, record)
        else:
            self.slotless[record.id] = record
            self.unexplained[record.id] = None
        note_record(self, before, record)
        return record

    def note_array(self, before: JobRecord | None, record: JobRecord | None) -> None:
        """Keep ``array_members`` right: a record was added, removed, or changed its array."""
        if before is not None and before.facts.array:
            members = self.array_members.get(before.facts.array, {})
            members.pop(before.id, None)
            if not members:
                self.array_members.pop(before.facts.array, None)
        if record is not None and record.facts.array:
            self.array_members.setdefault(record.facts.array, {})[record.id] = None

    def describe(self, record: JobRecord) -> None:
        """Note in the columns what an evaluation must know of a job that has a slot."""
        facts, slot = record.facts, record.slot
        self._note_wait(record)
        deadline = read_deadline(facts.resources, facts.submitted)
        self.due_by[slot] = FOREVER if deadline is None else deadline
        self.array_hash[slot] = hash_array(facts.array)
        self.owner_number[slot] = self.owners.setdefault(facts.owner, len(self.owners))

    def _note_wait(self, record: JobRecord) -> None:
        since = record.eligible_since
        self.waits_since[record.slot] = since if since >= 0 else record.facts.submitted

    @property
    def columns(self) -> ScoringColumns:
        """What an evaluation must know of the jobs; it is not to be changed."""
        history = usage_history(self)
        columns = (self.waits_since, self.due_by, self.owner_number, self.rank)
        return ScoringColumns(*columns) if history is None else ScoringColumns(*columns, history)

    def new_slot(self, request: Request, duration: int, pools: Mapping[str, int] | None = None) -> int:
        """Return a new slot of the plan, with initial values in its columns."""
        slot = self.plan.add_job(request, duration, self.now, pools)
        self.fit_columns()
        self.reset_columns(slot, self.generation, self.change_number)
        return slot

    def read_request(self, facts: JobFacts) -> ParsedRequest:
        """The parsed request of a job, with the alternative that is chosen for it."""
        chosen = planned_facts(self, facts)
        return self.requests.read(chosen, self.queues.get(facts.queue), self.server.defaults)

    def pools_for(self, facts: JobFacts, understood: ParsedRequest) -> dict[str, int]:
        """Return a job's amounts by pool: the pools of its limits, and the pool of its restriction."""
        return self._pools_for(facts, understood, job_restriction(self, facts))

    def _pools_for(
        self, facts: JobFacts, understood: ParsedRequest, restriction: Restriction | None
    ) -> dict[str, int]:
        scopes = job_scopes(self, facts) if self.limits.scopes else NO_SCOPES
        found = self.limits.needs(self.plan, facts, understood, self.now, scopes)
        return {**found, restriction.pool: 1} if restriction is not None and restriction.pool else found

    def request_and_pools(
        self, facts: JobFacts, understood: ParsedRequest, request: Request
    ) -> tuple[Request, dict[str, int]]:
        """Return ``planned_request`` and ``pools_for`` of one job."""
        restriction = job_restriction(self, facts)
        return (
            self._planned_request(facts, request, restriction),
            self._pools_for(facts, understood, restriction),
        )

    def set_site(self, site: SitePolicy) -> None:
        """Go on under another policy of the site."""
        self.settings = self.settings.with_changes(site=site)
        self.site = site
        self.plan.spare_scarce(site.spare_scarce)
        self.tariff, self.cost_check_due = None, self.now
        self.row_watts = self.economy_in_force = None
        self.capped |= {
            record.id: None
            for record in self.records.values()
            if record.slot >= 0 and read_cost_limit(record.facts.resources) is not None
        }
        self.ranking = RankingProgress(has_effect=True, next_at=self.now)

    @property
    def economy(self) -> Economy:
        """Watts and prices of the site; measured values precede configured ones."""
        if self.economy_in_force is None:
            self.economy_in_force = replace(self.site.economy, measured=measured_draws(self))
        return self.economy_in_force

    def note_power(self) -> bool:
        """Learn what power caps leave for jobs on the present nodes; return whether that changed."""
        return self.limits.set_power(*power_cap_limits(self.economy, self.node_facts.values()))

    def planned_request(self, facts: JobFacts, request: Request) -> Request:
        """The request with the gates open to the job, the site's sets of nodes, and the job's restriction."""
        return self._planned_request(facts, request, job_restriction(self, facts))

    def _planned_request(self, facts: JobFacts, request: Request, restriction: Restriction | None) -> Request:
        nodes = restriction.nodes if restriction is not None else ()
        order = node_order(self, facts)
        return as_planned_request(request, facts, self.gates, self.site.node_sets, nodes, order)

    def has_present_request(self, record: JobRecord) -> bool:
        """Whether the slot of a job has the request that ``planned_request`` returns now: so it is unless the
        job is to be re-evaluated.
        """
        return record.slot >= 0 and record.id not in self.to_reevaluate and not self.site_changed

    def open_gates(self, facts: JobFacts) -> frozenset[str]:
        return open_gates(self.gates, facts) if self.gates else frozenset()

    def gather_limits(self) -> None:
        """Collect the limits of all components."""
        self.limits.set_sources(component_limits(self))

    def update_request_reader(self) -> None:
        """Apply the site's present policy and the cluster's shared resources to the reading of requests."""
        self.requests.set_site(self.site)
        self.requests.set_shared(self.limits.shared)

    def refit(self, record: JobRecord) -> bool:
        """Update the pool amounts of a job's slot; return whether they changed."""
        if record.slot < 0:
            return False
        wanted = self.pools_for(record.facts, record.understood)
        if wanted == self.plan.pool_amounts(record.slot):
            return False
        self.plan.set_pools(record.slot, wanted, self.now)
        return True

    def fit_columns(self) -> None:
        """Make the columns as long as the plan has slots."""
        size = self.plan.jobs.size
        if len(self.by_slot) == size:
            return
        self.extend_columns(size)
        self.by_slot = [*self.by_slot, *[None] * (size - len(self.by_slot))]

    def hold_unresolved_start(self, record: JobRecord, until: int) -> None:
        """Note that an abandoned run may still be carried out: until then its nodes take no other job."""
        if record.slot >= 0 and self.plan.start(record.slot) >= 0 and until >= self.now:
            shares = planned_shares(self.plan, record.slot)
            self.unresolved[record.id] = UnresolvedStart(record.attempt.decision, until, shares)

    def drop_slot(self, slot: int) -> None:
        """Return a job's slot and free its resources."""
        self.queue.pop(slot, None)
        self.assumed.discard(slot)
        if self.plan.state(slot) != VACANT:  # an error may have ended this halfway before
            self.plan.drop_job(slot, self.now)
        self.by_slot[slot] = None
        self.reset_columns(slot, self.generation, self.change_number)

    def earliest_start(
        self, request: Request, duration: int, pools: Mapping[str, int], ready: int, bound: int
    ) -> int:
        """Return the earliest start of a request before ``bound``; FOREVER: none at present, and NEVER: the
        cluster cannot hold it.
        """
        if self.limits.too_much(pools) is not None or not self.plan.fits_on_nodes(request):
            return NEVER
        slot = self.new_slot(request, duration, pools)
        try:
            self.plan.set_ready(slot, ready)
            start = self.plan.probe(slot, self.now, bound)
        finally:
            self.drop_slot(slot)
        return start if start >= 0 else FOREVER

    def remove(self, job_id: str) -> JobRecord | None:
        """Free a job's resources and forget it; returns None if it is unknown. The bookkeeping of its end
        follows: see ``Bookkeeping``.
        """
        record = self.records.get(job_id)
        if record is not None and record.slot >= 0 and record.phase is not Phase.RUNNING:
            self._note_gone(job_id, int(self.promise[record.slot]))
        earlier = self.unresolved.pop(job_id, None)
        ran = record is not None and record.phase is Phase.RUNNING
        if record is not None and not ran and record.attempt.decided >= 0:
            # The adapter may carry the decision out all the same, or has done so in an event that is still to
            # come, if the job has only left this scheduler. It holds no nodes: after most deletions there is
            # nothing to start.
            attempt = record.attempt
            self.unresolved[job_id] = UnresolvedStart(attempt.decision, attempt.expires, ())
        elif earlier is not None and not ran:
            self.unresolved[job_id] = replace(earlier, shares=())
        if record is not None and record.slot >= 0:
            self.drop_slot(record.slot)
        self.records.pop(job_id, None)
        self.applicants.pop(job_id, None)
        self.capped.pop(job_id, None)
        if record is None:
            return None
        self.note_array(record, None)
        self.dependents.note_record(record, None)
        self.numbers.drop(job_id)
        self.without_place.pop(job_id, None)
        self.chained.pop(job_id, None)
        self.slotless.pop(job_id, None)
        self.unexplained.pop(job_id, None)
        self.dispatched.pop(job_id, None)
        self.risks.pop(job_id, None)
        return record

    def forget_carried_jobs(self) -> None:
        """Forget the jobs of an earlier plan that the server does not list; their promises end."""
        for job_id, kept in self.carried_jobs.items():
            if kept.started < 0:
                self._note_gone(job_id, kept.promised)
        self.carried_jobs.clear()

    def _note_gone(self, job_id: str, promised: int) -> None:
        """Note for the log that a promise ends with its job."""
        if promised < FOREVER:
            ended = EndedPromise(self.now, self.at_event, "it left the queues of this scheduler", promised)
            self.ended_promises.append((job_id, ended))

    # ---- decisions ------------------------------------------------------------------------------

    def next_decision(self) -> str:
        """An id for the next decision; they grow."""
        self.decision_number += 1
        return f"d{self.decision_number:012d}"

    def alert(self, event: str, kind: str, text: str, about: str = "") -> None:
        """Raise an alert, about one node, job or the like if ``about`` is given."""
        raise_alert(self, kind, about, text)
        self.decisions.append(
            Alert(id=self.next_decision(), cause=event, time=self.now, kind=kind, text=text)
        )

    def request_snapshot(self, event: str, why: str) -> None:
        """Let the adapter send the server's whole state: it does so at an alert of this kind."""
        self.alert(event, "snapshot", f"a full snapshot of the server was requested: {why}")

    # ---- work that fails ------------------------------------------------------------------------

    def starts_step(self, step: str) -> bool:
        """Whether a step is to be done, which is not while it is left out. From here on failures are its."""
        self.at_step = step
        return step not in self.skipped_steps or self.now >= self.skipped_steps[step][0]

    @property
    def mode(self) -> Mode:
        """The more careful of the configured mode and the adapter's mode."""
        ours, theirs = self.settings.mode, self.adapter_mode
        return min(ours, theirs, key=_MODES.index) if theirs and theirs != ours else ours

    @property
    def halted(self) -> str:
        """Why no jobs are started; empty when they are."""
        if self.paused:
            return f"paused: {self.paused}"
        if self.foreign:
            return f"stopped until somebody resumes, since {self.foreign}"
        if self.mode != "scheduler":
            whose = "this cluster's mode" if self.settings.mode == self.mode else "the adapter's mode"
            return f"{whose} is {self.mode}"
        if self.stale:
            return f"the server's state is not known ({self.stale})"
        if self.arriving and holds_resources(next(iter(self.arriving.values())).job):
            return "running jobs of a snapshot are still being taken in"
        return "" if self.server.scheduling else "the server's scheduling is off"

    @property
    def keeps_speed(self) -> bool:
        """Whether jobs stay on fast nodes rather than start earlier on slower ones."""
        weighted = self.settings.criteria.get(Criterion.WEIGHTED_UTILISATION, 0)
        return self.site.placement is not Placing.FIRST_GAP and weighted > 0

    @property
    def arrays(self) -> ArrayEnds | None:
        """Ends of arrays, by slot, if the site coordinates arrays."""
        return ArrayEnds(self.array_hash, self.bag_end) if self.site.coordinate_arrays else None

    @property
    def publishes_starts(self) -> bool:
        return self.settings.publish_starts

    @property
    def silent(self) -> bool:
        """Whether starts are published only to users, not to the server."""
        return self.settings.silent or self.settings.mode == "shadow"

    def next_due_start(self) -> int:
        """When the first planned job is due, its wait included; FOREVER when none is planned."""
        if self.next_due is None:
            self.next_due = self.plan.next_start()
        return self.next_due

    @property
    def lateness(self) -> int:
        """How late, in seconds, a due job may be before its place is moved on."""
        return max(60, self.settings.end_allowance)

    # ---- the cluster ----------------------------------------------------------------------------

    def lose_track(self) -> None:
        """Decisions until now may be unknown: what starts while they hold is not suspected."""
        self.unsure_until = self.now + self.settings.decision_expiry + self.settings.answer_grace

    def queue_stop_reason(self, queue: str) -> str:
        """Why the queue starts nothing; empty where it does."""
        return queue_stop_reason(self.queues.get(queue), self.holds.get(("queue", queue)))

    def set_nodes(self, nodes: Iterable[Node]) -> bool:
        """Add nodes to the plan, or change known ones; return whether requests may now be read differently.

        What depends on all nodes is done only if some are new or offer something else: at large sites nodes
        go down and return all the time.
        """
        known = self.plan.nodes
        changed = [node for node in nodes if known.get(node.name) != node]
        other = not all(map(self._differs_in_state_at_most, changed))
        if changed:
            self.plan.set_nodes(changed, self.now)
            self.nevers.clear()
            self.tariff = self.failure_rates = self.row_watts = None
        if other:
            self.bare = None
            for one in components():
                if one.nodes_replaced is not None:
                    one.nodes_replaced(self)
        if not other and self.requests.knows_uncounted(self.uncounted):
            return False
        return self.requests.set_nodes(self.plan.nodes, self.uncounted)

    def _differs_in_state_at_most(self, node: Node) -> bool:
        """Whether the plan has the node, possibly in another state."""
        known = self.plan.nodes.get(node.name)
        return known is not None and known.differs_in_state_at_most(node)

    def find_unmet_requirement(self, request: Request) -> Never | None:
        """The first requirement that no configured node can meet; None when all can be met."""
        if request not in self.nevers:
            if len(self.nevers) >= _NEVERS:
                self.nevers.clear()
            self.nevers[request] = self.plan.find_unmet_requirement(request, self.limits.types.units)
        return self.nevers[request]
