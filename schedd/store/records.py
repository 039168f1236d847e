"""Records that the store reads and writes, as plain values. Times are seconds since the epoch (UTC)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from schedd.access_tokens import Role
from schedd.wire import Event

_DAY = 86_400

RESUME_FROM_CHECKPOINT: Final = -2
"""Value of ``calls`` for a batch whose error was confined to one job or event. Repeating the engine
calls may lead to another state, so the state was saved as a checkpoint together with the batch's results."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The numbers of a cluster's last batch and last event; 0 before the first."""

    batch: int = 0
    event: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """The input of the engine: ``calls`` engine calls at ``now``; the first one gets the events.

    With ``calls = RESUME_FROM_CHECKPOINT`` there are none: the state after the batch is a checkpoint.
    ``paused`` is the reason of a dispatch pause (empty: none); ``resumed`` is set if a pause ended just
    before. ``settings`` (JSON) apply from this batch on; empty: no change. ``last_event`` is the number of
    the last event up to this batch; ``chain`` the digest of the log up to it, empty until it is stored.
    """

    number: int
    now: int
    last_event: int
    events: tuple[Event, ...] = ()
    calls: int = 1
    paused: str = ""
    resumed: bool = False
    settings: str = ""
    chain: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ExpectedStartRecord:
    """An expected start published at ``time``: P50 ``start``, P90 ``latest``; the plan had the job at
    ``planned``.

    ``kind``: see ``ExpectedFacts``. ``actual`` is None until the job is known to have started; ``ended``
    until its end is known.
    """

    job: str
    time: int
    start: int
    latest: int
    planned: int
    kind: str
    actual: int | None
    ended: int | None


@dataclass(frozen=True, slots=True)
class Promise:
    """The job starts no later than ``promised``. ``weak``: it depends on a job with an assumed walltime."""

    job: str
    time: int
    promised: int
    weak: bool = False


@dataclass(frozen=True, slots=True)
class PromiseBreach:
    """A broken promise and its cause; ``planned`` is None if the job no longer has a planned start.

    Other kinds: `risk`, the plan can no longer keep it; `kept`, the plan can keep it again; `ended`, it no
    longer holds, though it was not broken: the job was held, enlarged, moved or requeued.
    """

    job: str
    time: int
    event: str
    cause: str
    promised: int
    planned: int | None
    kind: Literal["broken", "risk", "kept", "ended"] = "broken"


@dataclass(frozen=True, slots=True)
class PromisedJob:
    """The last promise to a job and its broken promises, oldest first, with the job's owner and queue.
    ``risk`` is what put the promise at risk, if the plan could not keep it at last.

    ``submitted`` is -1, and the texts are empty, if they are unknown.
    """

    promise: Promise
    breaches: tuple[PromiseBreach, ...] = ()
    risk: PromiseBreach | None = None
    owner: str = ""
    submitted: int = -1
    queue: str = ""


@dataclass(frozen=True, slots=True)
class StoredPublishedStart:
    """A start published at ``time`` and the actual start of the job."""

    job: str
    time: int
    start: int
    actual: int


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """The state from which a daemon restarts: ``checkpoint`` (None: no checkpoint) and the later ``batches``.

    ``after`` is the checkpoint's position in the log, ``begun`` the time when the cluster's first engine
    was created. ``damage`` describes missing or altered parts of the log after the checkpoint. ``facts`` are
    the lasting facts at that position, if they replace the checkpoint.
    """

    begun: int
    checkpoint: bytes | None
    after: LogPosition
    batches: tuple[EventBatch, ...]
    damage: tuple[str, ...] = ()
    facts: bytes = b""


@dataclass(frozen=True, slots=True)
class StartErrorStatistics:
    """Errors ``actual - published`` in seconds; positive: the job started late."""

    count: int
    mean: float
    median_absolute: float
    p90_absolute: float


@dataclass(frozen=True, slots=True)
class StartAccuracy:
    """Errors of published starts: overall, and by lead time (lower bound in seconds)."""

    overall: StartErrorStatistics
    by_lead: Mapping[int, StartErrorStatistics]
    since: int | None = None
    """Time of the oldest estimate, if the number of estimates was limited; None: all are included."""


@dataclass(frozen=True, slots=True)
class PlanMetricsSample:
    """Metrics of the plan of ``generation`` at ``time``, over its planned ``jobs``; by criterion."""

    time: int
    generation: int
    jobs: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """The report (JSON) of the search ``number``, which started at ``time``."""

    number: int
    time: int
    body: str


@dataclass(frozen=True, slots=True)
class StoredShare:
    """A place of the fair-share tree: target and received share, 0 to 1; ``user`` of a user's."""

    place: str
    user: str
    target: float
    received: float


