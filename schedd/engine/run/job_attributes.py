"""Job attributes written to the server: planned start and nodes, or the reason for their absence."""

from typing import Final

import numpy as np

from schedd.engine.component.job_hooks import comment_remarks, run_time_predictions
from schedd.engine.facts.displayed_start import (
    LATE_S,
    NEAR,
    are_outdated,
    is_outdated,
    next_job_update,
    next_update,
    remains_published,
)
from schedd.engine.facts.explanations import (
    explain_job,
    explain_node_wait,
    request_notes,
    server_refusal,
)
from schedd.engine.facts.pools import binding
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.shares import planned_shares
from schedd.engine.facts.state import EngineState
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.model import FOREVER
from schedd.plan.columns import PLANNED, UNPLACED, Ints
from schedd.policy.limits import format_limit
from schedd.wire import WriteAttributes

_HALT: Final = "no jobs are started at present"  # no reason is given: it may mention jobs of other users
_DUE: Final = "due to start"
_STALE_ALERTS: Final = ("snapshot ", "clock ")
_LONG_HALT_S: Final = 300
"""Length of a pause, of scheduling off, or of refused starts, after which all jobs with a start show it."""
_NO_SLOTS: Final = np.zeros(0, np.int64)


def write_attributes(state: EngineState, event: str) -> None:
    """Write due attributes within the rate limit: near starts first, then jobs without a published start,
    then the others; each group by start.
    """
    if state.now > state.write_second:
        state.write_second, state.writes_in_second = state.now, 0
    _mark_for_halt(state)
    _mark_passed_starts(state)
    while state.unexplained and not state.silent and state.writes_in_second < state.settings.publish_rate:
        record = state.records[next(iter(state.unexplained))]
        del state.unexplained[record.id]
        if record.phase in (Phase.WAITING, Phase.BLOCKED):
            state.writes_in_second += 1
            with JobErrorGuard(state, record.id, event):
                state.decisions.append(
                    _make_write(state, record, event, None, (), comment_text(state, record))
                )
    if state.writes_in_second >= state.settings.publish_rate:
        return
    due = _slots_to_update(state)
    if due.shape[0]:
        due = due[_next_update(state, due) <= state.now]
    if not due.shape[0]:
        return
    starts = state.plan.starts(due)
    if state.silent:
        _note_written(state, due, starts)
        state.update_due[due] = 0
        return
    starts = np.where(starts < 0, FOREVER, starts)
    later = (state.published_start[due] >= 0) & (starts > state.now + NEAR)
    starts = starts + np.where(later, FOREVER, 0)
    # Only some of many are written per call, so only these are sorted; if some of them have started
    # since, fewer are written this second, and others follow in the next.
    few = max(1, 2 * state.settings.publish_rate)
    if due.shape[0] > few:
        # All jobs with the last of these starts are included, so that ties are broken by slot.
        latest = np.partition(starts, few - 1)[few - 1]
        near = starts <= latest
        due, starts = due[near], starts[near]
    order = np.argsort(starts, kind="stable")
    for slot in due[order].tolist():
        record = state.by_slot[slot]
        if record is None or record.phase not in (Phase.WAITING, Phase.BLOCKED):
            state.update_due[slot] = 0
        elif state.writes_in_second < state.settings.publish_rate:
            state.update_due[slot] = 0
            state.writes_in_second += 1
            with JobErrorGuard(state, record.id, event):
                _write_job(state, record, event)
        else:
            return


def next_write(state: EngineState) -> int:
    """Return when the next attribute write is due; FOREVER: none."""
    if state.unexplained and not state.silent:
        return state.now + 1
    updated = next_update_time(state)
    if updated <= state.now + 1:
        return state.now + 1
    return max(state.now + 1, min(updated, _next_near_start_in_halt(state), _next_passed_start(state)))


def next_update_time(state: EngineState) -> int:
    """Return when the first attribute may be written; any moment up to a second from now counts as the
    earliest. FOREVER: none is due.

    While many wait for the rate limit, one slot is kept between batches, which saves a scan of all slots.
    """
    slot = state.next_updated
    if slot >= 0 and state.update_due[slot]:
        update = _next_job_update(state, slot)
        if update <= state.now + 1:
            return update
    update, state.next_updated = find_next_update(state)
    return update


def find_next_update(state: EngineState) -> tuple[int, int]:
    """Return when the first attribute may be written, and its slot; (FOREVER, -1): none is due."""
    due = _slots_to_update(state)
    if not due.shape[0]:
        return FOREVER, -1
    updates = _next_update(state, due)
    first = int(updates.argmin())
    return int(updates[first]), int(due[first])


def _next_job_update(state: EngineState, slot: int) -> int:
    published, planned = int(state.published_start[slot]), state.plan.start(slot)
    outdated = is_outdated(published, planned, state.settings.publish_threshold)
    return next_job_update(
        published,
        int((state.published_at if outdated else state.written_at)[slot]),
        planned,
        state.now,
        state.settings.publish_pause,
        dispatching=state.mode == "scheduler" and not state.halted,
    )


