"""The engine: events in, decisions out. No I/O, no clock, no threads.

After ``distributed``'s worker state machine: all state changes happen in ``handle``; every decision carries
the id of the event that caused it; ``next_wake`` says when to call again though nothing happened. Replay,
shadow mode, what-if and production run this same class.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from schedd.engine.handlers import apply
from schedd.engine.records import Cause
from schedd.engine.settings import EngineSettings
from schedd.engine.settle import next_wake, settle
from schedd.engine.state import EngineState
from schedd.engine.validate import check
from schedd.wire import Decision, Event, JobDeleted, JobEnded, JobQueued

__all__ = ["Engine", "LoggedBatch"]

_FORGET_EVERY = 60


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """What ``handle`` was called with."""

    now: int
    events: tuple[Event, ...]


class Engine:
    """One cluster's schedule, kept right event by event."""

    def __init__(self, settings: EngineSettings, now: int) -> None:
        self.state = EngineState.empty(settings, now)
        self.log: deque[LoggedBatch] = deque(maxlen=settings.log_batches)
        self._forgotten = now

    def handle(self, batch: Iterable[Event], now: int) -> tuple[Decision, ...]:
        """Take over a batch of events at ``now`` (seconds, never going back) and bring the plan to rest.

        Ends go before state changes, arrivals come last; then one repair, one dispatch.
        """
        state = self.state
        events = tuple(batch)
        state.now = max(now, state.now)
        state.generation += 1
        state.decisions = []
        self.log.append(LoggedBatch(state.now, events))
        if state.now >= self._forgotten + _FORGET_EVERY:
            self._forgotten = state.now
            state.plan.forget(state.now)
        for event in _in_order(events):
            self._apply(event)
        settle(state, events[0].id if events else f"clock:{state.now}")
        if state.settings.validate:
            check(state)
        return tuple(state.decisions)

    def _apply(self, event: Event) -> None:
        """One event; a job that cannot be planned for an error of ours concerns that job alone."""
        try:
            apply(self.state, event)
        except Exception as error:
            if self.state.settings.validate and isinstance(error, AssertionError):
                raise
            job_id = _job_of(event)
            record = self.state.records.get(job_id) if job_id else None
            self.state.alert(event.id, "error", f"{event.type} of {job_id or 'the cluster'}: {error!r}")
            if record is None:
                raise
            self.state.replan(
                replace(record, quarantine=repr(error)), event.id, Cause.ADMIN, "planning it failed"
            )

    @property
    def next_wake(self) -> int | None:
        """When ``handle`` must be called again though nothing happened; None: not before the next event."""
        return next_wake(self.state)

    def pause(self, why: str) -> None:
        """Stop dispatching until ``resume``."""
        self.state.paused = why or "an admin's order"

    def resume(self) -> None:
        """Dispatch again."""
        self.state.paused = ""


def _job_of(event: Event) -> str:
    job = getattr(event, "job", None)
    return job.id if job is not None else getattr(event, "job_id", "")


def _in_order(events: Sequence[Event]) -> list[Event]:
    """Ends, then state changes, then arrivals; events of a job that arrives here follow its arrival."""
    if len(events) < 2:
        return list(events)
    arriving = {event.job.id for event in events if isinstance(event, JobQueued)}

    def rank(event: Event) -> int:
        if _job_of(event) in arriving:
            return 2
        return 0 if isinstance(event, JobEnded | JobDeleted) else 1

    return sorted(events, key=rank)
