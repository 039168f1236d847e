"""Moves jobs out of a TORQUE server's routing queues.

No request returns the script of a job. It is in the file ``server_priv/jobs/NAME.SC`` on the server's host;
NAME is the attribute ``hashname``, by default the job's id.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from server_adapter.batch.codes import ManagerCommand, ObjectType, RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import ManageRequest, StatusRequest
from server_adapter.bridge.queue_drainer import (
    GONE,
    MOST_SCRIPT,
    DrainError,
    OfferJob,
    RoutedJob,
    RoutedJobFate,
    decode_script,
)
from server_adapter.dis import Attribute
from server_adapter.servers.job_requests import hold_request, list_jobs_of_routing_queues, modify_request
from server_adapter.servers.routed_jobs import parse_routed_job
from server_adapter.servers.torque.link import TorqueLink
from server_adapter.torque.connection import TorqueConnection
from server_adapter.torque.errors import TorqueErrorCode

REQUESTS: Final = frozenset({RequestCode.HOLD_JOB, RequestCode.RELEASE_JOB, RequestCode.DELETE_JOB})
"""Requests that draining sends, in addition to comments."""
_HOLD: Final = "o"


class TorqueQueueRouter:
    """Reads routing queues, and moves their jobs out."""

    def __init__(self, link: TorqueLink, scripts: Path) -> None:
        self._link = link
        self._scripts = scripts

    async def list_routed(self, queues: Sequence[str]) -> list[RoutedJob]:
        """Return the jobs of all routing queues among `queues`."""
        async with self._link.borrow() as connection:
            jobs = await list_jobs_of_routing_queues(connection, queues)
        return [parse_routed_job(job.name, job.values) for job in jobs]

    async def hold_routed(self, job: str, comment: str) -> RoutedJob | None:
        """See `DrainableServer`."""
        async with self._link.borrow() as connection:
            try:
                await connection.request(modify_request(job, [Attribute("comment", comment)]))
                await connection.request(hold_request(RequestCode.HOLD_JOB, job, _HOLD))
                found = await connection.describe(StatusRequest(code=RequestCode.STATUS_JOB, name=job))
            except ServerRefusedError as error:
                if error.code in (TorqueErrorCode.UNKJOBID, TorqueErrorCode.BADSTATE):
                    return None
                raise
        return parse_routed_job(found[0].name, found[0].values) if found else None

    async def release_routed(self, job: str, comment: str) -> None:
        """See `DrainableServer`."""
        async with self._link.borrow() as connection:
            await _unless_gone(connection, modify_request(job, [Attribute("comment", comment)]))
            await _unless_gone(connection, hold_request(RequestCode.RELEASE_JOB, job, _HOLD))

    async def hand_over_routed(self, job: RoutedJob, offer: OfferJob) -> None:
        """See `DrainableServer`. The job is deleted here once the federation has it."""
        number = await offer(job, await asyncio.to_thread(self.read_script, job))
        await self.remove(job.id, GONE.format(number))

    async def fate(self, job: str) -> RoutedJobFate:
        """See `DrainableServer`."""
        async with self._link.borrow() as connection:
            try:
                found = await connection.describe(StatusRequest(code=RequestCode.STATUS_JOB, name=job))
            except ServerRefusedError as error:
                if error.code == TorqueErrorCode.UNKJOBID:
                    return ""
                raise
        values = found[0].values if found else {}
        if values.get("job_state") != "C":
            return "here" if found else ""
        return "went" if values.get("comment", "").startswith(GONE.format("")) else "deleted"

    def read_script(self, job: RoutedJob) -> str:
        """Read the script file of the job. Raises `DrainError`."""
        name = f"{job.attributes.get('hashname') or job.id}.SC"
        path = self._scripts / name
        if Path(name).name != name:
            raise DrainError(f"{name!r} is no name of a script")
        try:
            with path.open("rb") as file:
                return decode_script(file.read(MOST_SCRIPT + 1))
        except OSError as error:
            raise DrainError(f"its script {path} cannot be read: {error.strerror}") from None

    async def remove(self, job: str, comment: str) -> None:
        """See `DrainableServer`."""
        async with self._link.borrow() as connection:
            await _unless_gone(connection, modify_request(job, [Attribute("comment", comment)]))
            await _unless_gone(
                connection,
                ManageRequest(
                    code=RequestCode.DELETE_JOB,
                    command=ManagerCommand.DELETE,
                    object_type=ObjectType.JOB,
                    name=job,
                ),
            )


async def _unless_gone(connection: TorqueConnection, request: ManageRequest) -> None:
    try:
        await connection.request(request)
    except ServerRefusedError as error:
        if error.code not in (TorqueErrorCode.UNKJOBID, TorqueErrorCode.BADSTATE):
            raise
