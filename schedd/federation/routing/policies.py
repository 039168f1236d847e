"""Routing policies: how a job's cluster is chosen among the candidates."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from schedd.federation.routing.priorities import Backlog, least_loaded_cluster


@dataclass(frozen=True, slots=True)
class RoutingCandidate:
    """A cluster that can take the job. ``start`` and ``end`` come from its plan, ``handicap`` is in seconds.

    ``power`` is its cpus times their speed, 0 if unknown. ``backlog`` counts the federation's own jobs there;
    ``priority`` is the job's priority.
    """

    cluster: str
    user: str
    start: int
    end: int
    handicap: int = 0
    power: float = 0.0
    backlog: Backlog = field(default_factory=Backlog)
    priority: int = 0


class RoutingPolicy(StrEnum):
    """Cluster choice. Every policy is deterministic: ``random`` draws by the job's name."""

    PLAN = "plan"  # earliest end, including handicaps
    LEAST_LOADED = "least-loaded"  # earliest start
    LOAD = "load"
    """Least waiting work per cpu of speed 1, of the federation's own jobs with equal or higher priority."""
    RANDOM = "random"

    def best(self, candidates: Sequence[RoutingCandidate], now: int, job: str) -> RoutingCandidate | None:
        """Return the cluster for a job, or None without candidates. Ties are broken by name."""
        del now
        if not candidates:
            return None
        if self is RoutingPolicy.RANDOM:
            ordered = sorted(candidates, key=lambda one: one.cluster)
            return ordered[zlib.crc32(job.encode()) % len(ordered)]
        if self is RoutingPolicy.LOAD:
            places = [(one.cluster, one.power, one.backlog) for one in candidates]
            name = least_loaded_cluster(places, candidates[0].priority, zlib.crc32(job.encode()))
            return next(one for one in candidates if one.cluster == name)
        return min(candidates, key=self.key)

    @property
    def uses_plans(self) -> bool:
        """Whether the policy compares starts or ends from the plans."""
        return self in (RoutingPolicy.PLAN, RoutingPolicy.LEAST_LOADED)

    def precedes(self, one: RoutingCandidate, other: RoutingCandidate) -> bool:
        """Return whether ``one`` certainly goes before ``other``; False if the policy ignores plans."""
        return self.uses_plans and self.key(one) <= self.key(other)

    def key(self, one: RoutingCandidate) -> tuple[int, str]:
        """Sort key of a candidate for policies that use plans."""
        at = one.start if self is RoutingPolicy.LEAST_LOADED else one.end
        return at + one.handicap, one.cluster
