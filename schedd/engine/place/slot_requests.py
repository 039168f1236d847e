"""The request of a job's slot in the plan: its own request with open gates and required node sets."""

from collections.abc import Mapping
from dataclasses import replace

from schedd.engine.facts.job_requests import (
    ParsedRequest,
)
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.shares import with_gates
from schedd.engine.facts.state import EngineState
from schedd.model import Request
from schedd.plan.columns import FIXED
from schedd.plan.gates import COUNTED_GATES, GATE
from schedd.plan.records import RequestVariant
from schedd.plan.shapes import shape_key
from schedd.wire.quick_init import quick_replace


def read_variant(
    state: EngineState, record: JobRecord, understood: ParsedRequest | None = None, *, in_slot: bool = False
) -> tuple[ParsedRequest, RequestVariant | None]:
    """Return the request of an unplaced job in the form that is noted as chosen: parsed, and as it would be
    planned. None: it cannot be read. ``understood``: the parsed request, if it is known. ``in_slot``: its
    slot has the request of this form.
    """
    understood = understood or state.read_request(record.facts)
    if understood.request is None:
        return understood, None
    slot = record.slot
    if in_slot and understood is record.understood:
        return understood, state.plan.variant(slot)
    wanted, pools = state.request_and_pools(record.facts, understood, understood.request)
    avoids = state.plan.request(slot).avoids
    wanted = quick_replace(wanted, avoids=avoids) if avoids != wanted.avoids else wanted
    return understood, RequestVariant(wanted, understood.walltime, pools)


def use_variant(
    state: EngineState, record: JobRecord, understood: ParsedRequest, variant: RequestVariant
) -> JobRecord:
    """Return the record of an unplaced job with another request, and fit its slot."""
    if understood is not record.understood and understood != record.understood:
        record = apply_step(record, Step.READ, facts=record.facts, understood=understood)
    state.plan.set_variant(record.slot, variant, state.now)
    return record


def read_again(state: EngineState, record: JobRecord) -> JobRecord:
    """Return the record of an unplaced job, and fit its slot, after another choice for its request."""
    understood = state.read_request(record.facts)
    if understood.request is None:
        return record
    if understood != record.understood:
        record = apply_step(record, Step.READ, facts=record.facts, understood=understood)
        state.plan.set_duration(record.slot, understood.walltime, state.now)
    refresh_request(state, record)
    state.refit(record)
    return record


def refresh_request(state: EngineState, record: JobRecord) -> None:
    """Update the request of a job's slot to the present gates and node sets; the job keeps its placement.

    For a running job, update only its amounts at the gates of cpus, gpus and memory.
    """
    slot, plan = record.slot, state.plan
    if slot >= 0 and record.phase is Phase.RUNNING:
        _refresh_run(state, record)
        return
    if slot < 0 or record.understood.request is None:
        return
    before = plan.request(slot)
    request = replace(state.planned_request(record.facts, record.understood.request), avoids=before.avoids)
    if shape_key(before) == shape_key(request):
        return
    start, fixed = plan.start(slot), plan.state(slot) == FIXED
    gates = [name for name in plan.resource_columns if name.startswith(GATE)]
    placed = plan.takes(slot) if start >= 0 else ()
    takes = [with_gates(plan, take, request.passes, gates) for take in placed]
    plan.remove(slot, state.now)
    plan.set_request(slot, request)
    if start >= 0:
        (plan.fix if fixed else plan.place_at)(slot, start, takes)


def _refresh_run(state: EngineState, record: JobRecord) -> None:
    plan, slot = state.plan, record.slot
    gates = [name for name in plan.resource_columns if name.startswith(COUNTED_GATES)]
    start = plan.start(slot)
    if not gates or start < 0:
        return
    passes = state.open_gates(record.facts)
    before = plan.takes(slot)
    takes = [with_gates(plan, take, passes, gates) for take in before]
    if takes != list(before):
        plan.remove(slot, state.now)
        plan.fix(slot, start, takes)


def slot_for(
    state: EngineState, understood: ParsedRequest, planned: Request, pools: Mapping[str, int]
) -> int:
    """Return a new slot of the plan for a job's parsed request, as it is planned."""
    slot = state.new_slot(planned, understood.walltime, pools)
    if understood.assumed:
        state.assumed.add(slot)
    return slot
