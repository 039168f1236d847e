"""Decisions: what the planner wants done on the server. Each names the event that caused it."""

from dataclasses import dataclass
from typing import Literal

from schedd.wire.facts import ShareFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Start a job exactly on these shares.

    Valid until ``expires`` (seconds since the epoch) and for the job's ``version`` as last reported;
    ``term`` is the leader's, and an adapter refuses a lower one than it has seen.
    """

    id: str
    cause: str
    time: int
    job_id: str
    shares: tuple[ShareFacts, ...]
    version: str
    expires: int
    term: int = 0
    type: Literal["run"] = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Write to a queued job when and where it is planned, or in ``text`` why it has no start."""

    id: str
    cause: str
    time: int
    job_id: str
    planned_start: int | None
    planned_end: int | None
    planned_nodes: tuple[str, ...]
    text: str
    type: Literal["tell"] = "tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something an admin must know; nothing for the adapter to do."""

    id: str
    cause: str
    time: int
    kind: str
    text: str
    type: Literal["alert"] = "alert"


Decision = Run | Tell | Alert
