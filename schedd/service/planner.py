"""One cluster's engine at work: each batch kept, handled, kept what follows from it, shown."""

from collections.abc import Sequence

import structlog

from schedd.engine import Engine, EngineSettings
from schedd.service.clock import Clock
from schedd.service.decisions import DecisionLog
from schedd.service.durable import Reign
from schedd.service.follow import in_the_log
from schedd.service.incidents import Incidents
from schedd.service.meters import ClusterMeters
from schedd.service.patience import Patience
from schedd.service.promised import Promised
from schedd.service.publisher import Publisher
from schedd.service.spoken import speak_of
from schedd.store import Batch, Journal, StoreError
from schedd.wire import Alert, Event

__all__ = ["Planner"]

_log = structlog.get_logger(__name__)


class Planner:
    """What the planner's thread does; nobody else calls it. ``batches`` counts those with events."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        journal: Journal,
        clock: Clock,
        meters: ClusterMeters,
        patience: Patience,
        publisher: Publisher,
        incidents: Incidents | None,
    ) -> None:
        self.engine = engine
        self.journal = journal
        self.decisions = DecisionLog()
        self.batches = 0
        self._name = name
        self._clock = clock
        self._meters = meters
        self._patience = patience
        self._publisher = publisher
        self._incidents = incidents
        self._promised: Promised | None = None

    def show(self, engine: Engine) -> None:
        """Make this engine's plan the one that is seen."""
        self.engine = engine
        self._publisher.publish(engine)

    def take_over(self, reign: Reign) -> None:
        """Go on with what was led to so far."""
        self.journal, self._promised = reign.journal, reign.promised
        if reign.engine is not self.engine:
            self.show(reign.engine)
        self.decisions = DecisionLog(last=reign.last)
        self.decisions.append(reign.decisions)

    def batch(self, events: Sequence[Event], *, resumed: bool = False) -> Batch | None:
        """Kept, handled, kept what follows, shown: in this order; None when none of the events is new."""
        now, paused = int(self._clock.now()), self.engine.state.paused
        batch: Batch | None
        if events:
            with self._meters.timed("keep"):
                batch = self._patience.insist(lambda: self.journal.commit_events(events, now, paused))
        else:
            batch = self.journal.woke(now, paused, resumed=resumed)
        if batch is not None:
            self._handle(batch)
        return batch

    def _handle(self, batch: Batch) -> None:
        engine, meters, publisher = self.engine, self._meters, self._publisher
        last = meters.before(engine, batch.events)
        with meters.timed("plan"):
            decisions = engine.handle(batch.events, batch.now)
        if any(isinstance(decision, Alert) and decision.kind == "quarantine" for decision in decisions):
            self.keep_incident("quarantine")
        meters.after(engine, last, publisher.latest)
        news = self._promised.news(engine) if self._promised is not None else ((), ())
        with meters.timed("record"):
            made = self._patience.insist(lambda: self.journal.commit_decisions(batch, decisions, *news))
        publisher.behind = True
        if batch.events:
            self.batches += 1
            self.decisions.acknowledge(batch.events)
        # A repair that goes on slice by slice shows its progress now and then.
        if batch.events or made or not engine.state.plan.freed or publisher.lapsed:
            publisher.publish(engine)
        if made:
            self.decisions.append(made)
            speak_of(self._name, made)
        self.checkpoint()

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
        self.journal.under(in_the_log(settings))
        self.batch(())
        self._publisher.catch_up(self.engine)

    def checkpoint(self, *, must: bool = False) -> None:
        """Keep the engine's state when it is time for that; without it the log to follow is only longer."""
        now = int(self._clock.now())
        try:
            self.journal.maybe_checkpoint(lambda: self.engine.freeze().parts(), now, must=must)
        except StoreError as error:
            if not error.retryable:
                raise
            _log.error("no checkpoint was kept", cluster=self._name, why=str(error))

    def keep_incident(self, why: str) -> None:
        """Keep what led to this as a file."""
        if self._incidents is not None:
            self._incidents.note(self._name, why, self.engine.incident, int(self._clock.now()))
