"""A job as the planner sees it: who, what, since when, and what holds it back."""

from dataclasses import dataclass
from enum import StrEnum

from schedd.model.request import Request

__all__ = ["Job", "JobState"]


class JobState(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    HELD = "held"
    WAITING = "waiting"
    """Until its earliest start time (``qsub -a``)."""
    RUNNING = "running"
    EXITING = "exiting"
    """Ended, but its resources are not free yet."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Job:
    """One job; all times in seconds since the epoch.

    ``not_before`` is the earliest start its owner allows; ``holds`` are what a person or a rule must lift
    first, each in words. ``request`` is None when it could not be understood: ``problem`` then says why.
    """

    id: str
    owner: str
    request: Request | None
    submitted: int
    queue: str = ""
    name: str = ""
    group: str = ""
    account: str = ""
    state: JobState = JobState.QUEUED
    priority: int = 0
    not_before: int = 0
    holds: tuple[str, ...] = ()
    problem: str = ""
