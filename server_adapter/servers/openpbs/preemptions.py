"""Preemption on an OpenPBS server: the request PreemptJobs if it does what is decided, else ``qrerun``.

The server chooses the methods of PreemptJobs itself, by ``preempt_order`` of the scheduler. The request is
therefore used only if this order is `R`: then each job is requeued, and the server notes the preemption
(`sched_preempted`). Its reply names the method for each job: `Q` requeued, `D` ended or deleted before, `000`
failed. With any other order, and its default is suspension first, the job is rerun.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from schedd.wire import JobFacts
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.replies import PreemptedJobs
from server_adapter.batch.requests import JobRequest, SignalRequest, StatusRequest
from server_adapter.bridge.link import LinkPool
from server_adapter.bridge.preemptions import full_signal_name
from server_adapter.openpbs.codes import READ_ONLY, OpenPBSErrorCode
from server_adapter.openpbs.connection import OpenPBSConnection
from server_adapter.openpbs.requests import PreemptJobsRequest
from server_adapter.servers.openpbs.facts import is_over, job_facts
from server_adapter.servers.openpbs.reader import job_request

__all__ = ["REQUESTS", "OpenPBSPreemptionClient"]

REQUESTS: Final = READ_ONLY | {RequestCode.RERUN, RequestCode.SIGNAL_JOB}
"""Requests of a preemption on its own connection, permitted only in scheduler mode."""
_GONE: Final = frozenset({OpenPBSErrorCode.UNKJOBID, OpenPBSErrorCode.HISTJOBID})
_REQUEUED: Final = frozenset({"Q", "D"})
_SCHEDULERS: Final = StatusRequest(code=RequestCode.STATUS_SCHEDULER)

BorrowConnection = Callable[[], AbstractAsyncContextManager[OpenPBSConnection]]


class OpenPBSPreemptionClient:
    """Ends runs. A rerun is answered when the node has ended the job, so reruns have their own connections;
    `borrow_place` lends the connection of the registered scheduler, the only one for PreemptJobs.
    """

    def __init__(
        self, link: LinkPool[OpenPBSConnection], borrow_place: BorrowConnection, scheduler: str
    ) -> None:
        self._link = link
        self._borrow_place = borrow_place
        self._scheduler = scheduler

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
        """Requeue the job by PreemptJobs or by a rerun."""
        async with self._link.borrow() as connection:
            schedulers = await connection.describe(_SCHEDULERS)
            order = next(
                (one.values.get("preempt_order", "") for one in schedulers if one.name == self._scheduler), ""
            )
            if order.strip().strip('"') != "R":
                await connection.request(JobRequest(code=RequestCode.RERUN, job=job))
                return
        async with self._borrow_place() as connection:
            reply = await connection.request(PreemptJobsRequest(jobs=(job,)))
        methods = dict(reply.payload.jobs) if isinstance(reply.payload, PreemptedJobs) else {}
        if methods.get(job) not in _REQUEUED:
            raise ValueError(f"the server did not requeue it (PreemptJobs: {methods.get(job, 'no answer')})")

    async def close(self) -> None:
        """Disconnect."""
        await self._link.close()
