"""Worker for bags: reassigns the tasks of refused shares.

One thread serves all bags. The shares are jobs of the federation and are transferred by the cluster workers.
"""

import threading
import time
from collections.abc import Callable
from functools import partial

import structlog

from schedd.client import ClientError
from schedd.federation.bags.bags import Bag, bag_settled, count_tasks, unassigned_tasks
from schedd.federation.bags.offers import SharingRule
from schedd.federation.events import BagSpecification
from schedd.federation.routing.cluster_status import transfer_name
from schedd.federation.state.federation_state import FederationState
from schedd.federation.workers.bag_offers import collect_offers, offered_task_counts, share_ends, split_offers
from schedd.federation.workers.cluster_worker import ClientFactory, connect_cluster
from schedd.federation.workers.item_worker import ItemWorker

_log = structlog.get_logger(__name__)


class BagWorker(ItemWorker):
    """Worker thread for all bags."""

    def __init__(
        self,
        federation: FederationState,
        stopping: threading.Event,
        clock: Callable[[], float] = time.time,
        connect: ClientFactory = connect_cluster,
    ) -> None:
        super().__init__("bags", federation, federation.bag_operations, stopping, clock, connect)
        self._asked: dict[str, float] = {}  # time of the last query by bag
        self._reported_ends: dict[str, int] = {}
        """Bag end that was last reported to the share's cluster, by share."""

    def round(self) -> None:
        """Do all pending work of the open bags, those with the earliest deadlines first."""
        bags = self._federation.bags
        for name in sorted(bags.open, key=lambda name: bags[name].deadline):
            if self._stopping.is_set():
                return
            self._guarded(name, partial(self.process, name))

    def process(self, name: str) -> None:
        """Do all pending work of one bag. Raises StoreError."""
        federation = self._federation
        bag = federation.bags[name]
        left = unassigned_tasks(bag, federation.jobs)
        if not left or bag.cancelled or bag.failed:
            federation.bag_operations.notes.pop(name, None)
            self._asked.pop(name, None)
            if bag_settled(bag, federation.jobs):
                federation.bags.open.pop(name, None)
            elif not bag.promised_end:
                federation.bag_operations.accept_deadline(name)
        elif self._is_due(self._asked.get(name, float("-inf")), federation.settings.routing.poll):
            self._asked[name] = self._clock()
            self._assign_rest(bag)
        if federation.settings.bags.coordinate:
            self._report_bag_ends(federation.bags[name])

    def _report_bag_ends(self, bag: Bag) -> None:
        """Report a changed end of the whole bag to each of its clusters (Netto, algorithm 7)."""
        federation = self._federation
        shares = []
        for job in (federation.jobs[name] for name in bag.shares):
            active = job.active
            seen = federation.attempt_statuses(job).get(active.number) if active is not None else None
            if job.over:
                self._reported_ends.pop(job.id, None)
            elif active is not None and active.phase == "released" and seen is not None and seen.planned_end:
                shares.append((job, active, seen.planned_end))
        whole = max((end for _, _, end in shares), default=0)
        for job, active, _ in shares:
            if self._reported_ends.get(job.id) == whole or federation.clusters[active.cluster].away:
                continue
            chosen = federation.settings.clusters[active.cluster]
            try:
                with self._connect(chosen, federation.cluster_tokens[active.cluster]) as client:
                    client.report_bag_end(transfer_name(federation.settings.rules, job, active), whole)
            except ClientError as error:
                _log.info("the bag end was not reported", cluster=active.cluster, bag=bag.id, why=str(error))
            self._reported_ends[job.id] = whole  # after a failure the next change is reported

    def _assign_rest(self, bag: Bag) -> None:
        """Query the clusters that did not refuse the bag, and assign the remaining tasks."""
        federation = self._federation
        left = unassigned_tasks(bag, federation.jobs)
        refused = _refusing_clusters(bag, federation)
        users = federation.cluster_users(bag.owner)
        wanted = [
            name
            for name in bag.clusters or federation.settings.clusters
            if name in federation.settings.clusters
        ]
        away = {name: federation.clusters[name].away for name in wanted if federation.clusters[name].away}
        tasks = count_tasks(left)
        sizes = {
            name: offered_task_counts(tasks) for name in wanted if name not in refused and name not in away
        }
        asked = _specification(bag, tasks)
        found = collect_offers(federation, bag.owner, users, asked, sizes, self._connect)
        offered: dict[str, int] = {}
        for one in found.offers:
            offered[one.provider] = max(one.tasks, offered.get(one.provider, 0))
        most = min(tasks, sum(offered.values()))
        if most:
            split = split_offers(federation, found, most, bag.deadline, _usable_rule(bag, federation))
            assert split is not None, "the offers cover this number of tasks"
            federation.bag_operations.assign_unassigned(
                bag.id, left, split.shares, share_ends(found.offers, split)
            )
            return
        whys = {**refused, **{name: f"it does not answer: {why}" for name, why in away.items()}, **found.whys}
        words = "; ".join(f"{name}: {why}" for name, why in sorted(whys.items()))
        hopeless = all(name in refused or name in found.never for name in wanted)
        if hopeless:
            federation.bag_operations.fail_bag(bag.id, words or "there is no such cluster")
        else:
            federation.bag_operations.notes[bag.id] = f"{tasks} tasks have no cluster yet: {words}"


def _usable_rule(bag: Bag, federation: FederationState) -> SharingRule:
    """Return the requested sharing rule, or a simpler one if its data are not disclosed."""
    balance = SharingRule(bag.balance)
    clusters = bag.clusters or tuple(federation.settings.clusters)
    if balance in (SharingRule.POWER, SharingRule.LOAD) and not all(
        federation.clusters[name].cpus for name in clusters
    ):
        return SharingRule.OFFERS
    if balance is SharingRule.LOAD and not all(federation.job_counts.get(name) for name in clusters):
        return SharingRule.POWER
    return balance


def _refusing_clusters(bag: Bag, federation: FederationState) -> dict[str, str]:
    """Return the clusters with a server that refused a share, with the reason."""
    found: dict[str, str] = {}
    for name in bag.shares:
        job = federation.jobs[name]
        if job.over == "refused":
            found |= {one.cluster: one.text for one in job.attempts if one.phase == "refused"}
    return found


def _specification(bag: Bag, tasks: int) -> BagSpecification:
    """Return the bag's request for this number of tasks."""
    return BagSpecification(
        resources=dict(bag.submission["resources"]),
        walltime=int(bag.submission["walltime"]),
        cpu_seconds=int(bag.submission["cpu_seconds"]),
        tasks=tasks,
        deadline=bag.deadline,
        clusters=bag.clusters,
        queues=dict(bag.submission.get("queues") or {}),
        balance=bag.balance,
    )
