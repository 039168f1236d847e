"""Jobs that a restart of the server requeued (`qterm -t immediate`): neither they nor their nodes failed.

They go before jobs that have waited for less time, as far as the promises of these allow.
"""

import numpy as np
import numpy.typing as npt

from schedd.array_ids import submission_order
from schedd.engine.component.placement_hooks import component_confinement
from schedd.engine.facts.records import Cause, JobRecord, Phase, submission_key
from schedd.engine.facts.state import EngineState
from schedd.engine.rank.promises import make_promise, record_plan_moves
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.engine.rank.ranking import move_past_lower_ranks
from schedd.model import FOREVER
from schedd.plan.columns import PLANNED, Ints


def note_requeue_by_restart(state: EngineState, record: JobRecord) -> bool:
    """Return whether a job that is back in its queue ran when the server was restarted a moment ago, and note
    it for `restore_turns`.
    """
    restarted = state.server_restarted
    soon = state.now - restarted <= state.settings.server_grace
    if restarted < 0 or not soon or record.phase is not Phase.RUNNING or record.run.started > restarted:
        return False
    since = record.eligible_since if record.eligible_since >= 0 else record.facts.submitted
    state.requeued_by_restart[record.id] = since
    return True


def restore_turns(state: EngineState, event: str) -> None:
    """Move each requeued job before the jobs that came after it, once, as soon as it has a planned start."""
    waits_since = state.waits_since.copy()
    for job_id, since in state.requeued_by_restart.items():
        record = state.records.get(job_id)
        if record is not None and record.slot >= 0:
            waits_since[record.slot] = since
    turns = sorted(state.requeued_by_restart.items(), key=lambda one: (one[1], submission_order(one[0])))
    for job_id, since in turns:
        record = state.records.get(job_id)
        over = state.now - state.server_restarted > state.settings.server_grace
        if record is not None and record.phase is Phase.WAITING and record.slot >= 0 and not over:
            if state.plan.state(record.slot) != PLANNED:
                continue  # its nodes are not up yet
            with JobErrorGuard(state, job_id, event):
                _move_before(state, event, record, _jobs_after(state, record, waits_since, since))
        del state.requeued_by_restart[job_id]


def _jobs_after(
    state: EngineState, record: JobRecord, waits_since: Ints, since: int
) -> npt.NDArray[np.bool_]:
    """Return by slot whether a job came after this one, which waited ``since``; of jobs that were found at
    the same time, those submitted later; of the same second, those with a larger number.
    """
    later: npt.NDArray[np.bool_] = waits_since > since
    turn = submission_key(record)
    for slot in np.flatnonzero(waits_since == since).tolist():
        other = state.by_slot[slot]
        later[slot] = other is not None and submission_key(other) > turn
    return later


def _move_before(state: EngineState, event: str, record: JobRecord, later: npt.NDArray[np.bool_]) -> None:
    """Move a job before jobs of no higher priority among those that are ``later``, (n,) bool by slot."""
    slot, plan = record.slot, state.plan
    if plan.start(slot) <= state.now or record.id in state.capped:
        return
    if component_confinement(state, record) is not None:
        return
    rank = np.where(later & (state.rank <= state.rank[slot]), 0, 2)
    rank[slot] = 1
    moves = move_past_lower_ranks(plan, slot, rank, state.bound, state.now)
    if not len(moves):
        return
    state.next_due = None
    state.promise[slot] = state.bound[slot] = FOREVER  # it was made for the later start
    make_promise(state, record, plan.start(slot))
    words = f"job {record.id}, which a restart of the server requeued, goes before jobs that came after it"
    record_plan_moves(state, event, Cause.OUTAGE, words, moves)
