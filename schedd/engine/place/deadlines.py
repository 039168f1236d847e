"""Removal of jobs that cannot meet their deadlines, if the site holds such jobs."""

from schedd.engine.component import is_planned_on_hold
from schedd.engine.facts.records import Cause, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import replan
from schedd.engine.rank.deadlines import lost_deadline, lost_deadline_slots
from schedd.engine.rank.quarantine import JobErrorGuard

__all__ = ["remove_lost_deadlines"]


def remove_lost_deadlines(state: EngineState, event: str) -> None:
    """Remove planned jobs that can no longer end by their deadlines; jobs that are about to start stay."""
    for slot in lost_deadline_slots(state):
        record = state.by_slot[slot]
        if record is None or record.phase is not Phase.WAITING or lost_deadline(state, record) is None:
            continue
        with JobErrorGuard(state, record.id, event):
            if not is_planned_on_hold(state, record):
                state.frees += state.plan.start(slot) >= 0
                replan(state, record, event, Cause.ADMIN, "it can no longer end by its deadline")
