"""Bags and their unassigned tasks, as a pure fold over events."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from schedd.federation.events import (
    BagDeadlineAccepted,
    BagSubmitted,
    FederationEvent,
    ItemCancelled,
    ItemEnded,
)
from schedd.federation.items import Attempt, FederationItem, ImpossibleError, Items
from schedd.federation.routing.jobs import FederationJob, FederationJobs

TaskRange = tuple[int, int]  # Half-open range of task indices: (first, end)
BagOutcome = Literal["", "ended", "cancelled", "incomplete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bag(FederationItem[Attempt]):
    """State of one bag. Its shares are jobs, which have the attempts.

    ``shares`` are job numbers, oldest first. ``failed`` is the reason why the unassigned tasks cannot run.
    ``promised_end`` is the guaranteed end of an accepted deadline, 0 if it is not accepted.
    """

    submission: Mapping[str, Any]
    tasks: int
    deadline: int
    offered_end: int
    balance: str = "none"
    shares: tuple[str, ...] = ()
    failed: str = ""
    promised_end: int = 0

    @classmethod
    def create(cls, event: BagSubmitted) -> Self:
        return cls(
            id=event.job,
            owner=event.owner,
            submitted=event.time,
            clusters=tuple(event.clusters),
            key=event.key,
            submission=event.submission,
            tasks=event.tasks,
            deadline=event.deadline,
            offered_end=event.offered_end,
            balance=event.balance,
        )

    def apply(self, event: FederationEvent) -> Self:
        """Return the bag after the event. Raises ImpossibleError if the event cannot follow."""
        match event:
            case ItemCancelled():
                return replace(self, cancelled=True)
            case ItemEnded():
                return replace(self, failed=event.text)
            case BagDeadlineAccepted():
                self.require(not self.promised_end, event)
                return replace(self, promised_end=event.end)
        self.require(False, event)
        return self


class Bags(Items[Bag]):
    """All bags, built from events. Their outcomes follow from the jobs."""

    kind = Bag

    def __init__(self, jobs: FederationJobs) -> None:
        super().__init__()
        self._jobs = jobs

    def add_share(self, job: FederationJob) -> None:
        """Add a job as a share of its bag. Raises ImpossibleError."""
        bag = self.by_id.get(job.bag)
        if bag is None:
            raise ImpossibleError(f"there is no bag {job.bag}")
        self.store(replace(bag, shares=(*bag.shares, job.id)))

    def is_settled(self, item: Bag) -> bool:
        """Return whether the bag is over and no transfer of its shares is pending."""
        return bag_settled(item, self._jobs)

    def is_old(self, item: Bag, before: int) -> bool:
        """Return whether the bag is settled and its last share ended before that time."""
        return self.is_settled(item) and bag_end(item, self._jobs) < before

    def forget(self, before: int, among: Iterable[str]) -> tuple[str, ...]:
        """Drop settled bags in ``among`` that ended before, with their shares. Return the numbers."""
        shares = {name: self.by_id[name].shares for name in among if name in self.by_id}
        bags = super().forget(before, shares)
        dropped = [share for name in bags for share in shares[name]]
        self._jobs.drop(dropped)
        return (*bags, *dropped)


def task_range(job: FederationJob) -> TaskRange:
    first, _, last = job.submission["array"].partition("-")
    return int(first), int(last) + 1


def format_array(tasks: TaskRange) -> str:
    """Return the range as a share's ``array`` text, such as ``0-9``."""
    return f"{tasks[0]}-{tasks[1] - 1}"


def unassigned_tasks(bag: Bag, jobs: FederationJobs) -> tuple[TaskRange, ...]:
    """Return the tasks without a share, as ranges in order; refused shares are not counted."""
    had = sorted(task_range(jobs[name]) for name in bag.shares if jobs[name].over != "refused")
    found = []
    at = 0
    for first, end in (*had, (bag.tasks, bag.tasks)):
        if first > at:
            found.append((at, first))
        at = max(at, end)
    return tuple(found)


def count_tasks(ranges: Sequence[TaskRange]) -> int:
    """Return the number of tasks in the ranges."""
    return sum(end - first for first, end in ranges)


def assign_tasks(ranges: Sequence[TaskRange], shares: Mapping[str, int]) -> Iterator[tuple[str, TaskRange]]:
    """Yield (cluster, tasks) in order of tasks; a gap between ranges splits a share."""
    left = list(ranges)
    for cluster, wanted in shares.items():
        tasks = wanted
        while tasks and left:
            first, end = left.pop(0)
            mine = min(tasks, end - first)
            yield cluster, (first, first + mine)
            tasks -= mine
            if first + mine < end:
                left.insert(0, (first + mine, end))


def bag_settled(bag: Bag, jobs: FederationJobs) -> bool:
    """Return whether the bag is over and no transfer of its shares is pending."""
    if not all(jobs[name].settled for name in bag.shares):
        return False
    return bag.cancelled or bool(bag.failed) or not unassigned_tasks(bag, jobs)


def bag_end(bag: Bag, jobs: FederationJobs) -> int:
    """Return the end of the last share."""
    return max((jobs[name].over_at for name in bag.shares), default=bag.submitted)


def bag_outcome(bag: Bag, jobs: FederationJobs) -> BagOutcome:
    """Return the outcome of the bag; empty while a task may still run."""
    shares = [jobs[name] for name in bag.shares]
    if not (bag.cancelled or bag.failed) and unassigned_tasks(bag, jobs):
        return ""
    if not all(one.over for one in shares):
        return ""
    if bag.cancelled:
        return "cancelled"
    whole = not bag.failed and all(one.over in ("ended", "refused") for one in shares)
    return "ended" if whole else "incomplete"
