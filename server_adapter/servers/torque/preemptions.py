"""Preemption on a TORQUE server: ``qsig``, ``qrerun`` and ``qhold`` over connections of their own.

A rerun is answered when the node has ended the job, which may take longer than a reading may wait.
"""

from typing import Final

from schedd.wire import JobFacts
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import JobRequest, SignalRequest
from server_adapter.bridge.link import LinkPool
from server_adapter.bridge.preemptions import CHECKPOINT_HOLD, full_signal_name
from server_adapter.servers.job_requests import hold_request
from server_adapter.servers.torque.attribute_query import AttributeQuery
from server_adapter.servers.torque.facts import job_facts
from server_adapter.torque.codes import READ_ONLY
from server_adapter.torque.connection import TorqueConnection
from server_adapter.torque.errors import TorqueErrorCode

__all__ = ["REQUESTS", "TorquePreemptionClient"]

REQUESTS: Final = READ_ONLY | {
    RequestCode.RERUN,
    RequestCode.SIGNAL_JOB,
    RequestCode.HOLD_JOB,
    RequestCode.RELEASE_JOB,
}
"""Requests of a preemption, permitted only in scheduler mode."""


class TorquePreemptionClient:
    """Ends runs. `jobs` is the query for a job."""

    def __init__(self, link: LinkPool[TorqueConnection], jobs: AttributeQuery) -> None:
        self._link = link
        self._jobs = jobs

    async def find_job(self, job: str) -> JobFacts | None:
        """Return the job; None if it is complete or unknown."""
        async with self._link.borrow() as connection:
            try:
                found = await self._jobs.fetch(connection, job)
            except ServerRefusedError as error:
                if error.code == TorqueErrorCode.UNKJOBID:
                    return None
                raise
        if not found or found[0].values.get("job_state") == "C":
            return None
        return job_facts(job, found[0].values)

    async def signal_job(self, job: str, signal: str) -> None:
        """Send a signal to the job."""
        async with self._link.borrow() as connection:
            await connection.request(SignalRequest(job=job, signal=full_signal_name(signal)))

    async def requeue_job(self, job: str) -> None:
        """Rerun the job."""
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
