"""Carries out transfers: submits jobs on hold, lets them run, takes them back. One step after the other.

A submission whose answer was lost may have been taken: the job carries a mark by which it is looked for
before it is submitted again, and it is on hold, so that no second one could ever run.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar, runtime_checkable

from schedd.wire import SubmissionFacts, TransferDecision, TransferStepDone
from server_adapter.batch.errors import ProtocolError, RightsError, ServerRefusedError, ServerUnreachableError
from server_adapter.bridge.delivery import DaemonExchange

__all__ = ["MARK", "JobRunsError", "TransferExecutor", "TransferServer"]

_log = logging.getLogger(__name__)

MARK: Final = "SCHEDD_TRANSFER"
"""The variable of a job's environment that names its transfer."""
_SETTLING: Final = 2.0  # seconds until a submission whose answer was lost is looked for
_MARGIN: Final = 60  # seconds by which clocks may differ
_KEPT: Final = 10_000
_T = TypeVar("_T")


class JobRunsError(Exception):
    """A job that is to be taken back runs, or has run."""


@runtime_checkable
class TransferServer(Protocol):
    """A pbs_server to which jobs can be handed over. Its methods raise `server_adapter.batch.errors`."""

    async def submit(self, submission: SubmissionFacts, mark: str) -> str:
        """Submits the job on an operator's hold, with the mark in its environment; its id."""
        ...

    async def find_marked(self, mark: str) -> str:
        """The id of the job with this mark; empty where there is none."""
        ...

    async def finish(self, job: str, tasks: int) -> None:
        """Does what a submission that was broken off had still to do; ``tasks``: of how many jobs an array
        is, 0 where it is none.
        """
        ...

    async def release(self, job: str) -> None:
        """Lifts the hold."""
        ...

    async def withdraw(self, job: str, *, may_have_run: bool) -> None:
        """Deletes the job unless it runs or ran: raises `JobRunsError`. One that is gone without a trace is
        taken back, unless it may have run. Of an array the jobs that wait are deleted, also where others run.
        """
        ...

    async def delete(self, job: str) -> None:
        """Deletes the job whether it runs or not; one that is gone is deleted."""
        ...


@dataclass(frozen=True, slots=True)
class _StepOutcome:
    done: bool
    job: str = ""
    code: int = 0
    text: str = ""


class TransferExecutor:
    """`barred` tells in words why no job may be handed over here, or nothing; ``waits`` why not now."""

    def __init__(
        self,
        server: object,
        delivery: DaemonExchange,
        barred: Callable[[], str],
        request_reading: Callable[[], None],
        clock: Callable[[], float] = time.time,
        *,
        waits: Callable[[], str] = str,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._server = server
        self._delivery = delivery
        self._barred = barred
        self._waits = waits
        self._request_reading = request_reading
        self._clock = clock
        self._sleep = sleep
        self._began = clock()
        self._waiting: OrderedDict[str, TransferDecision] = OrderedDict()
        self._outcomes: OrderedDict[str, _StepOutcome] = OrderedDict()
        self._tried: set[str] = set()
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._awake = asyncio.Event()

    def enqueue(self, decision: TransferDecision) -> None:
        """Takes a decision; of two about one transfer the newer one counts."""
        known = self._waiting.get(decision.transfer)
        if known is None or known.id <= decision.id:
            self._waiting[decision.transfer] = decision
            self._awake.set()

    async def work(self) -> None:
        """Carries out for ever."""
        while True:
            if not self._waiting:
                self._awake.clear()
                await self._awake.wait()
            await self.step()

    async def finish(self) -> None:
        """Carries out all that waits, as far as that can be done now."""
        while self._waiting and not self._waits():
            await self.step()

    async def step(self) -> None:
        """One decision. Where it is not known what became of it, it waits for another try."""
        transfer, decision = next(iter(self._waiting.items()))
        outcome = self._outcomes.get(_name(decision))
        if outcome is None:
            try:
                outcome = await self._carry_out(decision)
            except (ServerUnreachableError, ProtocolError) as error:
                if transfer not in self._tried:
                    _log.warning("%s of transfer %s: %s; it is tried again", decision.step, transfer, error)
                self._tried.add(transfer)
                self._waiting.move_to_end(transfer)
                await self._sleep(_SETTLING)
                return
        _remember(self._outcomes, _name(decision), outcome)
        self._tried.discard(transfer)
        if self._waiting.get(transfer) is decision:
            del self._waiting[transfer]
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
            raise ServerUnreachableError(waits)  # no refusal: what was begun may be there
        if not isinstance(server, TransferServer):
            return _StepOutcome(False, text="no jobs can be handed over to this family of servers")
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
                await server.withdraw(job, may_have_run=decision.release_requested)
            elif decision.release_requested:
                raise JobRunsError("the job is gone, and may have run")
        except ServerRefusedError as error:
            return _StepOutcome(False, job, error.code, error.text or str(error))
        except (RightsError, JobRunsError, ValueError) as error:
            return _StepOutcome(False, job, text=str(error))
        if decision.step in ("withdraw", "delete"):
            _remember(self._gone, decision.transfer, None)
        return _StepOutcome(True, job)

    async def _submit(self, server: TransferServer, decision: TransferDecision) -> _StepOutcome:
        transfer = decision.transfer
        if decision.submission is None:
            return _StepOutcome(False, text="the decision has no job in it")
        if transfer in self._gone:
            return _StepOutcome(False, text="it was taken back")
        # An earlier life of this adapter may have submitted it, or a try whose answer was lost.
        if transfer in self._tried or decision.time < self._began + _MARGIN:
            job = await server.find_marked(transfer)
            if job:
                await server.finish(job, decision.submission.tasks)
                return _StepOutcome(True, job)
        return _StepOutcome(True, await server.submit(decision.submission, transfer))


def _name(decision: TransferDecision) -> str:
    """Of one decision alone: a daemon that kept nothing begins its ids anew."""
    return f"{decision.id}@{decision.time}"


def _remember(known: OrderedDict[str, _T], name: str, value: _T) -> None:
    known[name] = value
    while len(known) > _KEPT:
        known.popitem(last=False)
