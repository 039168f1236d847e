"""One connection to an OpenPBS server: one request at a time, timeouts, typed errors."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator
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
from server_adapter.dis import DEFAULT_LIMITS, DisError, DisLimitError, Limits
from server_adapter.openpbs.codes import UNANSWERED, OpenPBSErrorCode, RequestCode, refusal_error
from server_adapter.openpbs.credentials import OpenPBSCredential
from server_adapter.openpbs.frames import encode_request
from server_adapter.openpbs.packets import PacketSplitter, encode_packet
from server_adapter.openpbs.replies import Reply, answers, decode_reply
from server_adapter.openpbs.requests import DisconnectRequest, SelectStatusRequest, StatusRequest
from server_adapter.openpbs.status import OpenPBSStatusDecoder

_CHUNK = 64 * 1024
_GOODBYE = 1.0
DEFAULT_TIMEOUT = 30.0

Out = TypeVar("Out")


class _ReplyTurn:
    """Place of a request in the order of replies; `over` is set when its reply was read, or will not come."""

    def __init__(self, request: BatchRequest, before: "_ReplyTurn | None") -> None:
        self.request = request
        self.before = before
        self.over = asyncio.Event()


class OpenPBSConnection:
    """An open connection. After any error but a refusal it is closed: open another one.

    Requests may be pipelined: the server answers them in the order in which they were written.

    `timeout` is in seconds, for one request and its whole reply. `permitted` restricts the requests that may
    leave (shadow mode passes `READ_ONLY`); None permits all.
    """

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
        self.user = user
        self._reader = reader
        self._writer = writer
        self._timeout = timeout
        self._permitted = None if permitted is None else frozenset(permitted)
        self._limits = limits
        self._writing = asyncio.Lock()
        self._last: _ReplyTurn | None = None
        self._splitter = PacketSplitter(limits)
        self._packets: list[bytes] = []
        self._received = 0
        self._broken: str | None = None

    @property
    def usable(self) -> bool:
        """Whether the next request has a chance."""
        return self._broken is None and not self._writer.is_closing() and not self._reader.at_eof()

    async def request(self, request: BatchRequest) -> Reply:
        """Sends a request and returns the reply; a success at once where none is ever sent (23 and 96).

        Raises `ServerRefusedError` (the connection stays usable), `RequestForbiddenError`,
        `StaleConnectionError`, `ServerUnreachableError`, `ProtocolError`.
        """
        if request.code in UNANSWERED:
            await self._send(request)
            return Reply()
        return await (await self.begin(request))

    async def begin(self, request: BatchRequest) -> Awaitable[Reply]:
        """Sends a request; what it returns must be awaited for the reply. Until then others may be sent.

        Raises as `request` does, as does what it returns.
        """
        return self._reply_to(await self._send(request))

    async def _reply_to(self, turn: _ReplyTurn) -> Reply:
        reply = await self._receive(turn, self._read_reply)
        if reply.code:
            raise self._refusal(reply, turn.request)
        if not answers(turn.request.code, reply.payload):
            raise self._nonsense(turn.request)
        return reply

    async def describe(
        self, request: StatusRequest | SelectStatusRequest, wanted: Collection[str] | None = None
    ) -> list[DescribedObject]:
        """Sends a status or select-status request and returns the objects, with their `wanted` attributes.

        Decodes part by part, and lets others run in between. Raises as `request` does.
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
            raise self._refusal(reply, request) if reply.code else self._nonsense(request)
        return objects

    async def send(self, body: bytes) -> None:
        """Sends a packet that nobody answers: the end of a cycle. Raises `ServerUnreachableError`."""
        try:
            async with asyncio.timeout(self._timeout):
                self._writer.write(encode_packet(body))
                await self._writer.drain()
        except (OSError, TimeoutError) as error:
            self._break("it could not be written to")
            raise ServerUnreachableError(f"the connection to pbs_server broke: {error!r}") from error

    async def receive(self) -> bytes:
        """The next packet that the server sends by itself, whenever that is.

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

    def peer_owner(self) -> int | None:
        """The user id of the server's process, where it is on this host. Known once anything was answered."""
        own, peer = (self._writer.get_extra_info(name) for name in ("sockname", "peername"))
        return peer_owner_id(own[:2], peer[:2])

    async def close(self) -> None:
        """Says goodbye and closes; never raises for a peer that is gone already."""
        if self.usable:
            with contextlib.suppress(OSError):
                self._writer.write(encode_packet(encode_request(DisconnectRequest(), user=self.user)))
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

    async def _send(self, request: BatchRequest) -> _ReplyTurn:
        """Writes a request behind those that were written before."""
        if self._permitted is not None and request.code not in self._permitted:
            raise RequestForbiddenError(f"this mode does not permit to {describe_request(request)}")
        raw = encode_packet(encode_request(request, user=self.user))
        async with self._writing:
            self._check_usable()
            before = self._last
            if before is None or before.over.is_set():
                before = None
                if self._packets or self._splitter.pending:
                    self._break("the server sent bytes that nobody asked for")
                    raise ProtocolError("bytes from pbs_server that belong to no request")
            turn = _ReplyTurn(request, before)
            with self._ended_by_errors(turn):
                async with asyncio.timeout(self._timeout):
                    self._writer.write(raw)
                    await self._writer.drain()
            if request.code not in UNANSWERED:
                self._last = turn
        return turn

    async def _receive(self, turn: _ReplyTurn, read: Callable[[], Awaitable[Out]]) -> Out:
        """Reads the reply to a request, once those to the requests before it were read."""
        with self._ended_by_errors(turn):
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

    def _check_usable(self) -> None:
        if self._broken is not None:
            raise ServerUnreachableError(f"the connection to pbs_server cannot be used: {self._broken}")

    @contextlib.contextmanager
    def _ended_by_errors(self, turn: _ReplyTurn) -> Iterator[None]:
        """Makes typed errors of what goes wrong. Afterwards nobody knows which reply would be whose."""
        try:
            yield
        except ServerUnreachableError:
            raise
        except TimeoutError as error:
            self._break("a reply did not come in time")
            raise ServerUnreachableError(
                f"pbs_server gave no answer within {self._timeout:g} s to: {describe_request(turn.request)}"
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

    async def _packet(self) -> bytes:
        while not self._packets:
            chunk = await self._reader.read(_CHUNK)
            if not chunk:
                raise EOFError("closed by the server")
            self._received += len(chunk)
            if self._received > self._limits.message_bytes:
                raise DisLimitError("a reply without end", self._received)
            self._packets += [packet.body for packet in self._splitter.feed(chunk)]
        return self._packets.pop(0)

    async def _read_reply(self) -> Reply:
        reply = decode_reply(await self._packet())
        while reply.more:
            reply = decode_reply(await self._packet())
        return reply

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
    credential: OpenPBSCredential,
    *,
    user: str = "root",
    timeout: float = DEFAULT_TIMEOUT,
    permitted: Collection[RequestCode] | None = None,
) -> OpenPBSConnection:
    """Connects and proves that the server trusts us.

    Raises `ServerUnreachableError` (try again later), `RightsError` (somebody must act), `ProtocolError`.
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
        where = f"pbs_server at {address.host}:{address.port}"
        if error.code in (OpenPBSErrorCode.BADCRED, OpenPBSErrorCode.PERM, OpenPBSErrorCode.BADHOST):
            raise RightsError(f"{where} does not trust {user} here: {error}") from error
        raise ServerUnreachableError(f"{where} serves nobody yet: {error}") from error
    except BaseException:
        await connection.close()
        raise
    return connection
