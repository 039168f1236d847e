"""Steps of a transfer: the job is submitted on hold, then released or withdrawn.

The sender chooses the transfer's name. Requests are idempotent: a repeated request changes nothing, and a
transfer that was withdrawn before its request arrives is never submitted. A job on hold cannot start, so a
federation may submit it to several clusters and release it at one.
"""

from dataclasses import replace
from typing import Final

from schedd.array_ids import array_id
from schedd.engine.facts.arrays import array_index, hash_array
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import replan
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.transfers.held_placements import expired_placements
from schedd.features.transfers.state import PublishedTransfers, TransferPhase, TransferRecord, transfer_state
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

_KEPT: Final = 7 * 86_400  # seconds until a completed transfer is forgotten
_OVER: Final = ("withdrawn", "refused")


def submit_held(state: EngineState, event: TransferRequest) -> None:
    """Submit a new job to the server, unless the transfer is already known."""
    if event.transfer in transfer_state(state).transfers:
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


def release_transfer(state: EngineState, event: TransferRelease) -> None:
    """Order the release of the job's hold: the job may start."""
    record = transfer_state(state).transfers.get(event.transfer)
    if record is not None and record.phase == "held":
        _decide(state, event.id, replace(record, phase="releasing", release_requested=True), "release")


def withdraw_transfer(state: EngineState, event: TransferWithdrawal, why: str = "") -> None:
    """Withdraw the job. An unknown transfer is recorded as withdrawn: a late request does not submit it.

    ``why`` is the reason given to the sender.
    """
    record = transfer_state(state).transfers.get(event.transfer)
    if record is None:
        transfer_state(state).transfers[event.transfer] = TransferRecord(
            event.transfer, "", event.by, "withdrawn", state.now
        )
    elif record.end == "ended" or (record.end and record.release_requested):
        return  # it has run, or may have run, and cannot be withdrawn
    elif record.phase == "refused" or record.end:
        _store_transfer(state, replace(record, phase="withdrawn"))
    elif event.forced and record.release_requested:
        if not record.forced or record.phase not in ("withdrawing", "withdrawn"):
            gone = replace(record, phase="withdrawing", forced=True)
            _decide(state, event.id, gone, "delete", text=why)
    elif record.phase not in ("withdrawing", "withdrawn"):
        _decide(state, event.id, replace(record, phase="withdrawing"), "withdraw", text=why)


def note_step(state: EngineState, event: TransferStepDone) -> None:
    """Note the outcome of a step. Of a step before the latest one, only the job's id is used."""
    record = transfer_state(state).transfers.get(event.transfer)
    if record is None:
        return
    if event.server_job:
        record = replace(record, server_job=event.server_job)
        transfer_state(state).by_job[event.server_job] = event.transfer
    if event.decision_id != record.decision:
        transfer_state(state).transfers[event.transfer] = record
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
    _store_transfer(state, replace(record, phase=phase, decision="", code=event.code, text=text))
    if phase == "held" and record.keep_until > state.now:
        _hold_place(state, record, event.id)


def _hold_place(state: EngineState, record: TransferRecord, event: str) -> None:
    """Plan the job while it is on hold, now or once the server has reported it."""
    transfer_state(state).kept_places[record.server_job] = record.keep_until
    job = state.records.get(record.server_job)
    if job is not None and job.phase is Phase.BLOCKED:
        replan(state, job, event, Cause.ARRIVED, "its placement is held while it is on hold")


def release_expired_places(state: EngineState, event: str) -> None:
    """Remove jobs on hold from the plan after the end of their guarantee."""
    for job in expired_placements(state):
        if job.phase in (Phase.WAITING, Phase.BLOCKED):
            replan(state, job, event, Cause.ARRIVED, "the time for which its placement was held is over")


def note_bag_end(state: EngineState, event: BagEndReported) -> None:
    """Store the end of the array's bag; with ``coordinate_arrays`` repair ranks by it."""
    transfer_state(state).bag_ends[event.array] = event.end
    state.bag_end[state.array_hash == hash_array(event.array)] = event.end


def apply_bag_end(state: EngineState, _: JobRecord | None, record: JobRecord) -> None:
    """Set the end of the bag in the column of a new or changed job."""
    ends = transfer_state(state).bag_ends
    if ends and record.slot >= 0:
        state.bag_end[record.slot] = ends.get(record.facts.array, 0)


def note_end(state: EngineState, event: JobEnded | JobDeleted) -> None:
    """Note that the server no longer has a job, if it was transferred."""
    record = _find_transfer(state, event.job_id)
    if record is None or record.phase in _OVER:
        return
    if record.tasks:
        _task_gone(state, record, event)
    elif isinstance(event, JobEnded):
        _store_transfer(state, replace(record, end="ended", exit_status=event.exit_status))
    elif record.phase != "withdrawing":
        _store_transfer(state, replace(record, end="deleted"))


def _find_transfer(state: EngineState, job: str) -> TransferRecord | None:
    """Return the transfer of a job, or of its array."""
    part = transfer_state(state)
    name = part.by_job.get(job) or part.by_job.get(array_id(job))
    return part.transfers.get(name) if name is not None else None


def _task_gone(state: EngineState, record: TransferRecord, event: JobEnded | JobDeleted) -> None:
    """Count the end of one job of an array; the array is over with its last job."""
    over = int(record.tasks_over or "0", 16)
    bit = 1 << max(0, array_index(event.job_id) - record.first_task)
    if over & bit:
        return  # servers keep completed jobs, so an end may be reported again
    record = replace(record, tasks_over=f"{over | bit:x}")
    if isinstance(event, JobEnded):
        record = replace(
            record,
            tasks_ended=record.tasks_ended + 1,
            tasks_failed=record.tasks_failed + bool(event.exit_status),
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
    _store_transfer(state, record)


def forget_old_transfers(state: EngineState) -> None:
    """Forget transfers that were over long ago."""
    for name, record in list(transfer_state(state).transfers.items()):
        if (record.phase in _OVER or record.end) and record.since < state.now - _KEPT:
            del transfer_state(state).transfers[name]
            transfer_state(state).by_job.pop(record.server_job, None)
            transfer_state(state).bag_ends.pop(record.server_job, None)


def awaits_step(state: EngineState, decision: TransferDecision) -> bool:
    """Whether the outcome of this step is still awaited."""
    record = transfer_state(state).transfers.get(decision.transfer)
    return record is not None and record.decision == decision.id


def jobs_in_place(known: EngineState | PlanSnapshot) -> list[str]:
    """Return the jobs on hold with a place in the plan."""
    if isinstance(known, EngineState):
        return list(transfer_state(known).kept_places)
    found = known.part(PublishedTransfers).transfers.values()
    return [one.server_job for one in found if one.phase == "held" and one.keep_until > known.as_of]


def _decide(
    state: EngineState,
    cause: str,
    record: TransferRecord,
    step: TransferStep,
    submission: SubmissionFacts | None = None,
    text: str = "",
) -> None:
    name = state.next_decision()
    _store_transfer(state, replace(record, decision=name, code=0, text=text))
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


def _store_transfer(state: EngineState, record: TransferRecord) -> None:
    transfer_state(state).transfers[record.transfer] = replace(record, since=state.now)
