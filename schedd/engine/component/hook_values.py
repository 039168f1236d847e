"""Values that components and the engine exchange through hooks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from schedd.model import Features
from schedd.policy.access import Access
from schedd.predict import Prediction
from schedd.wire import JobFacts
from schedd.wire.facts import PreemptionMethod
from schedd.wire.quick_init import quick_init

if TYPE_CHECKING:
    from schedd.engine.facts.job_requests import ParsedRequest
    from schedd.engine.facts.records import JobRecord
    from schedd.engine.facts.state import EngineState

Floats = npt.NDArray[np.float64]


RunTimeSource = Callable[[str], Prediction | None]
"""Returns the predicted run time of the job with this id; None: unknown."""


@dataclass(frozen=True, slots=True)
class StartBarrier:
    """Why a job may not start before a moment."""

    name: str  # name of the obstacle
    words: str  # the same as a clause, which may be followed by "before" and a time


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


@quick_init
@dataclass(frozen=True, slots=True)
class Restriction:
    """Nodes and times to which a job is restricted; it is planned ahead within these.

    ``nodes`` are sets of names and features: a node must match a member of each set. ``pool`` is a pool of
    the plan that is full at all other times; empty: no restriction of time. ``place`` is its name in texts:
    "reservation school". ``remedy`` is what a user may do if the place is too small.
    """

    place: str
    nodes: Features
    pool: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class PreemptedRun:
    """A running job that is preempted at ``time`` for ``preemptor`` by ``method``; ``lost``: core-seconds
    of work.
    """

    job: str
    owner: str
    preemptor: str
    time: int
    lost: int
    method: PreemptionMethod = "requeue"


@dataclass(frozen=True, slots=True)
class FormOffer:
    """Forms of a job's request that a component offers. The engine combines the offers of all components, and
    chooses the combination: see ``best_form``.

    ``values``, not empty, are in order of preference. ``choose`` notes one of them in the component's state,
    where the reading of requests finds it. ``present`` is the one that the job's slot has now. With
    ``shortest`` the only value is a walltime in seconds, and any walltime down to ``shortest`` may be chosen.
    """

    values: Sequence[Any]
    present: Any
    choose: Callable[[Any], None]
    shortest: int | None = None


class Confinement(Protocol):
    """The only place and time of a job. The job is placed when it may start, not ahead."""

    @property
    def missing_room(self) -> str:
        """What the job waits for after ``place`` returned False."""

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

    as_of: int = -1  # time of the last round of all expected starts
    near: tuple[int, int] = (-1, -1)  # time of the last round of near starts, and the latest start in it
    held: Mapping[str, tuple[int, float, float]] = field(default_factory=dict)
    """By kind of estimate: number of recent outcomes, and the shares covered by P50 and P90."""
    halted: Mapping[str, int] = field(default_factory=dict)
    """By kind of estimate: outcomes that did not count, since all starts were halted during the wait."""
    halts: tuple[tuple[int, int], ...] = ()  # begin and end of the latest halts of all starts
