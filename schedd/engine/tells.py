"""What is written on jobs that wait: when and where they start, or why that is not known."""

import numpy as np

from schedd.engine.records import JobRecord, Phase
from schedd.engine.shares import shares_of
from schedd.engine.state import EngineState
from schedd.engine.words import remarks
from schedd.model import FOREVER
from schedd.plan.kernels.layout import START
from schedd.wire import Tell

__all__ = ["tell"]


def tell(state: EngineState, event: str) -> None:
    """Tell what is due to be told, the soonest start first, within the rate."""
    if state.now > state.told_at:
        state.told_at, state.told_then = state.now, 0
    while state.unheard and state.told_then < state.settings.tell_rate:
        record = state.records[next(iter(state.unheard))]
        del state.unheard[record.id]
        if record.phase in (Phase.WAITING, Phase.BLOCKED):
            state.told_then += 1
            state.decisions.append(_tell(state, record, event, None, (), state.why_text(record)))
    if state.told_then >= state.settings.tell_rate:
        return
    due = np.flatnonzero(state.tell_due)
    if not due.shape[0]:
        return
    starts = state.plan.tables.jobs[START, due]
    starts = np.where(starts < 0, FOREVER, starts)
    # Few of many are told at a time, so only they are put in order; should some of them have begun to run
    # since, those told are fewer this second, and others follow in the next.
    few = max(1, 2 * state.settings.tell_rate)
    if due.shape[0] > few:
        # All that start at the last of these moments are kept, so ties still go by slot.
        latest = np.partition(starts, few - 1)[few - 1]
        near = starts <= latest
        due, starts = due[near], starts[near]
    order = np.argsort(starts, kind="stable")
    for slot in due[order].tolist():
        record = state.by_slot[slot]
        if record is None or record.phase not in (Phase.WAITING, Phase.BLOCKED):
            state.tell_due[slot] = 0
        elif state.told_then < state.settings.tell_rate:
            state.tell_due[slot] = 0
            state.told_then += 1
            _tell_one(state, record, event)
        else:
            return


def _tell_one(state: EngineState, record: JobRecord, event: str) -> None:
    slot = record.slot
    start = state.plan.start(slot)
    state.told[slot] = start
    if start >= 0:
        nodes = tuple(share.node for share in shares_of(state.plan, slot))
        decision = _tell(state, record, event, start, nodes, "; ".join(remarks(record)))
    else:
        decision = _tell(state, record, event, None, (), state.why_text(record))
    state.decisions.append(decision)


def _tell(
    state: EngineState, record: JobRecord, event: str, start: int | None, nodes: tuple[str, ...], text: str
) -> Tell:
    return Tell(
        id=state.next_decision(),
        cause=event,
        time=state.now,
        job_id=record.id,
        planned_start=start,
        planned_end=None if start is None else start + record.understood.walltime,
        planned_nodes=nodes,
        text=text,
    )
