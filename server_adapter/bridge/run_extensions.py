"""Gives running jobs longer walltimes, as the daemon decides.

A decision is about one run, known by its start, and one walltime. It may be delivered again: a job that has
the new walltime already is reported as extended. The journal has each decision before its request, so that
it is not requested again after a restart, when the job may have been altered.
"""

import logging
from typing import Final, Protocol

from schedd.wire import ExtendRun, JobFacts
from server_adapter.batch.errors import (
    ProtocolError,
    RightsError,
    ServerRefusedError,
    ServerUnreachableError,
)
from server_adapter.bridge.decision_queue import decision_key
from server_adapter.bridge.run_orders import SETTLING_S, RunOrderExecutor, RunOrderOutcome, is_this_run

_log = logging.getLogger(__name__)

_ANSWER_S: Final = (
    600.0  # for this long after its expiry the effect of a request without an answer is looked for
)


class ExtensionServer(Protocol):
    """A pbs_server that can extend runs. Its methods raise `server_adapter.batch.errors`."""

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


class RunExtender(RunOrderExecutor[ExtensionServer, ExtensionJournal, ExtendRun]):
    """Executes extensions."""

    def _log_outcome(self, order: ExtendRun, outcome: RunOrderOutcome) -> None:
        log = _log.info if outcome.done else _log.warning
        log("walltime of %s to %d s: %s", order.job_id, order.walltime, outcome.text)

    async def _attempt(self, order: ExtendRun) -> RunOrderOutcome:
        key, requested = decision_key(order), False
        before_restart = self._journal.was_extension_requested(key)
        while True:
            try:
                job = await self._server.find_job(order.job_id)
                if job is None or not is_this_run(order, job):
                    return RunOrderOutcome(False, text="the run has ended")
                walltime = self._server.read_walltime(job)
                if walltime == order.walltime:
                    return RunOrderOutcome(True, text="it has the longer walltime")
                if walltime != order.before:
                    text = f"its walltime is {walltime} s, and was {order.before} s at the decision"
                    return RunOrderOutcome(False, text=text)
                if reason := self._obstacle(order, before_restart):
                    return RunOrderOutcome(False, text=reason, outage=True)
                self._journal.record_extension(key)
                requested = True
                await self._server.set_walltime(order.job_id, order.walltime)
                return RunOrderOutcome(True, text="it was extended")
            except ServerRefusedError as error:
                return RunOrderOutcome(False, error.code, error.text or str(error))
            except RightsError as error:
                return RunOrderOutcome(False, text=str(error), outage=True)
            except (ServerUnreachableError, ProtocolError) as error:
                # The request may have been carried out: the next try looks at the job first.
                if self._cluster_time() >= order.expires + (_ANSWER_S if requested else 0):
                    return RunOrderOutcome(False, text=str(error), outage=True)
                _log.warning("the walltime of %s: %s; it is tried again", order.job_id, error)
                await self._sleep(SETTLING_S)

    def _obstacle(self, order: ExtendRun, before_restart: bool) -> str:
        if reason := self._refusal(order):
            return reason
        if before_restart:
            return "it was requested before the adapter was started, without an effect"
        late = self._cluster_time() - order.expires
        return f"the decision expired {late:.0f} s ago" if late >= 0 else ""
