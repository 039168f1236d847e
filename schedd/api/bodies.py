"""What the API answers with, beside the views of engine and service: documented dataclasses."""

from dataclasses import dataclass
from typing import Literal

from schedd.api.replies import documented
from schedd.engine.job_view import Change, JobView
from schedd.service.gaps import Gap, Step
from schedd.service.reading import Bar, Counts, NodeView
from schedd.wire import Decision, ShareFacts

__all__ = [
    "Bars",
    "Batch",
    "ClusterView",
    "ClustersView",
    "Dispatch",
    "GapsView",
    "Health",
    "JobPage",
    "NodePage",
    "Ready",
    "ReservationView",
    "Taken",
    "WhatIfAnswer",
]

for _kind in (JobView, Change, Bar, Counts, NodeView, Step, Gap):
    documented(_kind)


@documented
@dataclass(frozen=True, slots=True)
class ClusterView:
    """One cluster and how its planner is doing. Times are seconds since the epoch (UTC)."""

    name: str
    policy: str
    """`conservative` plans every job; the others are queue policies, which plan no starts."""
    now: int
    """The present second by the daemon's clock."""
    as_of: int
    """When the plan was brought up to date."""
    generation: int
    """Counts the batches of events that the plan has taken in."""
    paused: str
    """Why no jobs are started; empty when they are."""
    stale: str
    """Why the plan may not show the server's present state; empty when it does."""
    trouble: str
    """Why the planner stopped or waits; empty while it works."""
    jobs: Counts
    nodes: int
    cpus: int
    events_waiting: int
    """Events that came and are not handled yet."""
    breaches: int
    """Promises that were not kept since the daemon started."""


@documented
@dataclass(frozen=True, slots=True)
class ClustersView:
    """All clusters of this daemon."""

    clusters: tuple[ClusterView, ...]


@documented
@dataclass(frozen=True, slots=True)
class Taken:
    """The events are kept and handled; a plan of this generation or a later one shows what came of them."""

    accepted: int
    """How many were new."""
    duplicates: tuple[str, ...]
    """The ids of those that had been handled before; they changed nothing."""
    generation: int


@documented
@dataclass(frozen=True, slots=True)
class Batch:
    """Decisions in order."""

    decisions: tuple[Decision, ...]
    last: str
    """Ask for what comes after this."""
    missed: bool
    """True when decisions after the place that was asked for are gone, or the place is not known: those
    listed are all that still count."""


@documented
@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs by (planned) start; those without one come last."""

    jobs: tuple[JobView, ...]
    next: str | None
    """The cursor of the next page; null on the last."""
    as_of: int
    generation: int
    stale: str


@documented
@dataclass(frozen=True, slots=True)
class NodePage:
    """Some nodes by name."""

    nodes: tuple[NodeView, ...]
    next: str | None
    """The cursor of the next page; null on the last."""
    as_of: int
    generation: int
    stale: str


@documented
@dataclass(frozen=True, slots=True)
class ReservationView:
    """Nodes that are kept free of planned jobs over `[start, end)`; an end of null: until it is lifted."""

    name: str
    nodes: tuple[str, ...]
    start: int
    end: int | None
    reason: str


@documented
@dataclass(frozen=True, slots=True)
class Bars:
    """What is placed in a window of time, by start."""

    begin: int
    end: int
    jobs: tuple[Bar, ...]
    reservations: tuple[ReservationView, ...]
    """All that touch the window, on every page."""
    next: str | None
    """The cursor of the next page; null on the last."""
    as_of: int
    generation: int
    stale: str


@documented
@dataclass(frozen=True, slots=True)
class GapsView:
    """What is free in a window of time on nodes that are up."""

    begin: int
    end: int
    totals: tuple[Step, ...]
    """All nodes together, on every page."""
    gaps: tuple[Gap, ...]
    """Node by node."""
    next: str | None
    """The cursor of the next page; null on the last."""
    as_of: int
    generation: int
    stale: str


@documented
@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """When the job would start if it were submitted now and nothing else changed."""

    answer: Literal["start_known", "waiting", "never"]
    planned_start: int | None
    planned_end: int | None
    planned_nodes: tuple[ShareFacts, ...]
    waiting_for: str
    """When `waiting`: the kind of what must happen first."""
    why: str
    """In words: what it waits for, or the first requirement that nothing can meet."""
    walltime: int
    """Seconds that the answer counts with."""
    walltime_assumed: bool
    """True when neither the job nor a default names a walltime."""
    notes: tuple[str, ...]
    """Remarks on how the request was understood."""
    as_of: int
    """The moment at which the job was thought to arrive."""
    generation: int
    """The plan that was asked."""


@documented
@dataclass(frozen=True, slots=True)
class Dispatch:
    """Whether jobs are started."""

    paused: str
    """Why not; empty when they are."""
    generation: int


@documented
@dataclass(frozen=True, slots=True)
class Health:
    """The process answers."""

    status: Literal["ok"]
    version: str


@documented
@dataclass(frozen=True, slots=True)
class Ready:
    """All planners can do their work."""

    status: Literal["ready"]
