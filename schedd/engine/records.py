"""What the engine keeps of every job, and of every change, promise and breach."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from schedd.engine.intake import Understood
from schedd.model import Never, WaitingFor
from schedd.wire import JobFacts

__all__ = ["MAY_BREAK", "Breach", "Cause", "ChangeSet", "JobRecord", "Phase"]


class Phase(StrEnum):
    """Where a job stands with us."""

    BLOCKED = "blocked"
    """May not be planned: held, its queue stopped, no node can take it."""
    WAITING = "waiting"
    """Eligible; planned unless no node that is up can take it."""
    DISPATCHED = "dispatched"
    """A run decision is out."""
    RUNNING = "running"


class Cause(StrEnum):
    """Why planned starts moved. Only those of ``MAY_BREAK`` may take a job past its promise."""

    ARRIVED = "arrived"
    ALTERED = "altered"
    RELEASED = "released"
    FREED = "freed"
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
class Breach:
    """A promise that was not kept: the start moved from before ``promised`` to ``planned`` (-1: unknown)."""

    time: int
    event: str
    cause: Cause
    promised: int
    planned: int


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
class JobRecord:
    """A job with us. Its planned start, promise and generation stand in columns, by slot.

    ``answer`` is set when no start is known. ``until`` is a back-off: no dispatch before it. ``hold_end``
    is when a running job's resources count as free.
    """

    facts: JobFacts
    understood: Understood
    slot: int
    phase: Phase
    answer: WaitingFor | Never | None = None
    eligible_since: int = -1
    until: int = 0
    refusals: int = 0
    refusal: str = ""
    returns: int = 0
    decision: str = ""
    decision_expires: int = 0
    started: int = -1
    overruns: int = 0
    weak: bool = False
    quarantine: str = ""
    breaches: tuple[Breach, ...] = ()

    @property
    def id(self) -> str:
        """The server's id of the job."""
        return self.facts.id
