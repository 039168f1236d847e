"""The request of a job's slot in the plan: its own request with open gates and required node sets."""

from dataclasses import replace

from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.plan.columns import FIXED, SHARE, WHOLE
from schedd.plan.shapes import GATE, shape_key

__all__ = ["refresh_request"]


def refresh_request(state: EngineState, record: JobRecord) -> None:
    """Update the request of a job's slot to the present gates and node sets; the job keeps its placement."""
    slot, plan = record.slot, state.plan
    if slot < 0 or record.phase is Phase.RUNNING or record.understood.request is None:
        return
    before = plan.request(slot)
    request = replace(state.planned_request(record.facts, record.understood.request), avoids=before.avoids)
    if shape_key(before) == shape_key(request):
        return
    start, fixed = plan.start(slot), plan.state(slot) == FIXED
    gates = [name for name in plan.resource_columns if name.startswith(GATE)]
    takes = []
    for take in plan.takes(slot) if start >= 0 else ():
        amounts = list(take.amounts)
        if amounts[SHARE]:  # else it is a further unit on a node that the job has as a whole
            for gate in gates:
                needed = 0 if gate in request.passes else 1 if amounts[SHARE] >= WHOLE else take.units
                amounts[plan.resource_columns[gate]] = needed
        takes.append(replace(take, amounts=tuple(amounts)))
    plan.remove(slot, state.now)
    plan.set_request(slot, request)
    if start >= 0:
        (plan.fix if fixed else plan.place_at)(slot, start, takes)
