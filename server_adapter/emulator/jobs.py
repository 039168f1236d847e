"""Jobs and submissions of the emulated server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class JobState(StrEnum):
    """Job states as the `job_state` attribute has them."""

    QUEUED = "Q"
    HELD = "H"
    WAITING = "W"
    RUNNING = "R"
    EXITING = "E"
    COMPLETE = "C"
    TRANSIT = "T"
    SUSPENDED = "S"


SUBSTATE: Mapping[JobState, int] = {
    JobState.QUEUED: 10,
    JobState.HELD: 20,
    JobState.WAITING: 30,
    JobState.RUNNING: 42,
    JobState.EXITING: 50,
    JobState.COMPLETE: 59,
    JobState.SUSPENDED: 43,
}

BEING_REQUEUED = 60
"""Substate of a running job, of either family, whose run is being ended to requeue it."""

STATE_NAMES: Mapping[JobState, str] = {
    JobState.QUEUED: "Queued",
    JobState.HELD: "Held",
    JobState.WAITING: "Waiting",
    JobState.RUNNING: "Running",
    JobState.EXITING: "Exiting",
    JobState.COMPLETE: "Complete",
    JobState.SUSPENDED: "Suspended",
}


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """Behaviour of a job's program: seconds until it ends by itself, and its exit status."""

    runtime: float
    exit_status: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """A complete submission, with the simulated behaviour of its program.

    `resources` are the Resource_List in their given order; `holds` letters of `u o s`; `extra` further
    attributes as text; `host` the submit host by its own name, `origin` the same host as seen by the server.
    With `outcome` None the cluster's rule derives the behaviour from script and walltime.
    """

    user: str
    group: str = ""
    host: str = "localhost"
    origin: str = "localhost"
    name: str = "STDIN"
    queue: str = ""
    resources: Mapping[str, str] = field(default_factory=dict)
    holds: str = ""
    priority: int = 0
    depend: str = ""
    not_before: int | None = None
    array: str = ""
    rerunnable: bool = True
    variables: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)
    script: str = ""
    outcome: JobOutcome | None = None


@dataclass(slots=True)
class Job:
    """State of a job. Times are simulated epoch seconds; `revision` increases with every change.

    `holds` may also have `l` (array slot limit) and `d` (waits for another job; shown as `s`).
    """

    id: str
    order: JobOrder
    queue: str
    created: float
    rank: int
    resources: dict[str, str]
    state: JobState = JobState.QUEUED
    holds: set[str] = field(default_factory=set)
    priority: int = 0
    modified: float = 0.0
    queued: float = 0.0
    eligible: float | None = None
    not_before: int | None = None
    attributes: dict[str, str] = field(default_factory=dict)  # plain-text attributes that can be set
    depend: str = ""  # remaining conditions of the order, and conditions added by other jobs
    together: list[str] | None = None  # jobs that start together with this job, if it has `synccount`
    together_released: bool = False
    waiters: set[str] = field(default_factory=set)  # ids of jobs with a condition on this job
    array: str | None = None
    index: int | None = None
    held_slots: tuple[tuple[str, tuple[int, ...]], ...] = ()
    exec_host: str = ""
    exec_port: str = ""
    exec_gpus: str = ""
    gpu_mode: str = ""  # mode of its gpus in the present or last run
    start_time: float | None = None
    started: float | None = None
    start_count: int = 0
    session: int | None = None
    ends: float | None = None
    will_exit: int = 0
    program_ends: float = 0.0  # end and exit status of its program, if it is not killed before
    program_exits: int = 0
    stopped: float = 0.0  # begin of the last suspension
    suspended_s: float = 0.0  # seconds of the past suspensions of this run
    completed: float | None = None
    run_ended: float | None = None  # end of the last run of a requeued job
    exit_status: int | None = None
    runtime: float | None = None
    delete_requested: bool = False
    left: float = 0.0  # remaining run time of a suspended or checkpointed job in seconds
    left_slots: tuple[tuple[str, tuple[int, ...]], ...] = ()  # slots of a suspended job (TORQUE)
    left_gpus: tuple[tuple[str, int, str], ...] = ()  # its gpus: node, number and mode
    checkpointed: bool = False  # it goes on from its checkpoint at its next start
    requeueing: bool = False  # its run is being ended to requeue it
    wants_to_go_on: bool = False  # suspended until its scheduler resumes it
    moved: str = ""  # destination on another server
    run: int = 0  # number of the run, to ignore timers of earlier runs
    revision: int = 0

    @property
    def owner(self) -> str:
        """`user@host`."""
        return f"{self.order.user}@{self.order.origin}"

    @property
    def finished(self) -> bool:
        """Whether the job has ended and is only listed."""
        return self.state is JobState.COMPLETE

    @property
    def active(self) -> bool:
        """Whether the job has started and not ended."""
        return self.state in (JobState.RUNNING, JobState.EXITING, JobState.SUSPENDED)

    def touch(self, now: float) -> None:
        """Notes a change."""
        self.modified = now
        self.revision += 1


QUEUE_TYPES: Final = ("Execution", "Route")


def full_queue_type(text: str) -> str | None:
    """Return the type that this text abbreviates, as servers of both families store it; None: no type."""
    found = [name for name in QUEUE_TYPES if text and name.lower().startswith(text.lower())]
    return found[0] if found else None


@dataclass(slots=True)
class Queue:
    """A queue and its attributes as text by `name` or `name.resource`."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    modified: float = 0.0
    used: bool = False  # whether any of its jobs ever ran

    @property
    def enabled(self) -> bool:
        return self.attributes.get("enabled", "False") == "True"

    @property
    def started(self) -> bool:
        return self.attributes.get("started", "False") == "True"
