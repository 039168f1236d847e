"""What the engine keeps of every job, and of every change, promise and breach."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

import numpy as np
import numpy.typing as npt

from schedd.engine.facts.job_requests import ParsedRequest
from schedd.model import Never, WaitingFor
from schedd.policy.demand import Demand
from schedd.wire import Decision, JobFacts, ShareFacts

__all__ = [
    "MAY_BREAK",
    "BackOff",
    "Breach",
    "Cause",
    "ChangeSet",
    "CurrentRun",
    "DependencyLink",
    "EndedPromise",
    "JobRecord",
    "Outcome",
    "Phase",
    "PlacementChoice",
    "RankingProgress",
    "Risk",
    "StartAttempt",
    "TransferPhase",
    "TransferRecord",
    "UnresolvedStart",
]


class Phase(StrEnum):
    """Where a job stands with us."""

    BLOCKED = "blocked"
    """May not be planned: held, its queue stopped, set aside, no node can take it."""
    WAITING = "waiting"
    """May be planned; is planned unless no node that is up can take it."""
    DISPATCHED = "dispatched"
    """A run decision is out; the job holds its place until the outcome is known."""
    RUNNING = "running"


class Cause(StrEnum):
    """Why planned starts moved. Only those of ``MAY_BREAK`` may take a job past its promise."""

    ARRIVED = "arrived"
    ALTERED = "altered"
    RELEASED = "released"
    FREED = "freed"
    PRIORITY = "a job of higher priority"
    DEADLINE = "a job with an earlier deadline"
    CHAIN = "a job that it waits for"
    IMPROVED = "the plan was improved"
    CHOSEN = "an admin chose another plan"
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
    """A promise that cannot be kept as planned now: since when, and what made it so."""

    time: int
    event: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class Breach:
    """A promise that was not kept: at ``time`` the job had not started, or had begun after it.

    ``event`` and ``cause`` are those that first put the promise at risk; ``planned`` is the start that was
    planned then, or the late one itself; -1: none was known.
    """

    time: int
    event: str
    cause: Cause
    promised: int
    planned: int


@dataclass(frozen=True, slots=True)
class EndedPromise:
    """A promise that ended without being broken: the job was held, enlarged, moved or requeued."""

    time: int
    event: str
    words: str
    promised: int


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call of the engine came to: its ``decisions``, and the ``moves`` of planned starts, both in the
    order in which they were made. ``taken``: by the id of an event with what a search found, or with a plan
    that was chosen, how many jobs it moved.
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
    """How far working out all ranks anew has come.

    ``demand`` is what was asked for when it last began, ``again`` when it begins next. ``left`` are slots
    whose ranks are still to be worked out, ``tries`` those that are then to go before others; each from its
    end on. ``matter``: ranks may differ at all. ``anew``: all are to be worked out though each is kept
    otherwise.
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
        """With lists of its own."""
        return replace(self, slots_to_rank=list(self.slots_to_rank), slots_to_try=list(self.slots_to_try))


@dataclass(frozen=True, slots=True)
class UnresolvedStart:
    """A run decision that the engine follows no longer, though it may be carried out until ``until``.

    Its ``shares`` are not free until then, unless the job is seen elsewhere.
    """

    decision: str
    until: int
    shares: tuple[ShareFacts, ...]


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """The run decision that is out, or by which the job runs; ``accepted``: the server took it.

    ``decided`` is when it was made and ``expires`` until when it may be carried out; both stay when it has
    come to nothing, since it may have been carried out all the same.
    """

    decision: str = ""
    decided: int = -1
    expires: int = 0
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class BackOff:
    """Starts that came to nothing: no run decision before ``until``.

    ``refusals`` are those in a row, ``busy`` those of the kind "busy for now" in a row, ``refusal`` the words
    of the last. ``returns`` counts starts in a row after which the job was soon queued again. ``failed_on``
    are nodes on which starts came to nothing, each once, the latest last.
    """

    until: int = 0
    refusals: int = 0
    busy: int = 0
    refusal: str = ""
    returns: int = 0
    failed_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CurrentRun:
    """The run of a job that runs: when it ``started`` (-1: it does not), and how often it was given longer
    than its walltime and allowance.
    """

    started: int = -1
    overruns: int = 0


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job with us. Its planned start, promise and generation stand in columns, by slot.

    It changes by the steps of ``phases.py`` alone. ``answer`` is set when no start is known. ``lost`` is the
    cause by which a promised job lost its start: it takes the blame if the promise cannot be kept. ``risk``
    is set while its promise is at risk. ``breaches`` are the first and the latest.
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

    @property
    def id(self) -> str:
        """The server's id of the job."""
        return self.facts.id


TransferPhase = Literal["submitting", "held", "releasing", "released", "withdrawing", "withdrawn", "refused"]


@dataclass(frozen=True, slots=True)
class TransferRecord:
    """One transfer. ``since`` is when it last changed, ``decision`` the one whose outcome is awaited."""

    transfer: str
    user: str
    by: str
    phase: TransferPhase
    since: int
    decision: str = ""
    server_job: str = ""
    release_requested: bool = False
    """Its release was asked for: it may have started."""
    end: Literal["", "ended", "deleted"] = ""
    exit_status: int | None = None
    code: int = 0
    text: str = ""
    """Why the last step that was refused was refused; empty when none was."""
    keep_until: int = 0
    """Until then it has a place in the plan although it is on hold."""
    booked: bool = False
    """It starts in the booking that is made for it, and nowhere else."""
    booking: str = ""
    """The booking of its user's in which it runs, as if he had named it himself."""
    forced: bool = False
    """It is taken back though it may run."""
    tasks: int = 0
    """So many jobs an array has; 0: it is none."""
    first_task: int = 0
    """The lowest of their indices."""
    tasks_over: str = ""
    """Which of them are over, a bit for each, as a hexadecimal number: an end may be told more than once."""
    tasks_ended: int = 0
    tasks_failed: int = 0
    """Of those that ended: with an exit status other than 0."""
    tasks_deleted: int = 0
    last_end: int = 0
    """When the last of them ended."""
    first_end: int = 0
    """When the first of them ended; 0: none has."""
