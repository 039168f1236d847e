"""Notices to users by mail or command: a start moved or is near, a deadline is lost, a tighter walltime would
start the job sooner, the walltime of a run was altered.

A notice is recorded in the database before it is sent, and is sent at most once: if the daemon ends in
between, a recorded notice is lost, an unrecorded one is sent by the next leader. A failed relay or command is
retried for some minutes. The notices to each user in the last hour are in the database, too.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import structlog

from schedd.deadline_sentence import DeadlineFacts, deadline_facts
from schedd.dialect.deadline import read_deadline
from schedd.engine import (
    JobRecord,
    Phase,
    PlanSnapshot,
    job_displayed_start,
    published_record,
    render_job,
)
from schedd.error_text import describe_error
from schedd.features.notices.daemon_settings import NotifySettings
from schedd.features.notices.notice_rule import Notice, decide_notice, decide_run_notice, lost_deadline
from schedd.features.notices.notice_sender import NoticeSender
from schedd.plan.work_limits import WorkSpent
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.expectations import StartForecast
from schedd.service.questions.published_start import PublishedStart, current_start
from schedd.service.questions.tighter_walltimes import (
    MOST_JOBS,
    TighterWalltime,
    find_tighter_walltimes,
)
from schedd.service.read.plan_lists import matches_owner
from schedd.start_sentence import job_start_facts
from schedd.store import Store, StoreError
from schedd.store.records import LastNotice, NoticeSubscription

_log = structlog.get_logger(__name__)
_LOOK_S: Final = 5.0
_HOUR_S: Final = 3600
_WAITS_S: Final = (10.0, 30.0, 60.0, 120.0, 300.0)
"""Backoff between attempts of one notice, which fails for good after the last."""
_MOST_WAITING: Final = 10_000
_TROUBLE_FADES_S: Final = 900.0
"""Time from the last failure of a relay or command to the end of its alert; the next success ends it, too."""
_FORK_TIMEOUT_S: Final = 5.0
_RENDERED: Final = frozenset({"displayed_start"})
_Key = tuple[int, str]


_NOT_LOST: Final[tuple[int, DeadlineFacts | None]] = (-1, None)


def _deadline_at_risk(published: PlanSnapshot, record: JobRecord) -> tuple[int, DeadlineFacts | None]:
    """Return an accepted deadline at risk, and its forecast if it has a probability; -1: none."""
    if read_deadline(record.facts.resources, record.facts.submitted) is None:
        return _NOT_LOST
    view = render_job(published, record, _RENDERED)
    if view.deadline is None or view.deadline_state != "at_risk":
        return _NOT_LOST
    return view.deadline, deadline_facts(view)


class TooManySubscriptions(Exception):
    """The user has the maximum number of subscriptions."""


@dataclass(slots=True)
class _QueuedNotice:
    notice: Notice
    tries: int = 0
    not_before: float = 0.0


class Notifier:
    """Notices of one cluster; add and remove from any thread. ``store`` is None until it is open."""

    title = "notices"

    def __init__(
        self,
        loop: PlanLoop,
        settings: NotifySettings,
        store: Callable[[], Store | None],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        forecast: Callable[[], StartForecast | None] = lambda: None,
    ) -> None:
        """``clock`` (monotonic) is for waits; ``wall`` (UTC seconds) for times in the database; ``forecast``
        has the predicted run times, if they are known.
        """
        self.settings = settings
        self.cluster = loop.name
        self._loop = loop
        self._record = loop.supervisor.record("notices", loop.name)
        self._store = store
        self._clock = clock
        self._wall = wall
        self._messenger = NoticeSender(settings, loop.name)
        self._number: int | None = None
        self._subscriptions: dict[int, NoticeSubscription] | None = None
        self._last_notices: dict[_Key, LastNotice] = {}
        self._queue: deque[_QueuedNotice] = deque()
        self._sent: dict[str, deque[int]] = {}
        self._postponed: set[_Key] = set()
        self._failed: set[str] = set()  # jobs with an error in the rules
        self._troubles: dict[
            str, tuple[str, float]
        ] = {}  # last failure of each relay or command, with its time
        self._forecast = forecast
        self._examined: set[str] = set()  # jobs with a finished search for a tighter walltime

    # ---- wishes ----------------------------------------------------------------------------------

    def subscriptions(self, who: str) -> list[NoticeSubscription]:
        """Return the subscriptions of a user, oldest first. Raises StoreError."""
        store = self._open_store()
        return [wish for wish in store.notice_subscriptions(self._cluster(store)) if wish.user == who]

    def add(self, wish: NoticeSubscription) -> NoticeSubscription:
        """Store a subscription. Raises StoreError and TooManySubscriptions."""
        store = self._open_store()
        if len(self.subscriptions(wish.user)) >= self.settings.most:
            raise TooManySubscriptions(f"{wish.user} has {self.settings.most} already; remove one")
        number = store.add_notice_subscription(self._cluster(store), wish)
        self._subscriptions = None
        return replace(wish, number=number)

    def remove(self, who: str, number: int) -> NoticeSubscription | None:
        """Delete a subscription of this user; return None if there is none. Raises StoreError."""
        found = next((wish for wish in self.subscriptions(who) if wish.number == number), None)
        if found is not None:
            self._open_store().remove_notice_subscription(number)
            self._subscriptions = None
        return found

    def _open_store(self) -> Store:
        store = self._store()
        if store is None:
            raise StoreError("no database is open")
        return store

    def _cluster(self, store: Store) -> int:
        if self._number is None:
            self._number = store.register_cluster(self._loop.name, self._loop.now())
        return self._number

    # ---- notices ---------------------------------------------------------------------------------

    async def follow(self, pause: float = _LOOK_S) -> None:
        """Send notices until the planner stops; none on standby."""
        plan_signal = self._loop.feed.signal
        while not plan_signal.closed:
            with suppress(StoreError):  # notices stay due; an alert reports the failed database
                await asyncio.to_thread(self.find_notices)
            await asyncio.to_thread(self.send)
            await asyncio.sleep(pause)

    def find_notices(self) -> None:
        """Find the notices that are due, and record them. Raises StoreError."""
        loop, published = self._loop, self._loop.published
        if loop.on_standby or self._store() is None:
            self._subscriptions = None  # the leader sends notices, and may change subscriptions
            self._queue.clear()
            return
        if published.stale or published.arriving:
            return  # the present state is unknown
        store = self._open_store()
        wishes = self._load_subscriptions(store)
        new: dict[_Key, LastNotice] = {}
        notices: list[Notice] = []
        now = loop.now()
        gains = self._find_gains(published, wishes, now)
        seen: set[_Key] = set()
        addressed: set[tuple[str, str, str, str]] = set()
        for wish, record in _subscribed_jobs(published, wishes):
            key = (wish.number, record.id)
            seen.add(key)
            if record.phase is Phase.DISPATCHED:
                continue
            try:
                mark, notice = self._decide(published, wish, record, now, gains.get(record.id))
            except Exception as error:  # only of this job: continue with the others
                if record.id not in self._failed:
                    self._record.note(error)
                self._failed.add(record.id)
                continue
            self._failed.discard(record.id)
            if notice is not None:
                sends = (wish.channel, wish.address, notice.job, notice.kind)
                if sends in addressed:
                    notice = None  # another subscription of the user reports the same
                else:
                    addressed.add(sends)
            if notice is not None and not self._within_hourly_limit(wish.user, notices):
                if key not in self._postponed:
                    self._postponed.add(key)
                    loop.metrics.count_notice("limited")
                continue  # it stays due for the next hour
            if notice is not None:
                self._postponed.discard(key)
            if mark != self._last_notices.get(key):
                new[key] = mark
            if notice is not None:
                notices.append(notice)
        gone = [key for key in self._last_notices if key not in seen]
        self._postponed &= seen
        self._failed &= {job for _, job in seen}
        self._examined &= {job for _, job in seen}
        if new or gone:
            moment = int(self._wall())
            whom = ([one.subscription.user for one in notices], moment, moment - _HOUR_S)
            store.update_last_notices(self._cluster(store), new, gone, now, whom)
            for one in notices:
                self._sent.setdefault(one.subscription.user, deque()).append(moment)
            self._last_notices |= new
            for key in gone:
                del self._last_notices[key]
        self._forget_ended(store, wishes, published)
        for notice in notices:
            if len(self._queue) < _MOST_WAITING:
                self._queue.append(_QueuedNotice(notice))
            else:
                loop.metrics.count_notice("given_up")

    def _find_gains(
        self, published: PlanSnapshot, wishes: Mapping[int, NoticeSubscription], now: int
    ) -> Mapping[str, TighterWalltime]:
        """Return the gains of tighter walltimes, by job: each job is examined once, a few in each round."""
        wanted = {number: wish for number, wish in wishes.items() if wish.on_tighter_walltime}
        forecast = self._forecast() if wanted else None
        if forecast is None:
            return {}
        if not self._unexamined_jobs(published, wanted):
            return {}
        try:
            fork = self._loop.fork().result(_FORK_TIMEOUT_S)
            some = self._unexamined_jobs(fork.published, wanted)[:MOST_JOBS]
            found = find_tighter_walltimes(fork, forecast, some, now)
        except (TimeoutError, WorkSpent):
            return {}  # the planner is busy
        self._examined |= {one.id for one in some}
        return {gain.job: gain for gain in found}

    def _unexamined_jobs(
        self, published: PlanSnapshot, wishes: Mapping[int, NoticeSubscription]
    ) -> list[JobRecord]:
        """Return the planned jobs without a search for a tighter walltime."""
        return [
            record
            for _, record in _subscribed_jobs(published, wishes)
            if record.id not in self._examined and current_start(published, record) is not None
        ]

    def _decide(
        self,
        published: PlanSnapshot,
        wish: NoticeSubscription,
        record: JobRecord,
        now: int,
        gain: TighterWalltime | None,
    ) -> tuple[LastNotice, Notice | None]:
        """Return the new state of the job's notices, and the notice to send now."""
        last = self._last_notices.get((wish.number, record.id))
        if record.phase is Phase.RUNNING:
            return decide_run_notice(wish, last, record, now)
        start = int(published.starts[record.slot]) if record.slot >= 0 else -1
        displayed = job_displayed_start(published, record, start)
        lost, forecast = _NOT_LOST
        at_risk = False
        if wish.on_lost_deadline:
            lost = lost_deadline(record, now)
            at_risk = lost < 0
            lost, forecast = (lost, None) if lost >= 0 else _deadline_at_risk(published, record)
        if last is not None:
            last = replace(last, walltime=-1)  # its run is over
        length = record.understood.walltime
        own = PublishedStart.from_job(published, record, now) if wish.lead_s is not None else None
        likely = own.forecast.start if own is not None else -1
        mark, notice = decide_notice(
            wish,
            last,
            record.id,
            displayed,
            now,
            likely=likely,
            lost=lost,
            at_risk=at_risk,
            walltime=length,
            gain=gain,
        )
        if notice is not None:
            facts = job_start_facts(render_job(published, record, _RENDERED))
            notice = replace(notice, forecast=forecast, facts=facts)
        return mark, notice

    def _load_subscriptions(self, store: Store) -> Mapping[int, NoticeSubscription]:
        wishes = self._subscriptions
        if wishes is None:
            cluster = self._cluster(store)
            wishes = {wish.number: wish for wish in store.notice_subscriptions(cluster)}
            self._last_notices = dict(store.last_notices(cluster))
            self._sent = {}
            for who, moment in store.notified_users(cluster, int(self._wall()) - _HOUR_S):
                self._sent.setdefault(who, deque()).append(moment)
            self._subscriptions = wishes
        return wishes

    def _within_hourly_limit(self, who: str, others: list[Notice]) -> bool:
        """Whether the user may get another notice this hour."""
        sent = self._sent.get(who, deque())
        now = self._wall()
        while sent and not now - _HOUR_S < sent[0] <= now + _HOUR_S:  # a clock may have been set back
            sent.popleft()
        return len(sent) + sum(one.subscription.user == who for one in others) < self.settings.hourly

    def _forget_ended(
        self, store: Store, wishes: Mapping[int, NoticeSubscription], published: PlanSnapshot
    ) -> None:
        """Delete the subscriptions to ended jobs."""
        for wish in wishes.values():
            if not wish.job or published_record(published, wish.job) is not None:
                continue
            past = store.job_history(self._cluster(store), wish.job)
            if past is not None and past.ended is not None:
                store.remove_notice_subscription(wish.number)
                self._subscriptions = None

    # ---- sending ---------------------------------------------------------------------------------

    def send(self) -> None:
        """Send the queued notices after their backoff."""
        for _ in range(len(self._queue)):
            letter = self._queue.popleft()
            notice, now = letter.notice, self._loop.now()
            if notice.kind == "soon" and notice.start <= now:
                self._loop.metrics.count_notice("late")
                continue  # the start has passed
            if letter.not_before > self._clock():
                self._queue.append(letter)
                continue
            try:
                why = self._messenger.send(notice, now)
            except Exception as error:  # only of this notice: continue with the others
                self._record.note(error)
                why = describe_error(error)
            target = "mail" if notice.subscription.channel == "mail" else notice.subscription.address
            if not why:
                self._troubles.pop(target, None)
                self._loop.metrics.count_notice("sent")
                continue
            self._troubles[target] = (why, self._clock())
            self._loop.metrics.count_notice("failed")
            if letter.tries == len(_WAITS_S):
                about = {"cluster": self._loop.name, "user": notice.subscription.user, "job": notice.job}
                self._loop.metrics.count_notice("given_up")
                _log.error("a notice was given up", **about, why=why)
                continue
            if not letter.tries:
                _log.warning("a notice was not taken; it is tried again", cluster=self._loop.name, why=why)
            letter.not_before = self._clock() + _WAITS_S[letter.tries]
            letter.tries += 1
            self._queue.append(letter)
        self._report_troubles()

    def _report_troubles(self) -> None:
        """Report why notices are not sent, for an alert."""
        oldest = self._clock() - _TROUBLE_FADES_S
        self._troubles = {name: one for name, one in self._troubles.items() if one[1] > oldest}
        whys = [f"notices to users are not sent ({why})" for why, _ in self._troubles.values()]
        self._loop.notice_trouble = "; ".join(whys)


def _subscribed_jobs(
    published: PlanSnapshot, wishes: Mapping[int, NoticeSubscription]
) -> Iterator[tuple[NoticeSubscription, JobRecord]]:
    of_all: dict[str, list[NoticeSubscription]] = {}
    for wish in wishes.values():
        if not wish.job:
            of_all.setdefault(wish.user, []).append(wish)
        elif (record := published_record(published, wish.job)) is not None:
            yield wish, record
    if not of_all:
        return
    for one in (*published.records, *published.slotless.values()):
        if one is not None:
            owner = one.facts.owner
            for who in {owner, owner.partition("@")[0]} & of_all.keys():
                yield from ((wish, one) for wish in of_all[who] if matches_owner(owner, wish.user))
