"""Executes preemptions: signals a running job, waits for its grace time, and stops its run; and resumes
suspended runs.

Each is about one run, known by its start. If the adapter or the server was restarted in between, the decision
is delivered again: a run that is over is reported as preempted, and never another run stopped.
"""

import logging
from dataclasses import dataclass
from typing import Final, Protocol

from schedd.wire import JobFacts, Preempt, Resume
from server_adapter.batch.errors import (
    OpenOutcomeError,
    ProtocolError,
    RightsError,
    ServerRefusedError,
    ServerUnreachableError,
)
from server_adapter.bridge.run_orders import SETTLING_S, RunOrderExecutor, RunOrderOutcome, is_this_run

_log = logging.getLogger(__name__)

PREEMPTIONS_AT_ONCE: Final = 8
"""Jobs that are requeued at the same time: the server answers when the job has ended on its nodes."""
_CHECKPOINT_S: Final = 300.0  # a job that still runs this long after its hold is not checkpointed
CHECKPOINT_HOLD: Final = "s"
"""The kind of hold that makes the server checkpoint a job. No other hold of this kind is on a job that runs:
the server sets it for dependencies, which are fulfilled then."""


class PreemptionServer(Protocol):
    """A pbs_server that can preempt jobs. Its methods raise `server_adapter.batch.errors`."""

    async def find_job(self, job: str) -> JobFacts | None:
        """Return the job as the server shows it now; None if it has ended or is unknown."""
        ...

    async def signal_job(self, job: str, signal: str) -> bool:
        """Send a signal to a running job; return False, without sending it, if it would end any job."""
        ...

    async def requeue_job(self, job: str) -> None:
        """End the run of a job and put it back into its queue. Raises ValueError if the job would be lost."""
        ...

    async def is_being_requeued(self, job: str) -> bool:
        """Return whether the server is ending the run of this job to requeue it."""
        ...

    async def suspend_job(self, job: str) -> None: ...

    async def resume_job(self, job: str) -> None:
        """Let a suspended job go on."""
        ...

    async def hold_job(self, job: str) -> None:
        """Set the hold ``CHECKPOINT_HOLD`` on a running job, which checkpoints it."""
        ...

    async def lift_hold(self, job: str) -> None: ...


class PreemptionJournal(Protocol):
    """Durable record of preempted runs, and of the jobs with the adapter's ``CHECKPOINT_HOLD``."""

    def record_preemption(self, job: str) -> None:
        """Record that a run is to be ended, before the request: its return to the queue is expected."""
        ...

    def is_set(self, job: str) -> bool:
        """Return whether the adapter has set the hold."""
        ...

    def record(self, job: str) -> None:
        """Record the hold, before it is set."""
        ...

    def forget(self, job: str) -> None:
        """Record that it was lifted, or is gone."""
        ...


@dataclass(slots=True)
class _Progress:
    """Progress of a decision over several tries: the time of the signal, and whether an answer was lost."""

    signalled_at: float | None = None
    lost: bool = False


