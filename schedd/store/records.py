"""What goes into the store and comes out of it, in plain values. Times are seconds since the epoch (UTC)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from schedd.wire import Event

__all__ = [
    "RESUME_FROM_CHECKPOINT",
    "AuditRecord",
    "EventBatch",
    "ExpectedStartRecord",
    "JobHistory",
    "LeaderLease",
    "LogPosition",
    "NodeHistory",
    "PeriodUsage",
    "PlanMetricsSample",
    "Promise",
    "PromiseBreach",
    "PromisedJob",
    "PublishedStart",
    "RecoveryPoint",
    "RetentionLimits",
    "Role",
    "RunUsage",
    "SearchRecord",
    "StartAccuracy",
    "StartErrorStatistics",
    "TimelineEntry",
    "Token",
]

_DAY = 86_400

RESUME_FROM_CHECKPOINT: Final = -2
"""Calls of a batch over which an error was kept to the job or the event that it concerned: the same calls may
lead elsewhere, so the state after it was written as a checkpoint, together with what followed from it.
"""

Role = Literal["user", "reader", "operator", "adapter", "admin", "proxy", "federation"]


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The numbers of a cluster's last batch and last event; 0 before the first."""

    batch: int = 0
    event: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """What the engine is called with: ``calls`` times in a row at ``now``, the events with the first call.
    ``RESUME_FROM_CHECKPOINT`` calls: not at all, the state after it is a checkpoint.

    ``paused`` says why dispatch is paused meanwhile, empty when it is not; ``resumed``: it was told to
    dispatch again just before. ``settings`` are JSON under which it goes on from here; empty: as before.
    ``last_event`` is the number of the last event up to and with this batch; ``chain`` the digest of all up
    to it, empty until it is kept.
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
    """A job was told at ``time`` to start about ``start``, in nine of ten cases by ``latest``, while the plan
    had it at ``planned``. ``kind``: see ``ExpectedFacts``. ``actual`` None: it has not started since, as far
    as is known; ``ended``: it is gone.
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
    """A job is to start no later than ``promised``; ``weak``: behind one whose end nobody guarantees."""

    job: str
    time: int
    promised: int
    weak: bool = False


@dataclass(frozen=True, slots=True)
class PromiseBreach:
    """A promise that was not kept, and why; ``planned`` None: no start is known any more.

    ``kind`` `risk`: as planned from then on it could not be kept; `kept`: it could be again.
    """

    job: str
    time: int
    event: str
    cause: str
    promised: int
    planned: int | None
    kind: Literal["broken", "risk", "kept"] = "broken"


@dataclass(frozen=True, slots=True)
class PromisedJob:
    """The last promise made to a job, its broken ones, the oldest first, and whose job it was in which queue;
    ``submitted`` is -1, and the texts are empty, where that is not known.
    """

    promise: Promise
    breaches: tuple[PromiseBreach, ...] = ()
    owner: str = ""
    submitted: int = -1
    queue: str = ""


@dataclass(frozen=True, slots=True)
class PublishedStart:
    """That a job would start at ``start`` was told at ``time``; it did at ``actual``."""

    job: str
    time: int
    start: int
    actual: int


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """What a daemon goes on from: the engine's ``checkpoint`` (None: there is none), which comes ``after`` a
    batch and an event, and the ``batches`` that follow. The cluster's first engine was made at ``begun``.
    ``damage`` says what of the log after the checkpoint is missing, or not as it was written. ``facts`` are
    the lasting facts of the state after that batch, where they are to go on from in place of a checkpoint.
    """

    begun: int
    checkpoint: bytes | None
    after: LogPosition
    batches: tuple[EventBatch, ...]
    damage: tuple[str, ...] = ()
    facts: bytes = b""


@dataclass(frozen=True, slots=True)
class StartErrorStatistics:
    """Of told starts: ``actual - told`` in seconds; positive is later than told."""

    count: int
    mean: float
    median_absolute: float
    p90_absolute: float


@dataclass(frozen=True, slots=True)
class StartAccuracy:
    """How wrong told starts were, over all and by how long before it they were told (from, seconds)."""

    overall: StartErrorStatistics
    by_lead: Mapping[int, StartErrorStatistics]
    since: int | None = None
    """When the first of them was told, where no more than the latest were looked at; None: all were."""


