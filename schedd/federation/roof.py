"""The federation at work: its log, its jobs, what it sees of the clusters; under one lock.

Nothing is applied before it is durable, nothing is asked of a cluster before what it follows from is. Whoever
takes over reads the log and asks for the same again.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from schedd.federation.events import Cancelled, Event, Submitted
from schedd.federation.jobs import Job, Jobs
from schedd.federation.log import Log
from schedd.federation.machine import (
    Action,
    ClusterSeen,
    HandoverSeen,
    Offer,
    actions,
    decide,
    handover,
    observe,
)
from schedd.federation.settings import Settings
from schedd.store import StoreError

__all__ = ["Report", "Roof"]

_log = structlog.get_logger(__name__)
_KEPT_S = 7 * 86_400
"""For how long what became of a job can be asked after."""
_FRESH_S = 60
"""For how long an offer counts."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was found of one cluster in a round; ``away``: why nothing was."""

    away: str = ""
    handovers: Mapping[str, HandoverSeen] | None = None
    offers: Mapping[str, Offer] = field(default_factory=dict)
    cpus: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0


class Roof:
    """All clusters under one roof. Thread-safe."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        peer_tokens: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.peer_tokens = peer_tokens
        self._rules = settings.rules
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self.jobs = Jobs()
        self.seen: dict[str, ClusterSeen] = {
            name: ClusterSeen("it was not asked yet", self._now(), speed=one.speed, handicap=one.handicap)
            for name, one in settings.clusters.items()
        }
        self._asked: dict[tuple[str, str], int] = {}
        self.counts: dict[str, Mapping[str, int]] = {}
        self.bells = {name: threading.Event() for name in settings.clusters}
        self._number = 0
        for event in log.read():
            self.jobs.apply(event)
            self._number = max(self._number, int(event.job))
        old = self.jobs.forget(self._now() - _KEPT_S)
        if old:
            log.forget(old)

    def _now(self) -> int:
        return int(self._clock())

    # ---- users ------------------------------------------------------------------------------------

    def submit(self, owner: str, submission: Mapping[str, Any], **more: Any) -> Job:
        """Takes a job; with a ``key`` that was used before, it is that job. Raises StoreError."""
        with self._lock:
            key: str = more.get("key", "")
            known = self.jobs.by_key.get((owner, key)) if key else None
            if known is not None:
                return self.jobs[known]
            self._number += 1
            event = Submitted(
                job=str(self._number), time=self._now(), owner=owner, submission=submission, **more
            )
            self._take([event])
            self._ring()
            return self.jobs[event.job]

    def cancel(self, job: str, by: str) -> Job:
        """Its owner does not want it any more. Raises StoreError and KeyError."""
        with self._lock:
            if not self.jobs[job].over and not self.jobs[job].cancelled:
                self._take([Cancelled(job=job, time=self._now(), by=by)])
                self._decide()
            return self.jobs[job]

    def standing(self, job: Job) -> Mapping[int, HandoverSeen]:
        """By attempt, what its cluster said last of it."""
        found = {}
        for attempt in job.attempts:
            cluster = self.seen.get(attempt.cluster)
            one = cluster.handovers.get(handover(self._rules, job, attempt)) if cluster else None
            if one is not None:
                found[attempt.number] = one
        return found

    # ---- clusters ---------------------------------------------------------------------------------

    def work(self, cluster: str) -> list[Action]:
        """What is to be asked of a cluster now."""
        with self._lock:
            return list(actions(self.jobs, self._rules, cluster))

    def questions(self, cluster: str) -> list[tuple[str, Mapping[str, str], str, str]]:
        """Jobs for which its plan is to be asked: id, resources, queue, user."""
        with self._lock:
            now, chosen = self._now(), self.settings.routing
            found = []
            for name in self.jobs.open:
                job = self.jobs[name]
                user = self.settings.users(job.owner).get(cluster)
                if user is None or job.over or job.cancelled or job.newest is not None:
                    continue
                if job.clusters and cluster not in job.clusters:
                    continue
                if any(one.cluster == cluster and one.phase != "withdrawn" for one in job.attempts):
                    continue
                wait = chosen.again if job.active is not None else chosen.poll
                if job.active is not None and job.moves >= chosen.moves:
                    continue
                if now - self._asked.get((cluster, name), 0) < wait:
                    continue
                self._asked[cluster, name] = now
                submission = job.submission
                queue = submission.get("queues", {}).get(cluster, "")
                found.append((name, submission.get("resources", {}), queue, user))
            return found

    def report(self, cluster: str, report: Report) -> None:
        """Takes in what was found. Where the database fails nothing is; the next report says it again."""
        with self._lock:
            now, before = self._now(), self.seen[cluster]
            if report.handovers is None:
                since = before.since if before.away else now
                self.seen[cluster] = replace(before, away=report.away or "it does not answer", since=since)
                if not before.away:
                    _log.warning("a cluster does not answer", cluster=cluster, why=report.away)
            else:
                if before.away and not report.away:
                    _log.info("a cluster answers", cluster=cluster)
                since = before.since if bool(before.away) == bool(report.away) else now
                offers = {
                    name: offer
                    for name, offer in {**before.offers, **report.offers}.items()
                    if name in self.jobs.open and now - self._asked.get((cluster, name), 0) < _FRESH_S
                }
                self.seen[cluster] = replace(
                    before,
                    away=report.away,
                    since=since,
                    handovers=report.handovers,
                    offers=offers,
                    cpus=report.cpus,
                )
                self.counts[cluster] = report.counts
            try:
                if report.handovers is not None:
                    self._take(observe(self.jobs, self._rules, cluster, report.handovers, now))
                self._decide()
            except StoreError as error:
                _log.error("the log cannot be written; nothing is done", why=str(error))

    def refused(self, action: Action, text: str) -> None:
        """The cluster's schedd refuses a submission as it is. Raises StoreError."""
        seen = {action.handover: HandoverSeen("refused", text=text)}
        with self._lock:
            self._take(observe(self.jobs, self._rules, action.cluster, seen, self._now()))

    # ---- with the lock held -----------------------------------------------------------------------

    def _decide(self) -> None:
        now = self._now()
        users = {owner: self.settings.users(owner) for owner in {self.jobs[j].owner for j in self.jobs.open}}
        for _ in range(3):  # what follows at once from what was decided
            events = decide(self.jobs, self._rules, self.seen, now, users)
            if not events:
                return
            self._take(events)
        self._ring()

    def _take(self, events: Sequence[Event]) -> None:
        if not events:
            return
        self._log.append(events)
        for event in events:
            self.jobs.apply(event)
            _log.info(event.type, job=event.job, attempt=getattr(event, "attempt", None))
        self._ring()

    def _ring(self) -> None:
        for bell in self.bells.values():
            bell.set()
