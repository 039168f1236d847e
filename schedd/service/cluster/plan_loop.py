"""Thread of one cluster's live plan: it handles batches of events, and emits decisions and plan snapshots."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Final, TypeVar

import structlog

from schedd.engine import Engine, EngineSettings
from schedd.error_text import describe_error
from schedd.plan.plan import Plan
from schedd.service.cluster.daemon_store import Failover
from schedd.service.cluster.deliveries import DeliveryResult, PendingDelivery, cut_batches
from schedd.service.cluster.engine_calls import EngineCallFailed
from schedd.service.cluster.errors import EventsNotStorable, PlannerStopped, StandingBy
from schedd.service.cluster.planner_condition import PlannerCondition
from schedd.service.questions.plan_fork import PlanFork, wrap_plan
from schedd.store import AuditRecord, NotLeader, StoreError
from schedd.wire import Event, LogLost

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)

_STOP_S = 60.0  # a checkpoint of 100,000 jobs takes 4 s of processor time, which others may use, too
_LOOK_S = 60.0  # maximum time between two checks of the clock, which may have been set
_SOON_S = 0.01
NO_TROUBLES: Final[Mapping[str, str]] = MappingProxyType({})
_DECISION = re.compile(r"d[0-8]\d{11}")
_MOST_AHEAD = 2_000  # maximum number of other pending events with which a delivery is acknowledged early
_FOLLOW_S = 0.5  # time between two checks for new batches of the leader


class PlanLoop(PlannerCondition):
    """One cluster's engine in its own thread. Public methods may be called from any thread.

    With a ``failover`` its engine follows the log until this daemon leads; then it continues with the
    journal. It stands by again when another daemon leads.
    """

    # ---- any thread -----------------------------------------------------------------------------

    def start(self) -> None:
        self.adapter_contact.reset(self.now())
        self._acknowledgements.start()
        self._thread.start()

    def stop(self, timeout: float = _STOP_S) -> None:
        """Finish the present batch, write a checkpoint, and end the thread; pending work is refused.

        Without that checkpoint, the next start repeats all batches since the last one.
        """
        self._stopping = True
        self._inbox.wake()
        self._retries.end()
        self._planner.watchdog.end()
        self._thread.join(timeout)
        self.recovered.set()
        self.end_polls()
        self._inbox.refuse("the daemon is shutting down")
        self._acknowledgements.end()
        if not self._thread.is_alive():
            self._planner.journal.close()

    def end_polls(self) -> None:
        """End the long polls for decisions and the followers of the plan."""
        self.decisions.close()
        self.feed.signal.close()

    def record_adapter_request(self, read_age: float | None = None) -> None:
        """Record a request of the adapter, which read the server ``read_age`` seconds ago, if known."""
        ends = bool(self.silence)
        self.adapter_contact.record_request(self.now(), read_age)
        if ends and not self.silence:
            self.feed.signal.notify()

    def refuse_adapter(self, adapter: str, host: str) -> str:
        """Return why this adapter is refused (another one serves the cluster); empty if it is accepted."""
        return self.adapter_contact.refusal(adapter, host, self._publisher.latest.settings.adapter_silence)

    @property
    def seconds_until_adapter_silent(self) -> float:
        """Return after how many seconds without a request another adapter is accepted."""
        return self.adapter_contact.seconds_until_silent(self._publisher.latest.settings.adapter_silence)

    def record_adapter_report(
        self,
        version: str,
        clock: float | None,
        uncalled: str = "",
        troubles: Mapping[str, str] = NO_TROUBLES,
        server_clock_lead: int = 0,
    ) -> None:
        """Record the adapter's version, its clock, whether the server does not call its scheduler, the
        adapter's lasting ``troubles`` by kind, and the measured lead of the server's clock over the
        adapter's in seconds.
        """
        self.adapter_contact.record_report(version, clock - self._clock.now() if clock is not None else None)
        self.adapter_contact.scheduler_not_called = uncalled
        self.adapter_contact.troubles = troubles
        self.adapter_contact.record_server_clock_lead(server_clock_lead)

    def submit(self, events: Sequence[Event], *, order: bool = False) -> "Future[DeliveryResult]":
        """Submit events in order of occurrence; the result is set when all are handled.

        ``order``: the events come from a user; events of the server are handled first, and one order at a
        time. Raises Overloaded and PlannerStopped.
        """
        self.adapter_contact.record_job_stamps(events)
        return self._inbox.deliver(events, self.check_leads, order=order)

    @property
    def has_database(self) -> bool:
        return self._succession is not None

    def store_delivery(
        self, body: bytes, events: int, handled: "Future[DeliveryResult]"
    ) -> "Future[bool] | None":
        """Store the body of a submitted delivery of ``events``, so that it can be acknowledged before it is
        ``handled``.

        The result is False if it was handled first, or could not be stored. None: the planner is too far
        behind now, or the database fails.
        """
        if self.database_trouble or self._inbox.pending - events > _MOST_AHEAD:
            return None
        return self._acknowledgements.store(body, handled)

    def call_between_batches(self, call: Callable[[Engine], _T]) -> "Future[_T]":
        """Run ``call`` with the engine between two batches, in its thread. Raises PlannerStopped."""
        return self._inbox.call(call, self._check_open)

    def step_down(self) -> None:
        """Stop leading: another daemon leads."""
        with self._inbox.condition:
            if not self.on_standby:
                self._stepping_down = True
                self._inbox.condition.notify()

    def step_up(self) -> None:
        """Check at once whether this daemon leads."""
        self._inbox.wake()

    def await_lead(self) -> None:
        """Return when this planner has taken over, if its daemon leads."""
        while self.on_standby and self.alive and not self._stopping:
            if self._succession is None or not self._succession.is_leader:
                return
            time.sleep(_SOON_S)

    def record_read_position(self, decision: str) -> None:
        """Check a reader's position: if the decision is unknown here, a part of the log is lost.

        Raises Overloaded and PlannerStopped.
        """
        known = self.decisions.last_id
        if self._succession is None or decision <= known or not _DECISION.fullmatch(decision):
            return
        why = f"the adapter has read decisions up to {decision}, but the last known one is {known or 0}"
        lost = LogLost(id=f"lost:{decision}", time=self.now(), why=why, decided=int(decision[1:]))
        _log.critical("a part of the log is lost", cluster=self.name, why=why)
        self.submit([lost])

    def check_leads(self) -> None:
        """Raise StandingBy when another daemon leads, PlannerStopped when the planner does not work."""
        self._check_open()
        if self.on_standby:
            raise StandingBy("this daemon stands by; ask the one that leads")
        if self._succession is not None and not self._succession.is_leader:
            raise StandingBy("this daemon's lease has expired, and the database is unavailable to renew it")

    def pause(self, why: str) -> "Future[int]":
        """Start no jobs until ``resume``; the result is the generation. Raises PlannerStopped."""
        return self.call_between_batches(lambda _: self._set_paused(why or "an admin's order"))

    def resume(self) -> "Future[int]":
        """Start jobs again; the result is the generation from then on. Raises PlannerStopped."""
        return self.call_between_batches(lambda _: self._set_paused(""))

    def reconfigure(self, settings: EngineSettings) -> "Future[None]":
        """Continue with other settings, as after a restart. Raises PlannerStopped."""
        return self.call_between_batches(lambda _: self._reconfigure(settings))

    def audit(self, who: str, act: str, detail: str) -> None:
        """Store an audit entry, if there is a database. Raises PlannerStopped when the database fails."""
        if self._succession is None:
            return
        try:
            self._succession.audit(AuditRecord(self.now(), who, act, detail, self.name))
        except StoreError as error:
            raise PlannerStopped(f"it was done, but its audit entry could not be stored: {error}") from error

    @property
    def last_fork(self) -> PlanFork | None:
        """The latest shared fork of the plan; None before the first."""
        return self._shared_fork.last

    def fork(self) -> "Future[PlanFork]":
        """Return a fork of the plan after all handled events; concurrent callers share it."""
        return self.call_between_batches(
            lambda engine: self._shared_fork.get(engine, self._publisher, self._planner.batches)
        )

    def wrap_fork(self, engine: Engine, plan: Plan) -> PlanFork:
        """Wrap ``plan``, a copy of the engine's own, for questions. For the planner's thread."""
        self._publisher.catch_up(engine)
        return wrap_plan(engine.state, self._publisher.latest, plan)

    def _check_open(self) -> None:
        if self.failure or self._stopping:
            raise PlannerStopped(self.failure or "the daemon is shutting down")

    # ---- the planner's thread -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            if self.failure:
                self._start_again()
            while self._await_lead():
                try:
                    self._recover()
                    self._work()
                except NotLeader as error:
                    self._stand_down(str(error))
                else:
                    self._planner.checkpoint(must=True)
                    return
        except PlannerStopped:
            self._inbox.refuse("the daemon is shutting down")
        except BaseException as error:
            self.failure = "the planner stopped"  # set first, because formatting needs memory
            self.failure = f"the planner stopped: {describe_error(error)}"
            self._planner.record_incident("stopped")
            self._refuse_all()
            raise  # the supervisor starts it again
        finally:
            self._busy_since = 0.0
            self.recovered.set()

    def _refuse_all(self) -> None:
        """Answer all pending work after the planner stopped with an error."""
        self.feed.signal.notify()
        self.decisions.close()
        self._inbox.refuse(self.failure)
        with self._inbox.condition:
            self._inbox.pending = 0

    def _start_again(self) -> None:
        """Restart after an error: from the store, or without one with the present engine.

        Failed engine calls do not lead here: they replace the engine at once.
        """
        self._refuse_all()
        if self._succession is None:
            self._planner.reopen_decisions()
            return
        with self._inbox.condition:
            self.on_standby, self._stepping_down = True, False
        self._retries.trouble = ""
        self._shared_fork.clear()
        self._planner.journal.close()
        self._succession.reset()

    def _log_loss_events(self) -> list[Event]:
        """Return an event that requests a snapshot: without a store, events may be unhandled."""
        last, now = self._planner.decisions.last_id, self.now()
        name = f"lost:restart:{now}:{self.supervisor.record('plan', self.name).failures}"
        number = int(last[1:]) if _DECISION.fullmatch(last) else 0
        return [LogLost(id=name, time=now, why=self.failure, decided=number)]

    def _recover(self) -> None:
        """After an error, check that a batch can be handled before accepting events."""
        if self.failure:
            self._planner.handle_batch(self._log_loss_events() if self._succession is None else ())
            self.failure = ""
            self.feed.signal.notify()
            _log.info("the planner works again", cluster=self.name)

    def _work(self) -> None:
        while self._await_work():
            self._busy_since = time.monotonic()
            if self._planner.clock_regressed:
                self._planner.follow_clock()
            self._planner.note_contact(silent=bool(self.silence))
            self._inbox.answer_calls(lambda: self._planner.engine)
            deliveries = self._inbox.next_deliveries()
            if deliveries:
                self._handle_deliveries(deliveries)
                self._forget_settled_risk()
            elif self._is_wake_time_reached():
                self._planner.handle_batch(())
            self._busy_since = 0.0

    def _await_lead(self) -> bool:
        """Follow the log until this daemon leads; return False when the thread must stop."""
        while not self._stopping:
            if self._succession is None or self._follow_or_lead(self._succession):
                self.recovered.set()
                return True
            with self._inbox.condition:
                if not self._inbox.calls:
                    self._inbox.condition.wait(_FOLLOW_S)
            self._inbox.answer_calls(lambda: self._planner.engine)
        return False

    def _follow_or_lead(self, succession: Failover) -> bool:
        """Bring the engine up to date with the log; return whether this daemon leads now."""
        try:
            engine, news = succession.follow(self.now())
            if news or engine is not self._planner.engine:
                self._planner.publish(engine)
            self.recovered.set()
            reign = succession.try_lead(self.now())
            if reign is not None:
                self._planner.start_leading(reign)
        except EngineCallFailed as failed:
            self._engine_failed_on_log(succession, failed)
            return False
        except StoreError as error:
            if not error.retryable and not isinstance(error, NotLeader):
                raise
            self._retries.report("the log cannot be followed", str(error))
            return False
        self._retries.trouble = ""
        if reign is None:
            return False
        self.adapter_contact.reset(self.now())
        self.on_standby = False
        _log.info("planning", cluster=self.name, jobs=len(self._planner.engine.state.records))
        return True

    def _engine_failed_on_log(self, succession: Failover, failed: EngineCallFailed) -> None:
        """Restart the replay after a failure, without the failed batch if that fails each time."""
        self.recovered.set()
        self._retries.report("the engine failed over the log", str(failed))
        self._planner.record_failed_call(failed)
        if succession.record_failure(failed):
            _log.error("a batch of the log is skipped", cluster=self.name, batch=failed.batch.number)
        self._retries.wait(_FOLLOW_S)

    def _stand_down(self, why: str) -> None:
        """Stand by: refuse pending work and discard the engine, which may be ahead of the log."""
        _log.warning("no longer leading", cluster=self.name, why=why)
        with self._inbox.condition:
            self.on_standby, self._stepping_down = True, False
        self.decisions.close()
        self._inbox.refuse("another daemon leads")
        with self._inbox.condition:
            self._inbox.pending = 0
        self._retries.trouble = ""
        self._shared_fork.clear()
        self._planner.journal.close()
        if self._succession is not None:
            self._succession.reset()

    def _await_work(self) -> bool:
        """Sleep until there is work; return False when the thread must stop."""
        with self._inbox.condition:
            while not (self._stopping or self._inbox):
                if self._stepping_down:
                    raise NotLeader("another daemon leads")
                if self._planner.clock_regressed:
                    break
                wake = self._planner.next_wake
                wait = _LOOK_S if wake is None else min(self._clock.wait_for(wake), _LOOK_S)
                if wait <= 0:
                    break
                self._inbox.condition.wait(wait)
            return not self._stopping

    def _is_wake_time_reached(self) -> bool:
        wake = self._planner.next_wake
        return wake is not None and self._clock.wait_for(wake) <= 0

    def _handle_deliveries(self, deliveries: list[PendingDelivery]) -> None:
        """Handle deliveries in batches; each is answered after the batch with its last event."""
        try:
            for together in cut_batches(deliveries):
                parts = [part for part in together if not part.delivery.failed]
                if not parts:
                    continue
                begun = time.thread_time()
                try:
                    batch = self._planner.handle_batch([event for part in parts for event in part.events])
                except EventsNotStorable as error:
                    _log.exception("events are refused", cluster=self.name)
                    self._inbox.fail(parts, error)
                    if any(self._acknowledgements.is_acknowledged(part.delivery.answer) for part in parts):
                        self._planner.report_lost_events(parts[0].events[0].id, error)
                    continue
                for part in parts:
                    part.delivery.spent += (time.thread_time() - begun) / len(parts)
                self._inbox.answer(parts, batch, self.published.generation, self._planner.taken)
        finally:
            for delivery in deliveries:
                if not delivery.answer.done():
                    delivery.answer.set_exception(PlannerStopped("the planner stopped over these events"))

    def _forget_settled_risk(self) -> None:
        """Close the alert about the latest reload permanently once no job with a promise at risk waits."""
        risk = self.reload_risk
        if risk is not None and not self._waits(risk):
            self.reload_risk = None

    def _set_paused(self, paused: str) -> int:
        self.check_leads()
        return self._planner.set_paused(paused)

    def _reconfigure(self, settings: EngineSettings) -> None:
        if self._succession is not None:
            self._succession.reconfigure(settings)
        if not self.on_standby:
            self._planner.reconfigure(settings)
