"""Nodes that a job avoids for a while, since its last starts there came to nothing."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.state import EngineState
from schedd.engine.place.booking_placement import find_booking
from schedd.model import Request

__all__ = ["ELSEWHERE_WITHIN_S", "MOST_NODES", "failed_on", "with_avoided"]

ELSEWHERE_WITHIN_S: Final = 3600
"""Nodes are avoided if others allow a start no more than so much later than the job may be tried again."""
MOST_NODES: Final = 32
"""Nodes of failed starts that are remembered of a job."""
_ALL_SUSPECT: Final = 4
"""Of a start on so many nodes at most, any may be at fault; of a larger one the first is suspected, on which
the server begins.
"""


def failed_on(before: tuple[str, ...], nodes: Iterable[str]) -> tuple[str, ...]:
    """The nodes that a job is to avoid after a start on ``nodes`` came to nothing, the first of them last."""
    names = list(dict.fromkeys(nodes))
    new = names[::-1] if len(names) <= _ALL_SUSPECT else names[:1]
    return (*(name for name in before if name not in new), *new)[-MOST_NODES:]


def with_avoided(state: EngineState, record: JobRecord, wanted: Request) -> Request:
    """``wanted`` with the nodes to avoid of an unplaced job: all on which its starts came to nothing, else
    the latest; none where other nodes allow no start soon enough.
    """
    failed = tuple(name for name in record.back_off.failed_on if name in state.plan.nodes)
    if not failed or find_booking(state, record) is not None:
        return wanted
    ready = max(state.now, record.facts.not_before or 0, record.back_off.until)
    pools = state.pools_for(record.facts, record.understood)
    for names in dict.fromkeys((failed, failed[-1:])):
        request = replace(wanted, avoids=frozenset(names))
        slot = state.new_slot(request, record.understood.walltime, pools)
        state.plan.set_ready(slot, ready)
        start = state.plan.probe(slot, state.now, ready + ELSEWHERE_WITHIN_S + 1)
        state.drop_slot(slot)
        if start >= 0:
            return request
    return wanted
