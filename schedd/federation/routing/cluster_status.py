"""What a federation sees of its clusters, and the rules by which it decides."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from schedd.dialect import family_of
from schedd.federation.routing.jobs import FederationJob, PlanQuestion, TransferAttempt
from schedd.federation.routing.policies import RoutingPolicy

__all__ = [
    "ClusterStatus",
    "PlanOffer",
    "RoutingRules",
    "TransferStatus",
    "attempt_status",
    "attempt_statuses",
    "transfer_name",
]


@dataclass(frozen=True, slots=True)
class TransferStatus:
    """What a cluster says of one transfer: see ``GET /v1/clusters/{cluster}/transfers``."""

    phase: str
    job: str = ""
    state: str = ""
    release_requested: bool = False
    end: Literal["", "ended", "deleted"] = ""
    exit_status: int | None = None
    planned_start: int | None = None
    planned_end: int | None = None
    promised_start: int | None = None
    text: str = ""
    tasks: Mapping[str, Any] | None = None
    """Of an array: how many of its jobs stand where."""


@dataclass(frozen=True, slots=True)
class PlanOffer:
    """What a cluster's plan says of a job that is not there; ``start`` None: it has no place, and ``why``.

    ``cost`` is in the cluster's currency, None where it has no prices.
    """

    start: int | None
    end: int | None
    why: str = ""
    never: bool = False
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """What is seen of one cluster. ``away``: why it does not answer; empty: it does. ``since``: for so long.

    ``cpus`` is 0 where the cluster does not tell. ``speed`` divides run times, ``handicap`` is added to ends
    (seconds). ``data`` are the sets of data that are there. ``offers`` are what its plan said last,
    ``bounds`` the starts before which it has none for what it was not asked yet.
    ``family`` is what its schedd says of its server; empty: it did not say. ``trouble``: what is wrong with
    its settings here.
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

    def unsupported_reason(self, resources: Mapping[str, str]) -> str:
        """Why its server, as its schedd names it, does not understand what a job asks for; empty: it may."""
        if self.family == "torque" and family_of(resources) == "openpbs":
            return "its server is TORQUE, which does not know select"
        return ""


@dataclass(frozen=True, slots=True)
class RoutingRules:
    """How it decides; times in seconds."""

    name: str = "fed"
    policy: RoutingPolicy = RoutingPolicy.PLAN
    patience: int = 30
    """So long an answer is waited for before a job goes elsewhere."""
    threshold: int = 600
    """A job that waits is moved where it ends earlier by at least so much."""
    moves: int = 2
    """So often at most."""
    fetch: int = 0
    """So much later counts each set of data that a job names and a cluster does not have."""
    price_weight: float = 0.0
    """So much later counts one unit of what a job costs there."""
    licences: tuple[str, ...] = ()
    """Names of licences that count for priorities."""
    classes: Mapping[str, str] = field(default_factory=dict)
    """By owner: ``gold`` or ``silver``; for priorities."""


def transfer_name(rules: RoutingRules, job: FederationJob, attempt: TransferAttempt) -> str:
    """The name of an attempt at its cluster, used once."""
    return f"{rules.name}.{job.id}.{attempt.number}"


def attempt_status(
    clusters: Mapping[str, ClusterStatus], rules: RoutingRules, job: FederationJob, attempt: TransferAttempt
) -> TransferStatus | None:
    """What a cluster said last of an attempt; None: nothing."""
    seen = clusters.get(attempt.cluster)
    return seen.transfers.get(transfer_name(rules, job, attempt)) if seen is not None else None


def attempt_statuses(
    clusters: Mapping[str, ClusterStatus], rules: RoutingRules, job: FederationJob
) -> dict[int, TransferStatus]:
    """By attempt, what its cluster said last of it."""
    seen = ((one.number, attempt_status(clusters, rules, job, one)) for one in job.attempts)
    return {number: one for number, one in seen if one is not None}
