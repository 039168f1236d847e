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

from schedd.federation.events import Event
from schedd.federation.log import Log
from schedd.federation.roof.bags import RoofOfBags
from schedd.federation.roof.bookings import RoofOfBookings
from schedd.federation.roof.groups import RoofOfGroups
from schedd.federation.roof.lending import Lending
from schedd.federation.roof.record import Record
from schedd.federation.roof.turns import Turns
from schedd.federation.routing.choosing import Load, assigned, priority_of
from schedd.federation.routing.events import Cancelled, Chosen, OfAttempt, Out, Submitted
from schedd.federation.routing.jobs import Job, Jobs, Question
from schedd.federation.routing.machine import Action, actions, decide, observe
from schedd.federation.routing.ordering import Backlog
from schedd.federation.routing.promising import most_promising
from schedd.federation.routing.quotes import Quotes
from schedd.federation.routing.seen import ClusterSeen, Offer, TransferStatus
from schedd.federation.routing.seen import standing as standing_of
from schedd.federation.settings import Settings
from schedd.federation.strays import strays
from schedd.store import StoreError

__all__ = ["Report", "Roof"]

_log = structlog.get_logger(__name__)
_MOST: Final = 200
"""Questions to one cluster in one round."""
_CHECKED: Final = 500
"""Waiting jobs in one round of which it is looked whether they should move."""
_KIND: Final = 100
"""Of these, so many alike in one turn."""
_NAMED: Final = {"torque": "TORQUE", "openpbs": "OpenPBS"}
_KINDS: Final = 20
"""Kinds of jobs for which more clusters are asked in one turn."""
_SLOW_S: Final = 1
"""For a job that is not decided after this, more clusters are asked each second: one of them may hang."""
_STEPS: Final = 4
"""So often it is looked at once what follows from what was decided."""


