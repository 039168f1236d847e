"""Jobs of a federation and their attempts, as a pure fold over events."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from schedd.federation.routing.events import (
    AttemptEnded,
    AttemptEvent,
    AttemptHeld,
    AttemptRefused,
    AttemptReleased,
    AttemptReleaseRequested,
    AttemptWithdrawn,
    ClusterChosen,
    JobCancelled,
    JobEvent,
    JobFailed,
    JobSubmitted,
    WithdrawalFailed,
    WithdrawalRequested,
)

__all__ = [
    "AttemptPhase",
    "FederationJob",
    "FederationJobs",
    "ImpossibleError",
    "JobOutcome",
    "PlanQuestion",
    "TransferAttempt",
    "count_array_tasks",
]

AttemptPhase = Literal[
    "submitting", "held", "releasing", "released", "withdrawing", "withdrawn", "refused", "ended"
]
JobOutcome = Literal["", "ended", "deleted", "cancelled", "refused"]
_LIVE: Final = ("submitting", "held", "releasing", "released")
_SAFE: Final = ("withdrawn", "refused")
"""Phases of an attempt that has not run and never will."""
_TO_DO: Final = ("submitting", "releasing", "withdrawing")
"""Phases with a request to send to the cluster."""


class PlanQuestion(NamedTuple):
    """A what-if question to a cluster's plan. Jobs with equal requests share the answer."""

    resources: tuple[tuple[str, str], ...]
    queue: str
    user: str
    tasks: int = 0
    """Number of tasks of an array, 0 for a single job. The answer gives the end of the last task."""


def count_array_tasks(array: str) -> int:
    """Return the number of indices in a range such as ``0-9``; 0 for an empty range."""
    first, _, last = array.partition("-")
    return int(last) - int(first) + 1 if array else 0


class ImpossibleError(Exception):
    """An event that cannot follow the state: a defect, or a foreign log."""


@dataclass(frozen=True, slots=True)
class TransferAttempt:
    """A transfer of a job to one cluster. ``start`` and ``end`` are the plan's answer when the cluster was
    chosen.
    """

    number: int
    cluster: str
    user: str
    phase: AttemptPhase
    since: int
    start: int | None = None
    end: int | None = None
    why: str = ""
    server_job: str = ""
    release_requested: bool = False
    text: str = ""

    @property
    def live(self) -> bool:
        """Whether the federation wants this attempt."""
        return self.phase in _LIVE

    @property
    def may_run(self) -> bool:
        """Whether the attempt may run, may be running or may have run."""
        return self.release_requested and self.phase not in _SAFE


@dataclass(frozen=True, slots=True)
class FederationJob:
    """One job of a user. Times are seconds since the epoch."""

    id: str
    owner: str
    submission: Mapping[str, Any]
    submitted: int
    clusters: tuple[str, ...] = ()
    deadline: int | None = None
    key: str = ""
    attempts: tuple[TransferAttempt, ...] = ()
    over: JobOutcome = ""
    over_at: int = 0
    exit_status: int | None = None
    cancelled: bool = False
    text: str = ""
    priority: int = 0
    """Priority among the federation's jobs by deadline, licences and user; fixed at submission."""
    resources: tuple[tuple[str, str], ...] = ()
    """Requested resources, sorted by name."""
    bag: str = ""
    """Number of the bag; the job is an array of its tasks and stays at its cluster."""
    booking: str = ""
    """Number of the job's booking; the job runs at the booking's cluster."""

    @property
    def bound(self) -> bool:
        """Whether the job's cluster is fixed."""
        return bool(self.bag or self.booking)

    @property
    def stays(self) -> bool:
        """Whether the job never moves to another cluster."""
        return bool(self.array or self.booking)

    def question(self, cluster: str, user: str) -> PlanQuestion:
        """Return the what-if question about this job for a cluster."""
        queues: Mapping[str, str] = self.submission.get("queues") or {}
        return PlanQuestion(self.resources, queues.get(cluster, ""), user, self.tasks)

    @property
    def array(self) -> str:
        """First and last index of an array, such as ``0-9``; empty for a single job."""
        found: str = self.submission.get("array", "")
        return found

    @property
    def tasks(self) -> int:
        """Number of tasks of an array, 0 for a single job."""
        return count_array_tasks(self.array)

    @property
    def active(self) -> TransferAttempt | None:
        """The attempt that may run."""
        return next((one for one in self.attempts if one.may_run), None)

    @property
    def newest(self) -> TransferAttempt | None:
        """The newest live attempt without a release request."""
        found = [one for one in self.attempts if one.live and not one.release_requested]
        return found[-1] if found else None

    @property
    def moves(self) -> int:
        """Number of releases at another cluster than before."""
        return max(0, sum(one.release_requested for one in self.attempts) - 1)

    @property
    def waits(self) -> bool:
        """Whether the job is released at one cluster and no transfer step is pending."""
        active = self.active
        return active is not None and active.phase == "released" and not self.cancelled and not self.over

    @property
    def settled(self) -> bool:
        """Whether the job is over and every attempt has reached a final phase."""
        return bool(self.over) and all(one.phase in (*_SAFE, "ended") for one in self.attempts)


