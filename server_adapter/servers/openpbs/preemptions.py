"""Preemption on an OpenPBS server: ``qsig``, ``qrerun`` and ``qhold``, on connections of its own.

The request PreemptJobs is not used: only the registered scheduler may send it, the server answers it when the
job has ended on its nodes, and meanwhile no job starts on that connection. On a busy server this took 30 s.

A suspension on a connection that is not the scheduler's leaves the job in the substate 43: it goes on only
after an explicit resume. That brings it into the substate 45, and ``Resumer``, as the scheduler, resumes it.
"""

from typing import Final

from schedd.wire import JobFacts
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.openpbs.codes import READ_ONLY, OpenPBSErrorCode
from server_adapter.openpbs.connection import OpenPBSConnection
from server_adapter.servers.openpbs.facts import is_over, job_facts
from server_adapter.servers.openpbs.reader import job_request
from server_adapter.servers.preemption_requests import PREEMPTION_REQUESTS, PreemptionRequests

REQUESTS: Final = READ_ONLY | PREEMPTION_REQUESTS
_GONE: Final = frozenset({OpenPBSErrorCode.UNKJOBID, OpenPBSErrorCode.HISTJOBID})


class OpenPBSPreemptionClient(PreemptionRequests[OpenPBSConnection]):
    """Ends runs. A rerun is answered when the node has ended the job: reruns have their own connections."""

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
