"""One reading of the whole server, in wanted attributes and in slices."""

import asyncio

from server_adapter.bridge.facts import JOB_ATTRIBUTES
from server_adapter.bridge.link import ServerLink
from server_adapter.bridge.state import State, StateBuilder
from server_adapter.dis import Attribute
from server_adapter.torque.codes import RequestCode
from server_adapter.torque.requests import StatusRequest
from server_adapter.torque.status import Described

_NODE_ATTRIBUTES = ("state", "np", "properties", "status", "gpus")

SERVER = StatusRequest(code=RequestCode.STATUS_SERVER)
QUEUES = StatusRequest(code=RequestCode.STATUS_QUEUE)
NODES = StatusRequest(
    code=RequestCode.STATUS_NODE, attributes=tuple(Attribute(name) for name in _NODE_ATTRIBUTES)
)
JOBS = StatusRequest(
    code=RequestCode.STATUS_JOB, attributes=tuple(Attribute(name) for name in JOB_ATTRIBUTES)
)


class StateReader:
    """Reads states one after the other. Others may use the connection between the requests."""

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        self._builder = StateBuilder()

    async def read(self) -> State:
        """The server's state now. Raises what `ServerLink.talk` and `Connection.describe` raise."""
        server = await self._ask(SERVER)
        queues = await self._ask(QUEUES)
        nodes = await self._ask(NODES)
        jobs = await self._ask(JOBS)
        values = server[0].values if server else {}
        state: State | None = None
        for built in self._builder.build(server=values, queues=queues, nodes=nodes, jobs=jobs):
            state = built
            await asyncio.sleep(0)
        assert state is not None, "the last thing built is the state"
        return state

    async def _ask(self, request: StatusRequest) -> list[Described]:
        async with self._link.talk() as connection:
            return await connection.describe(request)
