"""Move of a job to another server: the requests that are sent, and the state of the job afterwards."""

import asyncio
import re
from collections.abc import Iterator
from typing import Final

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.frames import encode_request
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import (
    DisconnectRequest,
    JobRequest,
    JobScriptRequest,
    MoveRequest,
    QueueJobRequest,
)
from server_adapter.batch.sockets import Address, connect_privileged
from server_adapter.dis import Attribute, DisError
from server_adapter.emulator import lifecycle
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.jobs import Job, JobState
from server_adapter.emulator.openpbs import runs, status_attributes
from server_adapter.emulator.openpbs.state import PbsCluster
from server_adapter.emulator.principal import Principal, demand_owner
from server_adapter.openpbs.codes import OpenPBSErrorCode
from server_adapter.openpbs.packets import Packet, PacketSplitter, encode_packet
from server_adapter.openpbs.replies import decode_reply

_PIECE: Final = 65_536
_PATIENCE: Final = 60.0
_ORDER: Final = (
    *("Job_Name", "Job_Owner", "Account_Name", "Checkpoint", "ctime", "depend", "Error_Path"),
    *("Execution_Time", "group_list", "Hold_Types", "Join_Path", "Keep_Files", "Mail_Points", "Mail_Users"),
    *("mtime", "Output_Path", "Priority", "Rerunable", "Resource_List", "Shell_Path_List", "sandbox"),
    *("stagein", "stageout", "User_List", "Variable_List", "hop_count", "comment", "eligible_time"),
    *("umask", "block", "Submit_arguments", "executable", "argument_list", "project", "Submit_Host"),
)
"""What goes with a job, in this order."""
_RANK: Final = {name: rank for rank, name in enumerate(_ORDER)}
_ELEMENT: Final = re.compile(r"<jsdl-hpcpa:Executable>(.*?)</jsdl-hpcpa:Executable>")


def elsewhere(destination: str) -> Address | None:
    """Return the server in a destination ``QUEUE@HOST:PORT``; None for a queue of this server."""
    host, colon, port = destination.partition("@")[2].rpartition(":")
    return Address(host, int(port)) if colon and port.isdecimal() else None


class Mover:
    """Moves jobs away. ``privileged``: from a port below 1024, as a server does."""

    def __init__(self, cluster: PbsCluster, *, privileged: bool) -> None:
        self._cluster = cluster
        self._privileged = privileged
        self._over: dict[str, asyncio.Event] = {}

    async def move(self, request: MoveRequest, to: Address, who: Principal) -> None:
        """Raises refusals 15001, 15004 (of an array), 15007, 15016, and 15039 where the job is not taken."""
        cluster = self._cluster
        job = cluster.job(request.job)
        demand_owner(who, job)
        runs.demand_idle(job)
        if job.array is not None:
            raise RefusalError(OpenPBSErrorCode.IVALREQ, "Invalid request")
        queued = QueueJobRequest(
            job=job.id, destination=request.destination, attributes=tuple(_attributes(cluster, job))
        )
        over = self._over[job.id] = asyncio.Event()
        job.state = JobState.TRANSIT
        job.touch(cluster.now)
        try:
            taken = await self._send(to, queued, _script(job))
        finally:
            job.state = JobState.QUEUED
            del self._over[job.id]
            over.set()
        if not taken:
            job.touch(cluster.now)
            lifecycle.settle(cluster, job)
            raise RefusalError(OpenPBSErrorCode.ROUTEREJ, "Job rejected by all possible destinations")
        job.moved = request.destination.rpartition(":")[0]
        job.attributes["comment"] = f'Job has been moved to "{job.moved}"'
        lifecycle.complete(cluster, job)

    async def arrived(self, job: str) -> None:
        """Waits for the end of the job's move, where it is on one."""
        over = self._over.get(job)
        if over is not None:
            await over.wait()

    async def _send(self, to: Address, queued: QueueJobRequest, script: bytes) -> bool:
        pieces = [script[first : first + _PIECE] for first in range(0, len(script), _PIECE)]
        requests: list[BatchRequest] = [
            queued,
            *(
                JobScriptRequest(sequence=number, size=len(data), job="", data=data)
                for number, data in enumerate(pieces)
            ),
            JobRequest(code=RequestCode.COMMIT, job=queued.job),
        ]
        try:
            reader, writer = await self._connect(to)
        except OSError:
            return False
        splitter = PacketSplitter()
        try:
            async with asyncio.timeout(_PATIENCE):
                for request in requests:
                    writer.write(encode_packet(encode_request(request, user="root")))
                    found: list[Packet] = []
                    while not found:
                        chunk = await reader.read(_PIECE)
                        if not chunk:
                            return False
                        found = splitter.feed(chunk)
                    if decode_reply(found[0].body).code:
                        return False
                writer.write(encode_packet(encode_request(DisconnectRequest(), user="root")))
                await writer.drain()
        except (OSError, TimeoutError, DisError):
            return False
        finally:
            writer.close()
        return True

    async def _connect(self, to: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._privileged:
            return await asyncio.open_connection(sock=await connect_privileged(to))
        return await asyncio.open_connection(to.host, to.port)


def _script(job: Job) -> bytes:
    return b"" if "executable" in job.order.extra else job.order.script.encode()


def _attributes(cluster: PbsCluster, job: Job) -> Iterator[Attribute]:
    """Yield the sent attributes: requested resources, and those derived from ``nodes``."""
    asked = set(job.order.resources)
    if "nodes" in asked:
        asked |= {"ncpus", "place"}
    found = [
        entry
        for entry in status_attributes.job_attributes(cluster, job)
        if entry.name in _RANK and (entry.name != "Resource_List" or entry.resource in asked)
    ]
    found.append(Attribute("eligible_time", "00:00:00"))
    for entry in sorted(found, key=lambda one: _RANK[one.name]):
        if entry.name == "executable":
            yield Attribute(entry.name, _ELEMENT.sub(r"\1", entry.value))
        else:
            yield entry
