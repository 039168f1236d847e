"""What each event does to the engine's state, before the plan is settled."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from schedd.engine import reconcile
from schedd.engine.intake import node_of
from schedd.engine.records import Cause, JobRecord, Phase
from schedd.engine.shares import shares_of, takes_of
from schedd.engine.state import HORIZON, EngineState, Reservation
from schedd.model import FOREVER, Chunk, NodeState, Place, Request
from schedd.wire import (
    Event,
    JobAltered,
    JobDeleted,
    JobEnded,
    JobFacts,
    JobHeld,
    JobQueued,
    JobReleased,
    JobStarted,
    NodeChanged,
    QueueChanged,
    Reserve,
    RunAccepted,
    RunRefused,
    ServerChanged,
    ShareFacts,
    Snapshot,
    Unreserve,
)

__all__ = ["apply"]

_BLOCK = Request((Chunk(cpus=0),), Place.FREE, exclusive=True)


def apply(state: EngineState, event: Event) -> None:
    """Take over what ``event`` says; where planned jobs lose their places they are planned anew at once."""
    _HANDLERS[type(event)](state, event)


# ---- jobs ---------------------------------------------------------------------------------------


def _queued(state: EngineState, event: JobQueued) -> None:
    known = state.records.get(event.job.id)
    if known is None:
        _enter(state, event.id, event.job)
    elif known.phase in (Phase.RUNNING, Phase.DISPATCHED):
        _came_back(state, event.id, known, event.job)
    else:
        _alter(state, event.id, known, event.job)


def _enter(state: EngineState, event: str, facts: JobFacts) -> None:
    understood = state.intake.read(facts, state.queues.get(facts.queue), state.server.defaults)
    slot = -1
    if understood.request is not None:
        slot = state.new_slot(understood.request, understood.walltime + state.settings.end_allowance)
        if understood.assumed:
            state.assumed.add(slot)
    record = state.put(JobRecord(facts, understood, slot, Phase.WAITING))
    if facts.state in ("R", "E") and facts.shares:
        _run(state, event, record, facts.started if facts.started is not None else state.now, facts.shares)
    else:
        state.plan_job(record, event, Cause.ARRIVED, "it arrived")


def _came_back(state: EngineState, event: str, record: JobRecord, facts: JobFacts) -> None:
    """A job that ran, or was about to, is queued again: its promise ends and a new one is made."""
    state.promise[record.slot] = FOREVER
    record = replace(
        record,
        facts=facts,
        phase=Phase.WAITING,
        returns=record.returns + 1,
        decision="",
        started=-1,
        overruns=0,
        eligible_since=-1,
    )
    state.unplan(record)
    state.plan.set_duration(record.slot, record.understood.walltime + state.settings.end_allowance, state.now)
    state.plan_job(record, event, Cause.REFUSED, "it came back to its queue")


def _altered(state: EngineState, event: JobAltered) -> None:
    known = state.records.get(event.job.id)
    if known is None:
        _enter(state, event.id, event.job)
    else:
        _alter(state, event.id, known, event.job)


def _alter(state: EngineState, event: str, known: JobRecord, facts: JobFacts) -> None:
    understood = state.intake.read(facts, state.queues.get(facts.queue), state.server.defaults)
    record = replace(known, facts=facts, understood=understood)
    if known.phase is Phase.RUNNING:
        state.put(record)
        if understood.walltime != known.understood.walltime:
            _run(state, event, record, record.started, facts.shares or _held_shares(state, known))
        return
    same_request = understood == known.understood
    same_standing = (facts.state, facts.holds, facts.queue, facts.not_before) == (
        known.facts.state,
        known.facts.holds,
        known.facts.queue,
        known.facts.not_before,
    )
    if same_request and same_standing:
        state.put(record)
        return
    old = state.unplan(known)
    if not same_request:
        record = _reshape(state, known, record)
    elif facts.queue != known.facts.queue:
        state.promise[record.slot] = FOREVER
    record = state.put(replace(record, decision="", quarantine="", returns=0))
    state.seat(record)
    if record.slot >= 0:
        new = state.plan.start(record.slot)
        if new < 0:
            state.promise[record.slot] = FOREVER
        state.note_one(event, Cause.ALTERED, "it was altered", record.slot, old, new)


def _reshape(state: EngineState, known: JobRecord, record: JobRecord) -> JobRecord:
    """Another request: a new slot. A promise stays only for one that shrank."""
    kept = int(state.promise[known.slot]) if known.slot >= 0 else FOREVER
    told = int(state.told[known.slot]) if known.slot >= 0 else -1
    if known.slot >= 0:
        state.assumed.discard(known.slot)
        state.by_slot[known.slot] = None
        state.plan.drop(known.slot, state.now)
    understood = record.understood
    if understood.request is None:
        return replace(record, slot=-1)
    slot = state.new_slot(understood.request, understood.walltime + state.settings.end_allowance)
    if understood.assumed:
        state.assumed.add(slot)
    if _shrank(known, record):
        state.promise[slot] = kept
    state.told[slot] = told
    return replace(record, slot=slot)


def _shrank(known: JobRecord, record: JobRecord) -> bool:
    before, after = known.understood.request, record.understood.request
    if before is None or after is None or record.understood.walltime > known.understood.walltime:
        return False
    if (
        before.place != after.place
        or len(before.chunks) != len(after.chunks)
        or after.exclusive != before.exclusive
    ):
        return False
    return all(
        a.count <= b.count
        and a.cpus <= b.cpus
        and a.mem <= b.mem
        and a.vmem <= b.vmem
        and a.gpus <= b.gpus
        and a.resources == b.resources
        and a.features == b.features
        for b, a in zip(before.chunks, after.chunks, strict=True)
    )


def _held(state: EngineState, event: JobHeld) -> None:
    record = state.records.get(event.job_id)
    if record is None:
        return
    facts = replace(
        record.facts, holds=event.holds, state="H" if record.facts.state in ("Q", "W") else record.facts.state
    )
    if record.phase is Phase.RUNNING:
        state.put(replace(record, facts=facts))
        return
    if record.slot >= 0:
        state.promise[record.slot] = FOREVER
    record = replace(record, facts=facts, eligible_since=-1, decision="")
    state.replan(record, event.id, Cause.ALTERED, "it was held")


def _released(state: EngineState, event: JobReleased) -> None:
    record = state.records.get(event.job_id)
    if record is None or record.phase in (Phase.RUNNING, Phase.DISPATCHED):
        return
    facts = replace(record.facts, holds="", state="Q", not_before=None)
    record = replace(record, facts=facts, returns=0, quarantine="")
    state.replan(record, event.id, Cause.RELEASED, "it was released")


def _gone(state: EngineState, event: JobDeleted | JobEnded) -> None:
    if state.remove(event.job_id) is not None and not state.freed_by[0]:
        how = "ended" if isinstance(event, JobEnded) else "was deleted"
        state.freed_by = (event.id, f"job {event.job_id} {how}")


def _started(state: EngineState, event: JobStarted) -> None:
    record = state.records.get(event.job_id)
    if record is not None:
        _run(state, event.id, record, event.time, event.shares)


def _held_shares(state: EngineState, record: JobRecord) -> tuple[ShareFacts, ...]:
    return tuple(
        ShareFacts(state.plan.name_of[take.row], take.amounts[0], take.amounts[2], take.amounts[3])
        for take in state.plan.takes(record.slot)
    )


def _run(
    state: EngineState, event: str, record: JobRecord, started: int, shares: tuple[ShareFacts, ...]
) -> None:
    """The job runs: it holds what it holds, and planned jobs in its way are planned anew."""
    facts = replace(record.facts, state="R", shares=shares, started=started)
    record = replace(record, facts=facts, phase=Phase.RUNNING, answer=None, started=started, refusals=0)
    slot = record.slot
    if slot < 0:
        # Its request was not understood; what it holds is plain enough.
        request = Request((Chunk(cpus=max(1, sum(share.cpus for share in shares))),), Place.FREE)
        slot = state.new_slot(request, record.understood.walltime)
        record = replace(record, slot=slot)
    planned, end = state.plan.start(slot), state.plan.end(slot)
    state.put(record)
    as_planned = record.decision and planned >= 0 and _same_nodes(shares_of(state.plan, slot), shares)
    hold_end = started + record.understood.walltime + state.settings.end_allowance
    if as_planned and planned <= started <= planned + state.settings.end_allowance:
        # A start a little late takes from its allowance, not from those behind it.
        state.begin(record, max(end, started + record.understood.walltime))
        return
    state.occupy(record, started, max(hold_end, state.now + 1), shares)
    cause = Cause.ADMIN if planned < 0 or not record.decision else Cause.OUTAGE
    state.make_way(event, cause, f"job {record.id} was started there", max(hold_end, state.now + 1))


def _same_nodes(a: tuple[ShareFacts, ...], b: tuple[ShareFacts, ...]) -> bool:
    return sorted((s.node, s.cpus) for s in a) == sorted((s.node, s.cpus) for s in b)


def _accepted(state: EngineState, event: RunAccepted) -> None:
    record = state.records.get(event.job_id)
    if record is not None and record.decision == event.decision_id and record.phase is Phase.DISPATCHED:
        state.put(replace(record, decision_expires=event.time + state.settings.overrun_most))


def _refused(state: EngineState, event: RunRefused) -> None:
    record = state.records.get(event.job_id)
    if record is None or record.phase is not Phase.DISPATCHED or record.decision != event.decision_id:
        return
    settings = state.settings
    # A refusal by the adapter's own check means that we knew too little: look again soon.
    wait = (
        5
        if event.code == 0
        else min(settings.refusal_most, settings.refusal_wait << min(record.refusals, 16))
    )
    by = "the adapter" if event.code == 0 else f"the server (code {event.code})"
    record = replace(
        record,
        decision="",
        refusals=record.refusals + 1,
        refusal=f"{by}: {event.text}",
        until=state.now + wait,
    )
    state.replan(record, event.id, Cause.REFUSED, f"its start was refused by {by}: {event.text}")


# ---- nodes, queues, server ----------------------------------------------------------------------


def _node(state: EngineState, event: NodeChanged) -> None:
    node = node_of(event.node)
    state.node_facts[node.name] = event.node
    before = state.plan.nodes.get(node.name)
    state.set_nodes([node])
    if node.state is NodeState.DOWN:
        state.down_since.setdefault(node.name, state.now)
    else:
        state.down_since.pop(node.name, None)
    if before is not None and node.state is NodeState.DRAIN and before.state is not NodeState.DRAIN:
        state.leave_node(node.name, event.id, Cause.ADMIN, f"node {node.name} was set offline")
    if before is not None and (
        before.features != node.features or before.cpus > node.cpus or before.mem > node.mem
    ):
        words = f"node {node.name} has other resources than before"
        state.make_way(event.id, Cause.ADMIN, words, FOREVER)
        state.leave_misfits(event.id, Cause.ADMIN, words)
    if node.state is NodeState.UP:
        state.seat_homeless(event.id, Cause.FREED, f"node {node.name} can be used")
    if before is None or (before.features, before.cpus, before.mem) != (node.features, node.cpus, node.mem):
        state.judge_again(event.id, f"node {node.name} is new or changed")


def _queue(state: EngineState, event: QueueChanged) -> None:
    before = state.queues.get(event.queue.name)
    state.queues[event.queue.name] = event.queue
    if (
        before is not None
        and before.started == event.queue.started
        and before.defaults == event.queue.defaults
    ):
        return
    cause = Cause.QUEUE if not event.queue.started else Cause.RELEASED
    words = f"queue {event.queue.name} was {'started' if event.queue.started else 'stopped'}"
    for record in [r for r in state.records.values() if r.facts.queue == event.queue.name]:
        if record.phase in (Phase.WAITING, Phase.BLOCKED):
            state.replan(record, event.id, cause, words)


def _server(state: EngineState, event: ServerChanged) -> None:
    state.server = event.server


def _reserve(state: EngineState, event: Reserve) -> None:
    if event.name in state.reservations:
        _lift_reservation(state, event.name)
    rows = [state.plan.row_of[name] for name in event.nodes if name in state.plan.row_of]
    missing = [name for name in event.nodes if name not in state.plan.row_of]
    if missing:
        state.alert(event.id, "reservation", f"reservation {event.name}: no node {', '.join(missing)}")
    end = event.end if event.end is not None else state.now + 2 * HORIZON
    start = max(event.start, state.now)
    if not rows or start >= end:
        return
    slot = state.new_slot(_BLOCK, end - start)
    shares = [ShareFacts(state.plan.name_of[row], 0) for row in rows]
    state.plan.fix(slot, start, takes_of(state.plan, _BLOCK, shares))
    state.reservations[event.name] = Reservation(event, slot)
    state.make_way(event.id, Cause.RESERVATION, f"reservation {event.name} was made", end)


def _unreserve(state: EngineState, event: Unreserve) -> None:
    if event.name in state.reservations:
        _lift_reservation(state, event.name)
        state.seat_homeless(event.id, Cause.FREED, f"reservation {event.name} was lifted")


def _lift_reservation(state: EngineState, name: str) -> None:
    reservation = state.reservations.pop(name)
    state.plan.drop(reservation.slot, state.now)


def _snapshot(state: EngineState, event: Snapshot) -> None:
    doubt = reconcile.doubt(state, event)
    if doubt:
        state.stale = doubt
        state.alert(event.id, "snapshot", f"a snapshot of the server was not believed: {doubt}")
        return
    state.stale = ""
    differences = reconcile.differences(state, event)
    for implied in differences:
        apply(state, implied)
    if differences and state.generation > 1:
        state.alert(event.id, "snapshot", reconcile.in_words(differences))


_HANDLERS: dict[type, Callable[[EngineState, Any], None]] = {
    JobQueued: _queued,
    JobAltered: _altered,
    JobHeld: _held,
    JobReleased: _released,
    JobDeleted: _gone,
    JobEnded: _gone,
    JobStarted: _started,
    RunAccepted: _accepted,
    RunRefused: _refused,
    NodeChanged: _node,
    QueueChanged: _queue,
    ServerChanged: _server,
    Reserve: _reserve,
    Unreserve: _unreserve,
    Snapshot: _snapshot,
}
