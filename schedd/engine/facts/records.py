"""Records of the engine: jobs, changes of the plan, promises and breaches."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from schedd.array_ids import submission_order
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.model import Never, WaitingFor
from schedd.policy.demand import Demand
from schedd.wire import Decision, JobFacts, ShareFacts
from schedd.wire.quick_init import quick_init


class Phase(StrEnum):
    """Phase of a job in the engine."""

    BLOCKED = "blocked"  # may not be planned: held, its queue stopped, set aside, no node can take it
    WAITING = "waiting"  # may be planned; is planned unless no node that is up can take it
    DISPATCHED = "dispatched"  # a run decision is out; the job holds its place until the outcome is known
    RUNNING = "running"


class Cause(StrEnum):
    """Reason for a move of planned starts. Only those in ``MAY_BREAK`` may move a job beyond its promise."""

    ARRIVED = "arrived"
    ALTERED = "altered"
    RELEASED = "released"
    FREED = "freed"
    PRIORITY = "a job of higher priority"
    DEADLINE = "a job with an earlier deadline"
    EXTENDED = "a running job was extended"
    CHAIN = "a job that it waits for"
    IMPROVED = "the plan was improved"
    CHOSEN = "an admin chose another plan"
    FAULT = "its planning failed"
    NODE_LOST = "node lost"
    OVERRUN = "overrun ahead"
    REFUSED = "run refused"
    OUTAGE = "server, adapter or daemon outage"
    QUEUE = "queue stopped or limit lowered"
    RESERVATION = "reservation made by an admin"
    LICENCE = "licence lost"
    CLASS = "a class allowed to break promises"
    ADMIN = "an admin's order"


MAY_BREAK = frozenset(
    {
        Cause.NODE_LOST,
        Cause.OVERRUN,
        Cause.REFUSED,
        Cause.OUTAGE,
        Cause.QUEUE,
        Cause.RESERVATION,
        Cause.LICENCE,
        Cause.CLASS,
        Cause.ADMIN,
    }
)


@dataclass(frozen=True, slots=True)
class Risk:
    """A promise that cannot be kept as planned now: since when, and the event that delays the job most beyond
    it, by ``delay`` seconds; 0: unknown.
    """

    time: int
    event: str
    cause: Cause
    delay: int = 0


@dataclass(frozen=True, slots=True)
class Breach:
    """Broken promise: the job had not started at ``time``, or started later than promised.

    ``event`` and ``cause`` delayed the job most beyond its promise; ``planned`` is the start planned at that
    time, or the late start itself; -1: unknown.
    """

    time: int
    event: str
    cause: Cause
    promised: int
    planned: int


@dataclass(frozen=True, slots=True)
class EndedPromise:
    """A promise that ended without being broken: the job was held, enlarged, moved, requeued or deleted."""

    time: int
    event: str
    words: str
    promised: int


@quick_init
@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Planned starts that one event moved; -1 stands for no start. Arrays of equal length.

    ``number`` counts the change sets: each follows its predecessor in the engine's log of changes.
    """

    number: int
    generation: int
    time: int
    event: str
    cause: Cause
    words: str
    slots: npt.NDArray[np.int64]
    old: npt.NDArray[np.int64]
    new: npt.NDArray[np.int64]


@quick_init
@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a call of the engine: its ``decisions`` and the ``moves`` of planned starts, in order.
    ``taken``: number of moved jobs, by the id of the event with a search result or an applied plan.
    """

    decisions: tuple[Decision, ...] = ()
    moves: tuple[ChangeSet, ...] = ()
    taken: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DependencyLink:
    """A part of a dependency: ``afterok`` of a job, or of an array."""

    kind: str
    job: str


@dataclass(frozen=True, slots=True)
class PlacementChoice:
    """A job was planned to ``start`` on nodes of at least this ``speed``, though it could have had another
    place at ``instead``, which is sooner.
    """

    start: int
    instead: int
    speed: float


@dataclass(slots=True)
class RankingProgress:
    """Progress of the periodic computation of all ranks.

    ``demand`` is the demand at the start of the last round, ``next_at`` the start of the next one.
    ``slots_to_rank`` need new ranks, ``slots_to_try`` are then advanced past others; both are processed from
    the end. ``has_effect``: ranks may differ. ``rerank_all``: a full round is due even in the light mode.
    """

    demand: Demand = field(default_factory=Demand)
    next_at: int = 0
    has_effect: bool = False
    slots_to_rank: list[int] = field(default_factory=list)
    slots_to_try: list[int] = field(default_factory=list)
    rerank_all: bool = True

    @property
    def in_progress(self) -> bool:
        """Whether it has begun and not come to its end."""
        return bool(self.slots_to_rank or self.slots_to_try)

    def copy(self) -> "RankingProgress":
        return replace(self, slots_to_rank=list(self.slots_to_rank), slots_to_try=list(self.slots_to_try))


@dataclass(frozen=True, slots=True)
class UnresolvedStart:
    """A run decision that the engine follows no longer, though it may be carried out until ``until``.

    Its ``shares`` are not free until then, unless the job is seen elsewhere; none for a job that left.
    """

    decision: str
    until: int
    shares: tuple[ShareFacts, ...]


@quick_init
@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Run decision that is open or started the job; ``accepted``: the server accepted it.

    It was made at ``decided`` and may be carried out until ``expires``; both stay after a failed start,
    because it may have been carried out after all.
    """

    decision: str = ""
    decided: int = -1
    expires: int = 0
    accepted: bool = False


