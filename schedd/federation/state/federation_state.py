"""The federation at work: its log, its jobs, what it sees of the clusters; under one lock.

Nothing is applied before it is durable, nothing is asked of a cluster before what it follows from is. Whoever
takes over reads the log and asks for the same again.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import structlog

from schedd.federation.event_log import FederationLog
from schedd.federation.events import FederationEvent
from schedd.federation.routing.candidates import ClusterLoads, compute_loads, job_priority
from schedd.federation.routing.cluster_status import (
    ClusterStatus,
    PlanOffer,
    TransferStatus,
    attempt_statuses,
)
from schedd.federation.routing.decisions import TransferAction, decide, observe_transfers, pending_actions
from schedd.federation.routing.events import (
    AttemptEvent,
    AttemptReleased,
    ClusterChosen,
    JobCancelled,
    JobSubmitted,
)
from schedd.federation.routing.jobs import FederationJob, FederationJobs, PlanQuestion
from schedd.federation.routing.plan_offers import PlanOffers
from schedd.federation.routing.plan_queries import clusters_to_ask
from schedd.federation.routing.priorities import Backlog
from schedd.federation.settings import FederationSettings
from schedd.federation.state.bag_operations import BagOperations
from schedd.federation.state.booking_operations import BookingOperations
from schedd.federation.state.coallocation_operations import CoAllocationOperations
from schedd.federation.state.licence_leases import LicenceLeases
from schedd.federation.state.logged_state import LoggedState
from schedd.federation.state.priority_lock import PriorityLock
from schedd.federation.unwanted_transfers import find_unwanted
from schedd.store import StoreError

__all__ = ["ClusterReport", "FederationState"]

_log = structlog.get_logger(__name__)
_MAX_QUESTIONS: Final = 200
"""Questions to one cluster in one round."""
_REBALANCE_BATCH: Final = 500
"""Waiting jobs in one round of which it is looked whether they should move."""
_MAX_EQUAL_JOBS: Final = 100
"""Of these, so many alike in one turn."""
_FAMILY_NAMES: Final = {"torque": "TORQUE", "openpbs": "OpenPBS"}
_MAX_KINDS: Final = 20
"""Kinds of jobs for which more clusters are asked in one turn."""
_SLOW_S: Final = 1
"""For a job that is not decided after this, more clusters are asked each second: one of them may hang."""
_MAX_STEPS: Final = 4
"""So often it is looked at once what follows from what was decided."""


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """What was found of one cluster; ``away``: why it is passed over. ``transfers`` None: nothing was found.

    They are all that there are if they are the ``whole``, else those that changed.
    """

    away: str = ""
    transfers: Mapping[str, TransferStatus] | None = None
    whole: bool = True
    cpus: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0
    family: str = ""
    """What its schedd says of its server: ``torque`` or ``openpbs``; empty: nothing."""


class FederationState:
    """All clusters under one federation. Thread-safe."""

    def __init__(
        self,
        settings: FederationSettings,
        log: FederationLog,
        cluster_tokens: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.supervisor = log.supervisor
        self.cluster_tokens = cluster_tokens
        self._rules = settings.rules
        self._clock = clock
        self._lock = PriorityLock()
        self._move_guard = threading.Lock()
        """Held by the one thread that looks whether waiting jobs should move."""
        self._record = record = LoggedState(settings, log, clock)
        self.jobs, self.coallocations, self.bags = record.jobs, record.coallocations, record.bags
        self.bookings = record.bookings
        self.licences, self._users = record.licences, record.users
        routing = settings.routing
        self._plan_offers = {name: PlanOffers(routing.poll, routing.again) for name in settings.clusters}
        self.generations: dict[str, int] = {}
        """By cluster, the version of its plan that was last seen."""
        self.clusters: dict[str, ClusterStatus] = {
            name: ClusterStatus(
                "it was not asked yet",
                self._now(),
                offers=self._plan_offers[name].offers,
                bounds=self._plan_offers[name].bounds,
                speed=one.speed,
                handicap=one.handicap,
                data=frozenset(one.data),
            )
            for name, one in settings.clusters.items()
        }
        self.job_counts: dict[str, Mapping[str, int]] = {}
        self.wakeups = {name: threading.Event() for name in settings.clusters}
        self.coallocation_operations = CoAllocationOperations(
            settings.group_rules, record, self._lock, self._commit, self._now
        )
        self.bag_operations = BagOperations(
            settings, record, self._lock, self.clusters, self.commit_new, self._now
        )
        self.booking_operations = BookingOperations(
            settings.booking_rules, record, self._lock, self._commit, self._now
        )
        self.licence_leases = LicenceLeases(record, self._lock, self.clusters, self._now)
        self._unwanted: dict[str, set[str]] = {name: set() for name in settings.clusters}
        """By cluster, copies there of which the log wants none: they are asked back."""
        self._drop_guard = threading.Lock()
        self._decided_at = 0
        self._load = compute_loads(self.jobs, self.clusters, self._rules)
        self._outdated_loads: set[str] = set()
        """Clusters of whose jobs some stand otherwise than when the load there was reckoned."""
        self._next_check = {name: 0 for name in self.jobs.open if self.jobs[name].waits}
        """Waiting jobs, by when it was last looked whether they should move: the longest ago first."""
        for name in self.jobs.unsettled:
            self._request_offers(self.jobs[name], new=True)

    def _now(self) -> int:
        return int(self._clock())

    @property
    def now(self) -> int:
        """The present second."""
        return self._now()

    # ---- users ------------------------------------------------------------------------------------

    def submit(self, owner: str, submission: Mapping[str, Any], **more: Any) -> FederationJob:
        """Takes a job; with a ``key`` that was used before, it is that job. Raises StoreError.

        Where all clusters have said what they offer for such a job, it is routed before this returns.
        """
        with self._lock.request():
            key: str = more.get("key", "")
            known = self.jobs.by_key.get((owner, key)) if key else None
            if known is not None:
                return self.jobs[known]
            now = self._now()
            level = job_priority(self.jobs, self._rules, owner, submission, more.get("deadline"), now)
            event = JobSubmitted(
                job=str(self._record.number + 1),
                time=now,
                owner=owner,
                submission=submission,
                priority=level,
                **more,
            )
            self._commit([event, *self._first_choice(event)])
            if not self.jobs[event.job].attempts:
                self._request_offers(self.jobs[event.job], new=True)
                self._settle([event.job])
            return self.jobs[event.job]

    def cancel(self, job: str, by: str) -> FederationJob:
        """Its owner does not want it any more. Raises StoreError and KeyError."""
        with self._lock.request():
            if not self.jobs[job].over and not self.jobs[job].cancelled:
                self._commit([JobCancelled(job=job, time=self._now(), by=by)])
                self._settle([job])
            return self.jobs[job]

    def backlog(self, cluster: str) -> Backlog:
        """Of the federation's own jobs: what waits there, by priority."""
        with self._lock.request():
            known = self._load.backlog.get(cluster)
            return Backlog(list(known.load), list(known.count)) if known is not None else Backlog()

    def cluster_users(self, owner: str) -> Mapping[str, str]:
        """By cluster, whom the owner is there."""
        with self._lock.request():
            return self._users[owner]

    def attempt_statuses(self, job: FederationJob) -> Mapping[int, TransferStatus]:
        """By attempt, what its cluster said last of it."""
        return attempt_statuses(self.clusters, self._rules, job)

    def commit_new(self, make: Callable[[int, int], Sequence[FederationEvent]]) -> None:
        """Keeps what ``make`` makes of the moment and of the first number that is free, all of it or
        nothing, and does what follows. Nothing else happens meanwhile. Raises StoreError, and what ``make``
        raises.
        """
        with self._lock.request():
            taken = self._commit(make(self._now(), self._record.number + 1))
            self._settle([event.job for event in taken if event.job in self.jobs.by_id])

    # ---- clusters ---------------------------------------------------------------------------------

    def unsupported_reason(self, cluster: str, resources: Mapping[str, str]) -> str:
        """Why a cluster's server does not understand what a job asks for; empty: it may."""
        return self.settings.clusters[cluster].unsupported_reason(resources) or self.clusters[
            cluster
        ].unsupported_reason(resources)

    def pending_actions(self, cluster: str) -> list[TransferAction]:
        """What is to be asked of a cluster now."""
        with self._lock.background():
            wanted = list(pending_actions(self.jobs, self._rules, cluster))
            known = {one.transfer for one in wanted}
            back = sorted(self._unwanted[cluster] - known)
            return [*wanted, *(TransferAction(cluster, "withdraw", transfer, "", 0) for transfer in back)]

    def due_questions(self, cluster: str, generation: int | None = None) -> list[PlanQuestion]:
        """What its plan is to be asked now that it is of this generation; None: what it was never asked."""
        plan_offers = self._plan_offers[cluster]
        if generation is None:  # a job waits for it
            with self._lock.request():
                return plan_offers.unanswered_questions(_MAX_QUESTIONS)
        with self._lock.background():
            return plan_offers.due_questions(generation, self._now(), _MAX_QUESTIONS)

    def store_answers(self, cluster: str, answers: Mapping[PlanQuestion, tuple[PlanOffer, int]]) -> None:
        """What its plan said, each with the generation that said it."""
        with self._lock.request():
            self._plan_offers[cluster].store_answers(answers, self._now())
            waiting = [name for name in self.jobs.unsettled if self.jobs[name].active is None]
            self._settle_safely(waiting)
            said = {question.resources for question in answers}
            self._request_more_offers(name for name in waiting if self._resource_key(name) in said)

    def apply_report(self, cluster: str, report: ClusterReport) -> bool:
        """Takes in what was found; False where the database fails: then it is to be told again as a whole.

        What was found, what is kept of it and what follows from that are turns of their own: a request waits
        for one commit at most.
        """
        with self._lock.background():
            now = self._now()
            turned, among = self._update_cluster(cluster, report, now)
        names: dict[str, None] = {}
        with self._lock.background():
            try:
                for _ in range(_MAX_STEPS if report.transfers is not None else 0):
                    events = observe_transfers(
                        self.jobs, self._rules, cluster, self.clusters[cluster].transfers, now, among
                    )
                    taken = self._commit(events)
                    if not taken:
                        break
                    names |= dict.fromkeys(event.job for event in taken)
            except StoreError as error:
                _log.error("the log cannot be written; nothing is done", why=str(error))
                return False
            if now != self._decided_at or turned:
                self._decided_at = now
                names |= self.jobs.unsettled
        with self._lock.background():
            self._settle_safely(list(names))
            # Some cluster is slow: who waits for more than a moment hears more of the others each second.
            slow = [name for name in names if self._undecided_since(name) < now - _SLOW_S]
            self._request_more_offers(slow, more=True)
        self._drop_old()
        self._consider_moves()
        return True

    def _update_cluster(
        self, cluster: str, report: ClusterReport, now: int
    ) -> tuple[bool, Iterable[str] | None]:
        """What is seen of a cluster from now on; whether it went away or came back, and the transfers that
        changed, None for all.
        """
        before = self.clusters[cluster]
        away = report.away or ("it does not answer" if report.transfers is None else "")
        turned = bool(before.away) != bool(away)
        since = now if turned else before.since
        if report.transfers is None:
            self.clusters[cluster] = replace(before, away=away, since=since)
            self.licences.forget_answers(cluster)
            if turned:
                _log.warning("a cluster does not answer", cluster=cluster, why=report.away)
            return turned, None
        if before.away and not away:
            _log.info("a cluster answers", cluster=cluster)
        changed = report.transfers
        whole = report.whole or not before.transfers
        self.clusters[cluster] = replace(
            before,
            away=away,
            since=since,
            transfers=changed if whole else {**before.transfers, **changed},
            cpus=report.cpus,
            family=report.family,
            trouble=self._family_mismatch(cluster, report.family),
        )
        self._find_unwanted(cluster, changed, whole=whole)
        self.job_counts[cluster] = report.counts
        self._plan_offers[cluster].expire_answers(report.generation, now)
        self.generations[cluster] = report.generation
        self._record.coallocation_wakeup.set()
        if whole or any(
            _load_state(before.transfers.get(name)) != _load_state(one) for name, one in changed.items()
        ):
            self._outdated_loads.add(cluster)
        if cluster in self._outdated_loads:
            self._outdated_loads.discard(cluster)
            self._recompute_load(cluster)
        return turned, None if whole else changed

    def _find_unwanted(self, cluster: str, rows: Mapping[str, TransferStatus], *, whole: bool) -> None:
        """Find copies at a cluster of which the log wants none, among those of which something changed."""
        before = self._unwanted[cluster]
        found = set(find_unwanted(self.jobs, self.coallocations, self._rules.name, rows))
        self._unwanted[cluster] = found if whole else (before - rows.keys()) | found
        for transfer in sorted(found - before):
            _log.warning(
                "a cluster has a copy that is not wanted there; it is asked back",
                cluster=cluster,
                transfer=transfer,
                phase=rows[transfer].phase,
            )

    def _consider_moves(self) -> None:
        """Looks whether some of the waiting jobs should move: kind by kind, each in a turn of its own, so
        that no request waits for all of it.
        """
        if not self._move_guard.acquire(blocking=False):
            return  # another cluster's thread is at it
        try:
            with self._lock.background():
                kinds = self._rebalance_batches(self._now())
            for names in kinds:
                with self._lock.background():
                    job = self.jobs.by_id.get(names[0])
                    if job is not None:  # each cluster is asked of such jobs once
                        self._request_offers(job, new=False)
                    self._settle_safely(names)
        finally:
            self._move_guard.release()

    def _drop_old(self) -> None:
        """Drops what is old, now and then: each step in a turn of its own."""
        if not self._record.is_drop_due(self._now()) or not self._drop_guard.acquire(blocking=False):
            return
        try:
            steps, more = self._record.drop_old(self._now()), True
            while more:
                with self._lock.background():
                    more = next(steps, self) is None
        except StoreError as error:
            _log.error("the log cannot be written; what is old stays", why=str(error))
        finally:
            self._drop_guard.release()

    def apply_refusal(self, action: TransferAction, text: str) -> None:
        """The cluster's schedd refuses a submission as it is. Raises StoreError."""
        seen = {action.transfer: TransferStatus("refused", text=text)}
        with self._lock.request():
            self._commit(observe_transfers(self.jobs, self._rules, action.cluster, seen, self._now(), seen))
            self._settle([action.job])

    # ---- with the lock held -----------------------------------------------------------------------

    def _settle_safely(self, names: Sequence[str]) -> None:
        try:
            self._settle(names)
        except StoreError as error:
            _log.error("the log cannot be written; nothing is done", why=str(error))

    def _settle(self, names: Iterable[str]) -> None:
        """Makes the choices that are to be made for these jobs, and what follows from them at once."""
        now = self._now()
        for _ in range(_MAX_STEPS):
            events = self._decide(self.jobs, now, names)
            taken = self._commit(events)
            if not taken:
                return
            names = dict.fromkeys(event.job for event in taken)

    def _resource_key(self, name: str) -> object:
        job = self.jobs.by_id.get(name)
        return job.resources if job is not None else None

    def _undecided_since(self, name: str) -> int:
        job = self.jobs.by_id.get(name)
        return job.submitted if job is not None and not job.attempts else 1 << 40

    def _first_choice(self, event: JobSubmitted) -> Sequence[FederationEvent]:
        """The choice for a job that comes, if all offers are known: both are kept in one go, since it is the
        disk that a decision waits for. What the load is taken to be then, the next look puts right if the log
        cannot be written.
        """
        if "users" in event.submission:  # whom he is where counts when it is kept
            return ()
        tried = FederationJobs()
        tried.apply(event)
        self._request_offers(tried[event.job], new=True)
        return self._decide(tried, event.time, [event.job])

    def _decide(self, jobs: FederationJobs, now: int, names: Iterable[str]) -> Sequence[FederationEvent]:
        """The choices for these jobs; the load that they make is reckoned anew by the next look."""
        events = decide(jobs, self._rules, self.clusters, now, self._users, names, self._load)
        self._outdated_loads |= {one.cluster for one in events if isinstance(one, ClusterChosen)}
        return events

    def _commit(self, events: Sequence[FederationEvent]) -> Sequence[FederationEvent]:
        """Keeps events and applies them, and rings who has to do with them; returns those that could be.
        Raises StoreError: none is kept.
        """
        taken = self._record.commit(events)
        for event in taken:
            if isinstance(event, AttemptEvent):
                number = event.attempt
                cluster = self.jobs[event.job].attempts[number - 1].cluster
                self._outdated_loads.add(cluster)
                if (event.job, number) in self.jobs.pending_steps.get(
                    cluster, ()
                ) and cluster in self.wakeups:
                    self.wakeups[cluster].set()
            if isinstance(event, AttemptReleased):
                self._next_check[event.job] = event.time
        if self._record.changed_owners:  # they are somebody else there: plans were not asked of him
            for name in self.jobs.unsettled:
                if self.jobs[name].owner in self._record.changed_owners:
                    self._request_offers(self.jobs[name], new=True)
            self._record.changed_owners.clear()
        return taken

    def _request_offers(self, job: FederationJob, *, new: bool, more: bool = False) -> None:
        """Lets the clusters that could take the job say what they offer; of one that is bound it is known. Of
        a ``new`` job first those that can be best for it; ``more``: others, too, though some are to answer.
        """
        if job.bound:
            return
        now = self._now()
        users = self._users[job.owner]
        names = [name for name in users if not job.clusters or name in job.clusters]
        if new:
            known_by = (self._plan_offers, self.clusters, self._rules, self._load)
            names = clusters_to_ask(job, users, names, *known_by, now, more=more)
        for cluster in names:
            plan_offers, question = self._plan_offers[cluster], job.question(cluster, users[cluster])
            asked = plan_offers.is_pending(question)
            known = plan_offers.subscribe(question, now, new=new)
            if new and not known and not asked:
                self.wakeups[cluster].set()

    def _request_more_offers(self, names: Iterable[str], *, more: bool = False) -> None:
        """Lets more clusters answer for jobs that are not decided yet; of jobs alike one speaks for all."""
        kinds: dict[tuple[object, ...], FederationJob] = {}
        for name in names:
            job = self.jobs.by_id.get(name)
            if job is not None and not job.attempts and not job.over:
                kinds.setdefault((job.owner, job.resources, job.clusters, job.tasks), job)
        for job in list(kinds.values())[:_MAX_KINDS]:
            self._request_offers(job, new=True, more=more)

    def _rebalance_batches(self, now: int) -> list[list[str]]:
        """Waiting jobs of which it is to be looked now whether they should move, by kinds."""
        routing = self.settings.routing
        found: dict[tuple[object, ...], list[str]] = {}
        for name, last in list(islice(self._next_check.items(), _REBALANCE_BATCH)):
            if now - last < routing.again:
                break
            del self._next_check[name]
            job = self.jobs.by_id.get(name)
            if job is None or job.stays or not job.waits or job.moves >= routing.moves:
                continue
            self._next_check[name] = now
            alike = (job.owner, job.resources, job.clusters, str(job.submission.get("queues")))
            found.setdefault(alike, []).append(name)
        return [
            names[first : first + _MAX_EQUAL_JOBS]
            for names in found.values()
            for first in range(0, len(names), _MAX_EQUAL_JOBS)
        ]

    def _family_mismatch(self, cluster: str, family: str) -> str:
        """What is wrong where the settings name another family of servers than the cluster does."""
        wanted = self.settings.clusters[cluster].family
        if not family or family == wanted:
            return ""
        words = (
            f"its server is {_FAMILY_NAMES.get(family, family)}, "
            f"but clusters.{cluster}.family says {wanted}: "
            "no job that asks by select goes there until they agree"
        )
        if words != self.clusters[cluster].trouble:
            _log.error("the settings name another family of servers", cluster=cluster, why=words)
        return words

    def _recompute_load(self, cluster: str) -> None:
        fresh: ClusterLoads = compute_loads(self.jobs, self.clusters, self._rules, [cluster])
        self._load.sent |= fresh.sent
        self._load.backlog |= fresh.backlog


def _load_state(seen: TransferStatus | None) -> str:
    """What of it the load of its cluster depends on."""
    state = seen.state if seen is not None else ""
    return state if state in ("", "running") else "waits"