def _slots_to_update(state: EngineState) -> Ints:
    """Return the slots of jobs with an attribute to write."""
    if not state.updates_marked:
        return _NO_SLOTS
    # Of booleans: searching the numbers themselves takes six times as long.
    found: Ints = (state.update_due != 0).nonzero()[0]
    state.updates_marked = found.shape[0] > 0
    return found


def _next_update(state: EngineState, slots: Ints) -> Ints:
    planned = state.plan.starts(slots)
    dispatching = state.mode == "scheduler" and not state.halted
    published = state.published_start[slots]
    outdated = are_outdated(published, planned, state.settings.publish_threshold)
    return next_update(
        published,
        np.where(outdated, state.published_at[slots], state.written_at[slots]),
        planned,
        state.now,
        state.settings.publish_pause,
        dispatching=dispatching,
    )


def _note_written(state: EngineState, slots: Ints, starts: Ints) -> None:
    """Record these starts as published, as if the attributes were written."""
    published, now = state.published_start[slots], state.now
    remain = (published > now) & (starts > now)
    remain &= ~are_outdated(published, starts, state.settings.publish_threshold)
    starts = np.where(remain, published, starts)
    state.published_at[slots] = np.where(remain, state.published_at[slots], now)
    state.published_start[slots], state.written_at[slots] = starts, now
    state.changed[slots] = state.generation
    ahead = np.where(starts > state.now, starts, FOREVER)
    if ahead.shape[0]:
        first = int(ahead.argmin())
        _note_start_ahead(state, int(slots[first]), int(ahead[first]))


def _note_start_ahead(state: EngineState, slot: int, start: int) -> None:
    """Follow a start that was published just now: it may be the first one ahead."""
    found = state.first_start_ahead
    if found is not None and state.now < start < found[0]:
        state.first_start_ahead = (start, slot)


def _mark_for_halt(state: EngineState) -> None:
    """Mark jobs with near starts while no jobs are started, all jobs when that has lasted, and these again
    when starts resume.
    """
    stands = _starts_nothing(state)
    before, until = state.halt_published_until, state.now + NEAR
    if stands and (state.foreign or state.now >= _long_halt_at(state)):
        until = FOREVER
    if not stands and before < 0:
        return
    state.halt_published_until = until if stands else -1
    state.updates_marked = True
    written_starts = _written_starts(state)
    state.update_due[: written_starts.shape[0]] |= (
        (written_starts > before) & (written_starts <= until)
        if stands
        else (written_starts >= 0) & (written_starts <= before)
    )


def _starts_nothing(state: EngineState) -> bool:
    """Return whether no jobs are started: a halt, or the server or adapter refuses all starts."""
    return bool(state.halted or state.starts_refused) and state.mode == "scheduler"


def _long_halt_at(state: EngineState) -> int:
    """Return when a present pause, scheduling off, or refused starts have lasted long; FOREVER: none is."""
    refused_since = state.refused_since if state.starts_refused else -1
    since = [one for one in (state.paused_since, state.unscheduled_since, refused_since) if one >= 0]
    if state.stale:  # an alert tells since when the server's state is not known
        since += [state.alerts[key].since for key in _STALE_ALERTS if key in state.alerts]
    return min(since) + _LONG_HALT_S if since else FOREVER


def _next_near_start_in_halt(state: EngineState) -> int:
    """Return when a start gets near while no jobs are started, or that lasts long; FOREVER: never."""
    if state.halt_published_until < 0 or state.halt_published_until == FOREVER:
        return FOREVER
    return min(_next_near_start(state), _long_halt_at(state))


def _next_near_start(state: EngineState) -> int:
    written_starts = _written_starts(state)
    later = written_starts[written_starts > state.halt_published_until]
    return int(later.min()) - NEAR if later.shape[0] else FOREVER


def first_start_ahead(state: EngineState) -> tuple[int, int]:
    """Return the result of ``find_start_ahead``, from a cache.

    The cache lasts between batches: a scan of all slots would cost more than the rest of a batch. Another
    scan is needed only when the start was replaced, or its job runs.
    """
    found = state.first_start_ahead
    if found is None or not (found[1] < 0 or _is_ahead(state, *found)):
        found = state.first_start_ahead = find_start_ahead(state)
    return found


def find_start_ahead(state: EngineState) -> tuple[int, int]:
    """Return the earliest published start of the jobs that do not run, without starts that were published
    when they had passed, and its slot; (FOREVER, -1): none.
    """
    published, states = state.published_start, state.plan.jobs.states
    count = min(states.shape[0], published.shape[0])
    published, states = published[:count], states[:count]
    ahead = (published >= 0) & (state.published_at[:count] < published)
    slots = np.flatnonzero(ahead & ((states == PLANNED) | (states == UNPLACED)))
    if not slots.shape[0]:
        return FOREVER, -1
    slot = int(slots[int(published[slots].argmin())])
    return int(published[slot]), slot


def _is_ahead(state: EngineState, published: int, slot: int) -> bool:
    """Return whether a job that does not run still has this published start, written before it."""
    return (
        int(state.published_start[slot]) == published > int(state.published_at[slot])
        and state.plan.state(slot) in (PLANNED, UNPLACED)
    )  # fmt: skip