@quick_init
@dataclass(frozen=True, slots=True)
class BackOff:
    """Failed starts: no run decision before ``until``.

    ``refusals`` counts consecutive refusals, and due starts that the array's slot limit did not allow;
    ``busy`` counts consecutive refusals of the kind "busy for now"; ``refusal`` is the text of the last.
    ``returns`` counts consecutive starts with a quick return to the queue. ``failed_on`` are nodes with
    failed starts, the latest last.
    """

    until: int = 0
    refusals: int = 0
    busy: int = 0
    refusal: str = ""
    returns: int = 0
    failed_on: tuple[str, ...] = ()


@quick_init
@dataclass(frozen=True, slots=True)
class CurrentRun:
    """The run of a job that runs: when it ``started`` (-1: it does not), and how often it was given longer
    than its walltime and allowance.

    ``suspended_since`` is the beginning of the present suspension (-1: it is not suspended), ``suspended_s``
    the length of past ones: the server does not count them as walltime. ``ordered_walltime`` (s) was ordered
    from the server, which does not show it yet; 0: none.
    """

    started: int = -1
    overruns: int = 0
    suspended_since: int = -1
    suspended_s: int = 0
    ordered_walltime: int = 0

    def seconds_suspended(self, now: int) -> int:
        """Return how long the run was suspended until now."""
        return self.suspended_s + (max(0, now - self.suspended_since) if self.suspended_since >= 0 else 0)

    def computed_interval(self, end: int) -> tuple[int, int]:
        """Return ``(begin, until)`` with the time that the run was not suspended before
        ``end``. It is the last part of the run: past suspensions are taken from its beginning.
        """
        until = max(self.started, min(end, self.suspended_since) if self.suspended_since >= 0 else end)
        return min(self.started + self.suspended_s, until), until

    def computed_s(self, end: int) -> int:
        """Return how long the run was not suspended before ``end``, in seconds."""
        begin, until = self.computed_interval(end)
        return until - begin

    def with_letter(self, letter: str, now: int) -> "CurrentRun":
        """Return the run after the server shows this state of the job."""
        if (letter == "S") == (self.suspended_since >= 0):
            return self
        since = now if letter == "S" else -1
        return replace(self, suspended_since=since, suspended_s=self.seconds_suspended(now))


@quick_init
@dataclass(frozen=True, slots=True)
class JobRecord:
    """Record of a job. Its planned start, promise and generation are in columns, by slot.

    All changes are steps of ``phases.py``. ``answer`` is set if no start is known. ``lost`` is the cause by
    which a promised job lost its start; it is blamed if the promise is broken. ``risk`` is set while its
    promise is at risk. ``breaches`` are the first and the latest.
    """

    facts: JobFacts
    understood: ParsedRequest
    slot: int
    phase: Phase
    answer: WaitingFor | Never | None = None
    eligible_since: int = -1
    attempt: StartAttempt = StartAttempt()
    back_off: BackOff = BackOff()
    run: CurrentRun = CurrentRun()
    weak: bool = False
    lost: Cause | None = None
    risk: Risk | None = None
    quarantine: str = ""
    breaches: tuple[Breach, ...] = ()
    ended: EndedPromise | None = None
    behind: tuple[DependencyLink, ...] = ()
    """What a dependency holds the job for: it is planned behind that, on condition."""
    choice: PlacementChoice | None = None
    """Why it is not planned into its earliest gap; of no meaning any more once its start is another."""

    if TYPE_CHECKING:

        @property
        def id(self) -> str:
            """The server's id of the job."""
    else:
        id = property(attrgetter("facts.id"))  # no Python function: each job needs it some fifty times

    def run_end(self, now: int) -> int:
        """Return until when a running job holds its resources by its walltime, also by an ordered one.

        Suspended seconds until ``now`` do not count.
        """
        walltime = max(self.understood.walltime, self.run.ordered_walltime)
        return self.run.started + walltime + self.run.seconds_suspended(now)

    def end_from(self, start: int, now: int) -> int:
        """Return the end of a job by its walltime: of its run, or of a planned run from ``start`` on.

        A suspended run goes on at ``start``.
        """
        if self.phase is Phase.RUNNING:
            return self.run_end(max(now, start))
        return start + self.understood.walltime

    def begin_from(self, start: int) -> int:
        """Return the start of the run of a suspended job, which goes on at ``start``; of others ``start``."""
        suspended = self.phase is Phase.RUNNING and self.run.suspended_since >= 0
        return self.run.started if suspended and self.run.started >= 0 else start

    @property
    def run_waited_since(self) -> int:
        """Begin of the wait for the present run. After a requeue it is the time of the requeue, though the
        server keeps the time when the job became eligible first.
        """
        facts = self.facts
        since = max(facts.eligible if facts.eligible is not None else facts.submitted, facts.not_before or 0)
        return max(since, self.eligible_since) if facts.starts > 1 else since


def submission_key(record: JobRecord) -> tuple[int, tuple[int, int, str]]:
    """Return the sort key of jobs in order of submission; within a second their numbers decide."""
    return record.facts.submitted, submission_order(record.id)