@dataclass(frozen=True, slots=True)
class Report:
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
        self.supervisor = log.supervisor
        self.peer_tokens = peer_tokens
        self._rules = settings.rules
        self._clock = clock
        self._turns = Turns()
        self._moving = threading.Lock()
        """Held by the one thread that looks whether waiting jobs should move."""
        self._record = record = Record(settings, log, clock)
        self.jobs, self.groups, self.bags = record.jobs, record.groups, record.bags
        self.bookings = record.bookings
        self.licences, self._users = record.licences, record.users
        routing = settings.routing
        self._quotes = {name: Quotes(routing.poll, routing.again) for name in settings.clusters}
        self.generations: dict[str, int] = {}
        """By cluster, the version of its plan that was last seen."""
        self.seen: dict[str, ClusterSeen] = {
            name: ClusterSeen(
                "it was not asked yet",
                self._now(),
                offers=self._quotes[name].offers,
                bounds=self._quotes[name].bounds,
                speed=one.speed,
                handicap=one.handicap,
                data=frozenset(one.data),
            )
            for name, one in settings.clusters.items()
        }
        self.counts: dict[str, Mapping[str, int]] = {}
        self.bells = {name: threading.Event() for name in settings.clusters}
        self.of_groups = RoofOfGroups(settings.group_rules, record, self._turns, self._take, self._now)
        self.of_bags = RoofOfBags(settings, record, self._turns, self.seen, self.take_made, self._now)
        self.of_bookings = RoofOfBookings(settings.booking_rules, record, self._turns, self._take, self._now)
        self.lending = Lending(record, self._turns, self.seen, self._now)
        self._strays: dict[str, set[str]] = {name: set() for name in settings.clusters}
        """By cluster, copies there of which the log wants none: they are asked back."""
        self._sweeping = threading.Lock()
        self._scanned = 0
        self._load = assigned(self.jobs, self.seen, self._rules)
        self._unreckoned: set[str] = set()
        """Clusters of whose jobs some stand otherwise than when the load there was reckoned."""
        self._due = {name: 0 for name in self.jobs.open if self.jobs[name].waits}
        """Waiting jobs, by when it was last looked whether they should move: the longest ago first."""
        for name in self.jobs.stirring:
            self._ask_for(self.jobs[name], new=True)

    def _now(self) -> int:
        return int(self._clock())

    @property
    def now(self) -> int:
        """The present second."""
        return self._now()

    # ---- users ------------------------------------------------------------------------------------

    def submit(self, owner: str, submission: Mapping[str, Any], **more: Any) -> Job:
        """Takes a job; with a ``key`` that was used before, it is that job. Raises StoreError.

        Where all clusters have said what they offer for such a job, it is routed before this returns.
        """
        with self._turns.request():
            key: str = more.get("key", "")
            known = self.jobs.by_key.get((owner, key)) if key else None
            if known is not None:
                return self.jobs[known]
            now = self._now()
            level = priority_of(self.jobs, self._rules, owner, submission, more.get("deadline"), now)
            event = Submitted(
                job=str(self._record.number + 1),
                time=now,
                owner=owner,
                submission=submission,
                priority=level,
                **more,
            )
            self._take([event, *self._with(event)])
            if not self.jobs[event.job].attempts:
                self._ask_for(self.jobs[event.job], new=True)
                self._settle([event.job])
            return self.jobs[event.job]

    def cancel(self, job: str, by: str) -> Job:
        """Its owner does not want it any more. Raises StoreError and KeyError."""
        with self._turns.request():
            if not self.jobs[job].over and not self.jobs[job].cancelled:
                self._take([Cancelled(job=job, time=self._now(), by=by)])
                self._settle([job])
            return self.jobs[job]

    def backlog(self, cluster: str) -> Backlog:
        """Of the federation's own jobs: what waits there, by priority."""
        with self._turns.request():
            known = self._load.backlog.get(cluster)
            return Backlog(list(known.load), list(known.count)) if known is not None else Backlog()

    def users_of(self, owner: str) -> Mapping[str, str]:
        """By cluster, whom the owner is there."""
        with self._turns.request():
            return self._users[owner]

    def standing(self, job: Job) -> Mapping[int, TransferStatus]:
        """By attempt, what its cluster said last of it."""
        return standing_of(self.seen, self._rules, job)

    def take_made(self, make: Callable[[int, int], Sequence[Event]]) -> None:
        """Keeps what ``make`` makes of the moment and of the first number that is free, all of it or
        nothing, and does what follows. Nothing else happens meanwhile. Raises StoreError, and what ``make``
        raises.
        """
        with self._turns.request():
            taken = self._take(make(self._now(), self._record.number + 1))
            self._settle([event.job for event in taken if event.job in self.jobs.by_id])

    # ---- clusters ---------------------------------------------------------------------------------

    def cannot(self, cluster: str, resources: Mapping[str, str]) -> str:
        """Why a cluster's server does not understand what a job asks for; empty: it may."""
        return self.settings.clusters[cluster].cannot(resources) or self.seen[cluster].cannot(resources)

    def work(self, cluster: str) -> list[Action]:
        """What is to be asked of a cluster now."""
        with self._turns.look():
            wanted = list(actions(self.jobs, self._rules, cluster))
            known = {one.transfer for one in wanted}
            back = sorted(self._strays[cluster] - known)
            return [*wanted, *(Action(cluster, "withdraw", transfer, "", 0) for transfer in back)]

    def questions(self, cluster: str, generation: int | None = None) -> list[Question]:
        """What its plan is to be asked now that it is of this generation; None: what it was never asked."""
        quotes = self._quotes[cluster]
        if generation is None:  # a job waits for it
            with self._turns.request():
                return quotes.unanswered(_MOST)
        with self._turns.look():
            return quotes.due(generation, self._now(), _MOST)

    def answered(self, cluster: str, answers: Mapping[Question, tuple[Offer, int]]) -> None:
        """What its plan said, each with the generation that said it."""
        with self._turns.request():
            self._quotes[cluster].take(answers, self._now())
            waiting = [name for name in self.jobs.stirring if self.jobs[name].active is None]
            self._try(waiting)
            said = {question.resources for question in answers}
            self._ask_more(name for name in waiting if self._asks(name) in said)

    def report(self, cluster: str, report: Report) -> bool:
        """Takes in what was found; False where the database fails: then it is to be told again as a whole.

        What was found, what is kept of it and what follows from that are turns of their own: a request waits
        for one commit at most.
        """
        with self._turns.look():
            now = self._now()
            turned, among = self._see(cluster, report, now)
        names: dict[str, None] = {}
        with self._turns.look():
            try:
                for _ in range(_STEPS if report.transfers is not None else 0):
                    events = observe(
                        self.jobs, self._rules, cluster, self.seen[cluster].transfers, now, among
                    )
                    taken = self._take(events)
                    if not taken:
                        break
                    names |= dict.fromkeys(event.job for event in taken)
            except StoreError as error:
                _log.error("the log cannot be written; nothing is done", why=str(error))
                return False
            if now != self._scanned or turned:
                self._scanned = now
                names |= self.jobs.stirring
        with self._turns.look():
            self._try(list(names))
            # Some cluster is slow: who waits for more than a moment hears more of the others each second.
            slow = [name for name in names if self._came(name) < now - _SLOW_S]
            self._ask_more(slow, more=True)
        self._sweep()
        self._look_for_moves()
        return True

    def _see(self, cluster: str, report: Report, now: int) -> tuple[bool, Iterable[str] | None]:
        """What is seen of a cluster from now on; whether it went away or came back, and the transfers that
        changed, None for all.
        """
        before = self.seen[cluster]
        away = report.away or ("it does not answer" if report.transfers is None else "")
        turned = bool(before.away) != bool(away)
        since = now if turned else before.since
        if report.transfers is None:
            self.seen[cluster] = replace(before, away=away, since=since)
            self.licences.forget(cluster)
            if turned:
                _log.warning("a cluster does not answer", cluster=cluster, why=report.away)
            return turned, None
        if before.away and not away:
            _log.info("a cluster answers", cluster=cluster)
        changed = report.transfers
        whole = report.whole or not before.transfers
        self.seen[cluster] = replace(
            before,
            away=away,
            since=since,
            transfers=changed if whole else {**before.transfers, **changed},
            cpus=report.cpus,
            family=report.family,
            trouble=self._of_family(cluster, report.family),
        )
        self._compare(cluster, changed, whole=whole)
        self.counts[cluster] = report.counts
        self._quotes[cluster].look(report.generation, now)
        self.generations[cluster] = report.generation
        self._record.group_bell.set()
        if whole or any(_counts(before.transfers.get(name)) != _counts(one) for name, one in changed.items()):
            self._unreckoned.add(cluster)
        if cluster in self._unreckoned:
            self._unreckoned.discard(cluster)
            self._reckon(cluster)
        return turned, None if whole else changed

    def _compare(self, cluster: str, rows: Mapping[str, TransferStatus], *, whole: bool) -> None:
        """Find copies at a cluster of which the log wants none, among those of which something changed."""
        before = self._strays[cluster]
        found = set(strays(self.jobs, self.groups, self._rules.name, rows))
        self._strays[cluster] = found if whole else (before - rows.keys()) | found
        for transfer in sorted(found - before):
            _log.warning(
                "a cluster has a copy that is not wanted there; it is asked back",
                cluster=cluster,
                transfer=transfer,
                phase=rows[transfer].phase,
            )

    def _look_for_moves(self) -> None:
        """Looks whether some of the waiting jobs should move: kind by kind, each in a turn of its own, so
        that no request waits for all of it.
        """
        if not self._moving.acquire(blocking=False):
            return  # another cluster's thread is at it
        try:
            with self._turns.look():
                kinds = self._to_check(self._now())
            for names in kinds:
                with self._turns.look():
                    job = self.jobs.by_id.get(names[0])
                    if job is not None:  # each cluster is asked of such jobs once
                        self._ask_for(job, new=False)
                    self._try(names)
        finally:
            self._moving.release()

    def _sweep(self) -> None:
        """Drops what is old, now and then: each step in a turn of its own."""
        if not self._record.sweep_due(self._now()) or not self._sweeping.acquire(blocking=False):
            return
        try:
            steps, more = self._record.sweep(self._now()), True
            while more:
                with self._turns.look():
                    more = next(steps, self) is None
        except StoreError as error:
            _log.error("the log cannot be written; what is old stays", why=str(error))
        finally:
            self._sweeping.release()

    def refused(self, action: Action, text: str) -> None:
        """The cluster's schedd refuses a submission as it is. Raises StoreError."""
        seen = {action.transfer: TransferStatus("refused", text=text)}
        with self._turns.request():
            self._take(observe(self.jobs, self._rules, action.cluster, seen, self._now(), seen))
            self._settle([action.job])

    # ---- with the lock held -----------------------------------------------------------------------

    def _try(self, names: Sequence[str]) -> None:
        try:
            self._settle(names)
        except StoreError as error:
            _log.error("the log cannot be written; nothing is done", why=str(error))

    def _settle(self, names: Iterable[str]) -> None:
        """Makes the choices that are to be made for these jobs, and what follows from them at once."""
        now = self._now()
        for _ in range(_STEPS):
            events = self._decide(self.jobs, now, names)
            taken = self._take(events)
            if not taken:
                return
            names = dict.fromkeys(event.job for event in taken)

    def _asks(self, name: str) -> object:
        job = self.jobs.by_id.get(name)
        return job.asks if job is not None else None

    def _came(self, name: str) -> int:
        job = self.jobs.by_id.get(name)
        return job.submitted if job is not None and not job.attempts else 1 << 40

    def _with(self, event: Submitted) -> Sequence[Event]:
        """The choice for a job that comes, if all offers are known: both are kept in one go, since it is the
        disk that a decision waits for. What the load is taken to be then, the next look puts right if the log
        cannot be written.
        """
        if "users" in event.submission:  # whom he is where counts when it is kept
            return ()
        tried = Jobs()
        tried.apply(event)
        self._ask_for(tried[event.job], new=True)
        return self._decide(tried, event.time, [event.job])

    def _decide(self, jobs: Jobs, now: int, names: Iterable[str]) -> Sequence[Event]:
        """The choices for these jobs; the load that they make is reckoned anew by the next look."""
        events = decide(jobs, self._rules, self.seen, now, self._users, names, self._load)
        self._unreckoned |= {one.cluster for one in events if isinstance(one, Chosen)}
        return events

    def _take(self, events: Sequence[Event]) -> Sequence[Event]:
        """Keeps events and applies them, and rings who has to do with them; returns those that could be.
        Raises StoreError: none is kept.
        """
        taken = self._record.take(events)
        for event in taken:
            if isinstance(event, OfAttempt):
                number = event.attempt
                cluster = self.jobs[event.job].attempts[number - 1].cluster
                self._unreckoned.add(cluster)
                if (event.job, number) in self.jobs.to_do.get(cluster, ()) and cluster in self.bells:
                    self.bells[cluster].set()
            if isinstance(event, Out):
                self._due[event.job] = event.time
        if self._record.renamed:  # they are somebody else there: plans were not asked of him
            for name in self.jobs.stirring:
                if self.jobs[name].owner in self._record.renamed:
                    self._ask_for(self.jobs[name], new=True)
            self._record.renamed.clear()
        return taken

    def _ask_for(self, job: Job, *, new: bool, more: bool = False) -> None:
        """Lets the clusters that could take the job say what they offer; of one that is bound it is known. Of
        a ``new`` job first those that can be best for it; ``more``: others, too, though some are to answer.
        """
        if job.bound:
            return
        now = self._now()
        users = self._users[job.owner]
        names = [name for name in users if not job.clusters or name in job.clusters]
        if new:
            known_by = (self._quotes, self.seen, self._rules, self._load)
            names = most_promising(job, users, names, *known_by, now, more=more)
        for cluster in names:
            quotes, question = self._quotes[cluster], job.question(cluster, users[cluster])
            asked = quotes.asked(question)
            known = quotes.want(question, now, new=new)
            if new and not known and not asked:
                self.bells[cluster].set()

    def _ask_more(self, names: Iterable[str], *, more: bool = False) -> None:
        """Lets more clusters answer for jobs that are not decided yet; of jobs alike one speaks for all."""
        kinds: dict[tuple[object, ...], Job] = {}
        for name in names:
            job = self.jobs.by_id.get(name)
            if job is not None and not job.attempts and not job.over:
                kinds.setdefault((job.owner, job.asks, job.clusters, job.tasks), job)
        for job in list(kinds.values())[:_KINDS]:
            self._ask_for(job, new=True, more=more)

    def _to_check(self, now: int) -> list[list[str]]:
        """Waiting jobs of which it is to be looked now whether they should move, by kinds."""
        routing = self.settings.routing
        found: dict[tuple[object, ...], list[str]] = {}
        for name, last in list(islice(self._due.items(), _CHECKED)):
            if now - last < routing.again:
                break
            del self._due[name]
            job = self.jobs.by_id.get(name)
            if job is None or job.stays or not job.waits or job.moves >= routing.moves:
                continue
            self._due[name] = now
            alike = (job.owner, job.asks, job.clusters, str(job.submission.get("queues")))
            found.setdefault(alike, []).append(name)
        return [
            names[first : first + _KIND] for names in found.values() for first in range(0, len(names), _KIND)
        ]

    def _of_family(self, cluster: str, family: str) -> str:
        """What is wrong where the settings name another family of servers than the cluster does."""
        wanted = self.settings.clusters[cluster].family
        if not family or family == wanted:
            return ""
        words = (
            f"its server is {_NAMED.get(family, family)}, but clusters.{cluster}.family says {wanted}: "
            "no job that asks by select goes there until they agree"
        )
        if words != self.seen[cluster].trouble:
            _log.error("the settings name another family of servers", cluster=cluster, why=words)
        return words

    def _reckon(self, cluster: str) -> None:
        fresh: Load = assigned(self.jobs, self.seen, self._rules, [cluster])
        self._load.sent |= fresh.sent
        self._load.backlog |= fresh.backlog


def _counts(seen: TransferStatus | None) -> str:
    """What of it the load of its cluster depends on."""
    state = seen.state if seen is not None else ""
    return state if state in ("", "running") else "waits"
