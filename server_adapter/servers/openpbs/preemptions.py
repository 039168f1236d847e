"""Preemption on an OpenPBS server: ``qsig``, ``qrerun`` and ``qhold``, on connections of its own.

The request PreemptJobs is not used: only the registered scheduler may send it, the server answers it when the
job has ended on its nodes, and meanwhile no job starts on that connection. On a busy server this took 30 s.

A suspension on a connection that is not the scheduler's leaves the job in the substate 43: it goes on only
after an explicit resume. That brings it into the substate 45, and ``Resumer``, as the scheduler, resumes it.
"""

from typing import Final

from schedd.wire import JobFacts
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import JobRequest, SignalRequest
from server_adapter.bridge.link import LinkPool
from server_adapter.bridge.preemptions import CHECKPOINT_HOLD, full_signal_name
from server_adapter.openpbs.codes import READ_ONLY, OpenPBSErrorCode
from server_adapter.openpbs.connection import OpenPBSConnection
from server_adapter.servers.job_requests import hold_request
from server_adapter.servers.openpbs.facts import is_over, job_facts
from server_adapter.servers.openpbs.reader import job_request

__all__ = ["REQUESTS", "OpenPBSPreemptionClient"]

REQUESTS: Final = READ_ONLY | {
    RequestCode.RERUN,
    RequestCode.SIGNAL_JOB,
    RequestCode.HOLD_JOB,
    RequestCode.RELEASE_JOB,
}
"""Requests of a preemption on its own connection, permitted only in scheduler mode."""
_GONE: Final = frozenset({OpenPBSErrorCode.UNKJOBID, OpenPBSErrorCode.HISTJOBID})


class OpenPBSPreemptionClient:
    """Ends runs. A rerun is answered when the node has ended the job: reruns have their own connections."""

    def __init__(self, link: LinkPool[OpenPBSConnection]) -> None:
        self._link = link

    async def find_job(self, job: str) -> JobFacts | None:
        """Return the job; None if it has ended or is unknown."""
        async with self._link.borrow() as connection:
            try:
                found = await connection.describe(job_request(job))
            except ServerRefusedError as error:
                if error.code in _GONE:
                    return None
                raise
        values = next((one.values for one in found if one.name == job), None)
        return None if values is None or is_over(values) else job_facts(job, values)

    async def signal_job(self, job: str, signal: str) -> None:
        """Send a signal to the job."""
        async with self._link.borrow() as connection:
            await connection.request(SignalRequest(job=job, signal=full_signal_name(signal)))

    async def requeue_job(self, job: str) -> None:
        """Requeue the job by a rerun."""
        async with self._link.borrow() as connection:
            await connection.request(JobRequest(code=RequestCode.RERUN, job=job))

    async def suspend_job(self, job: str) -> None:
        """Suspend the job; the server frees its nodes."""
        async with self._link.borrow() as connection:
            await connection.request(SignalRequest(job=job, signal="suspend"))

    async def resume_job(self, job: str) -> None:
        """Resume the job."""
        async with self._link.borrow() as connection:
            await connection.request(SignalRequest(job=job, signal="resume"))

    async def hold_job(self, job: str) -> None:
        """Hold the job; one that runs and has declared support for it is checkpointed, and its run ends."""
        async with self._link.borrow() as connection:
            await connection.request(hold_request(RequestCode.HOLD_JOB, job, CHECKPOINT_HOLD))

    async def lift_hold(self, job: str) -> None:
        """Lift this hold."""
        async with self._link.borrow() as connection:
            await connection.request(hold_request(RequestCode.RELEASE_JOB, job, CHECKPOINT_HOLD))

    async def close(self) -> None:
        """Disconnect."""
        await self._link.close()
