"""A federation's jobs and their attempts, and how each event changes them. Pure: events in, jobs out."""

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
"""Phases in which an attempt has not run and never will."""
_TO_DO: Final = ("submitting", "releasing", "withdrawing")
"""Phases in which something is to be asked of the cluster."""


class PlanQuestion(NamedTuple):
    """What a cluster's plan is asked of a job. Jobs that ask for the same share the answer."""

    resources: tuple[tuple[str, str], ...]
    queue: str
    user: str
    tasks: int = 0
    """Of an array: so many such jobs; its end is that of the last of them."""


def count_array_tasks(array: str) -> int:
    """How many indices there are from the first to the last, such as ``0-9``; 0: there are none."""
    first, _, last = array.partition("-")
    return int(last) - int(first) + 1 if array else 0


class ImpossibleError(Exception):
    """An event that cannot follow what happened before it: a defect, or a log that is not one's own."""


@dataclass(frozen=True, slots=True)
class TransferAttempt:
    """A copy of a job at one cluster. ``start`` and ``end`` are what its plan said when it was chosen."""

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
        """Whether it is wanted."""
        return self.phase in _LIVE

    @property
    def may_run(self) -> bool:
        """Whether it may run, may be running or may have run."""
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
    """Among the federation's own jobs, by deadline, licences and user; fixed at submission."""
    resources: tuple[tuple[str, str], ...] = ()
    """Its resources, in order of their names."""
    bag: str = ""
    """The bag of whose tasks it is an array; it goes to its one cluster and stays there."""
    booking: str = ""
    """The booking in which it is to run: it goes to the cluster where that is, and stays there."""

    @property
    def bound(self) -> bool:
        """Whether it goes to its one cluster, whatever the plans say."""
        return bool(self.bag or self.booking)

    @property
    def stays(self) -> bool:
        """Whether it is not moved from the cluster where it was sent."""
        return bool(self.array or self.booking)

    def question(self, cluster: str, user: str) -> PlanQuestion:
        """What a cluster is asked of it."""
        queues: Mapping[str, str] = self.submission.get("queues") or {}
        return PlanQuestion(self.resources, queues.get(cluster, ""), user, self.tasks)

    @property
    def array(self) -> str:
        """The first and the last of its indices, where it is an array; such a job stays where it was sent."""
        found: str = self.submission.get("array", "")
        return found

    @property
    def tasks(self) -> int:
        """How many jobs an array is; 0: it is none."""
        return count_array_tasks(self.array)

    @property
    def active(self) -> TransferAttempt | None:
        """The attempt that may run."""
        return next((one for one in self.attempts if one.may_run), None)

    @property
    def newest(self) -> TransferAttempt | None:
        """The newest attempt that is wanted, beside the active one where that is another."""
        found = [one for one in self.attempts if one.live and not one.release_requested]
        return found[-1] if found else None

    @property
    def moves(self) -> int:
        """How often it was let go elsewhere than before."""
        return max(0, sum(one.release_requested for one in self.attempts) - 1)

    @property
    def waits(self) -> bool:
        """Whether it is let go somewhere, and nothing is under way with it."""
        active = self.active
        return active is not None and active.phase == "released" and not self.cancelled and not self.over

    @property
    def settled(self) -> bool:
        """Whether nothing is left to be done for it, at any cluster."""
        return bool(self.over) and all(one.phase in (*_SAFE, "ended") for one in self.attempts)


class FederationJobs:
    """All jobs, as the events so far made them."""

    def __init__(self) -> None:
        self.by_id: dict[str, FederationJob] = {}
        self.by_key: dict[tuple[str, str], str] = {}
        self.open: dict[str, None] = {}
        """Jobs for which something is left to be done, oldest first."""
        self.unsettled: dict[str, None] = {}
        """Those of them that do not just wait at a cluster, or run there."""
        self.attempts_at: dict[str, dict[tuple[str, int], None]] = {}
        """By cluster: attempts there that are not over, by job and number."""
        self.pending_steps: dict[str, dict[tuple[str, int], None]] = {}
        """By cluster: those of them for which something is to be asked of it."""

    def __getitem__(self, job: str) -> FederationJob:
        return self.by_id[job]

    def apply(self, event: JobEvent) -> None:
        """Takes one event in. Raises ImpossibleError."""
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
        """Drops those of the jobs ``among`` these that were settled before that moment; returns them. Shares
        go with their bags.
        """
        jobs = (job for name in among if (job := self.by_id.get(name)) is not None and not job.bag)
        gone = tuple(job.id for job in jobs if job.settled and job.over_at < before)
        self.drop(gone)
        return gone

    def drop(self, names: Iterable[str]) -> None:
        """Forgets these, as far as they are known."""
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
"""In which phases an event may come, and what it makes of the attempt."""
