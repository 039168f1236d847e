"""Outcomes of run decisions: accepted, rejected, or timed out."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np

from schedd.dialect import find_dialect
from schedd.engine.component.job_hooks import note_busy_refusal
from schedd.engine.facts.bookkeeping import Bookkeeping
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.shares import planned_shares
from schedd.engine.facts.state import EngineState
from schedd.engine.machine.failing_nodes import note_failure
from schedd.engine.place.avoided_nodes import failed_on
from schedd.engine.place.conflicts import delay_late_jobs, may_be_delayed
from schedd.engine.place.placement import (
    move_later,
    ready_time,
    replan_displaced,
    replan_jobs,
    replan_overcommitted,
)
from schedd.engine.rank.promises import record_move
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.engine.run.altered_jobs import is_unchanged, replan_with_facts
from schedd.engine.run.fragmented_nodes import leave_fragmented_nodes
from schedd.engine.run.jobs import job_nodes
from schedd.engine.run.start_outages import (
    end_start_outage,
    note_refused_run,
    note_refusing_nodes,
    outage_retry_wait,
)
from schedd.model import FOREVER, NodeState
from schedd.plan.columns import PLANNED
from schedd.wire import (
    AccountMoved,
    AccountSet,
    BagEndReported,
    BatchSkipped,
    Book,
    BookingStep,
    ClockSet,
    ContactChanged,
    DeadlinesForecast,
    Event,
    LedgerStored,
    PlanChosen,
    PlanImproved,
    PlanningHeld,
    PlanningReleased,
    PolicyChanged,
    PowerRequested,
    Reserve,
    ResourceCounted,
    RunAccepted,
    RunRefused,
    RunsRead,
    StartsExpected,
    TransferRelease,
    TransferRequest,
    TransferWithdrawal,
    Unreserve,
    WattsRead,
)

_PROMPT = 10  # a daemon that ran all the time voids a decision at most this many seconds after its expiry
_SILENCE = "its run decision was not answered"
_SILENCES = "run decisions were not answered"


_OF_OTHERS: Final = frozenset(
    (
        ClockSet,
        ContactChanged,
        Reserve,
        Unreserve,
        ResourceCounted,
        PlanImproved,
        PlanChosen,
        PolicyChanged,
        PowerRequested,
        WattsRead,
        PlanningHeld,
        PlanningReleased,
        BatchSkipped,
        TransferRequest,
        TransferRelease,
        TransferWithdrawal,
        StartsExpected,
        DeadlinesForecast,
        AccountSet,
        AccountMoved,
        LedgerStored,
        RunsRead,
        Book,
        BookingStep,
        BagEndReported,
    )
)
"""Events that do not come from the adapter."""


def on_run_accepted(state: EngineState, event: RunAccepted) -> None:
    """Handle an accepted run decision; the start itself is reported later."""
    record = state.records.get(event.job_id)
    if (
        record is not None
        and record.phase is Phase.DISPATCHED
        and record.attempt.decision == event.decision_id
    ):
        end_start_outage(state)
        expires = state.now + state.settings.start_wait
        taken = replace(record.attempt, accepted=True, expires=expires)
        state.store_record(apply_step(record, Step.ACCEPTED, attempt=taken))


def on_run_refused(state: EngineState, event: RunRefused) -> None:
    """Handle a rejected run decision. After "server busy" the job retries on the same nodes; otherwise it
    backs off, longer each time, and tries other nodes. After an outage, which says nothing of the job or its
    nodes, it retries there, and its backoff grows with the length of the outage.
    """
    unresolved = state.unresolved.get(event.job_id)
    if unresolved is not None and unresolved.decision == event.decision_id:
        del state.unresolved[event.job_id]
    record = state.records.get(event.job_id)
    if record is None or record.phase is not Phase.DISPATCHED or record.attempt.decision != event.decision_id:
        return
    shares = planned_shares(state.plan, record.slot)
    _handle_refusal(state, event, record)
    if len(shares) == 1 and find_dialect(record.facts.family).is_busy(event.code):
        with Bookkeeping(state, record.id, "that its node is busy"):
            note_busy_refusal(state, record, shares[0], event.id)


def _handle_refusal(state: EngineState, event: RunRefused, record: JobRecord) -> None:
    settings, dialect = state.settings, find_dialect(record.facts.family)
    by = "the adapter" if event.code == 0 else f"the server (code {event.code})"
    text = f"{by}: {event.text}"
    words = f"its start was refused by {text}"
    before = replace(record.back_off, refusal=text)
    note_refused_run(state, event, dialect, text)
    if dialect.is_busy(event.code) and before.busy < settings.busy_retries and is_unchanged(state, record):
        back_off = replace(before, busy=before.busy + 1, until=state.now + settings.busy_wait)
        record = apply_step(record, Step.REFUSED, back_off=back_off)
        _undo_dispatch(state, record)
        _retry_in_place(state, record, event.id, Cause.REFUSED, words)
        return
    if event.outage and is_unchanged(state, record):
        back_off = replace(before, until=state.now + outage_retry_wait(state))
        record = apply_step(record, Step.REFUSED, back_off=back_off)
        _undo_dispatch(state, record)
        _retry_in_place(state, record, event.id, Cause.OUTAGE, words)
        return
    moved_on = event.code == 0 or dialect.is_changed(event.code)  # the job and its nodes are fine
    first = settings.check_wait if moved_on else settings.refusal_wait
    most = settings.refusal_most
    if dialect.is_refused_by_hook(event.code):
        most = min(most, settings.hook_refusal_most)
    until = state.now + min(most, first << min(before.refusals, 16))
    back_off = replace(before, busy=0, refusals=before.refusals + 1, until=until)
    if not moved_on:  # perhaps another node takes it
        nodes = job_nodes(state, record)
        back_off = replace(back_off, failed_on=failed_on(before.failed_on, nodes))
        if dialect.is_refused_by_node(event.code):
            with Bookkeeping(state, record.id, "that its nodes refused it"):
                note_failure(state, record, nodes, event.id)
            note_refusing_nodes(state, event, text)
    here = job_nodes(state, record)
    record = apply_step(record, Step.REFUSED, back_off=back_off)
    _undo_dispatch(state, record)
    if event.fragmented:
        record = leave_fragmented_nodes(state, record, here)
    replan_with_facts(state, event.id, record, record.facts, Cause.REFUSED, words)


def note_event_lag(state: EngineState, events: Iterable[Event]) -> None:
    """Note how far the planner is behind the adapter's events: it handles one batch after another."""
    times = [event.time for event in events if type(event) not in _OF_OTHERS]
    state.event_lag = max(0, state.now - max(times)) if times else 0


