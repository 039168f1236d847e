"""Preemption on an OpenPBS server: ``qsig``, ``qrerun`` and ``qhold``, on connections of its own.

The request PreemptJobs is not used: only the registered scheduler may send it, the server answers it when the
job has ended on its nodes, and meanwhile no job starts on that connection. On a busy server this took 30 s.

A suspension on a connection that is not the scheduler's leaves the job in the substate 43: it goes on only
after an explicit resume. That brings it into the substate 45, and ``Resumer``, as the scheduler, resumes it.
"""

from typing import Final

from schedd.wire import JobFacts
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.facts import Values, parse_or
from server_adapter.bridge.link import LinkPool
from server_adapter.openpbs.codes import NO_SUCH_JOB, READ_ONLY, OpenPBSErrorCode
from server_adapter.openpbs.connection import OpenPBSConnection
from server_adapter.openpbs.notation import seconds
from server_adapter.servers.openpbs.facts import is_over, job_facts
from server_adapter.servers.openpbs.reader import job_request
from server_adapter.servers.openpbs.requests import walltime_request
from server_adapter.servers.preemption_requests import (
    PREEMPTION_REQUESTS,
    PreemptionRequests,
    is_being_requeued,
)

REQUESTS: Final = READ_ONLY | PREEMPTION_REQUESTS
_SILENCES: Final = frozenset({OpenPBSErrorCode.CKPBSY, OpenPBSErrorCode.NORELYMOM})
"""The node is making another checkpoint, or the connection to it broke before its reply."""


class OpenPBSPreemptionClient(PreemptionRequests[OpenPBSConnection]):
    """Ends runs. A rerun is answered when the node has ended the job: reruns have their own connections.

    After the server's `job_requeue_timeout` (45 s) it is answered with 15011, and goes on.
    """

    def __init__(self, link: LinkPool[OpenPBSConnection]) -> None:
        super().__init__(link, _SILENCES)

    async def find_job(self, job: str) -> JobFacts | None:
        """Return the job; None if it has ended or is unknown."""
        values = await self._describe(job)
        return None if values is None or is_over(values) else job_facts(job, values)

    def read_walltime(self, job: JobFacts) -> int:
        """Return the walltime of a job in seconds; 0 if it has none."""
        return parse_or(seconds, job.resources.get("walltime"), default=0)

    async def set_walltime(self, job: str, walltime: int) -> None:
        """Set the walltime of a running job in seconds, as a manager may."""
        await self.send(walltime_request(job, walltime))

    async def is_being_requeued(self, job: str) -> bool:
        """Return whether the server is ending the run of this job to requeue it."""
        values = await self._describe(job)
        return values is not None and is_being_requeued(values.get("substate", ""))

    async def _describe(self, job: str) -> Values | None:
        async with self._link.borrow() as connection:
            try:
                found = await connection.describe(job_request(job))
            except ServerRefusedError as error:
                if error.code in NO_SUCH_JOB:
                    return None
                raise
        return next((one.values for one in found if one.name == job), None)
