"""Jobs handed over to this cluster by a federation: submitted on hold, then let run, or taken back.

A transfer has a name that its sender chose. Asking for the same step again changes nothing, so every request
may be repeated; a transfer that was taken back before it came never comes. A job on hold cannot start: who
hands it over may do so at several clusters, and lets it run at one.
"""

from dataclasses import replace
from typing import Final

from schedd.engine.facts.arrays import array_id, array_index, hash_array
from schedd.engine.facts.records import Cause, Phase, TransferPhase, TransferRecord
from schedd.engine.facts.state import EngineState
from schedd.engine.place.held_placements import expired_placements
from schedd.engine.place.placement import replan
from schedd.wire import (
    BagEndReported,
    JobDeleted,
    JobEnded,
    SubmissionFacts,
    TransferDecision,
    TransferRelease,
    TransferRequest,
    TransferStep,
    TransferStepDone,
    TransferWithdrawal,
)

__all__ = [
    "bag_ends",
    "done",
    "end_kept_places",
    "forget_old_transfers",
    "note_end",
    "release",
    "submit_held",
    "withdraw",
]

_KEPT: Final = 7 * 86_400
"""Seconds for which what became of a transfer can be asked after."""
_OVER: Final = ("withdrawn", "refused")


def submit_held(state: EngineState, event: TransferRequest) -> None:
    """A new job for the server; one that is known is not submitted again."""
    if event.transfer in state.transfers:
        return
    record = TransferRecord(
        event.transfer,
        event.submission.user,
        event.by,
        "submitting",
        state.now,
        keep_until=event.keep_until,
        booked=event.booked,
        booking=event.booking,
        tasks=event.submission.tasks,
        first_task=int(event.submission.array.partition("-")[0] or 0),
    )
    _decide(state, event.id, record, "submit", event.submission)


def release(state: EngineState, event: TransferRelease) -> None:
    """The job may start: its hold is to be released."""
    record = state.transfers.get(event.transfer)
    if record is not None and record.phase == "held":
        _decide(state, event.id, replace(record, phase="releasing", release_requested=True), "release")


def withdraw(state: EngineState, event: TransferWithdrawal, why: str = "") -> None:
    """The job is not wanted any more; one that never came is remembered, so that it does not come late.

    ``why`` is told to who handed it over.
    """
    record = state.transfers.get(event.transfer)
    if record is None:
        state.transfers[event.transfer] = TransferRecord(event.transfer, "", event.by, "withdrawn", state.now)
    elif record.end == "ended" or (record.end and record.release_requested):
        return  # it has run, or may have: there is nothing left to take back
    elif record.phase == "refused" or record.end:
        _put(state, replace(record, phase="withdrawn"))
    elif event.forced and record.release_requested:
        if not record.forced or record.phase not in ("withdrawing", "withdrawn"):
            gone = replace(record, phase="withdrawing", forced=True)
            _decide(state, event.id, gone, "delete", text=why)
    elif record.phase not in ("withdrawing", "withdrawn"):
        _decide(state, event.id, replace(record, phase="withdrawing"), "withdraw", text=why)


def done(state: EngineState, event: TransferStepDone) -> None:
    """What became of a step; of an earlier one than the last asked for, only the job's id is news."""
    record = state.transfers.get(event.transfer)
    if record is None:
        return
    if event.server_job:
        record = replace(record, server_job=event.server_job)
        state.transfer_by_job[event.server_job] = event.transfer
    if event.decision_id != record.decision:
        state.transfers[event.transfer] = record
        return
    phase: TransferPhase
    match event.step:
        case "submit":
            phase = "held" if event.done else "refused"
        case "release":
            phase = "released" if event.done else "held"
        case "withdraw":
            back = event.done and record.end != "ended" and not record.tasks_ended
            phase = "withdrawn" if back else "released" if record.release_requested else "held"
        case "delete":
            phase = "withdrawn" if event.done or record.end else "released"
    text = (record.text if phase == "withdrawn" else "") if event.done else event.text
    _put(state, replace(record, phase=phase, decision="", code=event.code, text=text))
    if phase == "held" and record.keep_until > state.now:
        _keep_place(state, record, event.id)


