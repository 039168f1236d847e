"""Bags and their unassigned tasks, as a pure fold over events."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from schedd.federation.bags.events import BagCancelled, BagEvent, BagFailed, BagSubmitted
from schedd.federation.routing.jobs import FederationJob, FederationJobs, ImpossibleError

__all__ = [
    "Bag",
    "Bags",
    "TaskRange",
    "assign_tasks",
    "bag_outcome",
    "bag_settled",
    "format_array",
    "task_range",
    "unassigned_tasks",
]

TaskRange = tuple[int, int]
"""Half-open range of task indices: (first, end)."""
BagOutcome = Literal["", "ended", "cancelled", "incomplete"]


@dataclass(frozen=True, slots=True)
class Bag:
    """State of one bag. Times are seconds since the epoch.

    ``shares`` are job numbers, oldest first. ``failed`` is the reason why the unassigned tasks cannot run.
    """

    id: str
    owner: str
    submission: Mapping[str, Any]
    submitted: int
    tasks: int
    deadline: int
    offered_end: int
    clusters: tuple[str, ...] = ()
    balance: str = "none"
    key: str = ""
    shares: tuple[str, ...] = ()
    cancelled: bool = False
    failed: str = ""


class Bags:
    """All bags, built from events."""

    def __init__(self) -> None:
        self.by_id: dict[str, Bag] = {}
        self.by_key: dict[tuple[str, str], str] = {}
        self.open: dict[str, None] = {}
        """Bags that may not be settled yet, oldest first."""

    def __getitem__(self, bag: str) -> Bag:
        return self.by_id[bag]

    def apply(self, event: BagEvent) -> None:
        """Apply one event. Raises ImpossibleError."""
        match event:
            case BagSubmitted():
                if event.job in self.by_id:
                    raise ImpossibleError(f"bag {event.job} came twice")
                names = ("owner", "submission", "tasks", "deadline", "offered_end", "balance", "key")
                own: dict[str, Any] = {name: getattr(event, name) for name in names}
                bag = Bag(event.job, submitted=event.time, clusters=tuple(event.clusters), **own)
                self.by_id[bag.id] = bag
                self.open[bag.id] = None
                if event.key:
                    self.by_key[event.owner, event.key] = bag.id
            case BagCancelled():
                self.by_id[event.job] = replace(self._find(event.job), cancelled=True)
            case BagFailed():
                self.by_id[event.job] = replace(self._find(event.job), failed=event.text)

    def add_share(self, job: FederationJob) -> None:
        """Add a job as a share of its bag. Raises ImpossibleError."""
        bag = self._find(job.bag)
        self.by_id[bag.id] = replace(bag, shares=(*bag.shares, job.id))

    def forget(self, jobs: FederationJobs, before: int, among: Iterable[str]) -> tuple[str, ...]:
        """Drop settled bags in ``among`` that ended before that time, with their shares. Return all dropped
        numbers.
        """
        gone = []
        for name in among:
            bag = self.by_id.get(name)
            if bag is not None and bag_settled(bag, jobs) and bag_end(bag, jobs) < before:
                del self.by_id[bag.id]
                self.open.pop(bag.id, None)
                self.by_key.pop((bag.owner, bag.key), None)
                gone += [bag.id, *bag.shares]
        jobs.drop(gone)
        return tuple(gone)

    def _find(self, name: str) -> Bag:
        bag = self.by_id.get(name)
        if bag is None:
            raise ImpossibleError(f"there is no bag {name}")
        return bag


def task_range(job: FederationJob) -> TaskRange:
    """Return the tasks of a share."""
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
    """Yield (cluster, tasks): each cluster gets its number of tasks in order. A gap between ranges splits a
    share.
    """
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
