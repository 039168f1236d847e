"""Starting jobs: whose moment has come, and what happens to those whose moment went by."""

from dataclasses import replace

import numpy as np

from schedd.engine.intake import slot_limited
from schedd.engine.places import displace, make_way, quarantine, replan, rivals, stand
from schedd.engine.promises import note
from schedd.engine.queueing import start_by_policy
from schedd.engine.records import Cause, JobRecord, Phase
from schedd.engine.running import hold
from schedd.engine.shares import shares_of
from schedd.engine.state import EngineState
from schedd.plan.kernels.layout import PLANNED, READY, START, STATE, Ints
from schedd.wire import Run

__all__ = ["catch_up", "dispatch_due", "due_by_policy"]

_AGAIN = 30
"""Seconds after which a job is looked at again that is due but that the server has not released."""
_RELEASED_WITHIN = 60
"""Seconds for which a job keeps its place that is due but whose dependency the server has not lifted yet."""
_ROUNDS = 4


def due_by_policy(state: EngineState, event: str) -> None:
    """Under a queue policy: start whom the policy lets start now."""
    if not state.halted:
        for slot in start_by_policy(state):
            _dispatch(state, slot, event)


def dispatch_due(state: EngineState, event: str) -> None:
    """Start every job whose planned moment has come, earliest planned first."""
    if state.halted:
        return
    for _ in range(_ROUNDS):
        if state.soonest() > state.now:
            return
        state.due = None
        jobs = state.plan.tables.jobs
        due = np.flatnonzero((jobs[STATE] == PLANNED) & (jobs[START] <= state.now))
        due = due[jobs[READY, due] <= state.now]
        for slot in due[np.argsort(jobs[START, due], kind="stable")].tolist():
            if _too_many(state):
                return
            if state.plan.state(slot) == PLANNED and state.plan.start(slot) <= state.now:
                _dispatch(state, slot, event)


def _too_many(state: EngineState) -> bool:
    """Whether no more jobs may be started in this second."""
    if state.now != state.started_at:
        state.started_at, state.started_then, state.started_on = state.now, 0, {}
    return 0 < state.settings.start_rate <= state.started_then


def _dispatch(state: EngineState, slot: int, event: str) -> None:
    record = state.by_slot[slot]
    if record is None:
        return
    try:
        _try(state, record, event)
    except Exception as error:
        if state.settings.validate and isinstance(error, AssertionError):
            raise
        quarantine(state, state.records[record.id], event, error)


def _try(state: EngineState, record: JobRecord, event: str) -> None:
    slot = record.slot
    if slot_limited(record.facts):
        # The server releases it when it sees that another job of the array has ended: any moment now.
        state.plan.set_ready(slot, state.now + 1)
        return
    if record.behind and state.now < state.plan.start(slot) + _RELEASED_WITHIN:
        # The server releases it when it has seen the end.
        state.plan.set_ready(slot, min(state.now + 5, state.plan.start(slot) + _RELEASED_WITHIN))
        return
    if record.facts.state != "Q":
        record = replace(record, until=state.now + _AGAIN)
        replan(state, record, event, Cause.ALTERED, "the server has not released it yet")
        return
    names = {state.plan.name_of[take.row] for take in state.plan.takes(slot)}
    down = [state.down_since.get(name, state.now) for name in names if state.node_facts[name].state != "up"]
    if down:
        # Jobs leave a node that is down after the grace, not before; until then it may return.
        state.plan.set_ready(slot, max(state.now + 1, max(down) + state.settings.node_grace))
        return
    most = state.settings.start_rate_node
    if most and any(state.started_on.get(name, 0) >= most for name in names):
        state.plan.set_ready(slot, state.now + 1)
        return
    expires = state.now + state.settings.decision_expiry
    decision = Run(
        id=state.next_decision(),
        cause=event,
        time=state.now,
        job_id=record.id,
        shares=shares_of(state.plan, slot),
        version=record.facts.version,
        expires=expires,
    )
    state.decisions.append(decision)
    state.out[record.id] = None
    state.started_then += 1
    if most:
        state.started_on |= {name: state.started_on.get(name, 0) + 1 for name in names}
    state.tell_due[slot] = 0
    record = state.put(
        replace(
            record,
            phase=Phase.DISPATCHED,
            decision=decision.id,
            decided=state.now,
            decision_expires=expires,
            accepted=False,
            answer=None,
        )
    )
    # It holds its place; where it is late it takes that from its allowance first.
    end = state.plan.end(slot)
    needed = state.now + record.understood.walltime
    hold(state, record, max(end, needed))
    if needed > end:
        make_way(state, slot, event, Cause.OUTAGE, f"job {record.id} starts later than planned")


def catch_up(state: EngineState, event: str) -> None:
    """Move on the places of due jobs that could not be started for long; all keep their order.

    Each late job in turn takes its nodes from now on. Planned jobs in its way, and itself where another that
    stays is in the way, are planned anew afterwards, in the order of their old starts.
    """
    plan, now = state.plan, state.now
    if state.soonest() >= now - state.patience:
        return
    state.due = None
    jobs = plan.tables.jobs
    late = np.flatnonzero((jobs[STATE] == PLANNED) & (jobs[START] < now - state.patience))
    late = late[jobs[READY, late] < now - state.patience]
    late = late[np.argsort(jobs[START, late], kind="stable")]
    old = jobs[START].copy()
    kept: list[int] = []
    gone: list[Ints] = []
    for slot in late.tolist():
        if plan.state(slot) != PLANNED:
            continue
        stand(state, slot, now)
        kept.append(slot)
        others = rivals(state, slot)
        others = others[~np.isin(others, kept)]
        gone.append(plan.evict(np.append(others, slot)))
        if plan.state(slot) != PLANNED:
            kept.pop()
    slots = np.array(kept, np.int64)
    words = f"it was not started in time: {state.halted or 'the scheduler was not there'}"
    note(state, event, Cause.OUTAGE, words, slots, old[slots], np.full(slots.shape[0], now))
    lost = np.concatenate(gone)
    displace(state, lost, old[lost], event, Cause.OUTAGE, words)
