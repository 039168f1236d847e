"""The engine: events in, decisions out. No I/O, no clock, no threads.

After ``distributed``'s worker state machine: all state changes happen in ``handle``; every decision carries
the id of the event that caused it; ``next_wake`` says when to call again though nothing happened. Replay,
shadow mode, what-if and production run this same class.
"""

from collections.abc import Iterable, Mapping, Sequence

from schedd.engine import checkpoint
from schedd.engine.checkpoint import FrozenState
from schedd.engine.clock_setback import apply_clock_setback
from schedd.engine.component.registry import components, select_calls
from schedd.engine.facts.alerts import close_alerts
from schedd.engine.facts.arrivals import pop_arrivals
from schedd.engine.facts.carried_jobs import CarriedJob
from schedd.engine.facts.event_order import sort_events
from schedd.engine.facts.records import Outcome
from schedd.engine.facts.state import EngineState
from schedd.engine.handlers import apply_all, apply_site_policy
from schedd.engine.lasting_facts import load_lasting_facts
from schedd.engine.log import BatchLog, Incident, LoggedBatch
from schedd.engine.machine.reconcile import accept_loss, request_snapshot_again
from schedd.engine.rank.promises import restore_promises
from schedd.engine.recovery import apply_skipped_batches
from schedd.engine.run.outcomes import note_adapter_contact, note_event_lag
from schedd.engine.run.reevaluation import reevaluate_slice
from schedd.engine.run.start_outages import forget_start_outage
from schedd.engine.settle import find_absence, next_wake, settle
from schedd.engine.validate import check
from schedd.policy.engine_settings import EngineSettings
from schedd.wire import BatchSkipped, ClockSet, Event, Snapshot

_FORGET_EVERY = 60


