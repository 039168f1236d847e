"""Requests about runs, which both families share: ``qsig``, ``qrerun``, ``qhold``, ``qrls``, ``qalter``.

A rerun is answered when the node has ended the job, which may take longer than a reading may wait: these
requests have connections of their own.

The server forwards these requests to a node. If the node does not answer, the server refuses the request
although the node may carry it out later: `OpenOutcomeError`.
"""

from collections.abc import Collection
from typing import Final, Generic, TypeVar

from server_adapter.batch.codes import FIRST_ERROR_CODE, RequestCode
from server_adapter.batch.connection import BatchConnection
from server_adapter.batch.errors import OpenOutcomeError, ServerRefusedError
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import JobRequest, SignalRequest
from server_adapter.bridge.link import LinkPool
from server_adapter.bridge.preemptions import CHECKPOINT_HOLD, full_signal_name
from server_adapter.servers.job_requests import hold_request

PREEMPTION_REQUESTS: Final = frozenset(
    {
        RequestCode.RERUN,
        RequestCode.SIGNAL_JOB,
        RequestCode.HOLD_JOB,
        RequestCode.RELEASE_JOB,
        RequestCode.MODIFY_JOB,  # the walltime of a running job
    }
)
"""Permitted only in scheduler mode."""

_BEING_REQUEUED: Final = frozenset({"60", "61", "62", "63"})
"""Values of `substate`: the server has accepted a rerun, and waits for the end of the run on its node."""

C = TypeVar("C", bound=BatchConnection)


def is_being_requeued(substate: str) -> bool:
    """Return whether a job with this `substate` is in a run that the server is ending to requeue the job."""
    return substate in _BEING_REQUEUED


class PreemptionRequests(Generic[C]):
    """Stops, resumes and extends runs. ``link`` lends the connections; ``silences`` are the server's codes
    for nodes that did not answer a signal or a hold.
    """

    def __init__(self, link: LinkPool[C], silences: Collection[int] = ()) -> None:
        self._link = link
        self._silences = frozenset(silences)

    async def signal_job(self, job: str, signal: str) -> bool:
        """Send a signal to a running job."""
        await self.send(SignalRequest(job=job, signal=full_signal_name(signal)))
        return True

    async def requeue_job(self, job: str) -> None:
        await self.send(JobRequest(code=RequestCode.RERUN, job=job))

    async def suspend_job(self, job: str) -> None:
        """Suspend the job; the server frees its nodes."""
        await self.send(SignalRequest(job=job, signal="suspend"))

    async def resume_job(self, job: str) -> None:
        await self.send(SignalRequest(job=job, signal="resume"))

    async def hold_job(self, job: str) -> None:
        """Hold the job; one that runs and has declared support for it is checkpointed, and its run ends."""
        await self.send(hold_request(RequestCode.HOLD_JOB, job, CHECKPOINT_HOLD))

    async def lift_hold(self, job: str) -> None:
        await self.send(hold_request(RequestCode.RELEASE_JOB, job, CHECKPOINT_HOLD))

    async def send(self, request: BatchRequest) -> None:
        """Send a request that the server may forward to a node."""
        try:
            async with self._link.borrow() as connection:
                await connection.request(request)
        except ServerRefusedError as error:
            silent = error.code in self._silences and request.code is not RequestCode.RERUN
            if silent or 0 < error.code < FIRST_ERROR_CODE:
                raise OpenOutcomeError(error) from error
            raise

    async def close(self) -> None:
        await self._link.close()
