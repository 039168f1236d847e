"""Jobs of a federation and their attempts, as a pure fold over events."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, NamedTuple, Self

from schedd.federation.events import (
    AttemptEnded,
    AttemptEvent,
    AttemptHeld,
    AttemptRefused,
    AttemptReleased,
    AttemptReleaseRequested,
    AttemptWithdrawn,
    ClusterChosen,
    FederationEvent,
    ItemCancelled,
    ItemEnded,
    JobSubmitted,
    WithdrawalFailed,
    WithdrawalRequested,
)
from schedd.federation.items import Attempt, FederationItem, ItemOutcome, Items, Transitions

_SAFE: Final = ("withdrawn", "refused")  # phases of an attempt that has not run and never will
_TO_DO: Final = ("submitting", "releasing", "withdrawing")  # phases with a request to send to the cluster


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferAttempt(Attempt):
    """A job's transfer to one cluster; ``start`` and ``end`` as its plan answered at the choice."""

    start: int | None = None
    end: int | None = None
    server_job: str = ""
    release_requested: bool = False

    @property
    def may_run(self) -> bool:
        """Whether the attempt may run, may be running or may have run."""
        return self.release_requested and self.phase not in _SAFE


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationJob(FederationItem[TransferAttempt]):
    """One job of a user."""

    submission: Mapping[str, Any]
    deadline: int | None = None
    exit_status: int | None = None
    priority: int = 0
    """Priority among the federation's jobs by deadline, licences and user; fixed at submission."""
    resources: tuple[tuple[str, str], ...] = ()  # requested resources, sorted by name
    bag: str = ""  # number of the bag; the job is an array of its tasks and stays at its cluster
    booking: str = ""  # number of the job's booking; the job runs at the booking's cluster

    transitions: ClassVar[Transitions] = {
        AttemptHeld: (("submitting",), "held"),
        AttemptRefused: (("submitting", "held"), "refused"),
        AttemptReleaseRequested: (("held",), "releasing"),
        AttemptReleased: (("releasing",), "released"),
        WithdrawalRequested: (("submitting", "held", "releasing", "released"), "withdrawing"),
        AttemptWithdrawn: (("withdrawing",), "withdrawn"),
        WithdrawalFailed: (("withdrawing",), "released"),
        AttemptEnded: (("held", "releasing", "released", "withdrawing"), "ended"),
    }

    @classmethod
    def create(cls, event: JobSubmitted) -> Self:
        return cls(
            id=event.job,
            owner=event.owner,
            submitted=event.time,
            clusters=tuple(event.clusters),
            key=event.key,
            submission=event.submission,
            deadline=event.deadline,
            priority=event.priority,
            resources=tuple(sorted(event.submission.get("resources", {}).items())),
            bag=event.bag,
            booking=event.booking,
        )

    def apply(self, event: FederationEvent) -> Self:
        """Return the job after the event. Raises ImpossibleError if the event cannot follow."""
        match event:
            case ItemCancelled():
                over: ItemOutcome = "" if self.active is not None else "cancelled"
                return replace(self, cancelled=True, over=self.over or over, over_at=event.time)
            case ItemEnded():
                self.require(self.active is None, event)
                return replace(self, over=event.how, over_at=event.time, text=event.text)
            case ClusterChosen():
                free = not self.over and self.newest is None
                self.require(free and event.attempt == len(self.attempts) + 1, event)
                attempt = TransferAttempt(
                    number=event.attempt,
                    cluster=event.cluster,
                    user=event.user,
                    since=event.time,
                    start=event.start,
                    end=event.end,
                    why=event.why,
                )
                return replace(self, attempts=(*self.attempts, attempt))
            case AttemptReleaseRequested():
                self.require(self.active is None and not self.over and not self.cancelled, event)
                return self.advance_attempt(event, release_requested=True)
            case AttemptWithdrawn():
                job = self.advance_attempt(event)
                if job.cancelled and job.active is None and not job.over:
                    job = replace(job, over="cancelled", over_at=event.time)
                return job
            case AttemptEnded():
                return self._end_attempt(event)
            case AttemptEvent():
                return self.advance_attempt(event)
        self.require(False, event)
        return self

    def _end_attempt(self, event: AttemptEnded) -> Self:
        released = any(one.number == event.attempt and one.release_requested for one in self.attempts)
        # Without a release it was deleted before it could run.
        phase = "ended" if released else "refused"
        job = self.advance_attempt(event, text=event.text or event.how, phase=phase)
        if job.over or not (released or job.active is None):
            return job
        over: ItemOutcome = "cancelled" if job.cancelled and event.how == "deleted" else event.how
        return replace(job, over=over, over_at=event.time, exit_status=event.exit_status, text=event.text)

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


class FederationJobs(Items[FederationJob]):
    """All jobs, built from events."""

    kind = FederationJob

    def __init__(self) -> None:
        super().__init__()
        self.unsettled: dict[str, None] = {}
        """Open jobs that are in transit; waiting and running jobs are not included."""
        self.attempts_at: dict[str, dict[tuple[str, int], None]] = {}
        """Unfinished attempts by cluster, each as (job, attempt number)."""
        self.pending_steps: dict[str, dict[tuple[str, int], None]] = {}
        """Attempts with a request to send, by cluster."""

    def is_old(self, item: FederationJob, before: int) -> bool:
        """Return whether the job may be dropped. Bag shares are dropped with their bags."""
        return not item.bag and super().is_old(item, before)

    def store(self, item: FederationJob) -> None:
        super().store(item)
        resting = item.waits and all(one.phase in (*_SAFE, "released") for one in item.attempts)
        if item.settled or resting:
            self.unsettled.pop(item.id, None)
        else:
            self.unsettled[item.id] = None
        for one in item.attempts:
            name = (item.id, one.number)
            for where, listed in (
                (self.attempts_at, not one.final),
                (self.pending_steps, one.phase in _TO_DO),
            ):
                if listed:
                    where.setdefault(one.cluster, {})[name] = None
                elif one.cluster in where:
                    where[one.cluster].pop(name, None)