class Engine:
    """One cluster's schedule, kept right event by event."""

    work_limit: int | None = None  # of all searches in one call; None: only each search is limited
    _wake: tuple[int, int | None] | None = None
    """The generation and what ``next_wake`` was then; None: not read since the last change of the state."""

    def __init__(
        self,
        settings: EngineSettings,
        now: int,
        decided: int = 0,
        parts: Iterable[object] = (),
    ) -> None:
        """Decisions are numbered from ``decided`` + 1; ``parts``: component states of earlier times."""
        self.state = EngineState.empty(settings, now)
        self.adopt_parts(parts)
        self.state.decision_number = decided
        self.log = BatchLog(settings.log_batches, settings.log_weight)
        self.forgotten = now
        self.base: FrozenState | bytes = FrozenState(self.state, {"forgotten": now})

    def handle(self, batch: Iterable[Event], now: int) -> Outcome:
        """Apply a batch of events at ``now`` (seconds) and settle the plan. Time stops while the clock is
        behind, until a ``ClockSet`` sets it back.

        Order: ends, state changes, arrivals; then one repair and one dispatch.
        """
        state = self.state
        given = tuple(batch)
        events: Sequence[Event] = given
        present = max(now, state.now)
        self.log.append(LoggedBatch(present, given, None, state.decision_number))
        first = events[0].id if events else f"clock:{present}"
        state.at_job, state.at_event = "", first
        known = state.starts_step("absence")
        state.absent_since = find_absence(state, events, present, self._find_wake) if known else -1
        self._wake = None
        state.at_step = ""
        state.now = present
        if state.paused and state.paused_since < 0:
            state.paused_since = state.now
        state.generation += 1
        state.decisions, state.moves, state.jobs_moved_by = [], [], {}
        state.ended_promises = []
        state.next_due = None
        state.plan.limit_work(all_of_them=self.work_limit)
        events = sort_events(events)
        kinds = set(map(type, events))
        if ClockSet in kinds and apply_clock_setback(state, events):
            self.forgotten = state.now
        if BatchSkipped in kinds:
            apply_skipped_batches(state, events)  # before all events: quarantined work must not fail again
        if state.now >= self.forgotten + _FORGET_EVERY and state.starts_step("what is past"):
            self._forget()
        if state.site_changed and state.starts_step("the site's policy"):
            apply_site_policy(state, first)
        state.at_step = ""
        if events:
            note_event_lag(state, events)
            if state.dispatched:
                note_adapter_contact(state, events)
        else:
            state.event_lag = 0
        for name, call in select_calls("before_events")(state.parts):
            if state.starts_step(name):
                call(state, first)
        state.at_step = ""
        if events:
            apply_all(state, events)
        if state.doubted_loss is not None:
            request_snapshot_again(state, first)
        state.at_event = first
        if state.arriving and Snapshot not in kinds:
            apply_all(state, pop_arrivals(state), of_snapshot=True)
            if not state.arriving:
                state.forget_carried_jobs()
        if state.to_reevaluate and state.starts_step("requests that read differently"):
            reevaluate_slice(state, first)
        settle(state, first)
        for name, call in select_calls("batch_ended")(state.parts):
            if state.starts_step(name):
                call(state, first)
        state.at_step = ""
        if state.refused_since >= 0:
            forget_start_outage(state)
        if state.alerts:
            close_alerts(state)
        if state.settings.validate_:
            check(state)
        return Outcome(tuple(state.decisions), tuple(state.moves), state.jobs_moved_by)

    def _forget(self) -> None:
        """Forget past data."""
        state = self.state
        self.forgotten = state.now
        state.plan.forget_past(state.now)
        for _, call in select_calls("now_and_then")(state.parts):
            call(state)
        state.plan.weigh_nodes(state.now)
        state.limits.forget(state.plan.drop_idle_pools())
        state.limits.extend_windows(state.plan, state.now)

    @property
    def next_wake(self) -> int | None:
        """When ``handle`` must be called again though nothing happened; None: not before the next event."""
        moment = next_wake(self.state)
        self._wake = self.state.generation, moment
        return moment

    def _find_wake(self) -> int | None:
        """Return ``next_wake``, as the shell has read it since the last call: computing it takes as long as a
        call with nothing to do.
        """
        if self._wake is not None and self._wake[0] == self.state.generation:
            return self._wake[1]
        return next_wake(self.state)

    def freeze(self) -> FrozenState:
        """Return the complete state for ``restore``, and clear the log of batches.

        Must be called between two batches; any thread may encode the result while the engine continues.
        Layout: see ``checkpoint.py``.
        """
        self.base = frozen = FrozenState(self.state, {"forgotten": self.forgotten})
        self.log.clear()
        self.state.diverged = {}
        return frozen

    @property
    def diverged(self) -> bool:
        """Whether an error was confined to its job or event since the last freeze.

        Such an error may not recur in another process, and leaves incomplete work: a replay of the calls may
        lead to another state. Continue from the state itself, not from the log.
        """
        return bool(self.state.diverged)

    def gone_on(self) -> "Engine":
        """Return an engine that continues from a checkpoint of this one, which becomes its ``base``.

        Raises AssertionError when the state breaks an invariant, and CheckpointError: work is half done.
        """
        new = Engine.restore(FrozenState(self.state, {"forgotten": self.forgotten}).encode())
        check(new.state)
        return new

    def checkpoint(self) -> bytes:
        return self.freeze().encode()

    @classmethod
    def restore(cls, data: bytes, settings: EngineSettings | None = None) -> "Engine":
        """Return the engine of a checkpoint: the same events lead to the same decisions.

        ``settings`` replace those in force at the checkpoint. Raises CheckpointError.
        """
        state, extra = checkpoint.load(data, settings)
        engine = cls.__new__(cls)
        engine.state = state
        engine.log = BatchLog(state.settings.log_batches, state.settings.log_weight)
        engine.base = data
        engine.forgotten = extra["forgotten"]
        return engine

    @classmethod
    def from_facts(cls, data: bytes, settings: EngineSettings) -> tuple["Engine", list[str]]:
        """Return an engine with the lasting facts of another one's state, which waits for a server snapshot,
        and the names of the facts that it cannot read. Raises ValueError.
        """
        engine = cls(settings, 0)
        engine.state, unread = load_lasting_facts(data, settings)
        engine.forgotten = engine.state.now
        engine.base = FrozenState(engine.state, {"forgotten": engine.forgotten})
        return engine, unread

    @property
    def blank_components(self) -> frozenset[str]:
        """Names of the components that know nothing of earlier times, though they might."""
        return frozenset(
            one.name
            for one in components()
            if one.is_blank is not None and one.is_blank(self.state.part(one.state))
        )

    def adopt_parts(self, parts: Iterable[object]) -> None:
        """Continue with these states of components. To be called before the first job is known."""
        self._wake = None
        self.state.parts.update({type(part): part for part in parts})
        self.state.idle_hooks = None

    def restore_promises(self, found: Mapping[str, CarriedJob]) -> None:
        """Replace promises by the recorded ones. Must be called between two batches."""
        self._wake = None
        restore_promises(self.state, found, "restored-promises")

    def fork(self) -> "Engine":
        """Return an independent copy with the same future behaviour, for experiments; its incident is empty.

        To be called between two batches; then any thread may use it.
        """
        engine = Engine.__new__(Engine)
        engine.state = self.state.fork()
        engine.log = BatchLog(0, 0)
        engine.base = b""
        engine.forgotten = self.forgotten
        return engine

    def incident(self) -> Incident:
        """Return the last checkpoint and the batches since, which reproduce the present state."""
        base = self.base if isinstance(self.base, bytes) else self.base.encode()
        return Incident(base, tuple(self.log), self.state.decision_number, self.log.lost)

    def pause(self, why: str) -> None:
        """Stop starting jobs until ``resume``; it holds over a checkpoint."""
        self._pause(why or "an admin's order")

    def resume(self) -> None:
        """Start jobs again from the next call of ``handle`` on, though another scheduler was seen, too."""
        self._pause("")

    def _pause(self, why: str) -> None:
        self._wake = None
        if bool(why) != bool(self.state.paused):
            self.state.paused_since = -1  # the next call of `handle` knows the present time
        self.state.paused = why
        if not why:
            self.state.foreign = ""
            self.state.unexplained_starts = []
            accept_loss(self.state)
        self.log.append(LoggedBatch(self.state.now, (), why, self.state.decision_number))
