"""Server side of OpenPBS's wire over real sockets, scripted by a test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.replies import Reply, Status, Text
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.dis import encode_integer, encode_string
from server_adapter.openpbs.codes import STATUS, UNANSWERED, OpenPBSCommand, OpenPBSErrorCode
from server_adapter.openpbs.frames import decode_request
from server_adapter.openpbs.packets import PacketSplitter, encode_packet
from server_adapter.openpbs.replies import encode_reply
from server_adapter.openpbs.requests import RegisterSchedulerRequest

OK = Reply()


def refusal(code: int, text: str = "") -> Reply:
    return Reply(code, 0, Text(text))


@dataclass
class Peer:
    """Answers requests: registration as the real server does (first primary, then the one for commands), the
    others by `answer`, which may return several parts, or none for a request that is not answered.
    """

    answer: Callable[[BatchRequest], list[Reply]] = lambda _: [OK]
    taken: bool = False
    refuses: int = 0
    seen: list[BatchRequest] = field(default_factory=list)
    ends: list[bytes] = field(default_factory=list)
    registered: list[asyncio.StreamWriter] = field(default_factory=list)
    port: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator["Peer"]:
        server = await asyncio.start_server(self._talk, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.hang_up()
            await server.wait_closed()

    def hang_up(self) -> None:
        """As a server that is stopped."""
        for writer in list(self.writers):
            writer.transport.abort()
        self.registered.clear()

    def command(self, code: OpenPBSCommand, job: str = "") -> None:
        """Sends a command to the registered scheduler."""
        body = encode_integer(code) + (encode_string(job) if job else b"")
        self.registered[1].write(encode_packet(body))

    def _configure(self) -> None:
        if len(self.registered) == 2:  # it may have hung up at once
            self.command(OpenPBSCommand.CONFIGURE)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter = PacketSplitter()
        self.writers.add(writer)
        try:
            while chunk := await reader.read(65536):
                for packet in splitter.feed(chunk):
                    if not packet.body.startswith(b"+2+2"):
                        self.ends.append(packet.body)
                        continue
                    request = decode_request(packet.body).request
                    self.seen.append(request)
                    if request.code == RequestCode.DISCONNECT:
                        return
                    for reply in self._reply(request, writer):
                        writer.write(encode_packet(encode_reply(reply)))
        except OSError:
            pass
        finally:
            if writer in self.registered:
                self.registered.clear()
            self.writers.discard(writer)
            writer.close()

    def _reply(self, request: BatchRequest, writer: asyncio.StreamWriter) -> list[Reply]:
        if isinstance(request, RegisterSchedulerRequest):
            if self.refuses:
                return [refusal(self.refuses)]
            if self.taken or len(self.registered) == 2:
                return [refusal(OpenPBSErrorCode.SCHEDCONNECTED, "Scheduler already connected")]
            self.registered.append(writer)
            if len(self.registered) == 2:
                asyncio.get_running_loop().call_soon(self._configure)
            return [OK]
        if request.code == RequestCode.CONNECT:
            return [OK]
        if request.code in UNANSWERED:
            self.answer(request)
            return []
        # A success has the form that its request wants.
        empty = Reply(payload=Status(()))
        return [empty if reply is OK and request.code in STATUS else reply for reply in self.answer(request)]
