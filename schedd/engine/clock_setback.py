"""Clock setback: the engine restarts at the earlier time, if the difference is too large to wait for.

With the later time, everything that waits for a moment (a refused start, an overdue end, the edge of a
reservation) would wait until the clock catches up, and all published starts would be wrong by the difference.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from schedd.engine.component.registry import components
from schedd.engine.facts.alerts import OpenAlert
from schedd.engine.facts.state import EngineState
from schedd.engine.rank.promises import note_replaced_promise
from schedd.engine.recovery import open_runs, rebuild_state
from schedd.model import FOREVER
from schedd.wire import ClockSet, Event
from schedd.wire.adapter_troubles import CLOCK_SET_BACK


def apply_clock_setback(state: EngineState, events: Iterable[Event]) -> bool:
    """Restart the engine at the time of a ``ClockSet`` among ``events``; returns whether there was one.

    Open run decisions keep their remaining validity, so their jobs are not started again. Promises later than
    the former time were made by the wrong clock and are made again.
    """
    found = False
    for event in events:
        if isinstance(event, ClockSet) and event.time < state.now:
            _restart_at(state, event)
            found = True
    return found


def _shifted(alert: OpenAlert, ahead: int) -> OpenAlert:
    """Return an open alert on the corrected clock, with the same remaining time."""
    until = alert.until - ahead if alert.until is not None else None
    return replace(alert, since=alert.since - ahead, last=alert.last - ahead, until=until)


def _restart_at(state: EngineState, event: ClockSet) -> None:
    ahead = state.now - event.time
    left = {job: until - state.now for job, until in open_runs(state).items()}
    left |= {job: 0 for job in state.dispatched if job not in left}
    for record in state.records.values():
        if record.slot >= 0 and state.now <= state.promise[record.slot] < FOREVER:
            note_replaced_promise(state, record, event.id, CLOCK_SET_BACK)
            state.promise[record.slot] = FOREVER
    state.now = event.time
    state.unresolved = {job: replace(one, until=one.until - ahead) for job, one in state.unresolved.items()}
    state.alerts = {name: _shifted(one, ahead) for name, one in state.alerts.items()}
    state.unexplained_starts = []
    state.paused_since = min(state.paused_since, state.now)
    state.unscheduled_since = min(state.unscheduled_since, state.now)
    state.refused_since = min(state.refused_since, state.now)
    if state.unread_until < FOREVER:
        state.unread_until = min(state.unread_until, state.now)
    state.excused_at = min(state.excused_at, state.now)
    state.failures = {
        name: deque([(job, owner, min(at, state.now)) for job, owner, at in failures], failures.maxlen)
        for name, failures in state.failures.items()
    }
    state.aside = dict.fromkeys(state.aside, state.now)
    state.skipped_steps = {}
    for one in components():
        if one.clock_set_back is not None:
            one.clock_set_back(state.part(one.state), state.now, ahead)
    state.lose_track()  # what the server starts now may have been decided before
    rebuild_state(state, {job: state.now + seconds for job, seconds in left.items()})
    # Published starts are wrong by as much; with moments to come they would not be replaced before these.
    state.carried_jobs = {
        job: replace(one, published_start=-1, published_at=0) for job, one in state.carried_jobs.items()
    }
    words = f"{CLOCK_SET_BACK} by {ahead} s; the plan is rebuilt from a snapshot"
    state.stale = words
    state.alert(event.id, "clock", words)
    state.request_snapshot(event.id, CLOCK_SET_BACK)
