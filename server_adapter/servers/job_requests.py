"""Requests that both families share."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from server_adapter.batch.codes import ManagerCommand, ObjectType, RequestCode
from server_adapter.batch.connection import BatchConnection
from server_adapter.batch.requests import ManageRequest, StatusRequest
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.dis import Attribute

SCHEDULING_QUERY: Final = StatusRequest(code=RequestCode.STATUS_SERVER, attributes=(Attribute("scheduling"),))
"""Whether the server's attribute ``scheduling`` is set."""


STARTED_QUERY: Final = StatusRequest(code=RequestCode.STATUS_QUEUE, attributes=(Attribute("started"),))
"""Whether each queue is started."""


def stopped_queues(queues: Iterable[DescribedObject]) -> frozenset[str]:
    """Return the queues that start no jobs, by the answer to ``STARTED_QUERY``. A server runs jobs of such a
    queue if it is asked to, and tells no scheduler that a queue was stopped.
    """
    return frozenset({one.name for one in queues if one.values.get("started", "").lower().startswith("f")})


class DescribingConnection(Protocol):
    """A connection of either family that can read the status of objects."""

    async def describe(self, request: StatusRequest) -> list[DescribedObject]: ...


def modify_request(job: str, attributes: Iterable[Attribute]) -> ManageRequest:
    """Return the request that sets attributes of a job. The server replies, so its time can be measured."""
    return ManageRequest(
        code=RequestCode.MODIFY_JOB,
        command=ManagerCommand.SET,
        object_type=ObjectType.JOB,
        name=job,
        attributes=tuple(attributes),
    )


def hold_request(code: RequestCode, job: str, letters: str) -> ManageRequest:
    """Return the request that sets (HOLD_JOB) or releases (RELEASE_JOB) the holds with these letters."""
    return ManageRequest(
        code=code,
        command=ManagerCommand.SET,
        object_type=ObjectType.JOB,
        name=job,
        attributes=(Attribute("Hold_Types", letters),),
    )


async def release_hold(connection: BatchConnection, job: str, holds: str, letter: str) -> None:
    """Lift the hold with this letter, if it is among the ``holds`` of the job."""
    if letter in holds:
        await connection.request(hold_request(RequestCode.RELEASE_JOB, job, letter))


async def list_jobs_of_routing_queues(
    connection: DescribingConnection, queues: Sequence[str]
) -> list[DescribedObject]:
    """Return the jobs of all routing queues among `queues`."""
    types = StatusRequest(code=RequestCode.STATUS_QUEUE, attributes=(Attribute("queue_type"),))
    routing = {
        queue.name
        for queue in await connection.describe(types)
        if queue.values.get("queue_type", "").lower().startswith("r")
    }
    found: list[DescribedObject] = []
    for queue in queues:
        if queue in routing:
            found += await connection.describe(StatusRequest(code=RequestCode.STATUS_JOB, name=queue))
    return found
