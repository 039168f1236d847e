"""Admission by deadline.

A deadline is accepted if the job, as planned, ends by it: from then on the latest start that meets it is a
bound of the plan, like a promise. Only the causes that may break a promise may break it. A refused deadline
is accepted later, as soon as the plan meets it.
"""

from collections import Counter

import numpy as np

from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.rank.promises import loosen_bound, make_promise, note_replaced_promise, slack_start
from schedd.features.deadlines.lost import follow_settings
from schedd.features.deadlines.settings import DeadlineSettings
from schedd.features.deadlines.state import AcceptedDeadline, DeadlinesState, deadlines_state
from schedd.model import FOREVER
from schedd.plan.columns import PLANNED
from schedd.policy.priority import latest_start
from schedd.wire import JobDeleted, JobEnded


def guaranteed_start(state: EngineState, record: JobRecord, planned: int) -> int:
    """Return the latest start that meets the accepted deadline of a job; FOREVER: none is accepted.

    A deadline that is new, or was altered, is accepted or refused here.
    """
    part, slot = deadlines_state(state), record.slot
    deadline = int(state.due_by[slot])
    if deadline >= FOREVER and not (record.id in part.accepted or record.id in part.refused):
        return FOREVER
    settings = state.site.part(DeadlineSettings)
    latest = latest_start(deadline, record.understood.walltime) - settings.margin
    known = part.accepted.get(record.id)
    if known is not None:
        if known.deadline == deadline:
            return latest if planned <= latest else FOREVER
        _restore_promise(state, record, known, planned)
    if deadline >= FOREVER or not settings.admits(record.facts):
        _forget(part, record.id)
        return FOREVER
    if planned > latest:
        if part.refused.get(record.id) != deadline:
            part.refused[record.id] = deadline
            _count(part, "refused")
            state.update_due[slot], state.updates_marked = state.publishes_starts, True
        return FOREVER
    promised = int(state.promise[slot])
    if not planned <= promised < FOREVER:
        promised = slack_start(state, slot, planned)
    _forget(part, record.id)
    part.accepted[record.id] = AcceptedDeadline(deadline, state.now, promised)
    _count(part, "accepted")
    state.update_due[slot], state.updates_marked = state.publishes_starts, True
    return latest


def _restore_promise(state: EngineState, record: JobRecord, known: AcceptedDeadline, planned: int) -> None:
    """Promise a job its start from before its deadline was accepted: the deadline was altered."""
    part, slot = deadlines_state(state), record.slot
    del part.accepted[record.id]
    part.published = None
    if known.promised_before > state.promise[slot]:
        note_replaced_promise(state, record, state.at_event, "its deadline was altered")
    state.promise[slot] = max(int(state.promise[slot]), known.promised_before)
    loosen_bound(state, record)
    present = state.records[record.id]
    if present.risk is not None and 0 <= planned <= state.promise[slot]:
        state.store_record(apply_step(present, Step.RISKED, lost=None, risk=None))


def guarantee_met_deadlines(state: EngineState, _event: str) -> None:
    """Accept refused deadlines that the plan meets since jobs moved in this batch, and guarantee accepted
    ones again that were at risk. All jobs are examined after a change of the policy, and if the batch before
    was not examined; otherwise only moved ones.
    """
    part = deadlines_state(state)
    moved_only = part.examined == state.generation - 1 and not part.policy_changed
    if part.policy_changed:
        part.policy_changed = False
        _judge_waiting_jobs(state)
    any_judged = bool(part.refused or part.accepted)
    if moved_only or state.moves or not any_judged:
        part.examined = state.generation
    if not any_judged or not state.moves:
        return
    plan = state.plan
    if moved_only:
        moved = [changes.slots for changes in state.moves]
        slots = moved[0] if len(moved) == 1 else np.concatenate(moved)
        if slots.shape[0] == 1 and state.due_by[slots[0]] >= FOREVER:  # one arrival without a deadline
            return
        slots = slots[state.due_by[slots] < FOREVER]
        if slots.shape[0]:
            slots = np.unique(slots)
            slots = slots[plan.jobs.states[slots] == PLANNED]
    else:
        slots = plan.planned()
        slots = slots[state.due_by[slots] < FOREVER]
    if not slots.shape[0]:
        return
    slots = slots[np.argsort(plan.starts(slots), kind="stable")]
    latest = state.due_by[slots] - plan.jobs.durations[slots] - state.site.part(DeadlineSettings).margin
    met = plan.starts(slots) <= latest
    # The promise of an accepted job whose guarantee was broken is later than that.
    loose = latest < state.promise[slots]
    for slot, without_guarantee in zip(slots[met].tolist(), loose[met].tolist(), strict=True):
        record = state.by_slot[slot]
        if record is None or record.phase is not Phase.WAITING:
            continue
        if record.id in part.refused or (without_guarantee and record.id in part.accepted):
            make_promise(state, record, plan.start(slot))


def note_changed_policy(state: EngineState) -> None:
    """Let the deadlines of all waiting jobs be judged at the end of the batch: admission may have been opened
    to them, or the margin may be smaller.
    """
    follow_settings(state)
    deadlines_state(state).policy_changed = True


def _judge_waiting_jobs(state: EngineState) -> None:
    """Accept or refuse the deadlines of planned jobs that are not accepted yet, where admission is open."""
    part, settings = deadlines_state(state), state.site.part(DeadlineSettings)
    part.published = None
    if not settings.admission:
        return
    slots = state.plan.planned()
    for slot in slots[state.due_by[slots] < FOREVER].tolist():
        record = state.by_slot[slot]
        if record is None or record.phase is not Phase.WAITING or record.id in part.accepted:
            continue
        if settings.admits(record.facts):
            make_promise(state, record, state.plan.start(slot))


def withdraw_admission(state: EngineState, record: JobRecord) -> None:
    """Forget the admission of a job whose promise ended: it is judged again when it is eligible."""
    _forget(deadlines_state(state), record.id)


def count_outcome(state: EngineState, event: JobDeleted | JobEnded) -> None:
    """Count whether an accepted deadline was met by a job that is gone; of a deleted one, if it was not."""
    part = deadlines_state(state)
    known = part.accepted.get(event.job_id)
    if known is not None and event.time > known.deadline:
        _count(part, "missed")
    elif known is not None and isinstance(event, JobEnded):
        _count(part, "kept")
    _forget(part, event.job_id)


def _forget(part: DeadlinesState, job: str) -> None:
    if part.accepted.pop(job, None) is not None or part.refused.pop(job, None) is not None:
        part.published = None
    part.refused.pop(job, None)


def _count(part: DeadlinesState, outcome: str) -> None:
    part.counts = dict(Counter(part.counts) + Counter([outcome]))
    part.published = None
