"""Last known state of each cluster, and the routing rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from schedd.dialect import request_family
from schedd.federation.routing.jobs import FederationJob, PlanQuestion, TransferAttempt
from schedd.federation.routing.policies import RoutingPolicy


@dataclass(frozen=True, slots=True)
class TransferStatus:
    """Status of one transfer, as reported by ``GET /v1/clusters/{cluster}/transfers``."""

    phase: str
    job: str = ""
    state: str = ""
    release_requested: bool = False
    end: Literal["", "ended", "deleted"] = ""
    exit_status: int | None = None
    planned_start: int | None = None
    planned_end: int | None = None
    promised_start: int | None = None
    promised_end: int | None = None
    started: int | None = None
    displayed_start: int | None = None
    expected_start: int | None = None
    expected_by: int | None = None
    expected_as_of: int | None = None
    predicted: bool = False
    starts_stopped: bool = False
    at_risk: bool = False
    deadline_state: Literal["", "accepted", "wished", "at_risk", "missed"] = ""
    earliest_deadline: int | None = None
    text: str = ""
    tasks: Mapping[str, Any] | None = None  # task counts of an array by state


@dataclass(frozen=True, slots=True)
class PlanOffer:
    """A cluster's answer for a hypothetical job. ``start`` is None if the plan has no start; ``why`` is the
    reason.

    ``never`` means that the cluster can never run the job. ``cost`` is in the cluster's currency, None
    without prices.
    """

    start: int | None
    end: int | None
    why: str = ""
    never: bool = False
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Last known state of one cluster.

    ``away`` is the reason why the cluster is unusable, or empty; ``since`` is the time of the last change
    between the two. ``cpus`` is 0 if not disclosed. ``speed`` divides run times, ``handicap`` (seconds) is
    added to ends. ``data`` names the data sets at the cluster. ``offers`` are the latest answers of its plan,
    ``bounds`` lower bounds of starts for unanswered questions. ``family`` is the server's family as reported
    by its schedd, or empty. ``trouble`` describes a conflict with the settings, a clock that differs, or lost
    jobs.
    """

    away: str = ""
    since: int = 0
    transfers: Mapping[str, TransferStatus] = field(default_factory=dict)
    offers: Mapping[PlanQuestion, PlanOffer] = field(default_factory=dict)
    bounds: Mapping[PlanQuestion, int] = field(default_factory=dict)
    cpus: int = 0
    speed: float = 1.0
    handicap: int = 0
    data: frozenset[str] = frozenset()
    family: str = ""
    trouble: str = ""

    @property
    def power(self) -> float:
        """The disclosed cpus, in cpus of speed 1; 0 if not disclosed."""
        return self.cpus * self.speed

    def unsupported_reason(self, resources: Mapping[str, str]) -> str:
        """Return why the cluster's server cannot take a job with these resources; empty if it can."""
        if self.family == "torque" and request_family(resources) == "openpbs":
            return "its server is TORQUE, which does not support select"
        return ""


@dataclass(frozen=True, slots=True)
class RoutingRules:
    """Routing parameters; times in seconds."""

    name: str = "fed"
    policy: RoutingPolicy = RoutingPolicy.PLAN
    patience: int = 30  # wait this long for an answer before the job goes to another cluster
    threshold: int = 600  # a waiting job moves only if it ends earlier by at least this much
    moves: int = 2  # maximum moves of one job
    fetch: int = 0  # penalty for each data set that the job names and the cluster does not have
    price_weight: float = 0.0  # penalty in seconds for each unit of the job's cost at a cluster
    licences: tuple[str, ...] = ()  # licence names that count for priorities
    classes: Mapping[str, str] = field(default_factory=dict)
    """User class by owner, ``gold`` or ``silver``; used for priorities."""


def transfer_name(rules: RoutingRules, job: FederationJob, attempt: TransferAttempt) -> str:
    """Return the unique name of an attempt's transfer at its cluster."""
    return f"{rules.name}.{job.id}.{attempt.number}"


def attempt_status(
    clusters: Mapping[str, ClusterStatus], rules: RoutingRules, job: FederationJob, attempt: TransferAttempt
) -> TransferStatus | None:
    """Return the last known status of an attempt, or None."""
    seen = clusters.get(attempt.cluster)
    return seen.transfers.get(transfer_name(rules, job, attempt)) if seen is not None else None


def attempt_statuses(
    clusters: Mapping[str, ClusterStatus], rules: RoutingRules, job: FederationJob
) -> dict[int, TransferStatus]:
    """Return the last known statuses of a job's attempts, by attempt number."""
    seen = ((one.number, attempt_status(clusters, rules, job, one)) for one in job.attempts)
    return {number: one for number, one in seen if one is not None}
