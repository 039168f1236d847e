"""What the log holds of jobs.

A job has *attempts*: copies of it at clusters, each on hold until it is *let go*. At most one attempt of a
job is ever let go and not known to be withdrawn again; that is what no crash may break.
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
    """A job was handed to the federation by ``owner`` (``user@realm``).

    ``submission`` has ``script``, ``resources``, ``attributes``, ``variables`` and ``queues`` (by cluster).
    With ``clusters`` it may go to these alone. ``key`` is the sender's name for the request: the same
    again is the same job. ``priority`` is its own among the federation's jobs. As a share of a ``bag`` it is
    an array of the bag's tasks (``array`` of its ``submission``) for its one cluster. With a ``booking`` of
    the federation it is for the one cluster where that is, by the name that it has there (``booking`` of its
    ``submission``).
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
    """The job is to be submitted to ``cluster``, as ``user`` there; beside another attempt it is a move."""

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
    """The cluster does not take it."""

    job: str
    attempt: int
    time: int
    text: str
    type: Literal["attempt_refused"] = "attempt_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReleaseRequested:
    """The attempt is the one that runs: its hold is to be released."""

    job: str
    attempt: int
    time: int
    type: Literal["attempt_release_requested"] = "attempt_release_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReleased:
    """Its hold is released."""

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
    """It is withdrawn, and has not run."""

    job: str
    attempt: int
    time: int
    type: Literal["attempt_withdrawn"] = "attempt_withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawalFailed:
    """It could not be withdrawn: it runs."""

    job: str
    attempt: int
    time: int
    text: str
    type: Literal["withdrawal_failed"] = "withdrawal_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """The attempt that was let go is over, or somebody deleted one on hold."""

    job: str
    attempt: int
    time: int
    how: Literal["ended", "deleted"]
    exit_status: int | None = None
    type: Literal["attempt_ended"] = "attempt_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled:
    """Its owner does not want it any more."""

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
