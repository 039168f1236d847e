"""Connection to an OpenPBS server: pipelined requests, timeouts, typed errors."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from schedd.error_text import describe_error
from server_adapter.batch.codes import RequestCode
from server_adapter.batch.connection import DEFAULT_TIMEOUT, BatchConnection, probe_error
from server_adapter.batch.errors import (
    ProtocolError,
    ServerRefusedError,
    ServerUnreachableError,
    StaleConnectionError,
)
from server_adapter.batch.frames import encode_request
from server_adapter.batch.replies import Reply
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.requests import DisconnectRequest, SelectStatusRequest, StatusRequest
from server_adapter.batch.sockets import Address
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.dis import DEFAULT_LIMITS, DisError, Limits
from server_adapter.openpbs.codes import UNANSWERED, OpenPBSErrorCode, refusal_error
from server_adapter.openpbs.credentials import OpenPBSCredential
from server_adapter.openpbs.packets import PacketSplitter, encode_packet
from server_adapter.openpbs.replies import answers, decode_reply
from server_adapter.openpbs.status import OpenPBSStatusDecoder

_DISTRUST = (OpenPBSErrorCode.BADCRED, OpenPBSErrorCode.PERM, OpenPBSErrorCode.BADHOST)

Out = TypeVar("Out")


class _ReplyTurn:
    """Place of a request in the order of replies; `over`: its reply was read or cannot come."""

    def __init__(self, request: BatchRequest, before: "_ReplyTurn | None") -> None:
        self.request = request
        self.before = before
        self.over = asyncio.Event()


class OpenPBSConnection(BatchConnection):
    """A connection with pipelined requests: the server replies in their order. See `BatchConnection`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        user: str = "root",
        timeout: float = DEFAULT_TIMEOUT,
        permitted: Collection[RequestCode] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(reader, writer, user=user, timeout=timeout, permitted=permitted, limits=limits)
        self._writing = asyncio.Lock()
        self._last: _ReplyTurn | None = None
        self._splitter = PacketSplitter(limits)
        self._packets: list[bytes] = []

    async def request(self, request: BatchRequest) -> Reply:
        """Send a request and return the reply; for a request without a reply (23 and 96) an immediate
        success.

        Raises `ServerRefusedError` (the connection stays usable), `RequestForbiddenError`,
        `StaleConnectionError`, `ServerUnreachableError`, `ProtocolError`.
        """
        if request.code in UNANSWERED:
            await self._send(request)
            return Reply()
        return await (await self.begin(request))

    async def begin(self, request: BatchRequest) -> Awaitable[Reply]:
        """Send a request; return an awaitable for its reply. Other requests may be sent before it is awaited.

        Both raise the errors of `request`.
        """
        return self._reply_to(await self._send(request))

    async def _reply_to(self, turn: _ReplyTurn) -> Reply:
        reply = await self._receive(turn, self._read_reply)
        if reply.code:
            raise self._refusal(reply, turn.request)
        if not answers(turn.request.code, reply.payload):
            raise self._mismatch(turn.request)
        return reply

    async def describe(
        self, request: StatusRequest | SelectStatusRequest, wanted: Collection[str] | None = None
    ) -> list[DescribedObject]:
        """Send a status or select-status request; return the objects with their `wanted` attributes.

        Decodes part by part, so that other tasks run in between. Raises as `request` does.
        """
        names = wanted
        if names is None and request.attributes:
            names = {entry.name for entry in request.attributes}

        async def read() -> tuple[Reply | None, list[DescribedObject]]:
            decoder = OpenPBSStatusDecoder(names, self._limits)
            objects: list[DescribedObject] = []
            while not decoder.done:
                objects += decoder.feed(await self._packet())
                await asyncio.sleep(0)
            return decoder.reply, objects

        reply, objects = await self._receive(await self._send(request), read)
        if reply is not None:
            raise self._refusal(reply, request) if reply.code else self._mismatch(request)
        return objects

    async def send(self, body: bytes) -> None:
        """Send a packet without a reply: the end of a cycle. Raises `ServerUnreachableError`."""
        try:
            async with asyncio.timeout(self._timeout):
                self._writer.write(encode_packet(body))
                await self._writer.drain()
        except (OSError, TimeoutError) as error:
            self._break("it could not be written to")
            raise ServerUnreachableError(
                f"the connection to pbs_server broke: {describe_error(error)}"
            ) from error

    async def receive(self) -> bytes:
        """Wait without a timeout for the next packet that the server sends by itself.

        Raises `ServerUnreachableError`, `ProtocolError`.
        """
        try:
            self._received = 0
            return await self._packet()
        except (OSError, EOFError) as error:
            self._break("the server closed it")
            raise ServerUnreachableError(f"the connection to pbs_server broke: {error}") from error
        except DisError as error:
            self._break("the server sent bytes that are no packet")
            raise ProtocolError(f"no packet: {error}") from error

    def _refusal_error(self, code: int, text: str, action: str) -> ServerRefusedError | StaleConnectionError:
        return refusal_error(code, text, action)

    def _disconnect_bytes(self) -> bytes:
        return encode_packet(encode_request(DisconnectRequest(), user=self.user))

    async def _send(self, request: BatchRequest) -> _ReplyTurn:
        """Write a request after all earlier ones."""
        self._check_permitted(request)
        raw = encode_packet(encode_request(request, user=self.user))
        async with self._writing:
            self._check_usable()
            before = self._last
            if before is None or before.over.is_set():
                before = None
                if self._packets or self._splitter.pending:
                    raise self._unexpected_bytes()
            turn = _ReplyTurn(request, before)
            with self._broken_by_errors(turn.request):
                async with asyncio.timeout(self._timeout):
                    self._writer.write(raw)
                    await self._writer.drain()
            if request.code not in UNANSWERED:
                self._last = turn
        return turn

    async def _receive(self, turn: _ReplyTurn, read: Callable[[], Awaitable[Out]]) -> Out:
        """Read the reply to a request, after the replies to all earlier requests."""
        with self._broken_by_errors(turn.request):
            try:
                async with asyncio.timeout(self._timeout):
                    if turn.before is not None:
                        await turn.before.over.wait()
                    self._check_usable()
                    self._received = 0
                    return await read()
            finally:
                turn.before = None
                turn.over.set()

    async def _packet(self) -> bytes:
        while not self._packets:
            chunk = await self._read_chunk()
            self._packets += [packet.body for packet in self._splitter.feed(chunk)]
        return self._packets.pop(0)

    async def _read_reply(self) -> Reply:
        reply = decode_reply(await self._packet())
        while reply.more:
            reply = decode_reply(await self._packet())
        return reply


async def open_connection(
    address: Address,
    credential: OpenPBSCredential,
    *,
    user: str = "root",
    timeout: float = DEFAULT_TIMEOUT,
    permitted: Collection[RequestCode] | None = None,
) -> OpenPBSConnection:
    """Connect, and check that the server trusts this client.

    Raises `ServerUnreachableError` (try again later), `RightsError` (an administrator must act),
    `ProtocolError`.
    """
    try:
        async with asyncio.timeout(timeout):
            connected = await credential.connect(address, user)
    except TimeoutError as error:
        raise ServerUnreachableError(f"pbs_server took no connection within {timeout:g} s") from error
    reader, writer = await asyncio.open_connection(sock=connected, limit=1 << 20)
    connection = OpenPBSConnection(reader, writer, user=user, timeout=timeout, permitted=permitted)
    try:
        await connection.describe(StatusRequest(code=RequestCode.STATUS_SERVER))
    except (ServerRefusedError, StaleConnectionError) as error:
        await connection.close()
        raise probe_error(address, user, error, _DISTRUST) from error
    except BaseException:
        await connection.close()
        raise
    return connection
