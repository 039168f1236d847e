"""Events of jobs in the federation's log.

A job has *attempts*: transfers to clusters, each on hold until the federation releases it. Invariant, also
after any crash: at most one attempt of a job has its release requested and is not known to be withdrawn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "AttemptEnded",
    "AttemptEvent",
    "AttemptHeld",
    "AttemptRefused",
    "AttemptReleaseRequested",
    "AttemptReleased",
    "AttemptWithdrawn",
    "ClusterChosen",
    "JobCancelled",
    "JobEvent",
    "JobFailed",
    "JobSubmitted",
    "WithdrawalFailed",
    "WithdrawalRequested",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    """``owner`` (``user@realm``) submitted a job to the federation.

    ``submission`` has ``script``, ``resources``, ``attributes``, ``variables`` and ``queues`` (by cluster).
    ``clusters`` restricts the job to these clusters. ``key`` is the sender's idempotency key. ``priority`` is
    the job's priority among the federation's jobs.

    A share of a ``bag`` is an array of the bag's tasks (``array`` in ``submission``) for one cluster. A job
    in a ``booking`` of the federation runs at the booking's cluster; ``booking`` in ``submission`` is its
    name there.
    """

    job: str
    time: int
    owner: str
    submission: Mapping[str, Any]
    clusters: tuple[str, ...] = ()
    deadline: int | None = None
    key: str = ""
    priority: int = 0
    bag: str = ""
    booking: str = ""
    type: Literal["job_submitted"] = "job_submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChosen:
    """The job is to be transferred to ``cluster``, in the name of ``user``. It is a move if the job has
    another attempt.
    """

    job: str
    attempt: int
    time: int
    cluster: str
    user: str
    start: int | None
    end: int | None
    why: str
    type: Literal["cluster_chosen"] = "cluster_chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptHeld:
    """The cluster's server has the job, on hold."""

    job: str
    attempt: int
    time: int
    server_job: str
    type: Literal["attempt_held"] = "attempt_held"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRefused:
    """The cluster refuses the job."""

    job: str
    attempt: int
    time: int
    text: str
    type: Literal["attempt_refused"] = "attempt_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReleaseRequested:
    """The federation releases this attempt: the job runs here."""

    job: str
    attempt: int
    time: int
    type: Literal["attempt_release_requested"] = "attempt_release_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReleased:
    """The hold of the attempt is released."""

    job: str
    attempt: int
    time: int
    type: Literal["attempt_released"] = "attempt_released"


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawalRequested:
    """The attempt is to be withdrawn."""

    job: str
    attempt: int
    time: int
    why: str
    type: Literal["withdrawal_requested"] = "withdrawal_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptWithdrawn:
    """The attempt is withdrawn and has not run."""

    job: str
    attempt: int
    time: int
    type: Literal["attempt_withdrawn"] = "attempt_withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawalFailed:
    """The attempt cannot be withdrawn because it runs."""

    job: str
    attempt: int
    time: int
    text: str
    type: Literal["withdrawal_failed"] = "withdrawal_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """The released attempt ended, or a held attempt was deleted at the cluster."""

    job: str
    attempt: int
    time: int
    how: Literal["ended", "deleted"]
    exit_status: int | None = None
    type: Literal["attempt_ended"] = "attempt_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled:
    """The owner or an admin (``by``) cancelled the job."""

    job: str
    time: int
    by: str
    type: Literal["job_cancelled"] = "job_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed:
    """No cluster takes the job."""

    job: str
    time: int
    text: str
    type: Literal["job_failed"] = "job_failed"


AttemptEvent = (
    ClusterChosen
    | AttemptHeld
    | AttemptRefused
    | AttemptReleaseRequested
    | AttemptReleased
    | WithdrawalRequested
    | AttemptWithdrawn
    | WithdrawalFailed
    | AttemptEnded
)
JobEvent = JobSubmitted | AttemptEvent | JobCancelled | JobFailed
