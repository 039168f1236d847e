"""The planner: stores each batch, lets the engine handle it, stores the results and publishes the plan."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NamedTuple

import structlog

from schedd.engine import Engine, EngineSettings
from schedd.error_text import describe_error
from schedd.model import FOREVER
from schedd.service.cluster.batch_skipping import BatchSkipper, rebuild_engine
from schedd.service.cluster.clock import ClusterClock
from schedd.service.cluster.clock_monitor import MOST_BEHIND_S
from schedd.service.cluster.daemon_store import MAX_BATCH_TRIES, Failover, TakeoverState
from schedd.service.cluster.decision_log import DecisionLog
from schedd.service.cluster.decision_logging import log_decisions
from schedd.service.cluster.deliveries import PendingDelivery, cut_batches
from schedd.service.cluster.engine_calls import (
    CallWatchdog,
    EngineCallFailed,
    attribute_errors,
    call_engine,
    restart_from_state,
)
from schedd.service.cluster.errors import EventsNotStorable, PlannerStopped
from schedd.service.cluster.incidents import IncidentFiles
from schedd.service.cluster.log_follower import settings_to_json
from schedd.service.cluster.metrics import ClusterMetrics
from schedd.service.cluster.promise_tracker import PromiseTracker
from schedd.service.cluster.publisher import Publisher
from schedd.service.cluster.retries import StoreRetries
from schedd.store import BatchJournal, EventBatch, NotLeader, StoreError
from schedd.store.codec import decode_delivery
from schedd.supervision import Supervisor
from schedd.wire import Alert, ClockSet, ContactChanged, Event, LogLost, Run

_log = structlog.get_logger(__name__)
_CHECKPOINT = "no checkpoint could be written"
_HISTORY = "the history of jobs and nodes could not be written"
_WAKE = "the time of the next engine call is unknown"


class SideTaskFailure(NamedTuple):
    """Failure of work beside planning; ``database``: only the database failed, a later try may succeed."""

    error: str
    database: bool


def describe_failures(failures: Mapping[str, SideTaskFailure], *, database: bool) -> str:
    """Return the failures of one cause, each error once: `no plan, no checkpoint: ERROR; no wake: ERROR`."""
    tasks: dict[str, list[str]] = {}
    for what, failure in failures.items():
        if failure.database == database:
            tasks.setdefault(failure.error, []).append(what)
    return "; ".join(f"{', '.join(several)}: {error}" for error, several in tasks.items())


class Planner:
    """The work of the planner's thread; only that thread calls it. ``batches`` counts batches with events."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        journal: BatchJournal,
        clock: ClusterClock,
        meters: ClusterMetrics,
        retries: StoreRetries,
        publisher: Publisher,
        incidents: IncidentFiles | None,
        succession: Failover | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.engine = engine
        self.journal = journal
        self.decisions = DecisionLog()
        self.batches = 0
        self.taken: Mapping[str, int] = {}
        """Of the last batch: number of jobs that a search result or a chosen plan moved, by event."""
        self._name = name
        self._clock = clock
        self._metrics = meters
        self._retries = retries
        self._publisher = publisher
        self._incidents = incidents
        self._promised: PromiseTracker | None = None
        self._succession = succession
        self.watchdog = succession.watchdog if succession is not None else CallWatchdog(supervisor, name)
        self._skipper = BatchSkipper(name, retries, self.watchdog)
        self._failing: dict[str, SideTaskFailure] = {}
        """Failures that do not stop planning, by task; the work is tried again each time."""

    @property
    def trouble(self) -> str:
        """Why the engine is being rebuilt; empty while it works."""
        return self._skipper.trouble

    @property
    def failing(self) -> str:
        """What fails although planning continues; empty while all works."""
        return "; ".join(filter(None, self.failing_by_cause))

    @property
    def failing_by_cause(self) -> tuple[str, str]:
        """The same in two: what fails, and what fails only because the database cannot be used now."""
        failures = self._failing.copy()
        return describe_failures(failures, database=False), describe_failures(failures, database=True)

    def publish(self, engine: Engine) -> None:
        self.engine = engine
        with self._contain_errors("the plan cannot be shown"):
            self._publisher.publish(engine)

    @property
    def next_wake(self) -> int | None:
        """Time of the next engine call without events; None: none before the next event."""
        try:
            wake = self.engine.next_wake
        except Exception as error:
            self._record_error(_WAKE, error)
            return self.engine.state.now + 1
        self._failing.pop(_WAKE, None)
        return wake

    @contextmanager
    def _contain_errors(self, what: str) -> Iterator[None]:
        """Log and record an error of the block, and continue."""
        try:
            yield
        except Exception as error:
            self._record_error(what, error)
        else:
            self._failing.pop(what, None)

    def _record_error(self, what: str, error: Exception) -> None:
        if what not in self._failing:
            _log.error(what, cluster=self._name, exc_info=error)
        database = isinstance(error, StoreError) and error.retryable
        self._failing[what] = SideTaskFailure(describe_error(error), database=database)

    def start_leading(self, reign: TakeoverState) -> None:
        """Continue with the state of the failover."""
        self.journal, self._promised = reign.journal, reign.promised
        if reign.engine is not self.engine:
            self.publish(reign.engine)
        self.decisions = DecisionLog(last=reign.last)
        self.decisions.append(reign.decisions)
        if reign.failed is not None:
            self._skipper.record_failure(reign.failed)
            try:
                self._report_skip(reign.failed, anew=reign.anew)
            except EngineCallFailed as again:
                self._skip_batch(again)
        if reign.lost is not None:
            self.handle_batch([reign.lost])
            self.checkpoint(must=True)
        self._handle_acknowledged_deliveries()

    def _handle_acknowledged_deliveries(self) -> None:
        """Handle the deliveries that were acknowledged before a crash or a takeover."""
        found = self._retries.retry(self.journal.deliveries)
        for number, body in found:
            try:
                delivery = PendingDelivery(decode_delivery(body), Future())
                for parts in cut_batches([delivery]):
                    self.handle_batch([event for part in parts for event in part.events])
            except (EventsNotStorable, ValueError) as error:
                self.report_lost_events(f"delivery {number}", error)
        if found:
            numbers = [number for number, _ in found]
            self._retries.retry(lambda: self.journal.replace_deliveries((), numbers))

    def report_lost_events(self, which: str, error: Exception) -> None:
        """Request a snapshot in place of acknowledged events that cannot be stored or read."""
        now, last = int(self._clock.now()), self.decisions.last_id
        why = f"acknowledged events are lost ({which}): {error}"
        _log.error("acknowledged events are lost", cluster=self._name, which=which, why=str(error))
        lost = LogLost(id=f"lost:events:{now}:{which}", time=now, why=why, decided=int(last[1:] or 0))
        self.handle_batch([lost])

    def reopen_decisions(self) -> None:
        """Put the open decisions into a new log, after the old one was closed."""
        before = self.decisions
        self.decisions = DecisionLog(last=before.last_id)
        self.decisions.append(before.page_after("", most=1_000_000).decisions)

    def handle_batch(self, events: Sequence[Event], *, resumed: bool = False) -> EventBatch | None:
        """Store, handle and publish a batch, in this order; return None if no event is new.

        Everything is durable on return: events are synced together with their decisions, if there are any.
        """
        self.taken = {}
        now, paused = int(self._clock.now()), self.engine.state.paused
        batch: EventBatch | None
        if events:
            with self._metrics.time_part("keep"):
                batch = self._commit_events(events, now, paused)
        else:
            batch = self.journal.add_wakeup(now, paused, resumed=resumed)
        if batch is not None:
            failed: EngineCallFailed | None = None
            try:
                self._handle(batch)
            except EngineCallFailed as error:
                failed = error
            if failed is not None:
                self._skip_batch(failed)
        if events:
            with self._metrics.time_part("record"):
                self._retries.retry(self.journal.sync_events)
        return batch

    def _commit_events(self, events: Sequence[Event], now: int, paused: str) -> EventBatch | None:
        """Store the new events as a batch. Raises EventsNotStorable."""
        try:
            return self._retries.retry(lambda: self.journal.commit_events(events, now, paused))
        except (StoreError, PlannerStopped):
            raise
        except Exception as error:
            raise EventsNotStorable(f"these events cannot be stored: {describe_error(error)}") from error

    @property
    def clock_regressed(self) -> bool:
        """Whether the clock was set back by more than the planner waits out."""
        return self.engine.state.now - self._clock.now() > MOST_BEHIND_S

    def follow_clock(self) -> None:
        """Continue at the time of a clock that was set back; a snapshot is requested."""
        now, before = int(self._clock.now()), self.engine.state.now
        _log.error("the clock was set back; the plan is rebuilt", cluster=self._name, by=before - now)
        self.handle_batch([ClockSet(id=f"clock:{before}:{now}:{self.engine.state.generation}", time=now)])
        self.checkpoint(must=True)

    def note_contact(self, *, silent: bool) -> None:
        """Tell the engine that the adapter, or its server, has become silent, or is heard again."""
        state = self.engine.state
        if silent == (state.unread_until == FOREVER):
            return
        now = int(self._clock.now())
        name = f"contact:{now}:{state.generation}"
        self.handle_batch([ContactChanged(id=name, time=now, silent=silent)])

    def _handle(self, batch: EventBatch) -> None:
        engine, meters, publisher = self.engine, self._metrics, self._publisher
        with self._contain_errors("batches cannot be counted"):
            meters.observe_events(engine, batch.events)
        with meters.time_part("plan"):
            outcome = call_engine(engine, batch, batch.events, batch.calls - 1, self.watchdog)
        self._skipper.record_success()
        decisions, self.taken = outcome.decisions, outcome.taken
        set_aside = any(isinstance(one, Alert) and one.kind == "quarantine" for one in decisions)
        if set_aside or engine.diverged:
            self.record_incident("quarantine" if set_aside else "error")
        with self._contain_errors("moves cannot be counted"):
            meters.count_moves(outcome.moves, publisher.latest)
        with attribute_errors(engine, batch):
            promises, breaches = self._promised.changes(engine) if self._promised is not None else ((), ())
        state = b""
        if engine.diverged:
            # Repeated calls may lead to another state: followers and this daemon continue from this state.
            engine, state = restart_from_state(engine, batch)
            self.engine = engine
            if self._promised is not None:
                self._promised.reset(engine)
        with meters.time_part("record"), attribute_errors(engine, batch):
            made = self._retries.retry(
                lambda: self.journal.commit_decisions(batch, decisions, promises, breaches, state)
            )
        publisher.behind = True
        if batch.events:
            self.batches += 1
            self.decisions.acknowledge(batch.events)
        # A repair in slices publishes its progress periodically.
        if batch.events or made or not engine.state.plan.freed or publisher.is_overdue:
            self.publish(engine)
        if made:
            self.decisions.append(made)
            log_decisions(self._name, made)
            for decision in made:
                if isinstance(decision, Alert):
                    meters.count_alert(decision.kind)
        self.checkpoint()

    def _skip_batch(self, failed: EngineCallFailed) -> None:
        """Continue without a failed batch; repeat while that fails, too."""
        while True:
            self._skipper.record_failure(failed)
            self.record_failed_call(failed)
            passed = failed.batch
            self._retries.retry(lambda: self.journal.skip_batch(passed))  # noqa: B023
            try:
                self.engine, self._promised, anew = self._rebuild(failed)
                self._report_skip(failed, anew=anew)
            except EngineCallFailed as again:
                if again.batch.number:  # otherwise an earlier call failed during the replay
                    failed = again
            else:
                return

    def _rebuild(self, failed: EngineCallFailed) -> tuple[Engine, PromiseTracker | None, bool]:
        """Return the engine without the failed call, and whether it is new and empty.

        An error during the replay may be transient, or lead to another state: then the replay is repeated.
        Raises EngineCallFailed after repeated failures.
        """
        for left in reversed(range(MAX_BATCH_TRIES)):
            try:
                found, promised = self._replay_log(failed)
            except EngineCallFailed:
                if not left and (self._succession is not None or not self._skipper.needs_new_plan):
                    raise
                continue
            if found is None:
                break
            if not (found.diverged and left):
                return found, promised, False
        state = self.engine.state
        return Engine(state.settings, state.now), None, True

    def _replay_log(self, failed: EngineCallFailed) -> tuple[Engine | None, PromiseTracker | None]:
        """Replay from the last checkpoint; None if later calls are unknown. Raises EngineCallFailed."""
        succession, now, bare = self._succession, int(self._clock.now()), self._skipper.needs_new_plan
        if succession is None:
            return rebuild_engine(self.engine, failed, self.watchdog), None
        return self._retries.retry(lambda: succession.rebuild(now, without_log=bare))

    def _report_skip(self, failed: EngineCallFailed, *, anew: bool = False) -> None:
        """Submit the event that names what to quarantine, in a batch of its own. Raises EngineCallFailed."""
        now = int(self._clock.now())
        page = self.decisions.page_after("", most=1_000_000)
        runs = [one for one in page.decisions if isinstance(one, Run)]
        word = self._skipper.skip_event(failed, now, runs, page.last, anew=anew)
        paused = self.engine.state.paused
        batch = self._retries.retry(lambda: self.journal.commit_events([word], now, paused))
        if batch is not None:
            self._handle(batch)
        self._skipper.finish_skip()

    def set_paused(self, paused: str) -> int:
        """Pause dispatch for a reason, or resume (empty) and start the due jobs; return the generation."""
        if paused:
            self.engine.pause(paused)
        else:
            self.engine.resume()
        self.handle_batch((), resumed=not paused)
        self._publisher.catch_up(self.engine)
        return self._publisher.latest.generation

    def reconfigure(self, settings: EngineSettings) -> None:
        """Use other settings from the next batch on, which records them."""
        self.engine = Engine.restore(self.engine.checkpoint(), settings)
        if self._promised is not None:
            self._promised.reset(self.engine)
        self.journal.use_settings(settings_to_json(settings))
        self.handle_batch(())
        self._publisher.catch_up(self.engine)

    def checkpoint(self, *, must: bool = False) -> None:
        """Write a checkpoint if it is due; a missing one only makes the replay longer."""
        now = int(self._clock.now())
        if self._succession is None and self.engine.log.full:
            self.engine.freeze()  # bounds the log, which must still explain a later failure
        try:
            kept = self.journal.maybe_checkpoint(self.engine.freeze, now, must=must)
        except NotLeader:
            raise
        except Exception as error:
            self._record_error(_CHECKPOINT, error)
        else:
            if kept:
                self._failing.pop(_CHECKPOINT, None)
        history_error = self.journal.history_error
        if history_error is None:
            self._failing.pop(_HISTORY, None)
        else:
            self._record_error(_HISTORY, history_error)

    def record_failed_call(self, failed: EngineCallFailed) -> None:
        """Write the events that led to a failed call as an incident file."""
        if self._incidents is not None:
            now = int(self._clock.now())
            self._incidents.record(self._name, "passed-over", failed.engine.incident, now)

    def record_incident(self, why: str) -> None:
        """Write the present events and checkpoint as an incident file."""
        if self._incidents is not None:
            self._incidents.record(self._name, why, self.engine.incident, int(self._clock.now()))