class FederationJobs:
    """All jobs, built from events."""

    def __init__(self) -> None:
        self.by_id: dict[str, FederationJob] = {}
        self.by_key: dict[tuple[str, str], str] = {}
        self.open: dict[str, None] = {}
        """Jobs that are not settled, oldest first."""
        self.unsettled: dict[str, None] = {}
        """Open jobs that are in transit; waiting and running jobs are not included."""
        self.attempts_at: dict[str, dict[tuple[str, int], None]] = {}
        """Unfinished attempts by cluster, each as (job, attempt number)."""
        self.pending_steps: dict[str, dict[tuple[str, int], None]] = {}
        """Attempts with a request to send, by cluster."""

    def __getitem__(self, job: str) -> FederationJob:
        return self.by_id[job]

    def apply(self, event: JobEvent) -> None:
        """Apply one event. Raises ImpossibleError."""
        match event:
            case JobSubmitted():
                self._submitted(event)
            case JobCancelled():
                job = self._find(event.job)
                over: JobOutcome = "" if job.active is not None else "cancelled"
                self._store(replace(job, cancelled=True, over=job.over or over, over_at=event.time))
            case JobFailed():
                job = self._find(event.job)
                if job.active is not None:
                    raise ImpossibleError(f"job {job.id} failed while it may run")
                self._store(replace(job, over="refused", over_at=event.time, text=event.text))
            case (
                ClusterChosen()
                | AttemptHeld()
                | AttemptRefused()
                | AttemptReleaseRequested()
                | AttemptReleased()
                | WithdrawalRequested()
                | AttemptWithdrawn()
                | WithdrawalFailed()
                | AttemptEnded()
            ):
                self._apply_to_attempt(event)
            case _:
                raise ImpossibleError(f"{event.type} is no event of a job")

    def forget(self, before: int, among: Iterable[str]) -> tuple[str, ...]:
        """Drop settled jobs in ``among`` that ended before that time, and return them. Bag shares are dropped
        with their bags.
        """
        jobs = (job for name in among if (job := self.by_id.get(name)) is not None and not job.bag)
        gone = tuple(job.id for job in jobs if job.settled and job.over_at < before)
        self.drop(gone)
        return gone

    def drop(self, names: Iterable[str]) -> None:
        """Drop these jobs."""
        for name in names:
            job = self.by_id.pop(name, None)
            if job is not None:
                self.by_key.pop((job.owner, job.key), None)

    def _submitted(self, event: JobSubmitted) -> None:
        if event.job in self.by_id:
            raise ImpossibleError(f"job {event.job} came twice")
        job = FederationJob(
            event.job,
            event.owner,
            event.submission,
            event.time,
            tuple(event.clusters),
            event.deadline,
            event.key,
            priority=event.priority,
            resources=tuple(sorted(event.submission.get("resources", {}).items())),
            bag=event.bag,
            booking=event.booking,
        )
        if event.key:
            self.by_key[event.owner, event.key] = event.job
        self._store(job)

    def _apply_to_attempt(self, event: AttemptEvent) -> None:
        job = self._find(event.job)
        if isinstance(event, ClusterChosen):
            if event.attempt != len(job.attempts) + 1 or job.over or job.newest is not None:
                raise ImpossibleError(f"job {job.id}: attempt {event.attempt} cannot be made now")
            attempt = TransferAttempt(
                event.attempt,
                event.cluster,
                event.user,
                "submitting",
                event.time,
                event.start,
                event.end,
                event.why,
            )
            self._store(replace(job, attempts=(*job.attempts, attempt)))
            return
        if not 0 < event.attempt <= len(job.attempts):
            raise ImpossibleError(f"job {job.id} has no attempt {event.attempt}")
        attempt = job.attempts[event.attempt - 1]
        allowed, change = _CHANGES[type(event)]
        if attempt.phase not in allowed:
            raise ImpossibleError(f"job {job.id}: {event.type} of attempt {attempt.number}, {attempt.phase}")
        if isinstance(event, AttemptReleaseRequested) and (
            job.active is not None or job.over or job.cancelled
        ):
            raise ImpossibleError(f"job {job.id}: attempt {attempt.number} must not run")
        attempt = replace(change(attempt, event), since=event.time)
        attempts = (*job.attempts[: event.attempt - 1], attempt, *job.attempts[event.attempt :])
        job = replace(job, attempts=attempts)
        if (
            isinstance(event, AttemptEnded)
            and not job.over
            and (attempt.release_requested or job.active is None)
        ):
            over: JobOutcome = "cancelled" if job.cancelled and event.how == "deleted" else event.how
            job = replace(job, over=over, over_at=event.time, exit_status=event.exit_status)
        elif isinstance(event, AttemptWithdrawn) and job.cancelled and job.active is None and not job.over:
            job = replace(job, over="cancelled", over_at=event.time)
        self._store(job)

    def _find(self, name: str) -> FederationJob:
        job = self.by_id.get(name)
        if job is None:
            raise ImpossibleError(f"there is no job {name}")
        return job

    def _store(self, job: FederationJob) -> None:
        self.by_id[job.id] = job
        if job.settled:
            self.open.pop(job.id, None)
        else:
            self.open[job.id] = None
        if job.settled or (job.waits and all(one.phase in (*_SAFE, "released") for one in job.attempts)):
            self.unsettled.pop(job.id, None)
        else:
            self.unsettled[job.id] = None
        for one in job.attempts:
            name = (job.id, one.number)
            for where, phases in ((self.attempts_at, (*_LIVE, "withdrawing")), (self.pending_steps, _TO_DO)):
                if one.phase in phases:
                    where.setdefault(one.cluster, {})[name] = None
                elif one.cluster in where:
                    where[one.cluster].pop(name, None)


_Change = Callable[[TransferAttempt, Any], TransferAttempt]
_CHANGES: Final[Mapping[type, tuple[Iterable[AttemptPhase], _Change]]] = {
    AttemptHeld: (
        ("submitting",),
        lambda one, event: replace(one, phase="held", server_job=event.server_job),
    ),
    AttemptRefused: (
        ("submitting", "held"),
        lambda one, event: replace(one, phase="refused", text=event.text),
    ),
    AttemptReleaseRequested: (
        ("held",),
        lambda one, _: replace(one, phase="releasing", release_requested=True),
    ),
    AttemptReleased: (("releasing",), lambda one, _: replace(one, phase="released")),
    WithdrawalRequested: (_LIVE, lambda one, event: replace(one, phase="withdrawing", text=event.why)),
    AttemptWithdrawn: (("withdrawing",), lambda one, _: replace(one, phase="withdrawn")),
    WithdrawalFailed: (("withdrawing",), lambda one, event: replace(one, phase="released", text=event.text)),
    AttemptEnded: (
        ("held", "releasing", "released", "withdrawing"),
        lambda one, event: replace(
            one, phase="ended" if one.release_requested else "refused", text=event.how
        ),
    ),
}
"""Allowed phases of each event, and its effect on the attempt."""
