"""Gives running jobs longer walltimes, as the daemon decides.

A decision is about one run, known by its start, and one walltime. It may be delivered again: a job that has
the new walltime already is reported as extended. The journal has each decision before its request, so that
it is not requested again after a restart, when the job may have been altered.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from schedd.wire import ExtendRun, ExtensionDone, JobFacts
from server_adapter.batch.errors import (
    ProtocolError,
    RightsError,
    ServerRefusedError,
    ServerUnreachableError,
)
from server_adapter.batch.supervision import TaskSet
from server_adapter.bridge.decision_queue import DecisionOutcomes, decision_key
from server_adapter.bridge.delivery import DaemonExchange
from server_adapter.bridge.preemptions import is_this_run
from server_adapter.bridge.run_checks import describe_old_term

_log = logging.getLogger(__name__)

_SETTLING_S: Final = 2.0  # time until a request with a lost answer is checked
_ANSWER_S: Final = (
    600.0  # for this long after its expiry the effect of a request without an answer is looked for
)


class ExtensionServer(Protocol):
    """A pbs_server on which runs can be extended. Its methods raise `server_adapter.batch.errors`."""

    async def find_job(self, job: str) -> JobFacts | None:
        """Return the job as the server shows it now; None if it has ended or is unknown."""
        ...

    def read_walltime(self, job: JobFacts) -> int:
        """Return the walltime of a job in seconds; 0 if it has none."""
        ...

    async def set_walltime(self, job: str, walltime: int) -> None:
        """Set the walltime of a running job in seconds."""
        ...


class ExtensionJournal(Protocol):
    """Durable record of the requested extensions."""

    def record_extension(self, decision: str) -> None:
        """Record the key of a decision right before its request."""
        ...

    def was_extension_requested(self, decision: str) -> bool:
        """Return whether the decision was requested, perhaps before a restart."""
        ...


@dataclass(frozen=True, slots=True)
class _ExtensionOutcome:
    """Outcome of a decision. `outage`: no run can be extended at present, whatever the job."""

    done: bool
    code: int = 0
    text: str = ""
    outage: bool = False


class RunExtender:
    """Executes extensions. `barred` returns the reason against any, or an empty text; `term` is the highest
    known leader's term.
    """

    def __init__(
        self,
        server: ExtensionServer,
        delivery: DaemonExchange,
        barred: Callable[[], str],
        request_reading: Callable[[], None],
        term: Callable[[], int],
        journal: ExtensionJournal,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._server = server
        self._delivery = delivery
        self._barred = barred
        self._request_reading = request_reading
        self._term = term
        self._journal = journal
        self._clock = clock
        self._sleep = sleep
        self._tasks = TaskSet("an extension of a walltime")
        self._under_way: set[str] = set()
        self._outcomes: DecisionOutcomes[_ExtensionOutcome] = DecisionOutcomes()

    def begin(self, order: ExtendRun) -> None:
        """Execute one decision, unless it is under way; its outcome is reported to the daemon."""
        if decision_key(order) not in self._under_way:
            self._under_way.add(decision_key(order))
            self._tasks.spawn(self._carry_out(order))

    async def close(self) -> None:
        await self._tasks.close()

    async def _carry_out(self, order: ExtendRun) -> None:
        try:
            outcome = self._outcomes.find(order) or await self._attempt(order)
        finally:
            self._under_way.discard(decision_key(order))
        self._outcomes.record(order, outcome)
        log = _log.info if outcome.done else _log.warning
        log("walltime of %s to %d s: %s", order.job_id, order.walltime, outcome.text)
        await self._delivery.enqueue(
            ExtensionDone(
                id=next(self._delivery.ids),
                time=int(self._clock()),
                decision_id=order.id,
                job_id=order.job_id,
                done=outcome.done,
                code=outcome.code,
                text=outcome.text,
                outage=outcome.outage,
            )
        )
        self._request_reading()

    async def _attempt(self, order: ExtendRun) -> _ExtensionOutcome:
        key, requested = decision_key(order), False
        before_restart = self._journal.was_extension_requested(key)
        while True:
            try:
                job = await self._server.find_job(order.job_id)
                if job is None or not is_this_run(order, job):
                    return _ExtensionOutcome(False, text="the run has ended")
                walltime = self._server.read_walltime(job)
                if walltime == order.walltime:
                    return _ExtensionOutcome(True, text="it has the longer walltime")
                if walltime != order.before:
                    text = f"its walltime is {walltime} s, and was {order.before} s at the decision"
                    return _ExtensionOutcome(False, text=text)
                if reason := self._refusal(order, before_restart):
                    return _ExtensionOutcome(False, text=reason, outage=True)
                self._journal.record_extension(key)
                requested = True
                await self._server.set_walltime(order.job_id, order.walltime)
                return _ExtensionOutcome(True, text="it was extended")
            except ServerRefusedError as error:
                return _ExtensionOutcome(False, error.code, error.text or str(error))
            except RightsError as error:
                return _ExtensionOutcome(False, text=str(error), outage=True)
            except (ServerUnreachableError, ProtocolError) as error:
                # The request may have been carried out: the next try looks at the job first.
                if self._clock() >= order.expires + (_ANSWER_S if requested else 0):
                    return _ExtensionOutcome(False, text=str(error), outage=True)
                _log.warning("the walltime of %s: %s; it is tried again", order.job_id, error)
                await self._sleep(_SETTLING_S)

    def _refusal(self, order: ExtendRun, before_restart: bool) -> str:
        if barred := self._barred():
            return barred
        if order.term < self._term():
            return describe_old_term(order.term, self._term())
        if before_restart:
            return "it was requested before the adapter was started, without an effect"
        late = self._clock() - order.expires
        return f"the decision expired {late:.0f} s ago" if late >= 0 else ""
