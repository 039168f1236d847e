"""Which cluster a job goes to, of those that can take it."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from schedd.federation.routing.priorities import Backlog, least_loaded_cluster

__all__ = ["RoutingCandidate", "RoutingPolicy"]


@dataclass(frozen=True, slots=True)
class RoutingCandidate:
    """A cluster that can take a job; ``start`` and ``end`` as its plan has them, ``handicap`` in seconds.

    ``backlog`` is of the federation's own jobs that wait there, ``priority`` is that of the job itself.
    """

    cluster: str
    user: str
    start: int
    end: int
    handicap: int = 0
    cpus: int = 0
    backlog: Backlog = field(default_factory=Backlog)
    priority: int = 0


class RoutingPolicy(StrEnum):
    """How one is chosen. All are deterministic: ``random`` draws by the job's name."""

    PLAN = "plan"
    """The earliest end, with the site's handicap."""
    LEAST_LOADED = "least-loaded"
    """The earliest start: the least_loaded_cluster work ahead of the job."""
    LOAD = "load"
    """The least work of the federation's own jobs of equal or higher priority that waits there, per cpu."""
    RANDOM = "random"

    def best(self, candidates: Sequence[RoutingCandidate], now: int, job: str) -> RoutingCandidate | None:
        """The cluster for a job; None where there is none. Equals go by name."""
        del now
        if not candidates:
            return None
        if self is RoutingPolicy.RANDOM:
            ordered = sorted(candidates, key=lambda one: one.cluster)
            return ordered[zlib.crc32(job.encode()) % len(ordered)]
        if self is RoutingPolicy.LOAD:
            places = [(one.cluster, one.cpus, one.backlog) for one in candidates]
            name = least_loaded_cluster(places, candidates[0].priority, zlib.crc32(job.encode()))
            return next(one for one in candidates if one.cluster == name)
        return min(candidates, key=self.key)

    @property
    def uses_plans(self) -> bool:
        """Whether it goes by what the plans say of each job."""
        return self in (RoutingPolicy.PLAN, RoutingPolicy.LEAST_LOADED)

    def precedes(self, one: RoutingCandidate, other: RoutingCandidate) -> bool:
        """Whether ``one`` is chosen of the two, whatever else is said; False where that hangs on others."""
        return self.uses_plans and self.key(one) <= self.key(other)

    def key(self, one: RoutingCandidate) -> tuple[int, str]:
        """By which the least_loaded_cluster is chosen, where it goes by the plans."""
        at = one.start if self is RoutingPolicy.LEAST_LOADED else one.end
        return at + one.handicap, one.cluster
