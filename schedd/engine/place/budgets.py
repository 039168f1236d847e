"""Replanning after changes of account balances, periods and prices."""

from schedd.engine.facts.records import Cause, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.place.costs import move_earlier_affordably, over_limit
from schedd.engine.place.placement import plan_job, replan
from schedd.engine.rank.promises import record_move
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.model import WaitingFor
from schedd.plan.columns import PLANNED


def apply_cost_limits(state: EngineState, event: str) -> None:
    """Seek earlier placements for jobs with a cost limit, and retry those without a placement."""
    state.cost_check_due = state.now + state.settings.priority_every
    for job_id in list(state.capped):
        record = state.records[job_id]
        if record.phase is Phase.RUNNING:
            del state.capped[job_id]
        elif record.phase is Phase.DISPATCHED:
            continue  # the limit holds again if its start fails
        elif isinstance(record.answer, WaitingFor) and record.answer.kind == "cost":
            plan_job(state, record, event, Cause.FREED, "prices changed")
        elif record.slot >= 0 and state.plan.state(record.slot) == PLANNED:
            with JobErrorGuard(state, job_id, event):
                if over_limit(state, record):
                    replan(state, record, event, Cause.ADMIN, "it would cost more than its limit")
                    continue
                old = move_earlier_affordably(state, record, event)
                if old >= 0:
                    words = "an earlier placement within its cost limit is free"
                    record_move(
                        state, event, Cause.FREED, words, record.slot, old, state.plan.start(record.slot)
                    )
    state.next_due = None