def note_adapter_contact(state: EngineState, events: Iterable[Event]) -> None:
    """Note that the adapter sent events; ``back``: its first contact after decisions expired unseen."""
    grace = state.settings.answer_grace
    first, last = state.adapter_returned - grace, state.now - _PROMPT - grace
    for job_id in state.dispatched:
        if first <= state.records[job_id].attempt.expires < last:
            if any(type(event) not in _OF_OTHERS for event in events):
                state.adapter_returned = state.now
            return


def void_unanswered(state: EngineState, event: str) -> None:
    """Void run decisions without an answer; their jobs keep their placements.

    On those nodes they do no harm if the server carried out the decision after all.
    """
    silent, kept = 0, list[int]()
    open_from = max(state.now, state.adapter_returned) - state.settings.answer_grace
    for job_id in list(state.dispatched):
        record = state.records.get(job_id)
        if record is None or record.phase is not Phase.DISPATCHED:
            del state.dispatched[job_id]
            continue
        if record.attempt.expires >= open_from:
            continue  # most, in each batch: as `void_after` says
        if state.now - state.event_lag <= void_after(state, record):
            continue  # its outcome may be among events that wait to be handled
        silent += 1
        with JobErrorGuard(state, job_id, event):
            record = apply_step(record, Step.VOID)
            _undo_dispatch(state, record)
            if is_unchanged(state, record):
                record = apply_step(record, Step.PUT_OFF, back_off=replace(record.back_off, until=0))
                _retry_in_place(state, record, event, Cause.OUTAGE, _SILENCE, kept)
            else:
                replan_with_facts(state, event, record, record.facts, Cause.OUTAGE, _SILENCE)
    late = [slot for slot in kept if state.plan.state(slot) == PLANNED and state.plan.start(slot) < state.now]
    if late:
        gone, old = delay_late_jobs(state, np.array(late, np.int64), event, Cause.OUTAGE, _SILENCES)
        replan_displaced(state, gone, old, event, Cause.OUTAGE, _SILENCES)
    if silent:
        count = "1 start was" if silent == 1 else f"{silent} starts were"
        state.alert(event, "unanswered", f"{count} sent to the adapter and not answered in time")


