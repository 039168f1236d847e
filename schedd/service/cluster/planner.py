"""One cluster's engine at work: each batch kept, handled, kept what follows from it, shown."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import structlog

from schedd.engine import Engine, EngineSettings
from schedd.service.cluster.calls import CallFailed, Watch, call, following, gone_on
from schedd.service.cluster.clock import Clock
from schedd.service.cluster.clock_watch import MOST_BEHIND_S
from schedd.service.cluster.decisions import DecisionLog
from schedd.service.cluster.durable import TRIES, Reign, Succession
from schedd.service.cluster.errors import NotKept, PlannerStopped
from schedd.service.cluster.follow import in_the_log
from schedd.service.cluster.incidents import Incidents
from schedd.service.cluster.meters import ClusterMeters
from schedd.service.cluster.passing import Passing, rebuilt
from schedd.service.cluster.promised import Promised
from schedd.service.cluster.publisher import Publisher
from schedd.service.cluster.retries import Retries
from schedd.service.cluster.spoken import speak_of
from schedd.store import EventBatch, Journal, NotLeader, StoreError
from schedd.supervision import Supervisor
from schedd.wire import Alert, ClockSet, Event, Run

__all__ = ["Planner"]

_log = structlog.get_logger(__name__)
_CHECKPOINT = "no checkpoint is kept"
_WAKE = "the engine does not know when it is to be called"


class Planner:
    """What the planner's thread does; nobody else calls it. ``batches`` counts those with events."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        journal: Journal,
        clock: Clock,
        meters: ClusterMeters,
        retries: Retries,
        publisher: Publisher,
        incidents: Incidents | None,
        succession: Succession | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.engine = engine
        self.journal = journal
        self.decisions = DecisionLog()
        self.batches = 0
        self.taken: Mapping[str, int] = {}
        """Of the batch handled last: by event, how many jobs a search's result or a chosen plan moved."""
        self._name = name
        self._clock = clock
        self._meters = meters
        self._retries = retries
        self._publisher = publisher
        self._incidents = incidents
        self._promised: Promised | None = None
        self._succession = succession
        self.watch = succession.watch if succession is not None else Watch(supervisor, name)
        self._passing = Passing(name, retries, self.watch)
        self._failing: dict[str, str] = {}
        """What beside the plan itself fails, with why; it is tried again and again."""

    @property
    def trouble(self) -> str:
        """Over what the engine failed, while it is rebuilt; empty while it works."""
        return self._passing.trouble

    @property
    def failing(self) -> str:
        """What fails beside the plan itself, which goes on; empty while all works."""
        return "; ".join(self._failing.copy().values())

    def show(self, engine: Engine) -> None:
        """Make this engine's plan the one that is seen."""
        self.engine = engine
        with self._beside("the plan cannot be shown"):
            self._publisher.publish(engine)

    @property
    def wake(self) -> int | None:
        """When the engine is to be called though nothing happened; None: not before the next event."""
        try:
            wake = self.engine.next_wake
        except Exception as error:
            self._fails(_WAKE, error)
            return self.engine.state.now + 1
        self._failing.pop(_WAKE, None)
        return wake

    @contextmanager
    def _beside(self, what: str) -> Iterator[None]:
        """Work without which the planner goes on: an error in it is said, and ends nothing."""
        try:
            yield
        except Exception as error:
            self._fails(what, error)
        else:
            self._failing.pop(what, None)

    def _fails(self, what: str, error: Exception) -> None:
        if what not in self._failing:
            _log.error(what, cluster=self._name, exc_info=error)
        self._failing[what] = f"{what}: {error!r}"

    def take_over(self, reign: Reign) -> None:
        """Go on with what was led to so far."""
        self.journal, self._promised = reign.journal, reign.promised
        if reign.engine is not self.engine:
            self.show(reign.engine)
        self.decisions = DecisionLog(last=reign.last)
        self.decisions.append(reign.decisions)
        if reign.failed is not None:
            self._passing.note(reign.failed)
            try:
                self._go_on_without(reign.failed, anew=reign.anew)
            except CallFailed as again:
                self._pass_over(again)
        if reign.lost is not None:
            self.batch([reign.lost])
            self.checkpoint(must=True)

    def reopen_decisions(self) -> None:
        """Offer the decisions that are open in a new log, after the old one was closed."""
        before = self.decisions
        self.decisions = DecisionLog(last=before.last)
        self.decisions.append(before.after("", most=1_000_000).decisions)

    def batch(self, events: Sequence[Event], *, resumed: bool = False) -> EventBatch | None:
        """Kept, handled, kept what follows, shown: in this order; None when none of the events is new.

        All of it is durable when it returns: the events are synced together with the decisions, or by
        themselves where there are none.
        """
        self.taken = {}
        now, paused = int(self._clock.now()), self.engine.state.paused
        batch: EventBatch | None
        if events:
            with self._meters.timed("keep"):
                batch = self._kept(events, now, paused)
        else:
            batch = self.journal.add_wakeup(now, paused, resumed=resumed)
        if batch is not None:
            failed: CallFailed | None = None
            try:
                self._handle(batch)
            except CallFailed as error:
                failed = error
            if failed is not None:
                self._pass_over(failed)
        if events:
            with self._meters.timed("record"):
                self._retries.insist(self.journal.sync_events)
        return batch

    def _kept(self, events: Sequence[Event], now: int, paused: str) -> EventBatch | None:
        """The batch of those events that are new. Raises NotKept of such as cannot be written down."""
        try:
            return self._retries.insist(lambda: self.journal.commit_events(events, now, paused))
        except (StoreError, PlannerStopped):
            raise
        except Exception as error:
            raise NotKept(f"these events cannot be kept: {error!r}") from error

    @property
    def set_back(self) -> bool:
        """Whether the clock was set back by more than can be waited for."""
        return self.engine.state.now - self._clock.now() > MOST_BEHIND_S

    def follow_clock(self) -> None:
        """Go on at the time to which the clock was set back; a snapshot is asked for."""
        now, before = int(self._clock.now()), self.engine.state.now
        _log.error("the clock was set back; the plan is made anew", cluster=self._name, by=before - now)
        self.batch([ClockSet(id=f"clock:{before}:{now}:{self.engine.state.generation}", time=now)])
        self.checkpoint(must=True)

    def _handle(self, batch: EventBatch) -> None:
        engine, meters, publisher = self.engine, self._meters, self._publisher
        with self._beside("batches cannot be counted"):
            meters.before(engine, batch.events)
        with meters.timed("plan"):
            outcome = call(engine, batch, batch.events, batch.calls - 1, self.watch)
        self._passing.went_well()
        decisions, self.taken = outcome.decisions, outcome.taken
        set_aside = any(isinstance(one, Alert) and one.kind == "quarantine" for one in decisions)
        if set_aside or engine.strayed:
            self.keep_incident("quarantine" if set_aside else "error")
        with self._beside("moves cannot be counted"):
            meters.after(outcome.moves, publisher.latest)
        with following(engine, batch):
            promises, breaches = self._promised.news(engine) if self._promised is not None else ((), ())
        state = b""
        if engine.strayed:
            # The same calls may lead elsewhere: who follows, and this daemon, go on from the state itself.
            engine, state = gone_on(engine, batch)
            self.engine = engine
            if self._promised is not None:
                self._promised.begin(engine)
        with meters.timed("record"), following(engine, batch):
            made = self._retries.insist(
                lambda: self.journal.commit_decisions(batch, decisions, promises, breaches, state)
            )
        publisher.behind = True
        if batch.events:
            self.batches += 1
            self.decisions.acknowledge(batch.events)
        # A repair that goes on slice by slice shows its progress now and then.
        if batch.events or made or not engine.state.plan.freed or publisher.lapsed:
            self.show(engine)
        if made:
            self.decisions.append(made)
            speak_of(self._name, made)
            for decision in made:
                if isinstance(decision, Alert):
                    meters.alerted(decision.kind)
        self.checkpoint()

    def _pass_over(self, failed: CallFailed) -> None:
        """Go on without a batch over which the engine failed; it and what follows may fail again."""
        while True:
            self._passing.note(failed)
            self.keep_failed(failed)
            passed = failed.batch
            self._retries.insist(lambda: self.journal.skip_batch(passed))  # noqa: B023
            try:
                self.engine, self._promised, anew = self._rebuilt(failed)
                self._go_on_without(failed, anew=anew)
            except CallFailed as again:
                if again.batch.number:  # else it is one of those that were handled before: all the same
                    failed = again
            else:
                return

    def _rebuilt(self, failed: CallFailed) -> tuple[Engine, Promised | None, bool]:
        """The engine without what failed, and whether it knows nothing of what was since its checkpoint.

        An error met on the way may not have been met before, and leads elsewhere: then it is tried again, as
        where a batch fails. Raises CallFailed where one does again and again.
        """
        for left in reversed(range(TRIES)):
            try:
                found, promised = self._through_the_log(failed)
            except CallFailed:
                if not left and (self._succession is not None or not self._passing.hopeless):
                    raise
                continue
            if found is None:
                break
            if not (found.strayed and left):
                return found, promised, False
        state = self.engine.state
        return Engine(state.settings, state.now), None, True

    def _through_the_log(self, failed: CallFailed) -> tuple[Engine | None, Promised | None]:
        """From the last checkpoint; no engine where the calls since are not known. Raises CallFailed."""
        succession, now, bare = self._succession, int(self._clock.now()), self._passing.hopeless
        if succession is None:
            return rebuilt(self.engine, failed, self.watch), None
        return self._retries.insist(lambda: succession.rebuild(now, without_log=bare))

    def _go_on_without(self, failed: CallFailed, *, anew: bool = False) -> None:
        """Tell the engine what to set aside, in a batch of its own. Raises CallFailed."""
        now = int(self._clock.now())
        page = self.decisions.after("", most=1_000_000)
        runs = [one for one in page.decisions if isinstance(one, Run)]
        word = self._passing.word(failed, now, runs, page.last, anew=anew)
        paused = self.engine.state.paused
        batch = self._retries.insist(lambda: self.journal.commit_events([word], now, paused))
        if batch is not None:
            self._handle(batch)
        self._passing.done()

    def switch(self, paused: str) -> int:
        """Pause for a reason, or resume; jobs that are due start at once. Returns the generation."""
        if paused:
            self.engine.pause(paused)
        else:
            self.engine.resume()
        self.batch((), resumed=not paused)
        self._publisher.catch_up(self.engine)
        return self._publisher.latest.generation

    def reconfigure(self, settings: EngineSettings) -> None:
        """From the next batch on, which says so in the log."""
        self.engine = Engine.restore(self.engine.checkpoint(), settings)
        if self._promised is not None:
            self._promised.begin(self.engine)
        self.journal.use_settings(in_the_log(settings))
        self.batch(())
        self._publisher.catch_up(self.engine)

    def checkpoint(self, *, must: bool = False) -> None:
        """Keep the engine's state when it is time for that; without it the log to follow is only longer."""
        now = int(self._clock.now())
        if self._succession is None and self.engine.log.full:
            self.engine.freeze()  # nobody else does, and what led to a failure is to be known
        try:
            kept = self.journal.maybe_checkpoint(self.engine.freeze, now, must=must)
        except NotLeader:
            raise
        except Exception as error:
            self._fails(_CHECKPOINT, error)
        else:
            if kept:
                self._failing.pop(_CHECKPOINT, None)

    def keep_failed(self, failed: CallFailed) -> None:
        """Keep what led to a call that failed as a file."""
        if self._incidents is not None:
            now = int(self._clock.now())
            self._incidents.note(self._name, "passed-over", failed.engine.incident, now)

    def keep_incident(self, why: str) -> None:
        """Keep what led to this as a file."""
        if self._incidents is not None:
            self._incidents.note(self._name, why, self.engine.incident, int(self._clock.now()))
