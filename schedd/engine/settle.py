"""After the events of a batch: overruns, lost nodes, repair, dispatch, and what to tell."""

from dataclasses import replace

import numpy as np

from schedd.engine.queueing import start_by_policy
from schedd.engine.records import Cause, JobRecord, Phase
from schedd.engine.shares import shares_of
from schedd.engine.state import EngineState
from schedd.model import NodeState
from schedd.plan.kernels.layout import PLANNED, START, STATE
from schedd.wire import Run, Tell

__all__ = ["next_wake", "settle"]

_AGAIN = 30
"""Seconds after which a job is looked at again that is due but that the server has not released."""


def settle(state: EngineState, event: str) -> None:
    """Bring the plan to rest at ``state.now``; ``event`` is what the batch is known by."""
    _overruns(state, event)
    _lost_nodes(state, event)
    _unanswered(state, event)
    if state.policy is not None:
        if _may_dispatch(state):
            for slot in start_by_policy(state):
                _dispatch(state, slot, event)
        return
    words = state.freed_by[1] or "room was freed"
    trigger = state.freed_by[0] or event
    if state.plan.freed:
        state.note_moves(trigger, Cause.FREED, words, state.plan.repair_now(state.now))
    _dispatch_due(state, event)
    if state.plan.freed:
        moves, done = state.plan.repair(state.now, state.settings.repair_slice)
        state.note_moves(trigger, Cause.FREED, words, moves)
        if done:
            state.freed_by = ("", "")
        _dispatch_due(state, event)
    if state.settings.tell:
        _tell(state, event)


def _overruns(state: EngineState, event: str) -> None:
    """Jobs still running when their resources should be free hold them a while longer."""
    settings = state.settings
    while state.ends and state.ends[0][0] <= state.now:
        end, slot, job_id = state.pop_end()
        record = state.records.get(job_id)
        if record is None or record.slot != slot or record.phase is not Phase.RUNNING:
            continue
        if state.plan.end(slot) != end:
            continue
        step = min(settings.overrun_step << min(record.overruns, 20), settings.overrun_most)
        over = state.now - (record.started + record.understood.walltime + settings.end_allowance)
        if over <= settings.overrun_blocked < over + step:
            state.alert(
                event, "overrun", f"job {job_id} runs {over} s past its walltime; its nodes count as blocked"
            )
        record = state.put(replace(record, overruns=record.overruns + 1))
        state.begin(record, state.now + step)
        state.make_way(event, Cause.OVERRUN, f"job {job_id} runs past its walltime", state.now + step)


def _lost_nodes(state: EngineState, event: str) -> None:
    """Planned jobs leave nodes that are down for longer than the grace."""
    for name, since in list(state.down_since.items()):
        if state.now >= since + state.settings.node_grace:
            del state.down_since[name]
            state.leave_node(name, event, Cause.NODE_LOST, f"node {name} is down since {since}")


def _unanswered(state: EngineState, event: str) -> None:
    """Run decisions that nobody answered in time are void."""
    for job_id in list(state.out):
        record = state.records.get(job_id)
        if record is None or record.phase is not Phase.DISPATCHED:
            del state.out[job_id]
        elif record.decision_expires < state.now:
            del state.out[job_id]
            state.replan(
                replace(record, decision=""), event, Cause.OUTAGE, "its run decision was not answered"
            )


def _may_dispatch(state: EngineState) -> bool:
    return not (state.paused or state.stale) and state.server.scheduling


def _dispatch_due(state: EngineState, event: str) -> None:
    """Start every job whose planned moment has come, earliest planned first."""
    if not _may_dispatch(state):
        return
    jobs = state.plan.tables.jobs
    due = np.flatnonzero((jobs[STATE] == PLANNED) & (jobs[START] <= state.now))
    if due.shape[0]:
        for slot in due[np.argsort(jobs[START, due], kind="stable")].tolist():
            if state.plan.state(slot) == PLANNED and state.plan.start(slot) <= state.now:
                _dispatch(state, slot, event)


def _dispatch(state: EngineState, slot: int, event: str) -> None:
    record = state.by_slot[slot]
    if record is None:
        return
    if record.facts.state != "Q":
        record = replace(record, until=state.now + _AGAIN)
        state.replan(record, event, Cause.ALTERED, "the server has not released it yet")
        return
    rows = {take.row for take in state.plan.takes(slot)}
    down = [
        name
        for name in map(state.plan.name_of.get, rows)
        if name and state.plan.nodes[name].state is not NodeState.UP
    ]
    if down:
        state.replan(record, event, Cause.NODE_LOST, f"node {down[0]} is {state.plan.nodes[down[0]].state}")
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
    state.tell_due[slot] = 0
    record = state.put(
        replace(record, phase=Phase.DISPATCHED, decision=decision.id, decision_expires=expires, answer=None)
    )
    _hold(state, record, event)


def _hold(state: EngineState, record: JobRecord, event: str) -> None:
    """A job about to start holds its place; one that is late takes that from its allowance first."""
    slot = record.slot
    end = state.plan.end(slot)
    needed = state.now + record.understood.walltime
    state.plan.begin(slot)
    state.queue.pop(slot, None)
    if needed > end:
        state.plan.set_duration(slot, needed - state.plan.start(slot), state.now)
        state.make_way(event, Cause.OUTAGE, f"job {record.id} starts later than planned", needed)


def _tell(state: EngineState, event: str) -> None:
    """Tell moved starts, soonest first, within the rate."""
    due = np.flatnonzero(state.tell_due)
    if not due.shape[0]:
        return
    tables = state.plan.tables
    starts = tables.jobs[START, due]
    order = np.argsort(np.where(starts < 0, np.int64(1) << 61, starts), kind="stable")
    budget = state.tell_budget()
    for slot in due[order][:budget].tolist():
        state.tell_due[slot] = 0
        record = state.by_slot[slot]
        if record is None or record.phase not in (Phase.WAITING, Phase.BLOCKED):
            continue
        start = state.plan.start(slot)
        state.told[slot] = start
        shares = shares_of(state.plan, slot) if start >= 0 else ()
        state.decisions.append(
            Tell(
                id=state.next_decision(),
                cause=event,
                time=state.now,
                job_id=record.id,
                planned_start=start if start >= 0 else None,
                planned_end=start + record.understood.walltime if start >= 0 else None,
                planned_nodes=tuple(share.node for share in shares),
                text=state.why_text(record),
            )
        )


def next_wake(state: EngineState) -> int | None:
    """When the shell must call again though nothing happened; None: not before the next event."""
    moments: list[int] = []
    if state.plan.freed:
        moments.append(state.now)
    if state.settings.tell and state.tell_due.any():
        moments.append(state.now + 1)
    if state.policy is None and _may_dispatch(state):
        jobs = state.plan.tables.jobs
        starts = jobs[START][jobs[STATE] == PLANNED]
        if starts.shape[0]:
            moments.append(max(int(starts.min()), state.now + 1))
    if state.ends:
        moments.append(state.ends[0][0])
    moments += [since + state.settings.node_grace for since in state.down_since.values()]
    moments += [state.records[job].decision_expires + 1 for job in state.out if job in state.records]
    return max(min(moments), state.now) if moments else None
