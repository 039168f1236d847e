"""Requests that stop and resume runs, which both families share: ``qsig``, ``qrerun``, ``qhold``, ``qrls``.

A rerun is answered when the node has ended the job, which may take longer than a reading may wait: these
requests have connections of their own.
"""

from typing import Final, Generic, TypeVar

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.connection import BatchConnection
from server_adapter.batch.requests import JobRequest, SignalRequest
from server_adapter.bridge.link import LinkPool
from server_adapter.bridge.preemptions import CHECKPOINT_HOLD, full_signal_name
from server_adapter.servers.job_requests import hold_request

PREEMPTION_REQUESTS: Final = frozenset(
    {RequestCode.RERUN, RequestCode.SIGNAL_JOB, RequestCode.HOLD_JOB, RequestCode.RELEASE_JOB}
)
"""Permitted only in scheduler mode."""

C = TypeVar("C", bound=BatchConnection)


class PreemptionRequests(Generic[C]):
    """Stops and resumes runs. ``link`` lends the connections."""

    def __init__(self, link: LinkPool[C]) -> None:
        self._link = link

    async def signal_job(self, job: str, signal: str) -> None:
        async with self._link.borrow() as connection:
            await connection.request(SignalRequest(job=job, signal=full_signal_name(signal)))

    async def requeue_job(self, job: str) -> None:
        async with self._link.borrow() as connection:
            await connection.request(JobRequest(code=RequestCode.RERUN, job=job))

    async def suspend_job(self, job: str) -> None:
        """Suspend the job; the server frees its nodes."""
        async with self._link.borrow() as connection:
            await connection.request(SignalRequest(job=job, signal="suspend"))

    async def resume_job(self, job: str) -> None:
        async with self._link.borrow() as connection:
            await connection.request(SignalRequest(job=job, signal="resume"))

    async def hold_job(self, job: str) -> None:
        """Hold the job; one that runs and has declared support for it is checkpointed, and its run ends."""
        async with self._link.borrow() as connection:
            await connection.request(hold_request(RequestCode.HOLD_JOB, job, CHECKPOINT_HOLD))

    async def lift_hold(self, job: str) -> None:
        async with self._link.borrow() as connection:
            await connection.request(hold_request(RequestCode.RELEASE_JOB, job, CHECKPOINT_HOLD))

    async def close(self) -> None:
        await self._link.close()
