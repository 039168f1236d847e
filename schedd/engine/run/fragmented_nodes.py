"""Nodes whose free amounts are divided over parts (vnodes of a host), on none of which a job fits.

The plan counts only sums of nodes, so it starts such a job, and the start is refused. Without this module the
job would be shown as the next to start, keep its nodes from others, and be refused again and again until a
job there ends.
"""

from dataclasses import replace

from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.place.avoided_nodes import failed_on, with_avoided
from schedd.engine.place.placement import ready_time
from schedd.plan.columns import PLANNED

_HOLDING = (Phase.RUNNING, Phase.DISPATCHED)


def leave_fragmented_nodes(state: EngineState, record: JobRecord, nodes: tuple[str, ...]) -> JobRecord:
    """Let a waiting job that these nodes refused for their fragmentation avoid them, if others allow a start
    soon; else let it wait until the first job on them ends. Return its stored record.
    """
    request = record.understood.request
    if request is None:
        return record
    avoiding = failed_on(record.back_off.failed_on, nodes)
    elsewhere = apply_step(record, Step.PUT_OFF, back_off=replace(record.back_off, failed_on=avoiding))
    if with_avoided(state, elsewhere, request) is not request:
        return state.store_record(elsewhere)
    there = [state.by_slot[slot] for slot in state.plan.jobs_holding_nodes(nodes).tolist()]
    ends = {one.id: state.plan.end(one.slot) for one in there if one is not None and one.phase in _HOLDING}
    if not ends:
        return record
    state.awaited_ends[record.id] = dict.fromkeys(ends)
    until = max(record.back_off.until, min(ends.values()))
    return state.store_record(
        apply_step(record, Step.PUT_OFF, back_off=replace(record.back_off, until=until))
    )


def retry_after_ends(state: EngineState) -> None:
    """Let the jobs that wait for the end of another job start as soon as one of these has ended."""
    for job_id, others in list(state.awaited_ends.items()):
        record = state.records.get(job_id)
        if record is not None and record.phase is Phase.WAITING and record.back_off.until > state.now:
            if all(_is_holding(state, other) for other in others):
                continue
            record = apply_step(record, Step.PUT_OFF, back_off=replace(record.back_off, until=state.now))
            state.store_record(record)
            if record.slot >= 0 and state.plan.state(record.slot) == PLANNED:
                state.plan.set_ready(record.slot, ready_time(state, record))
                state.plan.mark_for_search(record.slot)
        del state.awaited_ends[job_id]


def _is_holding(state: EngineState, job: str) -> bool:
    record = state.records.get(job)
    return record is not None and record.phase in _HOLDING
