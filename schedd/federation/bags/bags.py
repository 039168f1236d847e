"""Bags, and which of their tasks have a share. Pure: events in, bags out."""

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
"""Tasks from the first on, before the second."""
BagOutcome = Literal["", "ended", "cancelled", "incomplete"]


@dataclass(frozen=True, slots=True)
class Bag:
    """Times are seconds since the epoch. ``shares`` are jobs, oldest first; ``failed`` says why the tasks
    without one go nowhere.
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
    """All bags, as the events so far made them."""

    def __init__(self) -> None:
        self.by_id: dict[str, Bag] = {}
        self.by_key: dict[tuple[str, str], str] = {}
        self.open: dict[str, None] = {}
        """Bags of which it is not known yet that nothing is left to be done, oldest first."""

    def __getitem__(self, bag: str) -> Bag:
        return self.by_id[bag]

    def apply(self, event: BagEvent) -> None:
        """Takes one event in. Raises ImpossibleError."""
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
        """A job is a share of its bag. Raises ImpossibleError."""
        bag = self._find(job.bag)
        self.by_id[bag.id] = replace(bag, shares=(*bag.shares, job.id))

    def forget(self, jobs: FederationJobs, before: int, among: Iterable[str]) -> tuple[str, ...]:
        """Drops those of the bags ``among`` these that were over before that moment, with their shares;
        returns all their numbers.
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
    """The tasks of a share."""
    first, _, last = job.submission["array"].partition("-")
    return int(first), int(last) + 1


def format_array(tasks: TaskRange) -> str:
    """As a share's submission has them."""
    return f"{tasks[0]}-{tasks[1] - 1}"


def unassigned_tasks(bag: Bag, jobs: FederationJobs) -> tuple[TaskRange, ...]:
    """The tasks that no share has that goes somewhere, ran, or was taken back."""
    had = sorted(task_range(jobs[name]) for name in bag.shares if jobs[name].over != "refused")
    found = []
    at = 0
    for first, end in (*had, (bag.tasks, bag.tasks)):
        if first > at:
            found.append((at, first))
        at = max(at, end)
    return tuple(found)


def count_tasks(ranges: Sequence[TaskRange]) -> int:
    """How many tasks these are."""
    return sum(end - first for first, end in ranges)


def assign_tasks(ranges: Sequence[TaskRange], shares: Mapping[str, int]) -> Iterator[tuple[str, TaskRange]]:
    """Which of the tasks go to which cluster: so many to each, in order; a gap between two makes two
    shares.
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
    """Whether nothing is left to be done for it, at any cluster."""
    if not all(jobs[name].settled for name in bag.shares):
        return False
    return bag.cancelled or bool(bag.failed) or not unassigned_tasks(bag, jobs)


def bag_end(bag: Bag, jobs: FederationJobs) -> int:
    """When the last of its shares was over."""
    return max((jobs[name].over_at for name in bag.shares), default=bag.submitted)


def bag_outcome(bag: Bag, jobs: FederationJobs) -> BagOutcome:
    """What became of it; empty while something may still run."""
    shares = [jobs[name] for name in bag.shares]
    if not (bag.cancelled or bag.failed) and unassigned_tasks(bag, jobs):
        return ""
    if not all(one.over for one in shares):
        return ""
    if bag.cancelled:
        return "cancelled"
    whole = not bag.failed and all(one.over in ("ended", "refused") for one in shares)
    return "ended" if whole else "incomplete"