@dataclass(frozen=True, slots=True)
class PlanMetricsSample:
    """What the plan of ``generation`` was worth at ``time``, over its planned ``jobs``; by criterion."""

    time: int
    generation: int
    jobs: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """What the search ``number``, begun at ``time``, says of itself: JSON of its own."""

    number: int
    time: int
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """How long what is kept, in seconds. Events and decisions that a recovery needs stay in any case."""

    events: int = 30 * _DAY
    decisions: int = 90 * _DAY
    start_estimates: int = 400 * _DAY
    promises: int = 400 * _DAY
    jobs: int = 400 * _DAY
    """After their end; what became of nodes, too."""
    plan_metrics: int = 90 * _DAY
    """Evaluations of the plan, and reports of searches."""
    audit: int = 400 * _DAY
    tokens: int = 90 * _DAY
    """Past their expiry or revocation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """What became of a job. ``started`` and ``held`` (nodes with cpus) are of the last of its ``runs``.

    ``how`` it ended: "ended" (by itself, with ``exit_status``), "deleted", or "gone" (a snapshot did not list
    it any more); empty while ``ended`` is None.
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


@dataclass(frozen=True, slots=True)
class RunUsage:
    """A job that started: what reports count of it. ``cpus`` it held, ``ended`` None: it runs; ``how``: see
    JobHistory.
    """

    queue: str
    resources: Mapping[str, str]
    submitted: int
    started: int
    cpus: int
    ended: int | None
    how: str


@dataclass(frozen=True, slots=True)
class PeriodUsage:
    """What there was within a period: jobs that started, in no order, and how many ``cpus`` came (above 0) or
    went at which moment up to its end, in order; those of nodes that were down did not count.
    """

    runs: Sequence[RunUsage]
    cpus: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Something that happened to a job; ``start`` is the start that was told, promised or planned by it,
    ``decision`` the id of a decision.
    """

    time: int
    kind: Literal["event", "decision", "told", "promise", "risk", "breach"]
    text: str
    start: int | None = None
    decision: str = ""


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """What a node was from ``time`` on; ``mem`` in KiB."""

    time: int
    state: str
    cpus: int
    mem: int
    gpus: int


@dataclass(frozen=True, slots=True)
class NodeAlert:
    """Why a node got no new jobs from ``time`` on though the server had it up, or that it was switched."""

    time: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class LeaderLease:
    """Which daemon leads since when, in which term; ``left``: seconds until its lease ends unless renewed."""

    holder: str
    term: int
    since: int
    expires_in_s: float


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer's right, on these ``clusters`` or, without any, on all; of the token itself only the SHA-256
    is kept.
    """

    id: int
    digest: bytes
    name: str
    role: Role
    created: int
    expires: int | None
    revoked: int | None
    clusters: tuple[str, ...] = ()

    def valid(self, now: int) -> bool:
        """Whether it may be used at ``now``."""
        return self.revoked is None and (self.expires is None or now < self.expires)


@dataclass(frozen=True, slots=True)
class NoticeSubscription:
    """What somebody wants to be told of a start; ``number`` is 0 until it is kept."""

    user: str
    job: str
    """Empty: all jobs of ``who``."""
    min_move_s: int | None
    """It moved by more than so many seconds."""
    lead_s: int | None
    """It comes in so many seconds."""
    channel: Literal["mail", "command"]
    address: str
    """The address, or the command's name."""
    created: int
    number: int = 0
    on_lost_deadline: bool = False
    """It can no longer end by its deadline."""


@dataclass(frozen=True, slots=True)
class LastNotice:
    """What was told last of a job; -1: nothing was, or that no start is known."""

    start: int
    soon: int = -1
    lost: int = -1
    """The deadline of which it was told that it is lost; -1 again as soon as it can be met."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """A change of an account: see ``schedd.engine.facts.books.Entry``. ``month`` (YYYY-MM) is that of
    ``time`` at the site; ``payer`` the job's owner without host.
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
    """What was charged, of a ``month``, ``account`` and ``user`` as far as it is told apart by these.
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
    """What an admin, or whoever had the right, did."""

    time: int
    who: str
    act: str
    detail: str
    cluster: str | None = None
