"""Preemption on a TORQUE server: ``qsig``, ``qrerun`` and ``qhold`` over connections of their own.

A rerun is answered when the node has ended the job, which may take longer than a reading may wait.
"""

from typing import Final

from schedd.wire import JobFacts
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import StatusRequest
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.facts import parse_or
from server_adapter.bridge.link import LinkPool
from server_adapter.dis import Attribute
from server_adapter.servers.preemption_requests import (
    PREEMPTION_REQUESTS,
    PreemptionRequests,
    is_being_requeued,
)
from server_adapter.servers.torque.attribute_query import AttributeQuery
from server_adapter.servers.torque.facts import job_facts
from server_adapter.servers.torque.requests import walltime_request
from server_adapter.torque.codes import READ_ONLY
from server_adapter.torque.connection import TorqueConnection
from server_adapter.torque.errors import TorqueErrorCode
from server_adapter.torque.notation import seconds

REQUESTS: Final = READ_ONLY | PREEMPTION_REQUESTS


class TorquePreemptionClient(PreemptionRequests[TorqueConnection]):
    """Ends runs. `jobs` is the query for a job."""

    def __init__(self, link: LinkPool[TorqueConnection], jobs: AttributeQuery) -> None:
        super().__init__(link)
        self._jobs = jobs
        self._delays = AttributeQuery(RequestCode.STATUS_JOB, ("queue", "user_kill_delay"))
        self._substate = AttributeQuery(RequestCode.STATUS_JOB, ("job_state", "substate"))
        self.queries = (self._delays, self._substate)

    async def find_job(self, job: str) -> JobFacts | None:
        """Return the job; None if it is complete or unknown."""
        found = await self._fetch(self._jobs, job)
        if not found or found[0].values.get("job_state") == "C":
            return None
        return job_facts(job, found[0].values)

    async def signal_job(self, job: str, signal: str) -> bool:
        """Send a signal to a running job. One on several nodes gets none: its first MoM would end it on the
        others, whatever the signal.
        """
        found = await self.find_job(job)
        if found is not None and len({share.node for share in found.shares}) > 1:
            return False
        return await super().signal_job(job, signal)

    async def requeue_job(self, job: str) -> None:
        """End the run of a job and put it back into its queue.

        Raises ValueError with a `kill_delay`: TORQUE then sends SIGTERM that long before it notes the rerun,
        and a job that ends in between counts as finished.
        """
        if delay := await self._kill_delay(job):
            raise ValueError(
                f"kill_delay is {delay} s: TORQUE would count a job that ends at the SIGTERM of a rerun as "
                "finished; unset kill_delay of the server and its queues, and user_kill_delay of jobs"
            )
        await super().requeue_job(job)

    async def _kill_delay(self, job: str) -> int:
        """Return the `kill_delay` of the job, or else of its queue, or else of the server, in seconds."""
        found = await self._fetch(self._delays, job)
        values = found[0].values if found else {}
        if own := parse_or(int, values.get("user_kill_delay"), default=0):
            return own
        queue = values.get("queue", "")
        wanted = (Attribute("kill_delay"),)
        async with self._link.borrow() as connection:
            for request in (
                StatusRequest(code=RequestCode.STATUS_QUEUE, name=queue, attributes=wanted),
                StatusRequest(code=RequestCode.STATUS_SERVER, attributes=wanted),
            ):
                for one in await connection.describe(request):
                    if value := one.values.get("kill_delay"):
                        return parse_or(int, value, default=0)
        return 0

    def read_walltime(self, job: JobFacts) -> int:
        """Return the walltime of a job in seconds; 0 if it has none."""
        return parse_or(seconds, job.resources.get("walltime"), default=0)

    async def set_walltime(self, job: str, walltime: int) -> None:
        """Set the walltime of a running job in seconds, as a manager may."""
        await self.send(walltime_request(job, walltime))

    async def is_being_requeued(self, job: str) -> bool:
        """Return whether the server is ending the run of this job to requeue it."""
        found = await self._fetch(self._substate, job)
        return bool(found) and is_being_requeued(found[0].values.get("substate", ""))

    async def _fetch(self, query: AttributeQuery, job: str) -> list[DescribedObject]:
        async with self._link.borrow() as connection:
            try:
                return await query.fetch(connection, job)
            except ServerRefusedError as error:
                if error.code == TorqueErrorCode.UNKJOBID:
                    return []
                raise
