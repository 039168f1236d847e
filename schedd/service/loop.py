"""The thread that owns one cluster's live plan: batches of events in, decisions and publications out."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

import structlog

from schedd.engine import Engine, EngineSettings
from schedd.engine.view import Published, publish
from schedd.service.clock import Clock
from schedd.service.decisions import DecisionLog
from schedd.service.deliveries import Delivery, Handled, Part, batches
from schedd.service.durable import Succession
from schedd.service.errors import Overloaded, PlannerStopped, StandingBy
from schedd.service.feed import Feed
from schedd.service.follow import in_the_log
from schedd.service.forks import Fork, fork
from schedd.service.garbage import set_aside
from schedd.service.incidents import Incidents
from schedd.service.meters import ClusterMeters, Meters
from schedd.service.promised import Promised
from schedd.service.spoken import speak_of
from schedd.store import AuditEntry, Batch, Journal, NotLeader, StoreError
from schedd.wire import Alert, Event, Snapshot

__all__ = ["PlanLoop"]

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)

_PUBLISH_S = 0.02
"""Between slices of a repair, publish no more often than this."""
_FORK_S = 0.2
"""For how long a copy serves on while nothing but repair changes the plan."""
_LOOK_S = 60.0
"""Look at the clock at least this often: it may have been set."""
_STORE_WAITS = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between tries while the store fails; the last one for as long as it does."""
_FOLLOW_S = 0.5
"""Between two looks at what the leader wrote."""


