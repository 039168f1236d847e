"""Executes transfers one step at a time: submits jobs held, releases them, withdraws them.

A submission with a lost answer may have succeeded: the job has a mark, and is searched by it before another
submission. It is held, so a second job could never run.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from schedd.wire import SubmissionFacts, TransferDecision, TransferStepDone
from server_adapter.batch.errors import ProtocolError, RightsError, ServerRefusedError, ServerUnreachableError
from server_adapter.bridge.decision_queue import DecisionOutcomes, DecisionQueue, RecentKeys
from server_adapter.bridge.delivery import DaemonExchange

_log = logging.getLogger(__name__)

MARK: Final = "SCHEDD_TRANSFER"  # environment variable of a job with the name of its transfer
_SETTLING: Final = 2.0  # seconds until a submission with a lost answer is searched
_MARGIN: Final = 60  # tolerated difference between clocks, in seconds


class JobRunsError(Exception):
    """A job that must be withdrawn runs, or has run."""


class TransferServer(Protocol):
    """A pbs_server that accepts transferred jobs. Its methods raise `server_adapter.batch.errors`."""

    async def submit(self, submission: SubmissionFacts, mark: str) -> str:
        """Submit the job on an operator's hold, with the mark in its environment; return its id."""
        ...

    async def find_marked(self, mark: str) -> str:
        """Return the id of the job with this mark; empty if unknown."""
        ...

    async def finish(self, job: str, submission: SubmissionFacts) -> None:
        """Complete an interrupted submission. Raises ValueError if the server's job differs from it."""
        ...

    async def release(self, job: str) -> None:
        """Lifts the hold."""
        ...

    async def withdraw(self, job: str, *, may_have_run: bool, again: bool) -> None:
        """Delete the job unless it runs or ran: then raise `JobRunsError`. An unknown job counts as withdrawn
        unless it may have run. Of an array the waiting jobs are deleted even if others run. ``again``: an
        interrupted try may have left its hold on a job that runs.
        """
        ...

    async def delete(self, job: str) -> None:
        """Delete the job in any state; an unknown job counts as deleted."""
        ...


@dataclass(frozen=True, slots=True)
class _StepOutcome:
    done: bool
    job: str = ""
    code: int = 0
    text: str = ""


class TransferExecutor:
    """Executes transfer decisions. `barred` returns the reason against any transfer, or an empty text;
    ``waits`` the reason to wait. Events have the time of `clock`, decisions that of `cluster_time` (default:
    the same).
    """

    def __init__(
        self,
        server: TransferServer,
        delivery: DaemonExchange,
        barred: Callable[[], str],
        request_reading: Callable[[], None],
        clock: Callable[[], float] = time.time,
        *,
        cluster_time: Callable[[], float] | None = None,
        waits: Callable[[], str] = str,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._server = server
        self._delivery = delivery
        self._barred = barred
        self._waits = waits
        self._request_reading = request_reading
        self._clock = clock
        self._cluster_time = cluster_time or clock
        self._sleep = sleep
        self._began = clock()
        self._waiting: DecisionQueue[TransferDecision] = DecisionQueue()
        self._outcomes: DecisionOutcomes[_StepOutcome] = DecisionOutcomes()
        self._tried: set[str] = set()
        self._withdrawn: RecentKeys[None] = RecentKeys()

    def enqueue(self, decision: TransferDecision) -> None:
        """Queue a decision; the newest decision about a transfer replaces older ones."""
        self._waiting.add(decision.transfer, decision)

    async def work(self) -> None:
        """Carry out decisions for ever."""
        await self._waiting.work(self.step)

    async def finish(self) -> None:
        """Execute all waiting decisions that can be executed now."""
        while self._waiting and not self._waits():
            await self.step()

    async def step(self) -> None:
        """Execute one decision; retry it later if the outcome is unknown."""
        transfer, decision = self._waiting.first()
        outcome = self._outcomes.find(decision)
        if outcome is None:
            try:
                outcome = await self._carry_out(decision)
            except (ServerUnreachableError, ProtocolError) as error:
                if transfer not in self._tried:
                    _log.warning("%s of transfer %s: %s; it is tried again", decision.step, transfer, error)
                self._tried.add(transfer)
                self._waiting.postpone(transfer)
                await self._sleep(_SETTLING)
                return
        self._outcomes.record(decision, outcome)
        self._tried.discard(transfer)
        self._waiting.settle(transfer, decision)
        if not outcome.done:
            _log.info("%s of transfer %s was refused: %s", decision.step, transfer, outcome.text)
        await self._delivery.enqueue(
            TransferStepDone(
                id=next(self._delivery.ids),
                time=int(self._clock()),
                decision_id=decision.id,
                transfer=transfer,
                step=decision.step,
                done=outcome.done,
                server_job=outcome.job,
                code=outcome.code,
                text=outcome.text,
            )
        )
        self._request_reading()

    async def _carry_out(self, decision: TransferDecision) -> _StepOutcome:
        server, barred = self._server, self._barred()
        if barred:
            return _StepOutcome(False, decision.server_job, text=barred)
        if waits := self._waits():
            raise ServerUnreachableError(waits)  # not a refusal, since the job may exist
        job = decision.server_job
        try:
            if decision.step == "submit":
                return await self._submit(server, decision)
            job = job or await server.find_marked(decision.transfer)
            if decision.step == "release":
                if not job:
                    return _StepOutcome(False, text="the job is gone")
                await server.release(job)
            elif decision.step == "delete":
                if job:
                    await server.delete(job)
            elif job:
                again = self._may_be_repeated(decision)
                await server.withdraw(job, may_have_run=decision.release_requested, again=again)
            elif decision.release_requested:
                raise JobRunsError("the job is gone, and may have run")
        except ServerRefusedError as error:
            return _StepOutcome(False, job, error.code, error.text or str(error))
        except (RightsError, JobRunsError, ValueError) as error:
            return _StepOutcome(False, job, text=str(error))
        if decision.step in ("withdraw", "delete"):
            self._withdrawn.put(decision.transfer, None)
        return _StepOutcome(True, job)

    async def _submit(self, server: TransferServer, decision: TransferDecision) -> _StepOutcome:
        transfer = decision.transfer
        if decision.submission is None:
            return _StepOutcome(False, text="the decision has no job in it")
        if transfer in self._withdrawn:
            return _StepOutcome(False, text="it was withdrawn")
        if self._may_be_repeated(decision):
            job = await server.find_marked(transfer)
            if job:
                await server.finish(job, decision.submission)
                return _StepOutcome(True, job)
        return _StepOutcome(True, await server.submit(decision.submission, transfer))

    def _may_be_repeated(self, decision: TransferDecision) -> bool:
        """Return whether an earlier process of this adapter, or a try with a lost answer, may have executed
        the decision, or a part of it.
        """
        began = self._began + self._cluster_time() - self._clock()
        return decision.transfer in self._tried or decision.time < began + _MARGIN
