"""Preemption on a TORQUE server: ``qsig``, ``qrerun`` and ``qhold`` over connections of their own.

A rerun is answered when the node has ended the job, which may take longer than a reading may wait.
"""

from typing import Final

from schedd.wire import JobFacts
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.link import LinkPool
from server_adapter.servers.preemption_requests import PREEMPTION_REQUESTS, PreemptionRequests
from server_adapter.servers.torque.attribute_query import AttributeQuery
from server_adapter.servers.torque.facts import job_facts
from server_adapter.torque.codes import READ_ONLY
from server_adapter.torque.connection import TorqueConnection
from server_adapter.torque.errors import TorqueErrorCode

REQUESTS: Final = READ_ONLY | PREEMPTION_REQUESTS


class TorquePreemptionClient(PreemptionRequests[TorqueConnection]):
    """Ends runs. `jobs` is the query for a job."""

    def __init__(self, link: LinkPool[TorqueConnection], jobs: AttributeQuery) -> None:
        super().__init__(link)
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
