"""One connection to a pbs_server: one request at a time, timeouts, typed errors (protocol document, 3)."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Collection
from typing import Self, TypeVar

from server_adapter.batch.errors import (
    BatchError,
    ProtocolError,
    RequestForbiddenError,
    RightsError,
    ServerRefusedError,
    ServerUnreachableError,
    StaleConnectionError,
)
from server_adapter.batch.peer_owner import peer_owner_id
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.sockets import Address
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.dis import (
    DEFAULT_LIMITS,
    Attribute,
    Decoder,
    DisError,
    DisIncompleteError,
    DisLimitError,
    Limits,
)
from server_adapter.torque.codes import RequestCode
from server_adapter.torque.credentials import TorqueCredential
from server_adapter.torque.errors import TorqueErrorCode, refusal_error
from server_adapter.torque.frames import encode_request
from server_adapter.torque.replies import Reply, answers, decode_reply
from server_adapter.torque.requests import DisconnectRequest, SelectInRequest, SelectRequest, StatusRequest
from server_adapter.torque.status import TorqueStatusDecoder

_CHUNK = 64 * 1024
_GOODBYE = 1.0
_PROBE = StatusRequest(code=RequestCode.STATUS_SERVER, attributes=(Attribute("server_state"),))
DEFAULT_TIMEOUT = 30.0

Out = TypeVar("Out")


class TorqueConnection:
    """An open connection. After any error but a refusal it is closed: open another one.

    `timeout` is in seconds, for one request and its whole reply. `permitted` restricts the requests that may
    leave (shadow mode passes `READ_ONLY`); None permits all.
    """

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
        self.user = user
        self.version = version
        self._reader = reader
        self._writer = writer
        self._timeout = timeout
        self._permitted = None if permitted is None else frozenset(permitted)
        self._limits = limits
        self._turn = asyncio.Lock()
        self._stray = b""
        self._received = 0
        self._broken: str | None = None

    @property
    def usable(self) -> bool:
        """Whether the next request has a chance."""
        return self._broken is None and not self._writer.is_closing()

    async def request(self, request: BatchRequest) -> Reply:
        """Sends a request and returns the reply.

        Raises `ServerRefusedError` (the connection stays usable), `RequestForbiddenError`,
        `StaleConnectionError`, `ServerUnreachableError`, `ProtocolError`.
        """
        reply = await self._exchange(request, self._read_reply)
        if reply.code:
            raise self._refusal(reply, request)
        if not answers(request.code, reply.payload):
            raise self._nonsense(request)
        return reply

    async def describe(
        self, request: StatusRequest | SelectRequest | SelectInRequest, wanted: Collection[str] | None = None
    ) -> list[DescribedObject]:
        """Sends a status or select-status request and returns the objects, with their `wanted` attributes.

        Decodes while the reply arrives, in slices of a few milliseconds. Raises as `request` does.
        """
        names = wanted
        if names is None and isinstance(request, StatusRequest) and request.attributes:
            names = {entry.name for entry in request.attributes}

        async def read() -> tuple[Reply | None, list[DescribedObject]]:
            return await self._read_objects(TorqueStatusDecoder(names, self._limits))

        reply, objects = await self._exchange(request, read)
        if reply is not None:
            raise self._refusal(reply, request) if reply.code else self._nonsense(request)
        return objects

    def peer_owner(self) -> int | None:
        """The user id of the server's process, where it is on this host. Known once anything was answered."""
        own, peer = (self._writer.get_extra_info(name) for name in ("sockname", "peername"))
        return peer_owner_id(own[:2], peer[:2])

    async def close(self) -> None:
        """Says goodbye and closes; never raises for a peer that is gone already."""
        if self.usable:
            with contextlib.suppress(OSError):
                self._writer.write(encode_request(DisconnectRequest(), user=self.user, version=self.version))
        self._broken = self._broken or "it was closed"
        self._writer.close()
        try:
            async with asyncio.timeout(_GOODBYE):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()  # nobody reads at the other end

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _exchange(self, request: BatchRequest, read: Callable[[], Awaitable[Out]]) -> Out:
        if self._permitted is not None and request.code not in self._permitted:
            raise RequestForbiddenError(f"this mode does not permit to {describe_request(request)}")
        raw = encode_request(request, user=self.user, version=self.version)
        async with self._turn:
            if self._broken is not None:
                raise ServerUnreachableError(f"the connection to pbs_server cannot be used: {self._broken}")
            if self._stray:
                self._break("the server sent bytes that nobody asked for")
                raise ProtocolError("bytes from pbs_server that belong to no request")
            self._received = 0
            try:
                async with asyncio.timeout(self._timeout):
                    self._writer.write(raw)
                    await self._writer.drain()
                    return await read()
            except TimeoutError as error:
                self._break("a reply did not come in time")
                raise ServerUnreachableError(
                    f"pbs_server gave no answer within {self._timeout:g} s to: {describe_request(request)}"
                ) from error
            except (OSError, EOFError) as error:
                self._break("the server closed it")
                raise ServerUnreachableError(f"the connection to pbs_server broke: {error}") from error
            except DisError as error:
                self._break("the server sent bytes that are no reply")
                raise ProtocolError(f"no batch reply: {error}") from error
            except BaseException:
                self._break("a request was abandoned")
                raise

    async def _more(self) -> bytes:
        chunk = await self._reader.read(_CHUNK)
        if not chunk:
            raise EOFError("closed by the server in the middle of an exchange")
        self._received += len(chunk)
        if self._received > self._limits.message_bytes:
            raise DisLimitError("a reply without end", self._received)
        return chunk

    async def _read_reply(self) -> Reply:
        buffer, needed = b"", 1
        while True:
            buffer += await self._more()
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
            objects += decoder.feed(await self._more())
            await asyncio.sleep(0)  # a full buffer is read without waiting: let others run
        self._stray = decoder.rest
        return decoder.reply, objects

    def _refusal(self, reply: Reply, request: BatchRequest) -> BatchError:
        """The error for this refusal. One of the connection itself makes it unusable."""
        error = refusal_error(reply.code, reply.text, describe_request(request))
        if isinstance(error, StaleConnectionError):
            self._break(f"the server refused it: code {reply.code}")
        return error

    def _nonsense(self, request: BatchRequest) -> ProtocolError:
        """The error for a reply of a kind that this request cannot have: whose reply it is nobody knows."""
        self._break("a reply was of the wrong kind")
        return ProtocolError(f"a reply of the wrong kind to: {describe_request(request)}")

    def abort(self, reason: str) -> None:
        """Cuts the connection: nothing that comes over it is believed any more."""
        self._break(reason)

    def _break(self, reason: str) -> None:
        self._broken = self._broken or reason
        self._writer.transport.abort()