class PlanLoop:
    """One cluster's engine in a thread of its own. All public methods may be called from any thread.

    ``published`` is the latest publication; reading it never waits. ``feed`` knows what changed up to it,
    ``blocked`` are nodes that count as blocked in it. ``failure`` says why the planner stopped for an error,
    ``trouble`` why it waits for its journal; both are empty while it works.

    With a ``succession`` it begins ``standing_by``: its engine follows what the store has, until this daemon
    leads; then it goes on with the journal that it gets. When another daemon leads it stands by again.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        journal: Journal,
        clock: Clock,
        *,
        succession: Succession | None = None,
        incidents: Incidents | None = None,
        meters: ClusterMeters | None = None,
        most_pending: int = 200_000,
    ) -> None:
        self.name = name
        self.meters = meters or Meters().of(name)
        self.decisions = DecisionLog()
        self.failure = ""
        self.trouble = ""
        self._clock = clock
        self._engine = engine
        self._journal = journal
        self._succession = succession
        self._incidents = incidents
        self._promised: Promised | None = None
        self._stepping_down = False
        self.standing_by = succession is not None
        self.recovered = threading.Event()
        self._most_pending = most_pending
        self._turn = threading.Condition()
        self._inbox: deque[Delivery] = deque()
        self._calls: deque[tuple[Callable[[Engine], Any], Future[Any]]] = deque()
        self._pending = 0
        self._stopping = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"plan-{name}", daemon=True)
        self._busy_since = 0.0
        self._published_at = 0.0
        self._unpublished = False
        self._batches = 0
        self._fork: tuple[int, float, Fork] | None = None
        self.published: Published = publish(engine.state)
        self.feed = Feed(self.published)
        self.blocked: frozenset[str] = frozenset()

    # ---- any thread -----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        """Finish the batch at hand and end the thread; what still waits is refused."""
        with self._turn:
            self._stopping = True
            self._turn.notify()
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        self.recovered.set()
        self.end_polls()
        self._refuse("the daemon is shutting down")
        if not self._thread.is_alive():
            self._journal.close()

    def end_polls(self) -> None:
        """Let all go who wait for decisions or follow the plan."""
        self.decisions.close()
        self.feed.bell.close()

    @property
    def alive(self) -> bool:
        """Whether the planner works."""
        return self._thread.is_alive() and not self.failure

    @property
    def busy_for(self) -> float:
        """For how many real seconds the planner has been at its present piece of work.

        0 when it rests, and while it waits for its journal: nothing is gained by killing it then.
        """
        since = self._busy_since
        return time.monotonic() - since if since and not self.trouble else 0.0

    @property
    def pending(self) -> int:
        """How many events wait to be handled."""
        return self._pending

    def now(self) -> int:
        """The present second by the cluster's clock."""
        return int(self._clock.now())

    def submit(self, events: Sequence[Event]) -> "Future[Handled]":
        """Hand in events in the order in which they happened; the answer comes when all are handled.

        Raises Overloaded and PlannerStopped.
        """
        answer: Future[Handled] = Future()
        with self._turn:
            self.check_leads()
            if self._pending and self._pending + len(events) > self._most_pending:
                raise Overloaded(f"{self._pending} events wait to be handled; send them again later")
            self._pending += len(events)
            self._inbox.append(Delivery(events, answer))
            self._turn.notify()
        return answer

    def at_rest(self, call: Callable[[Engine], _T]) -> "Future[_T]":
        """Let the planner's thread call ``call`` between two batches. Raises PlannerStopped."""
        answer: Future[_T] = Future()
        with self._turn:
            self._check_open()
            self._calls.append((call, answer))
            self._turn.notify()
        return answer

    def step_down(self) -> None:
        """Stop leading: another daemon does."""
        with self._turn:
            if not self.standing_by:
                self._stepping_down = True
                self._turn.notify()

    def step_up(self) -> None:
        """See at once that this daemon leads."""
        with self._turn:
            self._turn.notify()

    def check_leads(self) -> None:
        """Raise StandingBy when another daemon leads, PlannerStopped when there is no planner."""
        self._check_open()
        if self.standing_by:
            raise StandingBy("this daemon stands by; ask the one that leads")
        if self._succession is not None and not self._succession.leads:
            raise StandingBy("this daemon's lease is over, and the database cannot be had to renew it")

    def pause(self, why: str) -> "Future[int]":
        """Start no jobs until ``resume``; answers with the generation from then on. Raises PlannerStopped."""
        return self.at_rest(lambda engine: self._switch(engine, why or "an admin's order"))

    def resume(self) -> "Future[int]":
        """Start jobs again; answers with the generation from then on. Raises PlannerStopped."""
        return self.at_rest(lambda engine: self._switch(engine, ""))

    def reconfigure(self, settings: EngineSettings) -> "Future[None]":
        """Go on under other settings, as after a restart. Raises PlannerStopped."""
        return self.at_rest(lambda engine: self._reconfigure(engine, settings))

    def audit(self, who: str, act: str, detail: str) -> None:
        """Keep who did what, where anything is kept. Raises PlannerStopped when the database fails."""
        if self._succession is None:
            return
        try:
            self._succession.audit(AuditEntry(self.now(), who, act, detail, self.name))
        except StoreError as error:
            raise PlannerStopped(f"it was done, but could not be noted who did it: {error}") from error

    @property
    def last_fork(self) -> Fork | None:
        """The latest copy that anybody asked for."""
        return self._fork[2] if self._fork is not None else None

    def fork(self) -> "Future[Fork]":
        """A copy of the plan that holds all events handled so far; shared with others who ask now."""
        return self.at_rest(self._forked)

    def _check_open(self) -> None:
        if self.failure or self._stopping:
            raise PlannerStopped(self.failure or "the daemon is shutting down")

    # ---- the planner's thread -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._await_lead():
                try:
                    self._work()
                except NotLeader as error:
                    self._stand_down(str(error))
                else:
                    self._checkpoint(must=True)
                    return
        except PlannerStopped:
            self._refuse("the daemon is shutting down")
        except Exception as error:
            _log.exception("the planner stopped", cluster=self.name)
            self._keep_incident("stopped")
            self.failure = f"the planner stopped: {error!r}"
            self.published = replace(self.published, stale=self.failure)
            self.feed.bell.ring()
            self.decisions.close()
            self._refuse(self.failure)
        finally:
            self._busy_since = 0.0
            self.recovered.set()

    def _work(self) -> None:
        while self._await_work():
            self._busy_since = time.monotonic()
            self._answer_calls()
            deliveries = self._take_inbox()
            if deliveries:
                self._take_in(deliveries)
            elif self._due():
                self._batch((), ())
            self._busy_since = 0.0

    def _await_lead(self) -> bool:
        """Follow what the store has until this daemon leads; False when it is to stop."""
        while not self._stopping:
            if self._succession is None or self._succeed(self._succession):
                self.recovered.set()
                return True
            with self._turn:
                if not self._calls:
                    self._turn.wait(_FOLLOW_S)
            self._answer_calls()
        return False

    def _succeed(self, succession: Succession) -> bool:
        """Bring the engine up to what the store has; whether this daemon leads now."""
        try:
            engine, news = succession.follow(self.now())
            if news or engine is not self._engine:
                self._engine = engine
                self._publish()
            self.recovered.set()
            reign = succession.lead(self.now())
        except StoreError as error:
            if not error.retryable and not isinstance(error, NotLeader):
                raise
            if not self.trouble:
                _log.error("the log cannot be followed", cluster=self.name, why=str(error))
            self.trouble = str(error)
            return False
        self.trouble = ""
        if reign is None:
            return False
        self._journal, self._promised = reign.journal, reign.promised
        if reign.engine is not self._engine:
            self._engine = reign.engine
            self._publish()
        self.decisions = DecisionLog(last=reign.last)
        self.decisions.append(reign.decisions)
        self.standing_by = False
        _log.info("planning", cluster=self.name, jobs=len(self._engine.state.records))
        return True

    def _stand_down(self, why: str) -> None:
        """Another daemon leads: what waits is its business, and the engine may be ahead of what was kept."""
        _log.warning("not leading any more", cluster=self.name, why=why)
        with self._turn:
            self.standing_by, self._stepping_down = True, False
        self.decisions.close()
        self._refuse("another daemon leads")
        with self._turn:
            self._pending = 0
        self.trouble, self._fork = "", None
        self._journal.close()
        if self._succession is not None:
            self._succession.forget()

    def _await_work(self) -> bool:
        """Sleep until there is something to do; False when it is to stop."""
        with self._turn:
            while not (self._stopping or self._inbox or self._calls):
                if self._stepping_down:
                    raise NotLeader("another daemon leads")
                wake = self._engine.next_wake
                wait = _LOOK_S if wake is None else min(self._clock.wait_for(wake), _LOOK_S)
                if wait <= 0:
                    break
                self._turn.wait(wait)
            return not self._stopping

    def _due(self) -> bool:
        wake = self._engine.next_wake
        return wake is not None and self._clock.wait_for(wake) <= 0

    def _take_inbox(self) -> list[Delivery]:
        with self._turn:
            deliveries = list(self._inbox)
            self._inbox.clear()
        return deliveries

    def _take_in(self, deliveries: list[Delivery]) -> None:
        """Handle deliveries in batches; each is answered after the batch with its last event."""
        try:
            for parts in batches(deliveries):
                self._batch([event for part in parts for event in part.events], parts)
        finally:
            for delivery in deliveries:
                if not delivery.answer.done():
                    delivery.answer.set_exception(PlannerStopped("the planner stopped over these events"))

    def _batch(self, events: Sequence[Event], parts: Sequence[Part], *, resumed: bool = False) -> None:
        """Kept, handled, kept what follows, shown: in this order."""
        now, paused = self.now(), self._engine.state.paused
        batch: Batch | None
        if events:
            with self.meters.timed("keep"):
                batch = self._insist(lambda: self._journal.commit_events(events, now, paused))
        else:
            batch = self._journal.woke(now, paused, resumed=resumed)
        if batch is not None:
            self._handle(batch)
        self._answer(parts, batch)

    def _handle(self, batch: Batch) -> None:
        engine, meters = self._engine, self.meters
        last = meters.before(engine, batch.events)
        with meters.timed("plan"):
            decisions = engine.handle(batch.events, batch.now)
        if any(isinstance(decision, Alert) and decision.kind == "quarantine" for decision in decisions):
            self._keep_incident("quarantine")
        meters.after(engine, last, self.published)
        news = self._promised.news(engine) if self._promised is not None else ((), ())
        with meters.timed("record"):
            made = self._insist(lambda: self._journal.commit_decisions(batch, decisions, *news))
        self._unpublished = True
        if any(isinstance(event, Snapshot) for event in batch.events):
            set_aside()
        if batch.events:
            self._batches += 1
            self.decisions.acknowledge(batch.events)
        # A repair that goes on slice by slice shows its progress now and then.
        if batch.events or made or not engine.state.plan.freed or self._lapsed():
            self._publish()
        if made:
            self.decisions.append(made)
            speak_of(self.name, made)
        self._checkpoint()

    def _keep_incident(self, why: str) -> None:
        """What led to this, as a file; of several in a short time the first, but for the last of all."""
        if self._incidents is not None and (why == "stopped" or self._incidents.due(self.name)):
            self._incidents.keep(self.name, why, self._engine.incident(), self.now())

    def _checkpoint(self, *, must: bool = False) -> None:
        """Keep the engine's state when it is time for that; without it the log to follow is only longer."""
        try:
            self._journal.maybe_checkpoint(lambda: self._engine.freeze().parts(), self.now(), must=must)
        except StoreError as error:
            if not error.retryable:
                raise
            _log.error("no checkpoint was kept", cluster=self.name, why=str(error))

    def _insist(self, call: Callable[[], _T]) -> _T:
        """The journal's answer, asked for until it can give one. Raises PlannerStopped when told to stop."""
        tries = 0
        while True:
            try:
                answer = call()
            except StoreError as error:
                if not error.retryable:
                    raise
                if not self.trouble:
                    _log.error("the journal fails", cluster=self.name, why=str(error))
                self.trouble = str(error)
                if self._stop.wait(_STORE_WAITS[min(tries, len(_STORE_WAITS) - 1)]):
                    raise PlannerStopped("the daemon is shutting down") from error
                tries += 1
            else:
                if self.trouble:
                    _log.info("the journal works again", cluster=self.name)
                    self.trouble = ""
                return answer

    def _lapsed(self) -> bool:
        return time.monotonic() - self._published_at > _PUBLISH_S

    def _publish(self) -> None:
        self.blocked = frozenset(self._engine.state.blocked)
        with self.meters.timed("publish"):
            published = publish(self._engine.state)
            self.feed.note(self.published, published)
        self.published = published
        self.feed.bell.ring()
        self._published_at = time.monotonic()
        self._unpublished = False

    def _answer(self, parts: Sequence[Part], batch: Batch | None) -> None:
        fresh = {event.id for event in batch.events} if batch is not None else set()
        for part in parts:
            delivery = part.delivery
            for event in part.events:
                if event.id in fresh:
                    fresh.remove(event.id)
                    delivery.accepted += 1
                else:
                    delivery.duplicates.append(event.id)
            if not part.last:
                continue
            with self._turn:
                self._pending -= len(delivery.events)
            self.meters.answered(delivery.accepted, delivery.came)
            if delivery.answer.set_running_or_notify_cancel():
                delivery.answer.set_result(
                    Handled(delivery.accepted, tuple(delivery.duplicates), self.published.generation)
                )

    def _switch(self, engine: Engine, paused: str) -> int:
        """Pause for a reason, or resume; jobs that are due start at once."""
        self.check_leads()
        if paused:
            engine.pause(paused)
        else:
            engine.resume()
        self._batch((), (), resumed=not paused)
        if self._unpublished:
            self._publish()
        return self.published.generation

    def _reconfigure(self, engine: Engine, settings: EngineSettings) -> None:
        """From the next batch on, which says so in the log."""
        if self._succession is not None:
            self._succession.reconfigure(settings)
        if self.standing_by:
            return
        self._engine = Engine.restore(engine.checkpoint(), settings)
        if self._promised is not None:
            self._promised.begin(self._engine)
        self._journal.under(in_the_log(settings))
        self._batch((), ())
        if self._unpublished:
            self._publish()

    def _answer_calls(self) -> None:
        while self._calls:
            call, answer = self._calls.popleft()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(call(self._engine))
            except StandingBy as error:
                answer.set_exception(error)
            except (PlannerStopped, NotLeader) as error:
                answer.set_exception(PlannerStopped(str(error)))
                raise
            except Exception as error:  # the asker's business, not the planner's
                answer.set_exception(error)

    def _forked(self, engine: Engine) -> Fork:
        if self._fork is not None:
            batches, made, copy = self._fork
            same = copy.generation == engine.state.generation
            if same or (batches == self._batches and time.monotonic() - made < _FORK_S):
                return copy
        if self._unpublished:
            self._publish()
        copy = fork(engine.state, self.published)
        self._fork = (self._batches, time.monotonic(), copy)
        return copy

    def _refuse(self, why: str) -> None:
        for delivery in self._take_inbox():
            if delivery.answer.set_running_or_notify_cancel():
                delivery.answer.set_exception(PlannerStopped(why))
        while self._calls:
            _, answer = self._calls.popleft()
            if answer.set_running_or_notify_cancel():
                answer.set_exception(PlannerStopped(why))