class PreemptionExecutor(RunOrderExecutor[PreemptionServer, PreemptionJournal, Preempt | Resume]):
    """Executes preemptions and resumptions."""

    def _log_outcome(self, order: Preempt | Resume, outcome: RunOrderOutcome) -> None:
        what = "resumed" if isinstance(order, Resume) else f"preempted for {order.preemptor}"
        if outcome.done:
            _log.info("%s is %s: %s", order.job_id, what, outcome.text)
        else:
            _log.warning("%s could not be %s: %s", order.job_id, what, outcome.text)

    async def _attempt(self, order: Preempt | Resume) -> RunOrderOutcome:
        server = self._server
        if reason := self._refusal(order):
            return RunOrderOutcome(False, text=reason, outage=True)
        if self._cluster_time() >= order.expires:
            if done := await self._find_done(server, order):
                return RunOrderOutcome(True, text=done)
            text = f"the decision expired {self._cluster_time() - order.expires:.0f} s ago"
            return RunOrderOutcome(False, text=text, outage=True)
        progress = _Progress()
        while True:
            try:
                if isinstance(order, Resume):
                    return await self._resume(server, order)
                return await self._preempt(server, order, progress)
            except ServerRefusedError as error:
                if done := await self._find_done(server, order):
                    return RunOrderOutcome(True, text=done)
                text = error.text or str(error)
                if progress.lost and isinstance(order, Preempt) and order.method == "suspend":
                    text = f"{text}; an earlier request may have stopped it on its nodes"
                return RunOrderOutcome(False, error.code, text)
            except (RightsError, ValueError) as error:
                return RunOrderOutcome(False, text=str(error), outage=True)
            except (ServerUnreachableError, ProtocolError) as error:
                # The request may have been carried out: the next try looks at the run first.
                if self._cluster_time() >= _deadline(order, progress):
                    text = f"{error}; no final answer in time"
                    if isinstance(error, OpenOutcomeError):
                        return RunOrderOutcome(False, error.code, text)
                    return RunOrderOutcome(False, text=text, outage=True)
                if not progress.lost:
                    _log.warning("%s of %s: %s; it is tried again", order.type, order.job_id, error)
                progress.lost = True
                await self._sleep(SETTLING_S)

    async def _preempt(
        self, server: PreemptionServer, order: Preempt, progress: _Progress
    ) -> RunOrderOutcome:
        """Try once. The grace time begins with the signal, however late the decision came."""
        if done := await self._end_of_run(server, order):
            return RunOrderOutcome(True, text=done)
        if not progress.lost and self._cluster_time() >= _deadline(order, progress):
            text = "the decision expired while it waited for the server"
            return RunOrderOutcome(False, text=text, outage=True)
        if order.signal and progress.signalled_at is None:
            if await server.signal_job(order.job_id, order.signal):
                progress.signalled_at = self._cluster_time()
            else:
                _log.warning("%s gets no %s, which would end it", order.job_id, order.signal)
        if progress.signalled_at is not None:
            await self._sleep(max(0.0, progress.signalled_at + order.grace - self._cluster_time()))
            if not is_this_run(order, await server.find_job(order.job_id)):
                return RunOrderOutcome(True, text=f"the run ended after {order.signal}")
        if barred := self._barred():
            return RunOrderOutcome(False, text=barred, outage=True)
        if order.method != "suspend":
            self._journal.record_preemption(order.job_id)
        match order.method:
            case "suspend":
                await server.suspend_job(order.job_id)
                return RunOrderOutcome(True, text="it was suspended")
            case "checkpoint":
                return await self._checkpoint(server, order)
            case "requeue":
                return await self._requeue(server, order, progress)

    async def _requeue(
        self, server: PreemptionServer, order: Preempt, progress: _Progress
    ) -> RunOrderOutcome:
        """Request a rerun, once, and follow the run while the server is ending it: an error in reply may mean
        only that the server does not wait any longer for the node.
        """
        if not (progress.lost and await server.is_being_requeued(order.job_id)):
            try:
                await server.requeue_job(order.job_id)
                return RunOrderOutcome(True, text="it was requeued")
            except ServerRefusedError as error:
                if not await server.is_being_requeued(order.job_id):
                    raise
                _log.warning("%s; the server is ending the run, which is followed", error)
        while await server.is_being_requeued(order.job_id):
            if self._cluster_time() >= _deadline(order, progress):
                return RunOrderOutcome(False, text="the server has not ended the run in time")
            await self._sleep(SETTLING_S)
        if done := await self._end_of_run(server, order):
            return RunOrderOutcome(True, text=done)
        return RunOrderOutcome(False, text="the server did not end the run")

    async def _checkpoint(self, server: PreemptionServer, order: Preempt) -> RunOrderOutcome:
        """Hold the job, which ends its run with a checkpoint, and lift the hold. A job with such a hold by
        others is not touched, since the two holds cannot be distinguished.
        """
        job = await server.find_job(order.job_id)
        held = job is not None and CHECKPOINT_HOLD in job.holds
        if held and not self._journal.is_set(order.job_id):
            return RunOrderOutcome(False, text="it has a system hold of an administrator")
        if not held:
            self._journal.record(order.job_id)
            try:
                await server.hold_job(order.job_id)
            except (ServerRefusedError, OpenOutcomeError):
                # Some servers keep the hold although the node made no checkpoint.
                await self._lift_hold(server, order.job_id)
                raise
        until = self._cluster_time() + _CHECKPOINT_S
        while is_this_run(order, await server.find_job(order.job_id)):
            if self._cluster_time() >= until:
                await self._lift_hold(server, order.job_id)
                return RunOrderOutcome(False, text="it was held, and runs on without a checkpoint")
            await self._sleep(SETTLING_S)
        await self._lift_hold(server, order.job_id)
        return RunOrderOutcome(True, text="it was checkpointed")

    async def _lift_hold(self, server: PreemptionServer, job: str) -> None:
        await server.lift_hold(job)
        self._journal.forget(job)

    async def _resume(self, server: PreemptionServer, order: Resume) -> RunOrderOutcome:
        job = await server.find_job(order.job_id)
        if job is None or job.state != "S" or not is_this_run(order, job):
            return RunOrderOutcome(True, text="it was not suspended any more")
        await server.resume_job(order.job_id)
        return RunOrderOutcome(True, text="it goes on")

    async def _end_of_run(self, server: PreemptionServer, order: Preempt) -> str:
        """Return how the run of a decision was stopped before, or an empty text; a checkpointed job loses the
        hold that an interrupted execution of this decision may have left.
        """
        job = await server.find_job(order.job_id)
        if is_this_run(order, job):
            suspended = job is not None and job.state == "S"
            return "it was suspended" if suspended and order.method == "suspend" else ""
        held = job is not None and job.state == "H" and CHECKPOINT_HOLD in job.holds and not job.depend
        if held and order.method == "checkpoint" and self._journal.is_set(order.job_id):
            await self._lift_hold(server, order.job_id)
            return "it was checkpointed"
        self._journal.forget(order.job_id)
        return "the run had ended"

    async def _find_done(self, server: PreemptionServer, order: Preempt | Resume) -> str:
        """Return how a decision was carried out before, or an empty text."""
        try:
            if isinstance(order, Preempt):
                return await self._end_of_run(server, order)
            job = await server.find_job(order.job_id)
            return "" if job is not None and job.state == "S" else "it was not suspended any more"
        except (ServerUnreachableError, ProtocolError, ServerRefusedError):
            return ""


def full_signal_name(signal: str) -> str:
    """Return a signal as the nodes know it: `SIGUSR1` for `USR1`; a number has no prefix."""
    return signal if signal.isdigit() else f"SIG{signal.removeprefix('SIG')}"


def _deadline(order: Preempt | Resume, progress: _Progress) -> int:
    """Return until when a request is tried again, or followed."""
    signalled = progress.signalled_at is not None
    return order.expires + (order.grace if signalled and isinstance(order, Preempt) else 0)