def describe_request(request: BatchRequest) -> str:
    """A request in a few words, for messages: `RUN_JOB 7.server`."""
    subject = getattr(request, "job", None) or getattr(request, "name", None)
    return f"{request.code.name} {subject}" if subject else request.code.name


async def open_connection(
    address: Address,
    credential: TorqueCredential,
    *,
    user: str = "root",
    version: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    permitted: Collection[RequestCode] | None = None,
) -> TorqueConnection:
    """Connects, proves that the server trusts us, and finds the protocol version (2, then 1) unless given.

    Raises `ServerUnreachableError` (try again later), `RightsError` (somebody must act), `ProtocolError`.
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
            where = f"pbs_server at {address.host}:{address.port}"
            if error.code in (TorqueErrorCode.BADCRED, TorqueErrorCode.PERM, TorqueErrorCode.BADHOST):
                raise RightsError(f"{where} does not trust {user} here: {error}") from error
            raise ServerUnreachableError(f"{where} serves nobody yet: {error}") from error
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
    """A connection over a socket that is connected and trusted already."""
    reader, writer = await asyncio.open_connection(sock=connected)
    return TorqueConnection(reader, writer, user=user, version=version, timeout=timeout, permitted=permitted)


async def _within(limit: float, connecting: Awaitable[socket.socket]) -> socket.socket:
    try:
        async with asyncio.timeout(limit):
            return await connecting
    except TimeoutError as error:
        raise ServerUnreachableError(f"pbs_server took no connection within {limit:g} s") from error
