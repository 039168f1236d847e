"""Requests that both families share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from schedd.wire import Run
from server_adapter.batch.codes import ManagerCommand, ObjectType, RequestCode
from server_adapter.batch.connection import BatchConnection
from server_adapter.batch.requests import ManageRequest, StatusRequest
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.facts import Values
from server_adapter.bridge.run_checks import RunCheck, RunVerdict, check_limits
from server_adapter.dis import Attribute

SCHEDULING_QUERY: Final = StatusRequest(code=RequestCode.STATUS_SERVER, attributes=(Attribute("scheduling"),))
"""Whether the server's attribute ``scheduling`` is set."""


SERVER_QUERY: Final = StatusRequest(code=RequestCode.STATUS_SERVER)
QUEUE_QUERY: Final = StatusRequest(code=RequestCode.STATUS_QUEUE)
"""All attributes, as in a reading: limits in another notation would seem to be others."""


@dataclass(frozen=True, slots=True)
class StartConditions:
    """Attributes of the server and its queues right before a run. A server runs jobs that violate them if it
    is asked to, and does not tell its scheduler that a queue was stopped or a limit was changed.
    """

    server: Values
    queues: Mapping[str, Values]

    @property
    def scheduling(self) -> bool:
        """Whether the server's ``scheduling`` is not False."""
        return not self.server.get("scheduling", "True").lower().startswith("f")

    def check(self, run: Run, queue: str, *, reserved: bool = False) -> RunCheck:
        """Check a run of a job in this queue; ``reserved``: the queue of a reservation may start later."""
        values = self.queues.get(queue, {})
        if values.get("started", "").lower().startswith("f") and not reserved:
            return RunCheck(RunVerdict.REFUSE, f"queue {queue} is stopped")
        return check_limits(run, self.server, values)


def start_conditions(server: Sequence[DescribedObject], queues: Iterable[DescribedObject]) -> StartConditions:
    """Return the conditions by the answers to ``SERVER_QUERY`` and ``QUEUE_QUERY``."""
    return StartConditions(server[0].values if server else {}, {one.name: one.values for one in queues})


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
