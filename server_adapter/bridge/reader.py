"""One reading of the whole server, in wanted attributes and in slices."""

import asyncio

from server_adapter.bridge.facts import JOB_ATTRIBUTES
from server_adapter.bridge.link import ServerLink
from server_adapter.bridge.question import Question
from server_adapter.bridge.state import State, StateBuilder
from server_adapter.torque.codes import RequestCode
from server_adapter.torque.requests import StatusRequest
from server_adapter.torque.status import Described

_NODE_ATTRIBUTES = ("state", "np", "properties", "status", "gpus")

SERVER = StatusRequest(code=RequestCode.STATUS_SERVER)
QUEUES = StatusRequest(code=RequestCode.STATUS_QUEUE)


def job_question() -> Question:
    """What we ask about jobs."""
    return Question(RequestCode.STATUS_JOB, JOB_ATTRIBUTES)


JOBS = job_question().request()


class StateReader:
    """Reads states one after the other. Others may use the connection between the requests."""

    def __init__(self, link: ServerLink, jobs: Question | None = None) -> None:
        self._link = link
        self._jobs = jobs or job_question()
        self._builder = StateBuilder()
        self._nodes = Question(RequestCode.STATUS_NODE, _NODE_ATTRIBUTES)

    async def read(self) -> State:
        """The server's state now. Raises what `ServerLink.talk` and `Connection.describe` raise."""
        server = await self._ask(SERVER)
        queues = await self._ask(QUEUES)
        async with self._link.talk() as connection:
            nodes = await self._nodes.ask(connection)
        async with self._link.talk() as connection:
            jobs = await self._jobs.ask(connection)
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
