"""One reading of the whole server, in wanted attributes and in slices."""

import asyncio
import logging
from collections.abc import Collection

from server_adapter.batch.described import Described
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.by_hand import ByHand
from server_adapter.bridge.server import Told
from server_adapter.bridge.state import State, StateBuilder
from server_adapter.servers.torque.facts import JOB_ATTRIBUTES, WORDS
from server_adapter.servers.torque.link import ServerLink
from server_adapter.servers.torque.question import Question
from server_adapter.torque.codes import RequestCode
from server_adapter.torque.connection import Connection
from server_adapter.torque.errors import ServerCode
from server_adapter.torque.requests import StatusRequest

_log = logging.getLogger(__name__)

_SINGLY = 50  # vanished jobs that are asked for one by one; of more, all jobs are asked for again
_NODE_ATTRIBUTES = ("state", "np", "properties", "status", "gpus")

SERVER = StatusRequest(code=RequestCode.STATUS_SERVER)
QUEUES = StatusRequest(code=RequestCode.STATUS_QUEUE)


def job_question() -> Question:
    """What we ask about jobs."""
    return Question(RequestCode.STATUS_JOB, JOB_ATTRIBUTES)


JOBS = job_question().request()


class StateReader:
    """Reads states one after the other. Others may use the connection between the requests."""

    def __init__(self, link: ServerLink, jobs: Question | None = None, by_hand: ByHand | None = None) -> None:
        self._link = link
        self._jobs = jobs or job_question()
        self._by_hand = by_hand
        self._builder = StateBuilder(WORDS, by_hand.who) if by_hand else StateBuilder(WORDS)
        self._nodes = Question(RequestCode.STATUS_NODE, _NODE_ATTRIBUTES)

    async def read(self) -> State:
        """The server's state now. Raises what `ServerLink.talk` and `Connection.describe` raise."""
        server = await self._ask(SERVER)
        queues = await self._ask(QUEUES)
        async with self._link.talk() as connection:
            nodes = await self._nodes.ask(connection)
        async with self._link.talk() as connection:
            jobs = await self._jobs.ask(connection)
            jobs += await self._left_out(connection, {job.name for job in jobs})
        if self._by_hand is not None:
            self._by_hand.refresh()  # after the jobs: the server notes a run before it shows it
        values = server[0].values if server else {}
        state: State | None = None
        for built in self._builder.build(server=values, queues=queues, nodes=nodes, jobs=jobs):
            state = built
            await asyncio.sleep(0)
        assert state is not None, "the last thing built is the state"
        return state

    async def _left_out(self, connection: Connection, seen: Collection[str]) -> list[Described]:
        """Jobs that the last reading showed, that this list lacks, and that are there all the same.

        4.2.10 leaves jobs out of its list at times, while it is busy with ends and starts.
        """
        vanished = [name for name in self._builder.living if name not in seen]
        found: list[Described] = []
        if len(vanished) > _SINGLY:
            wanted = frozenset(vanished)
            found = [job for job in await self._jobs.ask(connection) if job.name in wanted]
        else:
            for name in vanished:
                try:
                    found += await self._jobs.ask(connection, name)
                except ServerRefusedError as error:
                    if error.code != ServerCode.UNKJOBID:
                        raise
        if found:
            _log.info("the server left %d jobs out of its list: %s, ...", len(found), found[0].name)
        return found

    async def settings(self) -> list[Told]:
        """What the server says of itself and its queues. Raises as `read` does."""
        told = [Told("server", one.name, one.values) for one in await self._ask(SERVER)]
        told += [Told("queue", one.name, one.values) for one in await self._ask(QUEUES)]
        return told

    async def _ask(self, request: StatusRequest) -> list[Described]:
        async with self._link.talk() as connection:
            return await connection.describe(request)
