"""Work that concerns one job: where it fails, that job is set aside, and no other is concerned."""

from types import TracebackType

from schedd.engine.component.job_hooks import leave_components
from schedd.engine.facts.bookkeeping import Bookkeeping
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.rank.promises import end_promise, record_move
from schedd.error_text import describe_error
from schedd.model import Never, WaitingFor
from schedd.plan.columns import UNPLACED
from schedd.plan.work_limits import WorkSpent


class JobErrorGuard:
    """``with JobErrorGuard(state, job, event):`` work on one job. An error in it quarantines only that job.

    An abort from outside propagates; ``state.at_job`` then names the job in progress.
    """

    __slots__ = ("_before", "_event", "_job", "_state")

    def __init__(self, state: EngineState, job: str, event: str) -> None:
        self._state, self._job, self._event = state, job, event
        self._before = state.at_job

    def __enter__(self) -> None:
        self._state.at_job = self._job

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        state = self._state
        if error is None:
            state.at_job = self._before
            return False
        if not isinstance(error, Exception):
            return False
        if state.settings.validate_ and isinstance(error, AssertionError):
            return False
        if isinstance(error, WorkSpent):
            # It is counted, not timed: it comes again with the same calls.
            state.plan.halve_work_limit()  # a batch may bring thousands of such jobs
        else:
            state.diverged[self._job] = None
        record = state.records.get(self._job)
        if record is not None:
            quarantine(state, record, self._event, describe_error(error))
        state.at_job = self._before
        return True


def quarantine(state: EngineState, record: JobRecord, event: str, why: str) -> None:
    """Quarantine a job that made the planner fail; it keeps its nodes on the server."""
    state.alert(event, "quarantine", f"planning job {record.id} failed: {why}", record.id)
    if record.phase in (Phase.RUNNING, Phase.DISPATCHED):
        return
    start = -1
    if record.slot >= 0:
        state.queue.pop(record.slot, None)
        start = state.plan.start(record.slot)
        if state.plan.state(record.slot) != UNPLACED:
            state.plan.remove(record.slot, state.now)
    state.without_place.pop(record.id, None)
    state.chained.pop(record.id, None)
    with Bookkeeping(state, record.id, "what is held for it"):
        leave_components(state, record.id)
    record = end_promise(state, record, event, "its planning failed")
    if start >= 0:
        record_move(state, event, Cause.FAULT, f"its planning failed: {why}", record.slot, start, -1)
    words = WaitingFor("quarantine", f"an administrator: planning it failed ({why})")
    mark_for_update(state, record, words)
    state.store_record(apply_step(record, Step.SET_ASIDE, quarantine=why, answer=words))


def block_job(state: EngineState, record: JobRecord, words: WaitingFor | Never) -> None:
    """Block a job and publish the reason."""
    mark_for_update(state, record, words)
    state.store_record(apply_step(record, Step.BLOCKED, answer=words))


def mark_for_update(state: EngineState, record: JobRecord, words: WaitingFor | Never) -> None:
    """Mark a job without a start for an update of its reason, if the reason is new."""
    if words != record.answer and record.slot >= 0:
        state.update_due[record.slot], state.updates_marked = 1, True
