"""Federation state: event log, jobs, and the last known state of each cluster, under one lock.

Events are stored before they are applied, and applied before any request to a cluster follows from them.
After a failover the new leader reads the log and sends the same requests again.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import structlog

from schedd.federation.cluster_summary import ClusterSummary
from schedd.federation.event_log import FederationLog
from schedd.federation.events import (
    AttemptEvent,
    AttemptReleased,
    ClusterChosen,
    FederationEvent,
    ItemCancelled,
    JobSubmitted,
)
from schedd.federation.items import Items
from schedd.federation.removed_clusters import close_attempts
from schedd.federation.routing.candidates import ClusterLoads, compute_loads, job_priority
from schedd.federation.routing.cluster_status import (
    ClusterStatus,
    PlanOffer,
    TransferStatus,
    attempt_statuses,
    transfer_name,
)
from schedd.federation.routing.decisions import TransferAction, decide, observe_transfers, pending_actions
from schedd.federation.routing.jobs import FederationJob, FederationJobs, PlanQuestion, TransferAttempt
from schedd.federation.routing.plan_offers import PlanOffers
from schedd.federation.routing.plan_queries import clusters_to_query
from schedd.federation.routing.priorities import Backlog
from schedd.federation.settings import FederationSettings
from schedd.federation.state.bag_operations import BagOperations
from schedd.federation.state.booking_operations import BookingOperations
from schedd.federation.state.coallocation_operations import CoAllocationOperations
from schedd.federation.state.licence_leases import LicenceLeases
from schedd.federation.state.logged_state import LoggedState
from schedd.federation.state.priority_lock import PriorityLock
from schedd.federation.unwanted_transfers import find_lost, find_unwanted, highest_number
from schedd.store import AuditRecord, StoreError

_log = structlog.get_logger(__name__)
_MAX_QUESTIONS: Final = 200  # maximum questions to one cluster in one round
_REBALANCE_BATCH: Final = 500  # waiting jobs examined for a move in one round
_MAX_EQUAL_JOBS: Final = 100  # equal jobs examined under one lock
_FAMILY_NAMES: Final = {"torque": "TORQUE", "openpbs": "OpenPBS"}
_MAX_KINDS: Final = 20  # maximum classes of equal jobs that get more cluster queries in one round
_SLOW_S: Final = 1  # a job undecided for longer gets more queries each second: a queried cluster may hang
_MAX_STEPS: Final = 4  # maximum observe/decide iterations
_MAX_CLOCK_LEAD_S: Final = 5  # larger differences of clocks are reported


@dataclass(frozen=True, slots=True)
class ClusterPollResult:
    """Result of polling a cluster. ``away`` is the reason why it is unusable; ``transfers`` is None without
    an answer.

    ``transfers`` are complete if ``whole`` is set, otherwise only the changed ones.
    """

    away: str = ""
    transfers: Mapping[str, TransferStatus] | None = None
    whole: bool = True
    cpus: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0
    bookings: Sequence[str] = ()  # names of its bookings, at the first contact
    family: str = ""  # server family reported by the cluster's schedd, `torque` or `openpbs`; may be empty
    clock_lead_s: int = 0  # how far its clock is ahead of the federation's, at least


class FederationState:
    """Federation state: event log, jobs, and the last known state of each cluster. Thread-safe."""

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
        self._move_guard = threading.Lock()  # held by the one thread that examines waiting jobs for moves
        self._log = log
        self._record = record = LoggedState(settings, log, clock)
        self.jobs, self.coallocations, self.bags = record.jobs, record.coallocations, record.bags
        self.bookings = record.bookings
        self.licences, self._users = record.licences, record.users
        routing = settings.routing
        self._plan_offers = {name: PlanOffers(routing.poll, routing.recheck) for name in settings.clusters}
        self.generations: dict[str, int] = {}  # last known plan version by cluster
        self.clusters: dict[str, ClusterStatus] = {
            name: ClusterStatus(
                "it was not contacted yet",
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
        self.cluster_summaries: dict[str, ClusterSummary] = {}
        self.repeated_refusals: dict[tuple[str, str], str] = {}
        """Refused requests that are repeated, by cluster and transfer, in words."""
        self.wakeups = {name: threading.Event() for name in settings.clusters}
        shared = (record, self._lock, self._commit, self._now)
        self.coallocation_operations = CoAllocationOperations(
            settings.coallocation_rules, record.coallocations, record.coallocation_wakeup, *shared
        )
        self.bag_operations = BagOperations(
            settings, self.clusters, self.commit_new, record.bags, record.bag_wakeup, *shared
        )
        self.booking_operations = BookingOperations(
            settings.booking_rules, record.bookings, record.booking_wakeup, *shared
        )
        self.licence_leases = LicenceLeases(record, self._lock, self.clusters, self._now)
        self._unwanted: dict[str, set[str]] = {name: set() for name in settings.clusters}
        """Transfers by cluster that are to be withdrawn because the log does not want them."""
        self._lost: dict[str, set[tuple[str, int]]] = {name: set() for name in settings.clusters}
        """Attempts by cluster, each as (job, attempt number), that it had and no longer knows."""
        self._drop_guard = threading.Lock()
        self._decided_at = 0
        self._load = compute_loads(self.jobs, self.clusters, self._rules)
        self._outdated_loads: set[str] = set()
        """Clusters with job states that changed after the last load computation."""
        self._next_check = {name: 0 for name in self.jobs.open if self.jobs[name].waits}
        """Waiting jobs by the time of their last examination for a move, oldest first."""
        self._closes_attempts = True
        self._close_attempts_elsewhere()
        for name in self.jobs.unsettled:
            self._request_offers(self.jobs[name], new=True)

    def _close_attempts_elsewhere(self) -> None:
        """Close the attempts at clusters that were removed from the settings; if the log cannot be written,
        the next report tries again.
        """
        if not self._closes_attempts:
            return
        try:
            for items in (self.jobs, self.coallocations, self.bookings):
                taken = self._commit(close_attempts(items, self.settings.clusters, self._now()))
                for cluster, count in Counter(_cluster_of(items, event) for event in taken).items():
                    words = f"{count} attempts at {cluster} closed: it is no longer in the settings"
                    self.audit("the settings", "remove cluster", words)
            self._closes_attempts = False
        except StoreError as error:
            _log.error("attempts at removed clusters could not be closed", why=str(error))

    def _now(self) -> int:
        return int(self._clock())

    @property
    def now(self) -> int:
        """Current time in seconds."""
        return self._now()

    @property
    def log_trouble(self) -> str:
        """Why nothing can be stored; empty while it can."""
        return self._log.trouble

    def audit(self, who: str, act: str, detail: str) -> None:
        """Store an action, or a refused attempt. Raises StoreError."""
        self._log.audit(AuditRecord(self._now(), who, act, detail))

    def audit_entries(self, since: int, limit: int) -> Sequence[AuditRecord]:
        """Return the actions at ``since`` or later, newest first. Raises StoreError."""
        return self._log.audit_entries(since, limit)

    # ---- users ------------------------------------------------------------------------------------

    def submit(self, owner: str, submission: Mapping[str, Any], **more: Any) -> FederationJob:
        """Submit a job. Return the existing job for a known ``key``. Raises StoreError.

        If all clusters have answered for an equal job, the job is routed before this method returns.
        """
        with self._lock.request():
            known = self.jobs.by_owner_key(owner, more.get("key", ""))
            if known is not None:
                return known
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
        """Cancel the job. Raises StoreError and KeyError."""
        with self._lock.request():
            if not self.jobs[job].over and not self.jobs[job].cancelled:
                self._commit([ItemCancelled(job=job, time=self._now(), by=by)])
                self._settle([job])
            return self.jobs[job]

    def backlog(self, cluster: str) -> Backlog:
        """Return the waiting work of the federation's own jobs at the cluster, by priority."""
        with self._lock.request():
            known = self._load.backlog.get(cluster)
            return Backlog(list(known.load), list(known.count)) if known is not None else Backlog()

    def cluster_users(self, owner: str) -> Mapping[str, str]:
        """Return the owner's user names by cluster."""
        with self._lock.request():
            return self._users[owner]

    def attempt_statuses(self, job: FederationJob) -> Mapping[int, TransferStatus]:
        """Return the last known statuses of the job's attempts, by attempt number."""
        return attempt_statuses(self.clusters, self._rules, job)

    def repeated_refusal(self, job: FederationJob, attempt: TransferAttempt) -> str:
        """Return why the cluster refuses a repeated request about a job, or that it lost it; else empty."""
        if (job.id, attempt.number) in self._lost.get(attempt.cluster, ()) and attempt.live:
            return (
                f"{attempt.cluster} no longer knows the job, since its database was lost: check there "
                "whether it runs; a cancelled job is forgotten"
            )
        name = transfer_name(self._rules, job, attempt)
        return self.repeated_refusals.get((attempt.cluster, name), "")

    def commit_new(self, make: Callable[[int, int], Sequence[FederationEvent]]) -> None:
        """Store and apply the events that ``make`` returns for the current time and the first free number.

        All events are stored, or none, and no other change comes between. Raises StoreError and the errors of
        ``make``.
        """
        with self._lock.request():
            taken = self._commit(make(self._now(), self._record.number + 1))
            self._settle([event.job for event in taken if event.job in self.jobs.by_id])

    # ---- clusters ---------------------------------------------------------------------------------

    def unsupported_reason(self, cluster: str, resources: Mapping[str, str]) -> str:
        """Return why the cluster's server cannot take these resources; empty if it can."""
        return self.settings.clusters[cluster].unsupported_reason(resources) or self.clusters[
            cluster
        ].unsupported_reason(resources)

    def pending_actions(self, cluster: str) -> list[TransferAction]:
        """Return the requests to send to a cluster."""
        with self._lock.background():
            speed = self.settings.clusters[cluster].speed
            wanted = list(pending_actions(self.jobs, self._rules, cluster, speed))
            known = {one.transfer for one in wanted}
            back = sorted(self._unwanted[cluster] - known)
            return [*wanted, *(TransferAction(cluster, "withdraw", transfer, "", 0) for transfer in back)]

    def due_questions(self, cluster: str, generation: int | None = None) -> list[PlanQuestion]:
        """Return the questions to a cluster's plan of this generation; else those never asked."""
        plan_offers = self._plan_offers[cluster]
        if generation is None:  # a new job waits for the answers
            with self._lock.request():
                return plan_offers.unanswered_questions(_MAX_QUESTIONS)
        with self._lock.background():
            return plan_offers.due_questions(generation, self._now(), _MAX_QUESTIONS)

    def store_answers(self, cluster: str, answers: Mapping[PlanQuestion, tuple[PlanOffer, int]]) -> None:
        """Store a plan's answers, each with the generation of the answering plan."""
        with self._lock.request():
            self._plan_offers[cluster].store_answers(answers, self._now())
            waiting = [name for name in self.jobs.unsettled if self.jobs[name].active is None]
            self._settle_safely(waiting)
            said = {question.resources for question in answers}
            self._request_more_offers(name for name in waiting if self._resource_key(name) in said)

    def apply_report(self, cluster: str, report: ClusterPollResult) -> bool:
        """Apply the result of polling a cluster. Return False if the log cannot be written; the next report
        must be complete.

        The lock is released between the steps, so that a request waits for at most one commit.
        """
        with self._lock.background():
            now = self._now()
            self._close_attempts_elsewhere()
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
                _log.error("the log cannot be written; no action follows", why=str(error))
                return False
            if now != self._decided_at or turned:
                self._decided_at = now
                names |= self.jobs.unsettled
        with self._lock.background():
            self._settle_safely(list(names))
            # Jobs that wait because a cluster is slow get more offers each second.
            slow = [name for name in names if self._undecided_since(name) < now - _SLOW_S]
            self._request_more_offers(slow, more=True)
        self._drop_old()
        self._consider_moves()
        return True

    def _update_cluster(
        self, cluster: str, report: ClusterPollResult, now: int
    ) -> tuple[bool, Iterable[str] | None]:
        """Store the state of a cluster. Return whether it became usable or unusable, and the changed
        transfers (None: all).
        """
        before = self.clusters[cluster]
        away = report.away or ("it does not answer" if report.transfers is None else "")
        turned = bool(before.away) != bool(away)
        since = now if turned else min(before.since, now)  # the clock may have been set back
        if report.transfers is None:
            self.clusters[cluster] = replace(before, away=away, since=since)
            self.cluster_summaries.pop(cluster, None)
            self.licences.forget_answers(cluster)
            if turned:
                _log.warning("a cluster does not answer", cluster=cluster, why=report.away)
            return turned, None
        if before.away and not away:
            _log.info("a cluster answers", cluster=cluster)
        changed = report.transfers
        whole = report.whole or not before.transfers
        if whole:
            self._note_lost(cluster, changed)
        self.clusters[cluster] = replace(
            before,
            away=away,
            since=since,
            transfers=changed if whole else {**before.transfers, **changed},
            cpus=report.cpus,
            family=report.family,
            trouble="; ".join(
                filter(
                    None,
                    (
                        self._family_mismatch(cluster, report.family),
                        _clock_problem(report.clock_lead_s),
                        self._describe_lost(cluster),
                    ),
                )
            ),
        )
        self._record.skip_numbers(highest_number(self._rules.name, (*changed, *report.bookings)))
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

    def _note_lost(self, cluster: str, rows: Mapping[str, TransferStatus]) -> None:
        """Record the jobs that a cluster had and no longer knows; only new ones are logged."""
        found = set(find_lost(self.jobs, self._rules.name, cluster, rows))
        for job, number in sorted(found - self._lost[cluster]):
            _log.error("a cluster lost a job that it had", cluster=cluster, job=job, attempt=number)
        self._lost[cluster] = found

    def _describe_lost(self, cluster: str) -> str:
        """Return how many jobs a cluster lost; empty if it lost none."""
        there = self.jobs.attempts_at.get(cluster, {})
        count = sum(one in there for one in self._lost[cluster])
        words = "a job" if count == 1 else f"{count} jobs"
        return f"it no longer knows {words} of the federation: its database was lost" if count else ""

    def _find_unwanted(self, cluster: str, rows: Mapping[str, TransferStatus], *, whole: bool) -> None:
        """Update the unwanted transfers at a cluster from the changed rows."""
        before = self._unwanted[cluster]
        found = set(find_unwanted(self.jobs, self.coallocations, self._rules.name, rows))
        self._unwanted[cluster] = found if whole else (before - rows.keys()) | found
        for transfer in sorted(found - before):
            _log.warning(
                "a cluster has an unwanted transfer, which is withdrawn",
                cluster=cluster,
                transfer=transfer,
                phase=rows[transfer].phase,
            )

    def _consider_moves(self) -> None:
        """Examine waiting jobs for moves, in classes of equal jobs. The lock is released between classes."""
        if not self._move_guard.acquire(blocking=False):
            return  # another thread examines the jobs
        try:
            with self._lock.background():
                kinds = self._rebalance_batches(self._now())
            for names in kinds:
                with self._lock.background():
                    job = self.jobs.by_id.get(names[0])
                    if job is not None:  # one question for the whole class
                        self._request_offers(job, new=False)
                    self._settle_safely(names)
        finally:
            self._move_guard.release()

    def _drop_old(self) -> None:
        """Remove old items if due. The lock is released between steps."""
        if not self._record.is_drop_due(self._now()) or not self._drop_guard.acquire(blocking=False):
            return
        try:
            steps, more = self._record.drop_old(self._now()), True
            while more:
                with self._lock.background():
                    more = next(steps, self) is None
        except StoreError as error:
            _log.error("the log cannot be written; old items remain", why=str(error))
        finally:
            self._drop_guard.release()

    def apply_refusal(self, action: TransferAction, text: str) -> None:
        """Store that a cluster's schedd refuses a submission. Raises StoreError."""
        seen = {action.transfer: TransferStatus("refused", text=text)}
        with self._lock.request():
            self._commit(observe_transfers(self.jobs, self._rules, action.cluster, seen, self._now(), seen))
            self._settle([action.job])

    # ---- internal methods; the lock is held -------------------------------------------------------

    def _settle_safely(self, names: Sequence[str]) -> None:
        try:
            self._settle(names)
        except StoreError as error:
            _log.error("the log cannot be written; no action follows", why=str(error))

    def _settle(self, names: Iterable[str]) -> None:
        """Decide for these jobs, and repeat for the consequences."""
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
        """Return the choice for a new job if all offers are known, so that both are stored in one commit.

        If the commit fails, the load is wrong until the next poll.
        """
        if "users" in event.submission:  # its user names take effect only when stored
            return ()
        tried = FederationJobs()
        tried.apply(event)
        self._request_offers(tried[event.job], new=True)
        return self._decide(tried, event.time, [event.job])

    def _decide(self, jobs: FederationJobs, now: int, names: Iterable[str]) -> Sequence[FederationEvent]:
        """Return the decisions for these jobs. Their load is recomputed at the next poll."""
        events = decide(jobs, self._rules, self.clusters, now, self._users, names, self._load)
        self._outdated_loads |= {one.cluster for one in events if isinstance(one, ClusterChosen)}
        return events

    def _commit(self, events: Sequence[FederationEvent]) -> Sequence[FederationEvent]:
        """Store and apply events, and wake the workers concerned. Return the applied events. Raises
        StoreError if none was stored.
        """
        taken = self._record.commit(events)
        for event in taken:
            if isinstance(event, AttemptEvent) and event.job in self.jobs.by_id:
                step = (event.job, event.attempt)
                cluster = self.jobs[event.job].attempts[event.attempt - 1].cluster
                self._outdated_loads.add(cluster)
                if step in self.jobs.pending_steps.get(cluster, ()) and cluster in self.wakeups:
                    self.wakeups[cluster].set()
            if isinstance(event, AttemptReleased):
                self._next_check[event.job] = event.time
        if self._record.changed_owners:  # repeat the questions for the new user names
            for name in self.jobs.unsettled:
                if self.jobs[name].owner in self._record.changed_owners:
                    self._request_offers(self.jobs[name], new=True)
            self._record.changed_owners.clear()
        return taken

    def _request_offers(self, job: FederationJob, *, new: bool, more: bool = False) -> None:
        """Register the job's questions at the possible clusters; a job with a fixed cluster has none.

        For a ``new`` job only the most promising clusters are queried first; with ``more``, further ones
        follow although answers are outstanding.
        """
        if job.bound:
            return
        now = self._now()
        users = self._users[job.owner]
        names = [name for name in users if not job.clusters or name in job.clusters]
        if new:
            known_by = (self._plan_offers, self.clusters, self._rules, self._load)
            names = clusters_to_query(job, users, names, *known_by, now, more=more)
        for cluster in names:
            plan_offers, question = self._plan_offers[cluster], job.question(cluster, users[cluster])
            asked = plan_offers.is_pending(question)
            known = plan_offers.subscribe(question, now, new=new)
            if new and not known and not asked:
                self.wakeups[cluster].set()

    def _request_more_offers(self, names: Iterable[str], *, more: bool = False) -> None:
        """Query more clusters for undecided jobs, once for each class of equal jobs."""
        kinds: dict[tuple[object, ...], FederationJob] = {}
        for name in names:
            job = self.jobs.by_id.get(name)
            if job is not None and not job.attempts and not job.over:
                kinds.setdefault((job.owner, job.resources, job.clusters, job.tasks), job)
        for job in list(kinds.values())[:_MAX_KINDS]:
            self._request_offers(job, new=True, more=more)

    def _rebalance_batches(self, now: int) -> list[list[str]]:
        """Return waiting jobs that are due for examination, in batches of equal jobs."""
        routing = self.settings.routing
        found: dict[tuple[object, ...], list[str]] = {}
        for name, last in list(islice(self._next_check.items(), _REBALANCE_BATCH)):
            if 0 <= now - last < routing.recheck:
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
        """Return a description if the settings name another server family than the cluster reports."""
        wanted = self.settings.clusters[cluster].family
        if not family or family == wanted:
            return ""
        words = (
            f"its server is {_FAMILY_NAMES.get(family, family)}, but clusters.{cluster}.family is "
            f"{wanted}: no job with select goes there until they agree"
        )
        if words not in self.clusters[cluster].trouble:
            _log.error("the settings name another family of servers", cluster=cluster, why=words)
        return words

    def _recompute_load(self, cluster: str) -> None:
        fresh: ClusterLoads = compute_loads(self.jobs, self.clusters, self._rules, [cluster])
        self._load.sent |= fresh.sent
        self._load.backlog |= fresh.backlog


def _cluster_of(items: Items[Any], event: FederationEvent) -> str:
    """Return the cluster of an attempt's event."""
    assert isinstance(event, AttemptEvent)
    cluster: str = items.by_id[event.job].attempts[event.attempt - 1].cluster
    return cluster


def _clock_problem(lead_s: int) -> str:
    """Return by how much a cluster's clock differs from the federation's; empty: by little."""
    if abs(lead_s) <= _MAX_CLOCK_LEAD_S:
        return ""
    where = "ahead of" if lead_s > 0 else "behind"
    return (
        f"its clock is {abs(lead_s)} s {where} the federation's: its starts and ends are wrong by that much"
    )


def _load_state(seen: TransferStatus | None) -> str:
    """Return the part of a transfer's state that affects the cluster's load."""
    state = seen.state if seen is not None else ""
    return state if state in ("", "running") else "waits"