def _mark_passed_starts(state: EngineState) -> None:
    """Mark waiting jobs with a published start that has passed since it was written."""
    if first_start_ahead(state)[0] > state.now - LATE_S:
        return
    written_starts = _written_starts(state)
    count = written_starts.shape[0]
    passed = (
        (written_starts >= 0)
        & (written_starts <= state.now - LATE_S)
        & (state.published_at[:count] < written_starts)
    )
    state.update_due[:count] |= passed
    state.updates_marked = True


def _next_passed_start(state: EngineState) -> int:
    """Return when the next published start will have passed if its job still waits; else FOREVER."""
    first, slot = first_start_ahead(state)
    if slot < 0:
        return FOREVER
    if first > state.now - LATE_S and state.plan.state(slot) == PLANNED:
        return first + LATE_S
    written_starts = _written_starts(state)
    ahead = written_starts[
        (written_starts > state.now - LATE_S)
        & (state.published_at[: written_starts.shape[0]] < written_starts)
    ]
    return int(ahead.min()) + LATE_S if ahead.shape[0] else FOREVER


def _written_starts(state: EngineState) -> Ints:
    """Return by slot the published start of a planned job; -1: none."""
    planned = state.plan.jobs.states == PLANNED
    count = min(planned.shape[0], state.published_start.shape[0])
    return np.where(planned[:count], state.published_start[:count], -1)


def _write_job(state: EngineState, record: JobRecord, event: str) -> None:
    slot = record.slot
    start, published = state.plan.start(slot), int(state.published_start[slot])
    if remains_published(published, start, state.now, state.settings.publish_threshold):
        start = published
    else:
        state.published_start[slot], state.published_at[slot] = start, state.now
    state.written_at[slot], state.changed[slot] = state.now, state.generation
    _note_start_ahead(state, slot, start)
    if 0 <= start <= state.now - LATE_S:
        decision = _make_write(state, record, event, None, (), _overdue_text(state, record))
    elif start >= 0:
        nodes = tuple(share.node for share in planned_shares(state.plan, slot))
        notes = [
            *filter(None, [server_refusal(record)]),
            *comment_remarks(state, record, start),
            *request_notes(record),
        ]
        if start <= state.halt_published_until:
            notes.append(_HALT)
        decision = _make_write(state, record, event, start, nodes, "; ".join(notes))
    else:
        decision = _make_write(state, record, event, None, (), comment_text(state, record))
    state.decisions.append(decision)


def _overdue_text(state: EngineState, record: JobRecord) -> str:
    """Return the text for a job past its planned start."""
    if _starts_nothing(state):
        return f"{_DUE}; {_HALT}"
    names = [share.node for share in planned_shares(state.plan, record.slot)]
    down = [name for name in names if state.node_facts[name].state != "up"]
    if down:
        return f"{_DUE}; {explain_node_wait(down, state.settings.node_grace)}"
    return _DUE


def _make_write(
    state: EngineState, record: JobRecord, event: str, start: int | None, nodes: tuple[str, ...], text: str
) -> WriteAttributes:
    slot = record.slot
    planned = start is not None and slot >= 0
    expected = planned and state.expected[slot] >= 0
    # A promise that depends on assumed walltimes of others is shown only where that can be said.
    promised = planned and state.promise[slot] < FOREVER and state.mode == "scheduler" and not record.weak
    limited = state.expected_by[slot] >= state.promise[slot] if expected else False
    return WriteAttributes(
        id=state.next_decision(),
        cause=event,
        time=state.now,
        job_id=record.id,
        planned_start=start,
        planned_end=None if start is None else start + record.understood.walltime,
        planned_nodes=nodes,
        text=text,
        expected_start=int(state.expected[slot]) if expected else None,
        expected_by=int(state.expected_by[slot]) if expected and not limited else None,
        runs_for=_runs_for(state, record) if start is not None else None,
        promised_start=int(state.promise[slot]) if promised else None,
    )


def _runs_for(state: EngineState, record: JobRecord) -> int | None:
    predictions = run_time_predictions(state)
    found = predictions(record.id) if predictions is not None else None
    return found.p90 if found is not None and found.p90 < record.understood.walltime else None


def comment_text(state: EngineState, record: JobRecord) -> str:
    """Return the line for the job's comment: time and nodes of its start, or the reason for waiting."""
    start = state.plan.start(record.slot) if record.slot >= 0 else -1
    return explain_job(record, start, _limited_by(state, record) if start >= 0 else ())


def _limited_by(state: EngineState, record: JobRecord) -> list[str]:
    """Return the limits that leave a planned job no room before its start."""
    plan, slot = state.plan, record.slot
    earliest = max(state.now, record.facts.not_before or 0, record.back_off.until)
    return [
        format_limit(state.limits.pools[pool]) if pool in state.limits.pools else pool
        for pool, amount in plan.pool_amounts(slot).items()
        if plan.is_scarce(pool)
        and binding(*plan.pool_free(pool), plan.start(slot), plan.end(slot), amount, earliest)
    ]
