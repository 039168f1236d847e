"""All that the engine knows: the plan, a record per job, columns by slot, and facts about the cluster.

Starts, promises and generations are in columns by slot; other facts about a job are in its record.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from schedd.engine.component.parts import fork_parts
from schedd.engine.component.registry import IdleHooks
from schedd.engine.facts.alerts import OpenAlert
from schedd.engine.facts.carried_jobs import CARRIED_JOBS, CarriedJob
from schedd.engine.facts.dependents import Dependents
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
from schedd.engine.facts.job_requests import RequestReader, holds_resources, open_gates, queue_stop_reason
from schedd.engine.facts.pools import LimitBook
from schedd.engine.facts.records import ChangeSet, EndedPromise, JobRecord, RankingProgress, UnresolvedStart
from schedd.engine.facts.slot_columns import EngineColumns
from schedd.engine.facts.walltimes import WalltimeUse
from schedd.model import FOREVER, Never, Request
from schedd.plan.criteria import Criterion
from schedd.plan.job_order import ArrayEnds
from schedd.plan.plan import Plan
from schedd.plan.schema import FOUND, KEYS, MOMENT, NAMES, NUMBER, OWN, SHARED, FieldRule, declared
from schedd.policy.access import Access
from schedd.policy.affordable_places import Tariff
from schedd.policy.economy import Economy
from schedd.policy.engine_settings import EngineSettings
from schedd.policy.protocol import Applicant
from schedd.policy.queue_policies import QueuePolicy
from schedd.policy.reliability import Life
from schedd.policy.site import Placing, SitePolicy
from schedd.wire import Decision, JobFacts, JobQueued, Mode, NodeFacts, PlanningHeld, QueueFacts, ServerFacts

_MODES: Final[tuple[Mode, ...]] = ("shadow", "adviser", "scheduler")
_Part = TypeVar("_Part")


@dataclass(slots=True)
class StateContents(EngineColumns):
    """The fields of the engine's state, and functions that only read them. ``EngineState`` changes them.

    Each field says how it is copied and saved: see ``plan/schema.py``.
    """

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
    owners: dict[str, int] = declared(NAMES, make=dict)  # a number for every user who had a job
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
    refused_code: int = declared(NUMBER, default=0)  # their common error code; -1: an outage, -2: nodes
    refused_jobs: dict[str, None] = declared(KEYS, make=dict)  # the jobs of these refusals
    starts_refused: str = declared(NUMBER, default="")
    """Why no start succeeds, as soon as single jobs cannot be the cause; empty otherwise."""
    unresolved: dict[str, UnresolvedStart] = declared(UNRESOLVED, make=dict)
    """By job: given-up run decisions that may still be carried out, or were, in an event that has not arrived
    yet."""
    awaited_ends: dict[str, dict[str, None]] = declared(BLOCKED, make=dict)
    """For each job refused on fragmented nodes: the jobs there. It is tried again when one of them ends."""
    risks: dict[str, None] = declared(KEYS, make=dict)  # jobs with a promise at risk
    ends: list[tuple[int, int, str]] = declared(ENDS, make=list)
    """Heap of (when a job's resources count as free, slot, job); entries may be out of date."""

    # ---- the cluster ----------------------------------------------------------------------------
    node_facts: dict[str, NodeFacts] = declared(facts_by_name(NodeFacts), make=dict)
    counted: dict[str, None] = declared(KEYS, make=dict)
    """Node resources that the plan counts, apart from cpus, memory and gpus; the first ones reported."""
    uncounted: dict[str, None] = declared(KEYS, make=dict)
    """Node resources without a column in the plan: a job that requests one is not planned."""
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
    paused_since: int = declared(NUMBER, default=-1)
    unscheduled_since: int = declared(NUMBER, default=-1)
    """Since when the server's scheduling is off; -1: it is on."""
    foreign: str = declared(NUMBER, default="")
    """Evidence of another scheduler that starts jobs; empty if there is none."""
    adapter_mode: Mode | None = declared(NUMBER, default=None)
    """The adapter's mode as last reported; None before the first report."""
    adapter_returned: int = declared(NUMBER, default=-1)
    """Time of the first contact with the adapter after run decisions had expired during an outage."""
    unread_until: int = declared(NUMBER, default=-1)
    """Until when the server's state is not known; FOREVER while the adapter or the server is silent."""
    event_lag: int = declared(FieldRule(lambda _: 0, saved=False), default=0)
    """Age in seconds of the newest event of the adapter in this call; 0 without one. Later ones may wait."""
    absent_since: int = declared(FieldRule(lambda _: -1, saved=False), default=-1)
    """Time of the last call, if the daemon has been down since; -1: it has not."""
    unexplained_starts: list[int] = declared(LIST, make=list)  # times of recent starts of unknown origin
    unsure_until: int = declared(NUMBER, default=-1)
    """Jobs started before this may be ours without a record: decisions lost, or of a skipped batch."""
    server_restarted: int = declared(NUMBER, default=-1)
    """Time of the server's last restart, or of an outage that may have been one; -1: none is known."""
    requeued_by_restart: dict[str, int] = declared(NAMES, make=dict)
    """Jobs that the restart requeued and that have no start yet: since when they waited before their run."""
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

    idle_hooks: IdleHooks | None = declared(MOMENT, default=None)
    """Hooks of components with nothing to do; None: to be found again, as after a change of the policy."""

    # ---- prices -----------------------------------------------------------------------------------
    capped: dict[str, None] = declared(KEYS, make=dict)
    """Jobs with a hard cost limit that restricts their placement."""
    cost_check_due: int = declared(NUMBER, default=0)
    """Time of the next search for earlier placements of these jobs."""
    tariff: Tariff | None = declared(MOMENT, default=None)  # cache of today's prices of nodes

    # ---- work that fails ------------------------------------------------------------------------
    at_event: str = declared(SHARED, default="")  # the id of the event that is being handled
    at_job: str = declared(SHARED, default="")
    at_step: str = declared(SHARED, default="")
    """Job and step in progress, or where a call was aborted."""
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
    """Moves of this call of the engine."""
    jobs_moved_by: dict[str, int] = declared(FieldRule(lambda _: {}, saved=False), make=dict)
    """By event: number of jobs that the result of a search or a chosen plan moved in this call."""
    ended_promises: list[tuple[str, EndedPromise]] = declared(FieldRule(lambda _: [], saved=False), make=list)
    """Promises that ended in this call without being broken, with their jobs."""
    changes: deque[ChangeSet] = declared(OWN, make=deque)
    changes_kept: int = declared(SHARED, default=0)
    change_number: int = declared(NUMBER, default=0)
    backfilled: int = declared(NUMBER, default=-1)  # number of the last change set with backfilling; -1: none
    last_backfill: int = declared(NUMBER, default=-1)  # time of that backfilling
    backfill_due: int = declared(NUMBER, default=FOREVER)
    """Time of the next backfilling, if it had to wait (there is at most one per second); else FOREVER."""
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
    """Number of run decisions in the second ``start_second``: in all, and by node."""
    freed_by: tuple[str, str] = declared(FieldRule(load=tuple), default=("", ""))
    """The event that first freed something since the last repair ended, and its words."""
    frees: int = declared(SHARED, default=0)
    """Number of jobs removed before their planned end, and of returned nodes, since the engine began."""
    nevers: dict[Request, Never | None] = declared(FieldRule(lambda _: {}, saved=False), make=dict)
    """Cache by request: the reason why the present nodes can never meet it, or None."""
    array_members: dict[str, dict[str, None]] = declared(
        FieldRule(lambda value: {array: dict(jobs) for array, jobs in value.items()}, saved=False), make=dict
    )
    """The known jobs of each array, by its name."""
    dependents: Dependents = declared(FieldRule(lambda _: Dependents(), saved=False), make=Dependents)
    """Index of the dependent jobs, with those to be examined; a copy examines all of them once."""
    bare: Plan | None = declared(MOMENT, default=None)
    """An empty plan of all nodes as if they were up: what does not fit there never can. Made when needed."""

    def part(self, kind: type[_Part]) -> _Part:
        """Return the component's part of the state, by its type."""
        found: _Part = self.parts[kind]
        return found

    def has_present_request(self, record: JobRecord) -> bool:
        """Whether the slot of a job has the request that ``planned_request`` returns now: so it is unless the
        job is to be re-evaluated.
        """
        return record.slot >= 0 and record.id not in self.to_reevaluate and not self.site_changed

    def open_gates(self, facts: JobFacts) -> frozenset[str]:
        return open_gates(self.gates, facts) if self.gates else frozenset()

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
        if self.site.placement is Placing.FIRST_GAP:
            return False
        return self.settings.criteria.get(Criterion.WEIGHTED_UTILISATION, 0) > 0

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

    @property
    def lateness(self) -> int:
        """How late, in seconds, a due job may be before its place is moved on."""
        return max(60, self.settings.end_allowance)

    def queue_stop_reason(self, queue: str) -> str:
        """Why the queue starts nothing; empty where it does."""
        return queue_stop_reason(self.queues.get(queue), self.holds.get(("queue", queue)))
