"""Nodes that a job avoids for a while after failed starts on them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from schedd.engine.component.placement_hooks import component_confinement
from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.state import EngineState
from schedd.model import Request

ELSEWHERE_WITHIN_S: Final = 3600
"""A job avoids nodes only if other nodes allow a start within this time after the end of its backoff."""
MOST_NODES: Final = 32  # nodes of failed starts that are remembered per job
ALL_SUSPECT: Final = 4
"""A failed start makes all its nodes suspect if there are at most this many; else only the first one, where
the job's script runs."""


def failed_on(before: tuple[str, ...], nodes: Iterable[str]) -> tuple[str, ...]:
    """Return the nodes to avoid after a failed start on ``nodes``, the most suspected last."""
    names = list(dict.fromkeys(nodes))
    new = names[::-1] if len(names) <= ALL_SUSPECT else names[:1]
    return (*(name for name in before if name not in new), *new)[-MOST_NODES:]


def with_avoided(state: EngineState, record: JobRecord, wanted: Request) -> Request:
    """Return the ``wanted`` request with the nodes that an unplaced job avoids: all nodes of its failed
    starts, or only the latest. Return it unchanged where the other nodes allow no start soon enough.
    """
    failed = tuple(name for name in record.back_off.failed_on if name in state.plan.nodes)
    if not failed or component_confinement(state, record) is not None:
        return wanted
    ready = max(state.now, record.facts.not_before or 0, record.back_off.until)
    pools = state.pools_for(record.facts, record.understood)
    for names in dict.fromkeys((failed, failed[-1:])):
        request = replace(wanted, avoids=frozenset(names))
        slot = state.new_slot(request, record.understood.walltime, pools)
        try:
            state.plan.set_ready(slot, ready)
            start = state.plan.probe(slot, state.now, ready + ELSEWHERE_WITHIN_S + 1)
        finally:
            state.drop_slot(slot)
        if start >= 0:
            return request
    return wanted