@dataclass(frozen=True, slots=True)
class ShareSample:
    """Fair shares at ``time``."""

    time: int
    shares: tuple[StoredShare, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """Retention times in seconds. Events and decisions that recovery needs are kept in any case."""

    events: int = 30 * _DAY
    decisions: int = 90 * _DAY
    start_estimates: int = 400 * _DAY
    promises: int = 400 * _DAY
    jobs: int = 400 * _DAY  # after the end of the job; also for the history of nodes
    plan_metrics: int = 90 * _DAY  # for plan metrics, reports of searches, and the history of fair shares
    audit: int = 400 * _DAY
    tokens: int = 90 * _DAY  # after expiry or revocation


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """History of a job. ``started`` and ``held`` (nodes with cpus) belong to the last of its ``runs``.

    ``how``: "ended" (by itself, with ``exit_status``), "deleted", "moved" (to ``moved_to``), or "gone"
    (missing from a snapshot); empty while ``ended`` is None.
    """

    id: str
    owner: str
    queue: str
    name: str
    resources: Mapping[str, str]
    submitted: int
    state: str
    runs: int
    started: int | None
    held: tuple[tuple[str, int], ...]
    ended: int | None
    exit_status: int | None
    how: str
    moved_to: str = ""


@dataclass(frozen=True, slots=True)
class RunUsage:
    """A started job for reports, holding ``cpus``; ``ended`` None: runs; ``how``: see JobHistory."""

    queue: str
    resources: Mapping[str, str]
    submitted: int
    started: int
    cpus: int
    ended: int | None
    how: str


@dataclass(frozen=True, slots=True)
class PeriodUsage:
    """Use of a cluster in a period: the jobs that started, unordered, and (time, change) of the number of
    cpus on nodes that are not down, in order of time.
    """

    runs: Sequence[RunUsage]
    cpus: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """An event, decision, estimate or promise in the history of a job.

    ``start`` is the published, predicted, promised or planned start, if any; ``decision`` the id of a
    decision.
    """

    time: int
    kind: Literal["event", "decision", "published", "forecast", "promise", "risk", "breach"]
    text: str
    start: int | None = None
    decision: str = ""


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """State of a node from ``time`` on; ``mem`` in KiB."""

    time: int
    state: str
    cpus: int
    mem: int
    gpus: int


@dataclass(frozen=True, slots=True)
class NodeAlert:
    """Why a node that was up got no new jobs from ``time`` on, or that its power was switched."""

    time: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class LeaderLease:
    """Holder and term of the lease, its first acquisition in this term, and the seconds until it expires."""

    holder: str
    term: int
    since: int
    expires_in_s: float


@dataclass(frozen=True, slots=True)
class Token:
    """An API token for these ``clusters`` (empty: all); ``digest`` is its SHA-256."""

    id: int
    digest: bytes
    name: str
    role: Role
    created: int
    expires: int | None
    revoked: int | None
    clusters: tuple[str, ...] = ()

    def valid(self, now: int) -> bool:
        """Whether the token is neither revoked nor expired at ``now``."""
        return self.revoked is None and (self.expires is None or now < self.expires)


@dataclass(frozen=True, slots=True)
class NoticeSubscription:
    """A user's subscription to notices about starts; ``number`` is 0 until it is stored."""

    user: str
    job: str  # empty: all jobs of `user`
    min_move_s: int | None  # notify if the start moved by more than this
    lead_s: int | None  # notify this long before the start
    channel: Literal["mail", "command"]
    address: str  # mail address, or name of the command
    created: int
    number: int = 0
    on_lost_deadline: bool = False  # notify if the job can no longer end by its deadline
    on_tighter_walltime: bool = False  # notify once if a tighter walltime would start the job sooner


@dataclass(frozen=True, slots=True)
class LastNotice:
    """Start and reminder in the last notice about a job; -1: no notice yet, or no known start."""

    start: int
    soon: int = -1
    lost: int = -1
    """Deadline reported as lost, or minus the one reported as at risk; -1 as soon as it can be met again."""
    tighter: int = -1  # tighter walltime that was proposed
    walltime: int = -1  # of its run, in seconds; -1: it does not run


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """A change of an account: see ``schedd.features.accounts.state.LedgerLine``.

    ``month`` (YYYY-MM) contains ``time`` in the site's time zone; ``payer`` is the job's owner without the
    host.
    """

    number: int
    time: int
    month: str
    account: str
    unit: str
    kind: str
    amount: int
    balance: int
    other: str
    job: str
    owner: str
    payer: str
    start: int
    end: int
    cpu_seconds: int
    gpu_seconds: int
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChargeTotal:
    """Sum of charges of one ``month``, ``account`` and ``user``; empty: not grouped by it.

    ``amount`` is in the smallest unit of ``unit``.
    """

    unit: str
    jobs: int
    cpu_seconds: int
    gpu_seconds: int
    amount: int
    month: str = ""
    account: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """An action of an operator, admin, user or program, or a refused attempt. ``cluster`` is None if it
    concerns the whole daemon, and in a federation.
    """

    time: int
    who: str
    act: str
    detail: str
    cluster: str | None = None
