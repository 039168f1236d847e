"""Operations on bags: submit, assign, cancel. Each operation is stored in full or not at all."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from schedd.federation.bags.bags import (
    Bag,
    TaskRange,
    assign_tasks,
    count_tasks,
    format_array,
    unassigned_tasks,
)
from schedd.federation.bags.issued_offers import BagOffer, IssuedOffers
from schedd.federation.elapsed_time import has_waited
from schedd.federation.events import (
    BagDeadlineAccepted,
    BagSpecification,
    BagSubmitted,
    FederationEvent,
    ItemCancelled,
    ItemEnded,
    JobSubmitted,
)
from schedd.federation.routing.cluster_status import ClusterStatus, attempt_statuses
from schedd.federation.settings import FederationSettings
from schedd.federation.state.item_operations import ItemOperations

_SETTLING_S: Final = 30  # seconds after a share's release until its cluster is sure to have planned it


class OffersOutdatedError(Exception):
    """Outdated offers: a share of another bag is in transit and not in the cluster's plan yet."""


class BagOperations(ItemOperations[Bag]):
    """Operations on bags. Thread-safe.

    ``commit_new`` builds events from the current time and the first free number, and stores them atomically.
    """

    def __init__(
        self,
        settings: FederationSettings,
        clusters: Mapping[str, ClusterStatus],
        commit_new: Callable[[Callable[[int, int], Sequence[FederationEvent]]], None],
        *shared: Any,
    ) -> None:
        super().__init__(*shared)
        self._expiry, self._margin = settings.bags.expiry, settings.bags.margin
        self.array = settings.bags.array  # maximum tasks in one array
        self._rules = settings.rules
        self._clusters = clusters
        self._commit_new = commit_new

    @property
    def offers(self) -> IssuedOffers:
        return self._record.offers

    def create_offer(self, owner: str, asked: BagSpecification, **found: Any) -> BagOffer:
        """Return a new unissued offer with ``split``, ``ends``, ``plans`` and the fields of the reply."""
        return BagOffer(secrets.token_hex(8), owner, asked, expires=self._now() + self._expiry, **found)

    def issue_offer(self, offer: BagOffer) -> None:
        """Store an offer durably, so that it can be accepted. Raises StoreError: then do not show it."""
        with self._lock.request():
            self._record.commit_offer(offer, self._now())

    def submit(
        self,
        owner: str,
        submission: Mapping[str, Any],
        asked: BagSpecification,
        shares: Mapping[str, int],
        ends: Mapping[str, int],
        key: str = "",
        *,
        offer: str = "",
        only_if_planned: bool = False,
    ) -> Bag:
        """Submit a bag with its shares, the number of tasks by cluster. Return the existing bag for a known
        ``key``.

        ``ends`` are the offered ends by cluster. With ``only_if_planned``, no share of another bag may be in
        transit to these clusters. ``offer`` is the name of the accepted offer. Raises OffersOutdatedError,
        StoreError, and LookupError if the offer was accepted by another request meanwhile.
        """
        made: list[str] = []

        def make(now: int, number: int) -> Sequence[FederationEvent]:
            known = self._items.by_owner_key(owner, key)
            if known is not None:
                made.append(known.id)
                return []
            if offer:
                self.offers.find(offer, owner)
            if only_if_planned:
                self._check_no_share_in_transit(shares, now)
            made.append(str(number))
            bag = BagSubmitted(
                job=str(number),
                time=now,
                owner=owner,
                submission=submission,
                tasks=asked.tasks,
                deadline=asked.deadline,
                offered_end=max(ends.values()),
                clusters=asked.clusters,
                balance=asked.balance,
                key=key,
                offer=offer,
            )
            parts = assign_tasks([(0, asked.tasks)], shares)
            return [bag, *_shares(self.array, Bag.create(bag), parts, ends, now, number + 1)]

        self._commit_new(make)
        return self._items[made[0]]

    def assign_unassigned(
        self, name: str, tasks: Sequence[TaskRange], shares: Mapping[str, int], ends: Mapping[str, int]
    ) -> None:
        """Assign unassigned tasks to other clusters, unless they changed meanwhile. Raises StoreError."""

        def make(now: int, number: int) -> Sequence[FederationEvent]:
            bag = self._items[name]
            if bag.cancelled or bag.failed or unassigned_tasks(bag, self._record.jobs) != tuple(tasks):
                return []
            return _shares(self.array, bag, assign_tasks(tasks, shares), ends, now, number)

        self._commit_new(make)

    def fail_bag(self, name: str, text: str) -> None:
        """Mark the bag as failed because no cluster takes its unassigned tasks. Raises StoreError."""

        def make(now: int, _: int) -> Sequence[FederationEvent]:
            bag = self._items[name]
            if bag.cancelled or bag.failed or not unassigned_tasks(bag, self._record.jobs):
                return []
            left = count_tasks(unassigned_tasks(bag, self._record.jobs))
            return [ItemEnded(how="failed", job=name, time=now, text=f"{left} tasks have no cluster: {text}")]

        self._commit_new(make)

    def accept_deadline(self, name: str) -> None:
        """Accept the deadline if the clusters promise all ends a margin before it. Raises StoreError."""

        def make(now: int, _: int) -> Sequence[FederationEvent]:
            bag = self._items[name]
            end = self._promised_end(bag)
            if bag.promised_end or bag.cancelled or bag.failed:
                return []
            if end is None or end > bag.deadline - self._margin:
                return []
            return [BagDeadlineAccepted(job=name, time=now, end=end)]

        self._commit_new(make)

    def _promised_end(self, bag: Bag) -> int | None:
        """Return the end of the bag's last task that the clusters promise; None: not all tasks have one."""
        jobs = self._record.jobs
        if unassigned_tasks(bag, jobs):
            return None
        ends: list[int] = []
        for job in (jobs[share] for share in bag.shares if jobs[share].over != "refused"):
            active, end = job.active, job.over_at if job.over == "ended" else None
            if active is not None and not job.over:
                seen = attempt_statuses(self._clusters, self._rules, job).get(active.number)
                end = seen.promised_end if seen is not None else None
            if end is None:
                return None
            ends.append(end)
        return max(ends)

    def cancel(self, name: str, by: str) -> Bag:
        """Cancel the bag: waiting tasks are withdrawn, running go on. Raises StoreError, KeyError."""

        def make(now: int, _: int) -> Sequence[FederationEvent]:
            bag = self._items[name]
            if bag.cancelled:
                return []
            jobs = (self._record.jobs[one] for one in bag.shares)
            left = [one.id for one in jobs if not one.over and not one.cancelled]
            if not left and not unassigned_tasks(bag, self._record.jobs):
                return []
            return [
                ItemCancelled(job=name, time=now, by=by),
                *(ItemCancelled(job=one, time=now, by=by) for one in left),
            ]

        self._commit_new(make)
        return self._items[name]

    def _check_no_share_in_transit(self, clusters: Iterable[str], now: int) -> None:
        """Raise OffersOutdatedError if another bag's share is in transit to any of the clusters."""
        for cluster in clusters:
            for name, number in self._record.jobs.attempts_at.get(cluster, ()):
                job = self._record.jobs[name]
                attempt = job.attempts[number - 1]
                seen = attempt_statuses(self._clusters, self._rules, job).get(number) if job.bag else None
                planned = seen is not None and seen.state not in ("", "waiting")
                young = attempt.phase != "released" or not has_waited(attempt.since, now, _SETTLING_S)
                if job.bag and attempt.live and young and not planned:
                    raise OffersOutdatedError(
                        f"bag {job.bag} was just submitted to {cluster}, and is not in its plan yet"
                    )


def _shares(
    most: int,
    bag: Bag,
    parts: Iterable[tuple[str, TaskRange]],
    ends: Mapping[str, int],
    now: int,
    number: int,
) -> list[JobSubmitted]:
    """Return a job for each array, with the bag's deadline; an array has at most ``most`` tasks."""
    found: list[JobSubmitted] = []
    submission = bag.submission
    for cluster, (first, end) in parts:
        for begin in range(first, end, most):
            tasks = (begin, min(end, begin + most))
            own = {name: value for name, value in submission.items() if name != "users"}
            own |= {"array": format_array(tasks), "offered_end": ends[cluster]}
            own["cpu_seconds"] = submission["cpu_seconds"] * (tasks[1] - tasks[0])
            found.append(
                JobSubmitted(
                    job=str(number + len(found)),
                    time=now,
                    owner=bag.owner,
                    submission=own,
                    clusters=(cluster,),
                    deadline=bag.deadline,
                    bag=bag.id,
                )
            )
    return found
