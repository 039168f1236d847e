"""What the log holds of jobs.

A job has *attempts*: copies of it at clusters, each on hold until it is *let go*. At most one attempt of a
job is ever let go and not known to be withdrawn again; that is what no crash may break.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "Cancelled",
    "Chosen",
    "Ended",
    "Failed",
    "GivenUp",
    "Held",
    "JobEvent",
    "Kept",
    "LetGo",
    "OfAttempt",
    "Out",
    "Refused",
    "Submitted",
    "Withdrawn",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
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
    type: Literal["submitted"] = "submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The job is to be submitted to ``cluster``, as ``user`` there; beside another attempt it is a move."""

    job: str
    attempt: int
    time: int
    cluster: str
    user: str
    start: int | None
    end: int | None
    why: str
    type: Literal["chosen"] = "chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The cluster's server has the job, on hold."""

    job: str
    attempt: int
    time: int
    server_job: str
    type: Literal["held"] = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The cluster does not take it."""

    job: str
    attempt: int
    time: int
    text: str
    type: Literal["refused"] = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetGo:
    """The attempt is the one that runs: its hold is to be released."""

    job: str
    attempt: int
    time: int
    type: Literal["let_go"] = "let_go"


@dataclass(frozen=True, slots=True, kw_only=True)
class Out:
    """Its hold is released."""

    job: str
    attempt: int
    time: int
    type: Literal["released"] = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """The attempt is to be withdrawn."""

    job: str
    attempt: int
    time: int
    why: str
    type: Literal["given_up"] = "given_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """It is withdrawn, and has not run."""

    job: str
    attempt: int
    time: int
    type: Literal["withdrawn"] = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """It could not be withdrawn: it runs."""

    job: str
    attempt: int
    time: int
    text: str
    type: Literal["kept"] = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The attempt that was let go is over, or somebody deleted one on hold."""

    job: str
    attempt: int
    time: int
    how: Literal["ended", "deleted"]
    exit_status: int | None = None
    type: Literal["ended"] = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """Its owner does not want it any more."""

    job: str
    time: int
    by: str
    type: Literal["cancelled"] = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """No cluster takes the job."""

    job: str
    time: int
    text: str
    type: Literal["failed"] = "failed"


OfAttempt = Chosen | Held | Refused | LetGo | Out | GivenUp | Withdrawn | Kept | Ended
JobEvent = Submitted | OfAttempt | Cancelled | Failed
