"""A server that knows fewer attributes than we ask for."""

import pytest

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import StatusRequest
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.servers.torque.attribute_query import AttributeQuery
from server_adapter.torque.errors import TorqueErrorCode

KNOWN = {"job_state", "comment"}


class StrictServer:
    """Refuses a request with an unknown name as a whole, as the real one does."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.code = TorqueErrorCode.NOATTR

    async def describe(self, request: StatusRequest) -> list[DescribedObject]:
        names = tuple(attribute.name for attribute in request.attributes)
        self.asked.append(names)
        if not KNOWN.issuperset(names):
            raise ServerRefusedError(self.code, "Undefined attribute", "STATUS_JOB")
        return [DescribedObject(2, request.name or "1.here", dict.fromkeys(names, "x"))]


@pytest.mark.anyio
async def test_unknown_names_are_detected_once_and_removed() -> None:
    server = StrictServer()
    query = AttributeQuery(RequestCode.STATUS_JOB, ["job_state", "planned_start", "comment", "planned_nodes"])
    found = await query.fetch(server, "7.here")  # type: ignore[arg-type]
    assert [(job.name, set(job.values)) for job in found] == [("7.here", KNOWN)]
    assert query.names == ("job_state", "comment")
    server.asked.clear()
    await query.fetch(server)  # type: ignore[arg-type]
    assert server.asked == [("job_state", "comment")]


@pytest.mark.anyio
async def test_other_refusals_are_not_treated_as_unknown_names() -> None:
    server = StrictServer()
    server.code = TorqueErrorCode.UNKJOBID
    query = AttributeQuery(RequestCode.STATUS_JOB, ["job_state", "planned_start"])
    with pytest.raises(ServerRefusedError):
        await query.fetch(server)  # type: ignore[arg-type]
    assert len(server.asked) == 1
    assert query.names == ("job_state", "planned_start")


@pytest.mark.anyio
async def test_there_may_be_no_object_left_to_try_the_names_on() -> None:
    class EmptiedServer(StrictServer):
        async def describe(self, request: StatusRequest) -> list[DescribedObject]:
            await super().describe(request)
            return []

    query = AttributeQuery(RequestCode.STATUS_JOB, ["job_state", "planned_start"])
    assert await query.fetch(EmptiedServer()) == []  # type: ignore[arg-type]
    assert query.names == ("job_state", "planned_start")
