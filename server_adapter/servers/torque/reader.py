"""Readings of the server, with wanted attributes and in slices."""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import SelectStatusRequest, StatusRequest
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.bridge.facts import Values
from server_adapter.bridge.manual_starts import ManualStarts
from server_adapter.bridge.server import ObjectSettings, ReadScope
from server_adapter.bridge.state import ServerState, StateBuilder
from server_adapter.dis import Attribute, Operation
from server_adapter.servers.torque.attribute_query import AttributeQuery
from server_adapter.servers.torque.facts import (
    FACT_PARSERS,
    JOB_ATTRIBUTES,
    is_known_job_state,
    unknown_node_states,
)
from server_adapter.servers.torque.link import TorqueLink
from server_adapter.servers.unknown_states import describe_unknown_states, unknown_jobs
from server_adapter.torque.connection import TorqueConnection
from server_adapter.torque.errors import TorqueErrorCode

_log = logging.getLogger(__name__)

_LONG_LIST_S: Final = 0.2
_ACTIVE_OR_OVER: Final = "RESC"
_OVER: Final = "C"
_SINGLY = 50  # missing jobs requested by name; above this number all jobs are requested again
_NODE_ATTRIBUTES = ("state", "np", "properties", "status", "gpus", "gpu_status")

SERVER = StatusRequest(code=RequestCode.STATUS_SERVER)
QUEUES = StatusRequest(code=RequestCode.STATUS_QUEUE)


def job_query() -> AttributeQuery:
    """What we ask about jobs."""
    return AttributeQuery(RequestCode.STATUS_JOB, JOB_ATTRIBUTES)


JOBS = job_query().request()


@dataclass(frozen=True, slots=True)
class _TorqueObjects:
    """Objects of a full reading except jobs; partial readings reuse them."""

    server: Values
    queues: list[DescribedObject]
    nodes: list[DescribedObject]


