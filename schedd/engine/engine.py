"""The engine: events in, decisions out. No I/O, no clock, no threads.

After ``distributed``'s worker state machine: all state changes happen in ``handle``; every decision carries
the id of the event that caused it; ``next_wake`` says when to call again though nothing happened. Replay,
shadow mode, what-if and production run this same class.
"""

from collections.abc import Iterable

from schedd.engine.handlers import apply_all
from schedd.engine.log import BatchLog, LoggedBatch
from schedd.engine.order import in_order
from schedd.engine.settings import EngineSettings
from schedd.engine.settle import next_wake, settle
from schedd.engine.state import EngineState
from schedd.engine.validate import check
from schedd.wire import Decision, Event

__all__ = ["Engine"]

_FORGET_EVERY = 60


class Engine:
    """One cluster's schedule, kept right event by event."""

    def __init__(self, settings: EngineSettings, now: int) -> None:
        self.state = EngineState.empty(settings, now)
        self.log = BatchLog(settings.log_batches, settings.log_weight)
        self.forgotten = now

    def handle(self, batch: Iterable[Event], now: int) -> tuple[Decision, ...]:
        """Take over a batch of events at ``now`` (seconds; a clock that went back stands still) and bring
        the plan to rest.

        Ends go before state changes, arrivals come last; then one repair, one dispatch.
        """
        state = self.state
        events = tuple(batch)
        state.now = max(now, state.now)
        state.generation += 1
        state.decisions = []
        self.log.append(LoggedBatch(state.now, events))
        if state.now >= self.forgotten + _FORGET_EVERY:
            self.forgotten = state.now
            state.plan.forget(state.now)
        apply_all(state, in_order(events))
        settle(state, events[0].id if events else f"clock:{state.now}")
        if state.settings.validate:
            check(state)
        return tuple(state.decisions)

    @property
    def next_wake(self) -> int | None:
        """When ``handle`` must be called again though nothing happened; None: not before the next event."""
        return next_wake(self.state)

    def pause(self, why: str) -> None:
        """Stop dispatching until ``resume``."""
        self._pause(why or "an admin's order")

    def resume(self) -> None:
        """Dispatch again, from the next call of ``handle`` on."""
        self._pause("")

    def _pause(self, why: str) -> None:
        self.state.paused = why
        self.log.append(LoggedBatch(self.state.now, (), why))
