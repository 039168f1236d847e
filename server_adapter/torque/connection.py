"""Connection to a TORQUE server: one request at a time, timeouts, typed errors (protocol document, 3)."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

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
from server_adapter.batch.requests import DisconnectRequest, SelectRequest, SelectStatusRequest, StatusRequest
from server_adapter.batch.sockets import Address
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.dis import (
    DEFAULT_LIMITS,
    Attribute,
    Decoder,
    DisIncompleteError,
    Limits,
)
from server_adapter.torque.credentials import TorqueCredential
from server_adapter.torque.errors import TorqueErrorCode, refusal_error
from server_adapter.torque.replies import answers, decode_reply
from server_adapter.torque.status import TorqueStatusDecoder

_PROBE = StatusRequest(code=RequestCode.STATUS_SERVER, attributes=(Attribute("server_state"),))
_DISTRUST = (TorqueErrorCode.BADCRED, TorqueErrorCode.PERM, TorqueErrorCode.BADHOST)

Out = TypeVar("Out")


class TorqueConnection(BatchConnection):
    """A connection that carries one request at a time. See `BatchConnection`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        user: str = "root",
        version: int = 2,
        timeout: float = DEFAULT_TIMEOUT,
        permitted: Collection[RequestCode] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(reader, writer, user=user, timeout=timeout, permitted=permitted, limits=limits)
        self.version = version
        self._turn = asyncio.Lock()
        self._stray = b""

    async def request(self, request: BatchRequest) -> Reply:
        """Send a request and return the reply.

        Raises `ServerRefusedError` (the connection stays usable), `RequestForbiddenError`,
        `StaleConnectionError`, `ServerUnreachableError`, `ProtocolError`.
        """
        reply = await self._exchange(request, self._read_reply)
        if reply.code:
            raise self._refusal(reply, request)
        if not answers(request.code, reply.payload):
            raise self._mismatch(request)
        return reply

    async def describe(
        self,
        request: StatusRequest | SelectRequest | SelectStatusRequest,
        wanted: Collection[str] | None = None,
    ) -> list[DescribedObject]:
        """Send a status or select-status request; return the objects with their `wanted` attributes.

        Decodes while the reply arrives, in slices of a few milliseconds. Raises as `request` does.
        """
        names = wanted
        if names is None and isinstance(request, StatusRequest) and request.attributes:
            names = {entry.name for entry in request.attributes}

        async def read() -> tuple[Reply | None, list[DescribedObject]]:
            return await self._read_objects(TorqueStatusDecoder(names, self._limits))

        reply, objects = await self._exchange(request, read)
        if reply is not None:
            raise self._refusal(reply, request) if reply.code else self._mismatch(request)
        return objects

    def _refusal_error(self, code: int, text: str, action: str) -> ServerRefusedError | StaleConnectionError:
        return refusal_error(code, text, action)

    def _disconnect_bytes(self) -> bytes:
        return encode_request(DisconnectRequest(), user=self.user, version=self.version)

    async def _exchange(self, request: BatchRequest, read: Callable[[], Awaitable[Out]]) -> Out:
        self._check_permitted(request)
        raw = encode_request(request, user=self.user, version=self.version)
        async with self._turn:
            self._check_usable()
            if self._stray:
                raise self._unexpected_bytes()
            self._received = 0
            with self._broken_by_errors(request):
                async with asyncio.timeout(self._timeout):
                    self._writer.write(raw)
                    await self._writer.drain()
                    return await read()

    async def _read_reply(self) -> Reply:
        buffer, needed = b"", 1
        while True:
            buffer += await self._read_chunk()
            if len(buffer) < needed:
                continue
            decoder = Decoder(buffer, 0, self._limits)
            try:
                reply = decode_reply(decoder)
            except DisIncompleteError as error:
                needed = error.needed
                continue
            self._stray = buffer[decoder.position :]
            return reply

    async def _read_objects(self, decoder: TorqueStatusDecoder) -> tuple[Reply | None, list[DescribedObject]]:
        objects: list[DescribedObject] = []
        while not decoder.done:
            objects += decoder.feed(await self._read_chunk())
            await asyncio.sleep(0)  # a full buffer is read without waiting, so other tasks need a turn here
        self._stray = decoder.rest
        return decoder.reply, objects


async def open_connection(
    address: Address,
    credential: TorqueCredential,
    *,
    user: str = "root",
    version: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    permitted: Collection[RequestCode] | None = None,
) -> TorqueConnection:
    """Connect, check that the server trusts this client, and find the protocol version (2, then 1) unless
    given.

    Raises `ServerUnreachableError` (try again later), `RightsError` (an administrator must act),
    `ProtocolError`.
    """
    for candidate in (2, 1) if version is None else (version,):
        connection = await adopt(
            await _within(timeout, credential.connect(address, user, candidate)),
            user=user,
            version=candidate,
            timeout=timeout,
            permitted=permitted,
        )
        try:
            await connection.describe(_PROBE)
        except (ServerRefusedError, StaleConnectionError) as error:
            await connection.close()
            if error.code == TorqueErrorCode.DISPROTO:
                if version is None:
                    continue
                raise  # waiting does not help: it does not speak this version
            raise probe_error(address, user, error, _DISTRUST) from error
        except BaseException:
            await connection.close()
            raise
        return connection
    raise ProtocolError("the server speaks neither version 2 nor version 1 of the batch protocol")


async def adopt(
    connected: socket.socket,
    *,
    user: str = "root",
    version: int = 2,
    timeout: float = DEFAULT_TIMEOUT,
    permitted: Collection[RequestCode] | None = None,
) -> TorqueConnection:
    """Return a connection over a socket that is connected and trusted already."""
    reader, writer = await asyncio.open_connection(sock=connected)
    return TorqueConnection(reader, writer, user=user, version=version, timeout=timeout, permitted=permitted)


async def _within(limit: float, connecting: Awaitable[socket.socket]) -> socket.socket:
    try:
        async with asyncio.timeout(limit):
            return await connecting
    except TimeoutError as error:
        raise ServerUnreachableError(f"pbs_server took no connection within {limit:g} s") from error
