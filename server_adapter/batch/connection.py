"""Common part of a connection to a pbs_server: permitted requests, typed errors, end of the connection."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from typing import Final, Self

from server_adapter.batch.codes import RequestCode
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
from server_adapter.batch.replies import Reply
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.sockets import Address
from server_adapter.dis import DEFAULT_LIMITS, DisError, DisLimitError, Limits

CHUNK: Final = 64 * 1024
DEFAULT_TIMEOUT: Final = 30.0
_CLOSE_TIMEOUT_S: Final = 1.0


class BatchConnection(ABC):
    """An open connection. After any error but a refusal it is closed: open another one.

    `timeout` is in seconds, for one request and its whole reply. `permitted` restricts the requests that may
    be sent (shadow mode passes `READ_ONLY`); None permits all.
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
        self._received = 0
        self._broken: str | None = None

    @property
    def usable(self) -> bool:
        """Whether the connection is not known to be closed."""
        return self._broken is None and not self.closed_by_server

    @property
    def closed_by_server(self) -> bool:
        """Whether the server closed the connection, and no error of an exchange was the reason."""
        return self._broken is None and (self._writer.is_closing() or self._reader.at_eof())

    def peer_owner(self) -> int | None:
        """Return the user id of the server's process if it runs on this host, else None.

        It is known after the first reply. Raises `ServerUnreachableError` if the process has gone already.
        """
        own, peer = (self._writer.get_extra_info(name) for name in ("sockname", "peername"))
        if not own or not peer:
            self._break("the server closed it")
            raise ServerUnreachableError("the connection to pbs_server broke: closed by the server")
        return peer_owner_id(own[:2], peer[:2])

    @abstractmethod
    async def request(self, request: BatchRequest) -> Reply:
        """Send a request and return the reply.

        Raises `ServerRefusedError` (the connection stays usable), `RequestForbiddenError`,
        `StaleConnectionError`, `ServerUnreachableError`, `ProtocolError`.
        """

    async def close(self) -> None:
        """Disconnect and close; never raises for a peer that has gone already."""
        if self.usable:
            with contextlib.suppress(OSError):
                self._writer.write(self._disconnect_bytes())
        self._broken = self._broken or "it was closed"
        self._writer.close()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()  # the other end does not read

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def abort(self, reason: str) -> None:
        """Close the connection at once; later bytes are ignored."""
        self._break(reason)

    @abstractmethod
    def _disconnect_bytes(self) -> bytes:
        """Return the bytes of a disconnect request."""

    @abstractmethod
    def _refusal_error(self, code: int, text: str, action: str) -> ServerRefusedError | StaleConnectionError:
        """Return the family's error for an action that was refused with this code and text."""

    def _check_permitted(self, request: BatchRequest) -> None:
        if self._permitted is not None and request.code not in self._permitted:
            raise RequestForbiddenError(f"this mode does not permit to {describe_request(request)}")

    def _check_usable(self) -> None:
        if self._broken is not None:
            raise ServerUnreachableError(f"the connection to pbs_server cannot be used: {self._broken}")

    @contextlib.contextmanager
    def _broken_by_errors(self, request: BatchRequest) -> Iterator[None]:
        """Convert errors of an exchange to typed ones. Each closes the connection, since replies could no
        longer be assigned to requests.
        """
        try:
            yield
        except ServerUnreachableError:
            raise
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

    async def _read_chunk(self) -> bytes:
        chunk = await self._reader.read(CHUNK)
        if not chunk:
            raise EOFError("closed by the server in the middle of an exchange")
        self._received += len(chunk)
        if self._received > self._limits.message_bytes:
            raise DisLimitError("a reply without end", self._received)
        return chunk

    def _unexpected_bytes(self) -> ProtocolError:
        """Close the connection, and return the error for bytes that no request asked for."""
        self._break("the server sent bytes that nobody asked for")
        return ProtocolError("bytes from pbs_server that belong to no request")

    def _refusal(self, reply: Reply, request: BatchRequest) -> BatchError:
        """Return the error for this refusal. A refusal of the connection itself makes it unusable."""
        error = self._refusal_error(reply.code, reply.text, describe_request(request))
        if isinstance(error, StaleConnectionError):
            self._break(f"the server refused it: code {reply.code}")
        return error

    def _mismatch(self, request: BatchRequest) -> ProtocolError:
        """Close the connection, and return the error for a reply that cannot belong to this request."""
        self._break("a reply was of the wrong kind")
        return ProtocolError(f"a reply of the wrong kind to: {describe_request(request)}")

    def _break(self, reason: str) -> None:
        self._broken = self._broken or reason
        self._writer.transport.abort()


def describe_request(request: BatchRequest) -> str:
    """Return a short description of a request for messages: `RUN_JOB 7.server`."""
    subject = getattr(request, "job", None) or getattr(request, "name", None)
    return f"{request.code.name} {subject}" if subject else request.code.name


def probe_error(
    address: Address,
    user: str,
    error: ServerRefusedError | StaleConnectionError,
    distrust: Collection[int],
) -> RightsError | ServerUnreachableError:
    """Return the error for a server that refused the first request.

    `distrust` are the server's codes for missing rights.
    """
    where = f"pbs_server at {address.host}:{address.port}"
    if error.code in distrust:
        return RightsError(f"{where} does not trust {user} here: {error}")
    return ServerUnreachableError(f"{where} serves nobody yet: {error}")