def void_after(state: EngineState, record: JobRecord) -> int:
    """Return until when the outcome of a run decision may still arrive; FOREVER: unknown.

    A daemon that returns after that time voids nothing before the adapter's first contact, since the adapter
    may have carried out the decision long ago, and for ``answer_grace`` after it.
    """
    grace = state.settings.answer_grace
    due = record.attempt.expires + grace
    if state.now <= due + _PROMPT and state.adapter_returned <= due:
        return due
    return max(due, state.adapter_returned + grace) if state.adapter_returned > due else FOREVER


def _undo_dispatch(state: EngineState, record: JobRecord) -> None:
    """Return a dispatched job to the queue; its placement gets the job's own length again."""
    state.dispatched.pop(record.id, None)
    state.plan.unfix(record.slot)
    state.store_record(record)
    # drop the extension granted while its start was unknown
    state.plan.set_duration(record.slot, record.understood.walltime, state.now)


def _retry_in_place(
    state: EngineState, record: JobRecord, event: str, cause: Cause, words: str, kept: list[int] | None = None
) -> None:
    """Keep a job's placement, to start it there when it is due and its backoff is over. Under a queue policy,
    where no job keeps a placement, it returns to the queue.

    A placement that was lost while the decision was pending (to another job or a reservation, or by a change
    of the node) cannot be kept: then the job is replanned. A placement that ends before the job may start
    again moves to that time, and the jobs in conflict are delayed. If many jobs retry, a job that may be
    delayed is added to ``kept`` instead, and all these are moved together.
    """
    if state.policy is not None:
        replan_with_facts(state, event, record, record.facts, cause, words)
        return
    plan, slot = state.plan, record.slot
    plan.set_ready(slot, ready_time(state, record))
    state.store_record(record)
    here = np.array([slot], np.int64)
    if slot in plan.misplaced() or not all(
        _may_stay(state, plan.node_names[t.row]) for t in plan.takes(slot)
    ):
        replan_jobs(state, here, event, cause, words)
        return
    if kept is not None and may_be_delayed(state, slot):
        kept.append(slot)
        return
    again_at = max(state.now, record.back_off.until)
    if plan.end(slot) <= again_at:
        before, others = plan.start(slot), f"the start of job {record.id} is tried again later"
        gone, old = move_later(state, slot, again_at, event, cause, others)
        if plan.state(slot) == PLANNED:
            record_move(state, event, cause, words, slot, before, again_at)
        replan_displaced(state, gone, old, event, cause, others)
        if plan.state(slot) != PLANNED or plan.start(slot) != again_at:
            return
    replan_overcommitted(state, here, event, cause, words)


def _may_stay(state: EngineState, node: str) -> bool:
    """Return whether planned jobs may stay on the node: it is usable, or down within its grace."""
    return state.plan.nodes[node].state is NodeState.UP or node in state.down_since
