"""The server's state as values: ask, decode and parse, never holding the event loop for long."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from server_adapter.batch.described import Described
from server_adapter.batch.errors import ProtocolError, ServerRefusedError
from server_adapter.torque import verbs
from server_adapter.torque.attributes import JOB_ATTRIBUTES, JobStatus, NodeStatus, QueueStatus, ServerStatus
from server_adapter.torque.codes import RequestCode
from server_adapter.torque.connection import Connection
from server_adapter.torque.describe import parse_job, parse_node, parse_queue, parse_server
from server_adapter.torque.errors import ServerCode

ASKED = JOB_ATTRIBUTES - {"array_slot_limit", "Walltime", "planned_start", "planned_nodes"}
"""The job attributes that every server since 2.5 may be asked for."""

_SLICE = 200  # objects parsed at a time: about 3 ms

Out = TypeVar("Out")


async def read_jobs(
    connection: Connection, attributes: Collection[str] = ASKED, queue: str = ""
) -> list[JobStatus]:
    """All jobs (of a queue), with the attributes named, the finished ones that the server keeps included.

    A server refuses (15002) names that it does not know. Raises as `Connection.describe`.
    """
    ask = verbs.status_of(RequestCode.STATUS_JOB, queue, attributes)
    return await _parsed(await connection.describe(ask), parse_job)


async def read_job(connection: Connection, job: str, attributes: Collection[str] = ASKED) -> JobStatus | None:
    """One job, as it is right now; None when the server does not know it."""
    try:
        found = await connection.describe(verbs.status_of(RequestCode.STATUS_JOB, job, attributes))
    except ServerRefusedError as error:
        if error.code == ServerCode.UNKJOBID:
            return None
        raise
    return parse_job(found[0].name, found[0].values) if found else None


async def read_nodes(connection: Connection, name: str = "") -> list[NodeStatus]:
    """All nodes, or one."""
    return await _parsed(
        await connection.describe(verbs.status_of(RequestCode.STATUS_NODE, name)), parse_node
    )


async def read_queues(connection: Connection) -> list[QueueStatus]:
    """All queues."""
    return await _parsed(await connection.describe(verbs.status_of(RequestCode.STATUS_QUEUE)), parse_queue)


async def read_server(connection: Connection) -> ServerStatus:
    """The server itself."""
    found = await connection.describe(verbs.status_of(RequestCode.STATUS_SERVER))
    if not found:
        raise ProtocolError("pbs_server said nothing about itself")
    return parse_server(found[0].name, found[0].values)


async def _parsed(found: Sequence[Described], parse: Callable[[str, dict[str, str]], Out]) -> list[Out]:
    values: list[Out] = []
    for start in range(0, len(found), _SLICE):
        values += [parse(item.name, item.values) for item in found[start : start + _SLICE]]
        await asyncio.sleep(0)
    return values