class TorqueReader:
    """Reads states. Other users may have the connection between its requests.

    On a large cluster a list of all jobs costs far more than a list of running and ended jobs. After ends of
    jobs, a reading therefore requests only the latter if the last full list took longer than `_LONG_LIST_S`.
    Waiting jobs are then as in the last full list, for `full_every` seconds at most.
    """

    def __init__(
        self,
        link: TorqueLink,
        jobs: AttributeQuery | None = None,
        by_hand: ManualStarts | None = None,
        *,
        full_every: float = 5.0,
        queries: Iterable[AttributeQuery] = (),
    ) -> None:
        """`queries` are reset with the reader's own if the server has another version."""
        self._link = link
        self._jobs = jobs or job_query()
        self._by_hand = by_hand
        self._builder = (
            StateBuilder(FACT_PARSERS, by_hand.started_by) if by_hand else StateBuilder(FACT_PARSERS)
        )
        self._nodes = AttributeQuery(RequestCode.STATUS_NODE, _NODE_ATTRIBUTES)
        self._queries = (self._jobs, self._nodes, *queries)
        self._version = ""
        self._full_every = full_every
        self._full_at = self._full_took = float("-inf")
        self._selects = True
        self._described: dict[str, DescribedObject] = {}
        self._objects: _TorqueObjects | None = None
        self._unknown_states = ""

    @property
    def lost_jobs(self) -> Collection[str]:
        """Jobs of the last reading that the server lists on nodes that do not have them."""
        return self._builder.lost_runs.jobs

    def state_slot_limit(self, array: str, limit: int) -> None:
        """Record the slot limit of an array, from a refusal."""
        self._builder.slot_limits.state(array, limit)

    def troubles(self) -> Iterator[tuple[str, str]]:
        """Yield the lasting troubles of the last readings, by kind."""
        yield "adapter_work", self._unknown_states
        if self._by_hand is not None:
            yield "adapter_work", self._by_hand.trouble

    async def read(self, scope: ReadScope = ReadScope.ALL) -> ServerState:
        """Return the server's state. A smaller `scope` reads only the server, queues and jobs, ENDS only
        running and ended jobs; the rest is from the last full reading.

        Raises what `TorqueLink.borrow` and `TorqueConnection.describe` raise.
        """
        objects = None if scope is ReadScope.ALL else self._objects
        self._objects = None
        objects = objects or await self._read_objects()
        if not (scope is ReadScope.ENDS and self._may_select() and await self._update()):
            await self._list_all()
        objects = await self._with_limits(objects)
        if self._by_hand is not None:
            self._by_hand.refresh()  # after the jobs: the server logs a run before it shows it
        state: ServerState | None = None
        jobs = list(self._described.values())
        self._unknown_states = describe_unknown_states(
            {node.name: unknown_node_states(node.values.get("state", "")) for node in objects.nodes},
            unknown_jobs(jobs, is_known_job_state),
        )
        for built in self._builder.build(
            server=objects.server, queues=objects.queues, nodes=objects.nodes, jobs=jobs
        ):
            state = built
            await asyncio.sleep(0)
        assert state is not None, "the last thing built is the state"
        self._objects = objects
        return state

    async def _read_objects(self) -> _TorqueObjects:
        server = await self._describe(SERVER)
        values = server[0].values if server else {}
        before, self._version = self._version, values.get("pbs_version", "")
        if self._version != before:
            self._selects = True
            for query in self._queries:
                query.reset()
        async with self._link.borrow() as connection:
            nodes = await self._nodes.fetch(connection)
        return _TorqueObjects(values, [], nodes)

    async def _with_limits(self, objects: _TorqueObjects) -> _TorqueObjects:
        """Return the objects with the server and its queues as they are now.

        They are read after the jobs: a job must not be known before a limit that was set before it came.
        """
        server = await self._describe(SERVER)
        queues = await self._describe(QUEUES)
        return replace(objects, server=server[0].values if server else {}, queues=queues)

    async def _list_all(self) -> None:
        began = time.monotonic()
        async with self._link.borrow() as connection:
            jobs = await self._jobs.fetch(connection)
            jobs += await self._left_out(connection, {job.name for job in jobs})
        self._full_at = time.monotonic()
        self._full_took = self._full_at - began
        self._described = {job.name: job for job in jobs}

    def _may_select(self) -> bool:
        age = time.monotonic() - self._full_at
        return self._selects and self._full_took > _LONG_LIST_S and age < self._full_every

    async def _update(self) -> bool:
        """List running and ended jobs; return False if the server does not support this."""
        wanted = self._jobs.names
        request = SelectStatusRequest(
            code=RequestCode.SELECT_STATUS_IN,
            conditions=(Attribute("job_state", _ACTIVE_OR_OVER, operation=Operation.EQ),),
            attributes=tuple([Attribute(name) for name in wanted]),
        )
        async with self._link.borrow() as connection:
            if connection.version < 2:
                self._selects = False
                return False
            try:
                found = {job.name: job for job in await connection.describe(request, frozenset(wanted))}
            except ServerRefusedError as error:
                _log.info("all jobs are listed after each end: %s", error)
                self._selects = False
                return False
            gone = {
                name: state
                for name, job in self._described.items()
                if (state := job.values.get("job_state", "?")) in _ACTIVE_OR_OVER and name not in found
            }
            back = [name for name, state in gone.items() if state != _OVER]  # else it left the list
            if len(back) > _SINGLY:
                return False
            for name in gone:
                del self._described[name]
            for name in back:
                try:
                    found |= {job.name: job for job in await self._jobs.fetch(connection, name)}
                except ServerRefusedError as error:
                    if error.code != TorqueErrorCode.UNKJOBID:
                        raise
        self._described |= found
        return True

    async def _left_out(self, connection: TorqueConnection, seen: Collection[str]) -> list[DescribedObject]:
        """Return jobs of the last reading that are missing in this list although they exist.

        4.2.10 sometimes omits jobs while it is busy with ends and starts.
        """
        vanished = [name for name in self._builder.living if name not in seen]
        found: list[DescribedObject] = []
        if len(vanished) > _SINGLY:
            wanted = frozenset(vanished)
            found = [job for job in await self._jobs.fetch(connection) if job.name in wanted]
        else:
            for name in vanished:
                try:
                    found += await self._jobs.fetch(connection, name)
                except ServerRefusedError as error:
                    if error.code != TorqueErrorCode.UNKJOBID:
                        raise
        if found:
            _log.info("the server left %d jobs out of its list: %s, ...", len(found), found[0].name)
        return found

    async def settings(self) -> list[ObjectSettings]:
        """Return the settings of the server and its queues. Raises as `read` does."""
        described = [ObjectSettings("server", one.name, one.values) for one in await self._describe(SERVER)]
        described += [ObjectSettings("queue", one.name, one.values) for one in await self._describe(QUEUES)]
        return described

    async def _describe(self, request: StatusRequest) -> list[DescribedObject]:
        async with self._link.borrow() as connection:
            return await connection.describe(request)
