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

from schedd.federation.bag_events import BagEvent, BagSubmitted
from schedd.federation.bags.bag import Bags
from schedd.federation.bags.told import Told
from schedd.federation.choosing import Load, assigned, priority_of
from schedd.federation.events import Cancelled, Event, Leased, Out, Submitted
from schedd.federation.group_events import CopyRefused, GroupCancelled, GroupEvent, GroupSubmitted
from schedd.federation.groups.group import Group, Groups
from schedd.federation.groups.steps import GroupRules, Looks, copies_seen
from schedd.federation.groups.steps import decide as decide_group
from schedd.federation.jobs import ImpossibleError, Job, Jobs, Question
from schedd.federation.licences import Grant, Lent, Licences
from schedd.federation.log import Log
from schedd.federation.machine import Action, actions, decide, observe
from schedd.federation.ordering import Backlog
from schedd.federation.quotes import Quotes
from schedd.federation.seen import ClusterSeen, HandoverSeen, Offer, handover
from schedd.federation.settings import Settings
from schedd.federation.turns import Turns
from schedd.federation.users import Users
from schedd.store import StoreError

__all__ = ["Report", "Roof"]

_log = structlog.get_logger(__name__)
_KEPT_S: Final = 7 * 86_400
"""For how long what became of a job can be asked after."""
_SWEEP_S: Final = 3_600
"""How often those that are older are dropped."""
_MOST: Final = 200
"""Questions to one cluster in one round."""
_CHECKED: Final = 500
"""Waiting jobs in one round of which it is looked whether they should move."""
_KIND: Final = 100
"""Of these, so many alike in one turn."""
_NAMED: Final = {"torque": "TORQUE", "openpbs": "OpenPBS"}
_STEPS: Final = 4
"""So often it is looked at once what follows from what was decided."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was found of one cluster; ``away``: why it is passed over. ``handovers`` None: nothing was found.

    They are all that there are if they are the ``whole``, else those that changed.
    """

    away: str = ""
    handovers: Mapping[str, HandoverSeen] | None = None
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
        self.peer_tokens = peer_tokens
        self._rules = settings.rules
        self._log = log
        self._clock = clock
        self._turns = Turns()
        self._moving = threading.Lock()
        """Held by the one thread that looks whether waiting jobs should move."""
        self.jobs = Jobs()
        routing = settings.routing
        self._quotes = {name: Quotes(routing.poll, routing.again) for name in settings.clusters}
        self.groups = Groups()
        self.group_rules: GroupRules = settings.group_rules
        self.group_bell = threading.Event()
        self.group_notes: dict[str, str] = {}
        """Why no start was found for groups that have none."""
        self.holes = {"asked": 0, "found": 0}
        """Since this daemon leads: how often plans were asked whether a waiting group could end earlier, and
        how often it could. Local jobs have their choice of each hole first."""
        self.bags = Bags()
        self.bag_bell = threading.Event()
        self.bag_notes: dict[str, str] = {}
        """Why tasks of bags have no share."""
        self.bag_offers = Told(settings.bags.expiry, clock)
        self.generations: dict[str, int] = {}
        """By cluster, the version of its plan that was last seen."""
        self.seen: dict[str, ClusterSeen] = {
            name: ClusterSeen(
                "it was not asked yet",
                self._now(),
                offers=self._quotes[name].offers,
                speed=one.speed,
                handicap=one.handicap,
                data=frozenset(one.data),
            )
            for name, one in settings.clusters.items()
        }
        self._users = Users(settings)
        self.counts: dict[str, Mapping[str, int]] = {}
        self.bells = {name: threading.Event() for name in settings.clusters}
        self._number = 0
        self.licences = Licences(settings.licences, settings.clusters)
        for event in log.read():
            if isinstance(event, Leased):
                self.licences.apply(event)
                continue
            self._number = max(self._number, int(event.job))
            try:
                self._apply(event)
            except ImpossibleError as error:
                # Nothing was ever done upon it: whoever wrote it could not apply it, either.
                _log.error("the log holds what cannot have been; it is passed over", why=str(error))
        self._swept = self._scanned = 0
        self._sweep()
        self._load = assigned(self.jobs, self.seen, self._rules)
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
                job=str(self._number + 1),
                time=now,
                owner=owner,
                submission=submission,
                priority=level,
                **more,
            )
            self._take([event, *self._with(event)])
            self._number += 1
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

    def standing(self, job: Job) -> Mapping[int, HandoverSeen]:
        """By attempt, what its cluster said last of it."""
        found = {}
        for attempt in job.attempts:
            cluster = self.seen.get(attempt.cluster)
            one = cluster.handovers.get(handover(self._rules, job, attempt)) if cluster else None
            if one is not None:
                found[attempt.number] = one
        return found

    # ---- bags -------------------------------------------------------------------------------------

    def take_bag(self, make: Callable[[int, int], Sequence[Event]]) -> None:
        """Keeps what ``make`` makes of the moment and of the first number that is free, all of it or
        nothing, and does what follows. Nothing else happens meanwhile. Raises StoreError, and what ``make``
        raises.
        """
        with self._turns.request():
            taken = self._take(make(self._now(), self._number + 1))
            self._number = max((self._number, *(int(event.job) for event in taken)))
            self._settle([event.job for event in taken if event.job in self.jobs.by_id])

    # ---- groups -----------------------------------------------------------------------------------

    def submit_group(
        self, owner: str, parts: tuple[Mapping[str, Any], ...], options: Mapping[str, Any], key: str = ""
    ) -> Group:
        """Takes a group; with a ``key`` that was used before, it is that group. Raises StoreError."""
        with self._turns.request():
            known = self.groups.by_key.get((owner, key)) if key else None
            if known is not None:
                return self.groups[known]
            self._number += 1
            event = GroupSubmitted(
                job=str(self._number),
                time=self._now(),
                owner=owner,
                parts=parts,
                options=options,
                key=key,
            )
            self._take([event])
            return self.groups[event.job]

    def cancel_group(self, group: str, by: str) -> Group:
        """Its owner does not want it any more. Raises StoreError and KeyError."""
        with self._turns.request():
            if not self.groups[group].over and not self.groups[group].cancelled:
                self._take([GroupCancelled(job=group, time=self._now(), by=by)])
            return self.groups[group]

    def tend_group(self, name: str, looks: Mapping[str, Looks]) -> Group:
        """What is seen becomes events, and what follows is decided; the group then. Raises StoreError."""
        with self._turns.request():
            now = self._now()
            self._take(copies_seen(self.groups[name], self.group_rules, looks, now))
            for _ in range(_STEPS):
                events = decide_group(self.groups[name], self.group_rules, looks, now)
                if not self._take(events):
                    break
            return self.groups[name]

    def take_group(self, events: Sequence[GroupEvent]) -> None:
        """What came of a request; what does not fit any more is dropped. Raises StoreError."""
        with self._turns.request():
            for event in events:
                try:
                    self.groups.check(event)
                except ImpossibleError as error:
                    _log.info("too late", group=event.job, what=event.type, why=str(error))
                else:
                    self._take([event])

    def refuse_copy(self, group: str, copy: int, text: str) -> None:
        """A cluster's schedd refuses a part's job as it is. Raises StoreError."""
        self.take_group([CopyRefused(job=group, time=self._now(), copy=copy, text=text)])

    def note_group(self, group: str, words: str) -> None:
        """Why it has no start."""
        self.group_notes[group] = words

    # ---- clusters ---------------------------------------------------------------------------------

    def cannot(self, cluster: str, resources: Mapping[str, str]) -> str:
        """Why a cluster's server does not understand what a job asks for; empty: it may."""
        return self.settings.clusters[cluster].cannot(resources) or self.seen[cluster].cannot(resources)

    def work(self, cluster: str) -> list[Action]:
        """What is to be asked of a cluster now."""
        with self._turns.look():
            return list(actions(self.jobs, self._rules, cluster))

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

    def report(self, cluster: str, report: Report) -> bool:
        """Takes in what was found; False where the database fails: then it is to be told again as a whole."""
        with self._turns.look():
            now, before = self._now(), self.seen[cluster]
            among: Iterable[str] | None = None
            if report.handovers is None:
                since = before.since if before.away else now
                self.seen[cluster] = replace(before, away=report.away or "it does not answer", since=since)
                self.licences.forget(cluster)
                if not before.away:
                    _log.warning("a cluster does not answer", cluster=cluster, why=report.away)
            else:
                if before.away and not report.away:
                    _log.info("a cluster answers", cluster=cluster)
                since = before.since if bool(before.away) == bool(report.away) else now
                changed = report.handovers
                trouble = self._of_family(cluster, report.family)
                whole = report.whole or not before.handovers
                self.seen[cluster] = replace(
                    before,
                    away=report.away,
                    since=since,
                    handovers=changed if whole else {**before.handovers, **changed},
                    cpus=report.cpus,
                    family=report.family,
                    trouble=trouble,
                )
                self.counts[cluster] = report.counts
                self._quotes[cluster].look(report.generation, now)
                self.generations[cluster] = report.generation
                self.group_bell.set()
                among = None if whole else changed
                if whole or changed:
                    self._reckon(cluster)
            names: dict[str, None] = {}
            try:
                for _ in range(_STEPS if report.handovers is not None else 0):
                    events = observe(
                        self.jobs, self._rules, cluster, self.seen[cluster].handovers, now, among
                    )
                    taken = self._take(events)
                    if not taken:
                        break
                    names |= dict.fromkeys(event.job for event in taken)
            except StoreError as error:
                _log.error("the log cannot be written; nothing is done", why=str(error))
                return False
            if now != self._scanned or bool(before.away) != bool(report.away):
                self._scanned = now
                names |= self.jobs.stirring
        with self._turns.look():  # what was kept and what follows from it are two commits: one in a turn
            self._try(list(names))
            self._sweep()
        self._look_for_moves()
        return True

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

    # ---- licences ---------------------------------------------------------------------------------

    def grants(self, cluster: str) -> list[Grant]:
        """What a cluster is to be told of the licences now; what is raised is kept. Raises StoreError."""
        with self._turns.look():
            reachable = [name for name, seen in self.seen.items() if not seen.away]
            found = self.licences.grants(cluster, reachable, self._now())
            self._lease([one.raised for one in found if one.raised is not None])
            return found

    def lent(self, grant: Grant, lent: Lent) -> None:
        """A cluster has answered. Raises StoreError."""
        with self._turns.look():
            self._lease(self.licences.told(grant, lent, self._now()))

    def not_lent(self, grant: Grant, why: str) -> None:
        """A cluster does not take a licence from us. Raises StoreError."""
        with self._turns.look():
            self._lease(self.licences.refused(grant, why, self._now()))
        _log.warning("a licence is not lent", cluster=grant.cluster, licence=grant.licence, why=why)

    def refused(self, action: Action, text: str) -> None:
        """The cluster's schedd refuses a submission as it is. Raises StoreError."""
        seen = {action.handover: HandoverSeen("refused", text=text)}
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
            events = decide(self.jobs, self._rules, self.seen, now, self._users, names, self._load)
            taken = self._take(events)
            if not taken:
                return
            names = dict.fromkeys(event.job for event in taken)

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
        return decide(tried, self._rules, self.seen, event.time, self._users, [event.job], self._load)

    def _take(self, events: Sequence[Event]) -> Sequence[Event]:
        """Keeps events and applies them; returns those that could be. Raises StoreError: none is kept."""
        possible = self._possible(events)
        self._log.append(possible)
        for event in possible:
            self._apply(event)
            _log.info(event.type, job=event.job, attempt=getattr(event, "attempt", None))
            number = getattr(event, "attempt", 0)
            if number:
                cluster = self.jobs[event.job].attempts[number - 1].cluster
                if (event.job, number) in self.jobs.to_do.get(cluster, ()) and cluster in self.bells:
                    self.bells[cluster].set()
            if isinstance(event, Out):
                self._due[event.job] = event.time
        return possible

    def _possible(self, events: Sequence[Event]) -> list[Event]:
        """Those that can follow what was and one another. Others are a defect: they are said loudly and kept
        nowhere, since a log that holds one could not be followed again. It concerns that job alone.
        """
        jobs, groups, bags, bad = Jobs(), Groups(), Bags(), set[str]()
        found: list[Event] = []
        for event in events:
            tried: Jobs | Groups | Bags = jobs
            known: Jobs | Groups | Bags = self.jobs
            if isinstance(event, GroupEvent):
                tried, known = groups, self.groups
            elif isinstance(event, BagEvent):
                tried, known = bags, self.bags
            if event.job in bad:
                continue
            if event.job in known.by_id:
                tried.by_id.setdefault(event.job, known.by_id[event.job])  # type: ignore[arg-type]
            try:
                tried.apply(event)  # type: ignore[arg-type]
            except ImpossibleError as error:
                bad.add(event.job)
                _log.error("cannot be, and is left out", what=event.type, job=event.job, why=str(error))
            else:
                found.append(event)
        return found

    def _lease(self, events: Sequence[Leased]) -> None:
        if events:
            self._log.append(events)
        for event in events:
            self.licences.apply(event)
            _log.info("leased", cluster=event.cluster, licence=event.licence, copies=event.copies)

    def _ask_for(self, job: Job, *, new: bool) -> None:
        """Lets the clusters that could take the job say what they offer; of a share it is known."""
        if job.bag:
            return
        now = self._now()
        for cluster, user in self._users[job.owner].items():
            if job.clusters and cluster not in job.clusters:
                continue
            known = self._quotes[cluster].want(job.question(cluster, user), now, new=new)
            if not known and new:
                self.bells[cluster].set()

    def _to_check(self, now: int) -> list[list[str]]:
        """Waiting jobs of which it is to be looked now whether they should move, by kinds."""
        routing = self.settings.routing
        found: dict[tuple[object, ...], list[str]] = {}
        for name, last in list(islice(self._due.items(), _CHECKED)):
            if now - last < routing.again:
                break
            del self._due[name]
            job = self.jobs.by_id.get(name)
            if job is None or job.bag or not job.waits or job.moves >= routing.moves:
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

    def _sweep(self) -> None:
        now = self._now()
        if now - self._swept >= _SWEEP_S:
            self._swept = now
            before = now - _KEPT_S
            bags = self.bags.forget(self.jobs, before)
            old = (*self.jobs.forget(before), *self.groups.forget(before), *bags)
            if old:  # the newest stays: its number is not to be given again
                self._log.forget([name for name in old if int(name) != self._number])
            if self.settings.licences:
                self._log.lease_anew(self.licences.events(now))

    def _apply(self, event: Event) -> None:
        if isinstance(event, Submitted):
            self._claim(event.owner, event.submission)
        elif isinstance(event, GroupSubmitted):
            self._claim(event.owner, event.parts[0]["submission"])
        elif isinstance(event, BagSubmitted):
            self._claim(event.owner, event.submission)
        if isinstance(event, GroupEvent):
            self.groups.apply(event)
            self.group_bell.set()
            return
        if isinstance(event, BagEvent):
            self.bags.apply(event)
        else:
            self.jobs.apply(event)
            job = self.jobs[event.job]
            if isinstance(event, Submitted) and job.bag:
                self.bags.add_share(job)
            if not job.bag:
                return
        self.bag_bell.set()

    def _claim(self, owner: str, submission: Mapping[str, Any]) -> None:
        """Follow what the token said that came with a submission, if one did."""
        if "users" in submission and self._users.claim(owner, submission["users"]):
            for name in self.jobs.stirring:  # they are somebody else there: plans were not asked of him
                if self.jobs[name].owner == owner:
                    self._ask_for(self.jobs[name], new=True)