def _keep_place(state: EngineState, record: TransferRecord, event: str) -> None:
    """The job has a place from now on; one that the server has not shown yet, when it does."""
    state.kept_places[record.server_job] = record.keep_until
    job = state.records.get(record.server_job)
    if job is not None and job.phase is Phase.BLOCKED:
        replan(state, job, event, Cause.ARRIVED, "a place is kept for it while it is on hold")


def end_kept_places(state: EngineState, event: str) -> None:
    """Places that were kept long enough are free again."""
    for job in expired_placements(state):
        if job.phase in (Phase.WAITING, Phase.BLOCKED):
            replan(state, job, event, Cause.ARRIVED, "its place was kept for it long enough")


def bag_ends(state: EngineState, event: BagEndReported) -> None:
    """An array is a share of something larger, and that ends then: repairs rank its jobs by it, where the
    site has arrays repaired as wholes.
    """
    state.bag_ends[event.array] = event.end
    state.bag_end[state.array_hash == hash_array(event.array)] = event.end


def note_end(state: EngineState, event: JobEnded | JobDeleted) -> None:
    """A job that was handed over is gone from the server."""
    name = state.transfer_by_job.get(event.job_id) or state.transfer_by_job.get(array_id(event.job_id))
    record = state.transfers.get(name) if name is not None else None
    if record is None or record.phase in _OVER:
        return
    if record.tasks:
        _task_gone(state, record, event)
    elif isinstance(event, JobEnded):
        _put(state, replace(record, end="ended", exit_status=event.exit_status))
    elif record.phase != "withdrawing":
        _put(state, replace(record, end="deleted"))


def _task_gone(state: EngineState, record: TransferRecord, event: JobEnded | JobDeleted) -> None:
    """One job of an array is gone; the array is over with the last of them."""
    over = int(record.tasks_over or "0", 16)
    bit = 1 << max(0, array_index(event.job_id) - record.first_task)
    if over & bit:
        return  # a server that keeps what is over may be read again
    record = replace(record, tasks_over=f"{over | bit:x}")
    if isinstance(event, JobEnded):
        record = replace(
            record,
            tasks_ended=record.tasks_ended + 1,
            tasks_failed=record.tasks_failed + (event.exit_status != 0),
            last_end=max(record.last_end, event.time),
            first_end=min(record.first_end or event.time, event.time),
            exit_status=event.exit_status or record.exit_status or 0,
        )
    else:
        record = replace(record, tasks_deleted=record.tasks_deleted + 1)
    if record.tasks_ended + record.tasks_deleted >= record.tasks:
        if record.tasks_ended:
            record = replace(record, end="ended")
        elif record.phase != "withdrawing":
            record = replace(record, end="deleted")
    _put(state, record)


def forget_old_transfers(state: EngineState) -> None:
    """Drop those that were over long ago."""
    for name, record in list(state.transfers.items()):
        if (record.phase in _OVER or record.end) and record.since < state.now - _KEPT:
            del state.transfers[name]
            state.transfer_by_job.pop(record.server_job, None)
            state.bag_ends.pop(record.server_job, None)


def _decide(
    state: EngineState,
    cause: str,
    record: TransferRecord,
    step: TransferStep,
    submission: SubmissionFacts | None = None,
    text: str = "",
) -> None:
    name = state.next_decision()
    _put(state, replace(record, decision=name, code=0, text=text))
    state.decisions.append(
        TransferDecision(
            id=name,
            cause=cause,
            time=state.now,
            transfer=record.transfer,
            step=step,
            submission=submission,
            server_job=record.server_job,
            release_requested=record.release_requested,
        )
    )


def _put(state: EngineState, record: TransferRecord) -> None:
    state.transfers[record.transfer] = replace(record, since=state.now)
