"""Does for bags what is to be done: shares out anew what a cluster refused.

One thread for all bags. The shares are jobs of the federation, and go their way as those do.
"""

import threading
import time
from collections.abc import Callable

import structlog

from schedd.client import ClientError
from schedd.federation.bags.bag import Bag, count, missing, settled
from schedd.federation.bags.events import BagAsked
from schedd.federation.bags.offers import Balance
from schedd.federation.roof.roof import Roof
from schedd.federation.routing.seen import transfer
from schedd.federation.threads.asking import ask, ends_of, sizes_of, split_of
from schedd.federation.threads.peers import Connect, client_of
from schedd.store import StoreError
from schedd.supervision import ThreadedWork

__all__ = ["BagKeeper"]

_log = structlog.get_logger(__name__)


class BagKeeper(ThreadedWork):
    """The work for all bags, in one thread."""

    def __init__(
        self,
        roof: Roof,
        stopping: threading.Event,
        clock: Callable[[], float] = time.time,
        connect: Connect = client_of,
    ) -> None:
        super().__init__(roof.supervisor, "bags")
        self._roof = roof
        self._stopping = stopping
        self._clock = clock
        self._connect = connect
        self._asked: dict[str, float] = {}
        """By bag, when plans were asked for it last."""
        self._told: dict[str, int] = {}
        """By share, when its bag was said to end as a whole."""

    def run(self) -> None:
        """Rounds until it is to stop."""
        while not self._stopping.is_set():
            self._roof.of_bags.bell.clear()
            for name in list(self._roof.bags.open):
                if self._stopping.is_set():
                    return
                try:
                    self.tend(name)
                except StoreError as error:
                    _log.error("a bag was not tended", bag=name, why=str(error))
                except Exception as error:  # the others are tended all the same
                    self._failures.note(error)
            self._roof.of_bags.bell.wait(self._roof.settings.routing.poll)
            self._stopping.wait(0.05)

    def tend(self, name: str) -> None:
        """Everything that can be done for one bag now. Raises StoreError."""
        roof = self._roof
        bag = roof.bags[name]
        left = missing(bag, roof.jobs)
        if not left or bag.cancelled or bag.failed:
            roof.of_bags.notes.pop(name, None)
            self._asked.pop(name, None)
            if settled(bag, roof.jobs):
                roof.bags.open.pop(name, None)
        elif self._clock() >= self._asked.get(name, 0.0) + roof.settings.routing.poll:
            self._asked[name] = self._clock()
            self._share(bag)
        if roof.settings.bags.coordinate:
            self._coordinate(roof.bags[name])

    def _coordinate(self, bag: Bag) -> None:
        """Tells each cluster when the bag ends over all of them, where that is news (Netto, algorithm 7)."""
        roof = self._roof
        shares = []
        for job in (roof.jobs[name] for name in bag.shares):
            active = job.active
            seen = roof.standing(job).get(active.number) if active is not None else None
            if job.over:
                self._told.pop(job.id, None)
            elif active is not None and active.phase == "released" and seen is not None and seen.planned_end:
                shares.append((job, active, seen.planned_end))
        whole = max((end for _, _, end in shares), default=0)
        for job, active, _ in shares:
            if self._told.get(job.id) == whole or roof.seen[active.cluster].away:
                continue
            chosen = roof.settings.clusters[active.cluster]
            try:
                with self._connect(chosen, roof.peer_tokens[active.cluster]) as client:
                    client.report_bag_end(transfer(roof.settings.rules, job, active), whole)
            except ClientError as error:
                _log.info("not told", cluster=active.cluster, bag=bag.id, why=str(error))
            self._told[job.id] = whole  # one that was not told is when that changes

    def _share(self, bag: Bag) -> None:
        """Asks the plans of those that did not refuse it, and shares out what they take."""
        roof = self._roof
        left = missing(bag, roof.jobs)
        refused = _refused(bag, roof)
        users = roof.users_of(bag.owner)
        wanted = [name for name in bag.clusters or roof.settings.clusters if name in roof.settings.clusters]
        away = {name: roof.seen[name].away for name in wanted if roof.seen[name].away}
        tasks = count(left)
        sizes = {name: sizes_of(tasks) for name in wanted if name not in refused and name not in away}
        asked = _as_asked(bag, tasks)
        found = ask(roof, bag.owner, users, asked, sizes, self._connect)
        offered: dict[str, int] = {}
        for one in found.offers:
            offered[one.provider] = max(one.tasks, offered.get(one.provider, 0))
        most = min(tasks, sum(offered.values()))
        if most:
            split = split_of(roof, found, most, bag.deadline, _balance(bag, roof))
            assert split is not None, "they offer as much"
            roof.of_bags.share_out(bag.id, left, split.shares, ends_of(found.offers, split))
            return
        whys = {**refused, **{name: f"it does not answer: {why}" for name, why in away.items()}, **found.whys}
        words = "; ".join(f"{name}: {why}" for name, why in sorted(whys.items()))
        hopeless = all(name in refused or name in found.never for name in wanted)
        if hopeless:
            roof.of_bags.fail(bag.id, words or "there is no such cluster")
        else:
            roof.of_bags.notes[bag.id] = f"{tasks} tasks have no cluster yet: {words}"


def _balance(bag: Bag, roof: Roof) -> Balance:
    """As it was asked for, where what that needs is still told."""
    balance = Balance(bag.balance)
    clusters = bag.clusters or tuple(roof.settings.clusters)
    if balance in (Balance.POWER, Balance.LOAD) and not all(roof.seen[name].cpus for name in clusters):
        return Balance.OFFERS
    if balance is Balance.LOAD and not all(roof.counts.get(name) for name in clusters):
        return Balance.POWER
    return balance


def _refused(bag: Bag, roof: Roof) -> dict[str, str]:
    """Clusters whose servers took a share of the bag not, and why."""
    found: dict[str, str] = {}
    for name in bag.shares:
        job = roof.jobs[name]
        if job.over == "refused":
            found |= {one.cluster: one.text for one in job.attempts if one.phase == "refused"}
    return found


def _as_asked(bag: Bag, tasks: int) -> BagAsked:
    """So many of its tasks."""
    return BagAsked(
        resources=dict(bag.submission["resources"]),
        walltime=int(bag.submission["walltime"]),
        cpu_seconds=int(bag.submission["cpu_seconds"]),
        tasks=tasks,
        deadline=bag.deadline,
        clusters=bag.clusters,
        queues=dict(bag.submission.get("queues") or {}),
        balance=bag.balance,
    )
