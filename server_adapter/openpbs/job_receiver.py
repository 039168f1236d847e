"""Receives a job that a pbs_server moves to the adapter, in the role of another pbs_server.

To move a job to ``NAME@HOST:PORT``, the server puts it in transit, so that it cannot be altered. A process of
the server connects from a privileged port and sends QueueJob with the job's id, the script in several
requests, and the commit, without Connect or authentication. After an acknowledged commit the job is gone from
the server; after any other outcome it stays there unchanged. NAME is random for each move and known only to
the server: other names are refused.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import TakenError
from server_adapter.batch.frames import UnknownRequestError
from server_adapter.batch.replies import JobId, Reply, ReplyChoice, Text
from server_adapter.batch.requests import JobScriptRequest, QueueJobRequest
from server_adapter.batch.sockets import peer_address
from server_adapter.batch.supervision import TaskSet
from server_adapter.dis import Attribute, DisError
from server_adapter.openpbs.codes import OpenPBSErrorCode
from server_adapter.openpbs.frames import decode_request
from server_adapter.openpbs.packets import PacketSplitter, encode_packet
from server_adapter.openpbs.replies import encode_reply

_log = logging.getLogger(__name__)
_CHUNK: Final = 65_536


@dataclass(frozen=True, slots=True)
class MovedJob:
    """A moved job: its id on the sending server, its attributes (of the Resource_List only requested
    resources), and its script, empty for a job with an executable.
    """

    job: str
    attributes: tuple[Attribute, ...]
    script: bytes


ReceiveJob = Callable[[MovedJob], Awaitable[None]]  # takes a job, or raises: then the server keeps it


class ExpectedJob:
    """A job that was asked for. ``destination`` is where the server is to move it; ``came`` whether it did,
    ``error`` what `ReceiveJob` raised.
    """

    def __init__(self, job: str, destination: str, receive: ReceiveJob) -> None:
        self.job = job
        self.destination = destination
        self.came = False
        self.error: BaseException | None = None
        self._receive = receive

    async def deliver(self, moved: MovedJob) -> bool:
        self.came = True
        try:
            await self._receive(moved)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.error = error
            return False
        self.error = None
        return True


class Receiver:
    """Listens on ``host`` and ``port`` (0: any free port) from the first expected job on.

    Unless ``any_port``, the source port must be below 1024, as between servers. ``timeout`` is in seconds,
    for the next request of a connected server. ``most`` is the maximum size of a script in bytes; one more
    byte is kept of a longer script.
    """

    def __init__(
        self, host: str, port: int, *, any_port: bool = False, timeout: float = 10.0, most: int
    ) -> None:
        self._host, self._port = host, port
        self._any_port = any_port
        self._timeout = timeout
        self._most = most
        self._server: asyncio.Server | None = None
        self._expected: dict[str, ExpectedJob] = {}
        self._talks = TaskSet("a moved job")

    @asynccontextmanager
    async def expect(self, job: str, receive: ReceiveJob) -> AsyncIterator[ExpectedJob]:
        """While this is open, ``job`` may come. Leaving it waits for a job that is being taken.

        Raises `TakenError` where the port cannot be had.
        """
        port = await self._listen()
        name = f"federation-{secrets.token_hex(8)}"
        expected = self._expected[name] = ExpectedJob(job, f"{name}@{self._host}:{port}", receive)
        try:
            yield expected
        finally:
            del self._expected[name]
            if self._talks:
                await asyncio.wait(tuple(self._talks), timeout=self._timeout)

    async def close(self) -> None:
        """Stops listening."""
        if self._server is None:
            return
        self._server.close()
        await self._talks.close()
        self._server = None

    async def _listen(self) -> int:
        if self._server is None:
            try:
                self._server = await asyncio.start_server(self._welcome, self._host, self._port)
            except OSError as error:
                raise TakenError(
                    f"jobs cannot be received at {self._host}:{self._port} ({error.strerror}): "
                    "set drain.host and drain.port"
                ) from error
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = peer_address(writer)
        if peer is None or not (self._any_port or peer.port < 1024):
            if peer is not None:
                _log.warning("a job from %s port %s was not believed", peer.host, peer.port)
            writer.close()
            return
        self._talks.spawn(self._talk(reader, writer))

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._listen_to(reader, writer)
        except (TimeoutError, OSError, DisError, UnknownRequestError) as error:
            _log.warning("a job that was moved here was broken off: %r", error)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _listen_to(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter = PacketSplitter()
        pending = _IncomingJob(self._expected, self._most)
        while True:
            async with asyncio.timeout(self._timeout):
                chunk = await reader.read(_CHUNK)
            if not chunk:
                return
            for packet in splitter.feed(chunk):
                reply = await pending.answer(packet.body)
                if reply is None:
                    return
                writer.write(encode_packet(encode_reply(reply)))
                await writer.drain()


class _IncomingJob:
    """State of one connection: the job received up to now."""

    def __init__(self, expected: dict[str, ExpectedJob], most: int) -> None:
        self._known = expected
        self._most = most
        self._expected: ExpectedJob | None = None
        self._attributes: tuple[Attribute, ...] = ()
        self._script = bytearray()

    async def answer(self, body: bytes) -> Reply | None:
        request = decode_request(body).request
        if request.code is RequestCode.DISCONNECT:
            return None
        if isinstance(request, QueueJobRequest):
            found = self._known.get(request.destination.partition("@")[0])
            if found is None or found.job != request.job:
                return _refusal(OpenPBSErrorCode.UNKQUE, "Unknown queue")
            self._expected, self._attributes = found, request.attributes
            self._script.clear()
            return Reply(payload=JobId(ReplyChoice.QUEUED, request.job))
        if self._expected is None:
            return _refusal(OpenPBSErrorCode.IVALREQ, "Invalid request")
        if isinstance(request, JobScriptRequest):
            self._script += request.data[: self._most + 1 - len(self._script)]
            return Reply()
        if request.code is not RequestCode.COMMIT:
            return _refusal(OpenPBSErrorCode.UNKREQ, "Unknown request")
        moved = MovedJob(self._expected.job, self._attributes, bytes(self._script))
        if await self._expected.deliver(moved):
            return Reply(payload=JobId(ReplyChoice.COMMITTED, moved.job))
        return _refusal(OpenPBSErrorCode.PERM, str(self._expected.error)[:300])


def _refusal(code: OpenPBSErrorCode, text: str) -> Reply:
    return Reply(code, 0, Text(text))
